"""Model directories, weights and sequences (E10xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import UserError
from tilelet.diag.text import did_you_mean, near, optional, plural, shape_text, size_text, ticked


def shown(text: str, limit: int = 80) -> str:
    """A name out of a file, fit for one line of a message: no control characters, not too long."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return plain if len(plain) <= limit else f"{plain[:limit]}..."


def _some(names: Iterable[str], limit: int = 4) -> str:
    """The first few names, and how many more there are."""
    every = sorted(names)
    text = ", ".join(f"`{shown(n)}`" for n in every[:limit])
    return f"{text} and {len(every) - limit} more" if len(every) > limit else text


class NoModelConfig(UserError):
    """A directory given as a model has no `config.json`.

    Tilelet reads models as Hugging Face stores them: a directory with `config.json` and
    `.safetensors` files. Check the path; for a downloaded model it is the innermost directory.
    """

    code = "E1001"

    def __init__(self, directory: str, why: str = "there is no `config.json` in it") -> None:
        super().__init__(
            f"`{directory}` is not a model directory: {why}",
            helps=["give the directory that holds `config.json` and the `.safetensors` files"],
        )


class BadModelConfig(UserError):
    """`config.json` or the weight index is not readable JSON.

    It must be UTF-8 text holding one JSON object, without duplicate keys. A file like this is
    usually damaged: download it again.
    """

    code = "E1002"

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"`{file}` cannot be read: {why}")


class WrongArchitecture(UserError):
    """The model is not a Qwen3 model.

    These programs compute the layers of Qwen3, dense (`model_type` of the configuration is `qwen3`)
    or with a mixture of experts (`qwen3_moe`). Other architectures have other layers.
    """

    code = "E1003"

    def __init__(self, file: str, found: str) -> None:
        super().__init__(
            f"`{file}` describes a `{shown(found)}` model, not `qwen3` or `qwen3_moe`",
            helps=["supported are Qwen3 0.6B to 32B, and Qwen3-MoE 30B-A3B and 235B-A22B"],
        )


class BadModelField(UserError):
    """A field of the model configuration is missing or has a value that makes no sense.

    Sizes are positive integers, the number of heads is a multiple of the number of key/value heads,
    and the head dimension is even, because RoPE rotates halves.
    """

    code = "E1004"

    def __init__(self, field: str, found: object, wanted: str) -> None:
        what = "is missing" if found is None else f"is `{shown(repr(found))}`"
        super().__init__(f"`{field}` of the model configuration {what}; it must be {wanted}")


class UnsupportedModelSetting(UserError):
    """The configuration switches on something that the layer programs do not compute.

    The results would be wrong, so the model is refused: biased attention projections, sliding
    windows, scaled rope tables, quantised weights and other activations than SiLU are not there.
    """

    code = "E1005"

    def __init__(self, field: str, found: object, supported: str) -> None:
        super().__init__(
            f"`{field}` of the model configuration is `{shown(repr(found))}`, "
            "which is not supported",
            helps=[f"supported is {supported}"],
        )


class UnknownPreset(UserError):
    """There is no preset of this name.

    Presets are the published Qwen3 models, by size. Other sizes are read from a `config.json`
    or given field by field.
    """

    code = "E1006"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"there is no Qwen3 preset `{shown(name)}`",
            notes=[f"the presets are {ticked(known, 'and')}"],
            helps=did_you_mean(near(name, known)),
        )


class NoWeights(UserError):
    """A model directory holds no weights in safetensors form.

    Looked for are `model.safetensors` and `model.safetensors.index.json`. Files of pickled tensors
    (`pytorch_model.bin`, `.pt`) are never loaded, because reading them can run code: convert them.
    """

    code = "E1007"

    def __init__(
        self, directory: str, pickled: Sequence[str] = (), shards: Sequence[str] = ()
    ) -> None:
        index = "`model.safetensors.index.json`"
        saved = "save the model with `save_pretrained(directory, safe_serialization=True)`"
        super().__init__(
            f"`{directory}` has no `model.safetensors` and no {index}",
            notes=optional(f"{ticked(pickled, 'and')} cannot be used: pickled" if pickled else ""),
            helps=[f"{index} says what is in `{shards[0]}`: get it, too" if shards else saved],
        )


class BadWeightFile(UserError):
    """A safetensors file is damaged, or was made to look like one.

    The file starts with the length of its header and the header, JSON that gives every tensor a
    dtype, a shape and a place. All of it is checked before any tensor is used: lengths within the
    file, places that neither overlap nor leave gaps, known dtypes, sizes that fit the shapes.
    """

    code = "E1008"

    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"`{shown(file, 200)}` is not a valid safetensors file: {why}",
            helps=["download or save the file again"],
        )


class BadWeightIndex(UserError):
    """The index of a sharded model does not describe its files.

    `model.safetensors.index.json` maps every tensor to the file that holds it. The files must be
    there and hold those tensors.
    """

    code = "E1009"

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"`{file}` does not describe the weights: {why}")


class OutsideModelDirectory(UserError):
    """The index of a sharded model names a file outside the model's directory.

    An index holds plain file names. Paths, and links that lead elsewhere, could make a downloaded
    model read any file of this machine, so they are refused.
    """

    code = "E1010"

    def __init__(self, file: str, target: str) -> None:
        super().__init__(
            f"`{file}` points to `{shown(target)}`, outside the model's directory",
            helps=["put all weight files into the directory itself"],
        )


class MissingTensors(UserError):
    """Tensors that the configuration calls for are not among the weights.

    The download may be incomplete, or `config.json` belongs to another model.
    """

    code = "E1011"

    def __init__(self, names: Sequence[str], present: Iterable[str] = ()) -> None:
        known = list(present)
        close = near(names[0], known) if len(names) == 1 else []
        super().__init__(
            f"the weights lack {plural(len(names), 'tensor')}: {_some(names)}",
            helps=did_you_mean(shown(n) for n in close),
        )


class ExtraTensors(UserError):
    """The weights contain tensors that a Qwen3 model of this configuration does not have.

    Leaving them out would compute something else than the model: a bias, an adapter, more layers
    than the configuration says. `config.json` may belong to another model.
    """

    code = "E1012"

    def __init__(self, names: Sequence[str]) -> None:
        count = plural(len(names), "tensor")
        super().__init__(f"the weights have {count} that Qwen3 does not: {_some(names)}")


class WrongTensorShape(UserError):
    """A tensor of the weights has another shape than the configuration implies.

    Weights are stored `[out, in]`. Queries are `num_attention_heads * head_dim` wide, keys and
    values `num_key_value_heads * head_dim`; neither needs to be `hidden_size`.
    """

    code = "E1013"

    def __init__(self, name: str, found: Sequence[int], wanted: Sequence[int]) -> None:
        super().__init__(
            f"tensor `{shown(name)}` has shape `{shape_text(found)}`, "
            f"the configuration says `{shape_text(wanted)}`"
        )


class WrongTensorDType(UserError):
    """A tensor of the weights has elements that the layer programs do not compute with.

    BF16, F16 and F32 are accepted. Quantised weights need their scales applied first.
    """

    code = "E1014"

    def __init__(self, name: str, found: str, wanted: Sequence[str]) -> None:
        super().__init__(
            f"tensor `{shown(name)}` has dtype `{found}`, accepted are {ticked(wanted, 'and')}"
        )


class NoSuchLayer(UserError):
    """A layer is asked for that the model does not have.

    Layers count from 0 to `num_hidden_layers` - 1.
    """

    code = "E1015"

    def __init__(self, index: object, layers: int) -> None:
        super().__init__(f"there is no layer `{index}`: the model has {plural(layers, 'layer')}")


class WeightsMismatch(UserError):
    """Weights handed to a layer stack do not have the shapes or the dtype of its programs.

    All layers of a stack share one configuration and one dtype. Load them with that configuration,
    and with `dtype=` if the files hold another type than the programs compute with.
    """

    code = "E1016"

    def __init__(self, layer: int, name: str, found: str, wanted: str) -> None:
        super().__init__(f"`{name}` of layer {layer} is `{found}`, the stack needs `{wanted}`")


class BadTile(UserError):
    """A size of a layer program does not fit the model or the other sizes.

    Tiles cut the axes of the model into equal parts, so they must divide them; a tile of the cache
    must lie within a page.
    """

    code = "E1017"

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is {found}; it must be {wanted}")


class BadSequenceLength(UserError):
    """A sequence has no token, or a negative number of them.

    `seq_lens` counts the positions of every sequence, the new ones included, so it is at least 1:
    attention over nothing has no value.
    """

    code = "E1018"

    def __init__(self, sequence: int, length: int) -> None:
        super().__init__(
            f"`seq_lens[{sequence}]` is {length}; it must be at least 1",
            helps=["leave sequences without tokens out of the batch"],
        )


class SequenceTooLong(UserError):
    """A sequence does not fit into the cache, or into the program that reads it.

    Nothing was computed and the caches are as they were. Build the stack with a larger `max_seq`,
    or end the sequence.
    """

    code = "E1019"

    def __init__(self, sequence: int, length: int, limit: int, what: str) -> None:
        super().__init__(
            f"sequence {sequence} would have {plural(length, 'position')}, {what} {limit}"
        )


class WrongStep(UserError):
    """A decode step does not continue what is in the cache.

    A step adds one position to every sequence, so `seq_lens` must be one more than before it; a
    sequence must have been prefilled first.
    """

    code = "E1020"

    def __init__(self, sequence: int, length: int, cached: int) -> None:
        super().__init__(
            f"`seq_lens[{sequence}]` is {length}, but the cache holds "
            f"{plural(cached, 'position')} of the sequence",
            helps=[f"a decode step makes it {cached + 1}" if cached else "prefill the batch first"],
        )


class NoFreePages(UserError):
    """The pool of cache pages is used up.

    Every sequence takes a page per `page` positions. Nothing was computed and the caches are as
    they were. Build the stack with more `pages`.
    """

    code = "E1021"

    def __init__(self, needed: int, free: int, page_bytes: int) -> None:
        super().__init__(
            f"{plural(needed, 'page')} of the cache needed, {free} free",
            notes=[f"a page takes {size_text(page_bytes)} per layer"],
            helps=["build the stack with more `pages`"],
        )


class WrongStackInput(UserError):
    """Hidden states or lengths handed to a layer stack have the wrong shape or dtype.

    Prefill takes hidden states `[batch, tokens, hidden_size]`, a decode step
    `[batch, hidden_size]`, both in the dtype of the stack's programs; `seq_lens` are integers
    `[batch]`.
    """

    code = "E1022"

    def __init__(self, name: str, found: str, wanted: str, help: str = "") -> None:
        super().__init__(f"`{name}` is `{found}`, the stack takes `{wanted}`", helps=optional(help))
