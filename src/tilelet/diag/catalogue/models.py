"""Model directories, weights and sequences (E10xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import UserError
from tilelet.diag.text import (
    did_you_mean,
    near,
    optional,
    plural,
    quoted_names,
    shape_text,
    size_text,
)


def shown_name(text: str, limit: int = 80) -> str:
    """Sanitize and shorten a name from a file so that it fits on one line of a message."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return plain if len(plain) <= limit else f"{plain[:limit]}..."


def _first_names(names: Iterable[str], limit: int = 4) -> str:
    """Join the first few names and count the rest."""
    every = sorted(names)
    text = ", ".join(f"`{shown_name(n)}`" for n in every[:limit])
    return f"{text} and {len(every) - limit} more" if len(every) > limit else text


class NoModelConfig(UserError, code="E1001"):
    """A directory given as a model has no `config.json`."""

    def __init__(self, directory: str, why: str = "there is no `config.json` in it") -> None:
        super().__init__(
            f"`{directory}` is not a model directory: {why}",
            helps=["give the directory that holds `config.json` and the `.safetensors` files"],
        )


class BadModelConfig(UserError, code="E1002"):
    """`config.json` or the weight index is not valid JSON."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"`{file}` cannot be read: {why}")


class WrongArchitecture(UserError, code="E1003"):
    """The model is not a Qwen3 model."""

    def __init__(self, file: str, found: str) -> None:
        super().__init__(
            f"`{file}` describes a `{shown_name(found)}` model, not `qwen3` or `qwen3_moe`",
            helps=["Qwen3 0.6B to 32B and Qwen3-MoE 30B-A3B and 235B-A22B are supported"],
        )


class BadModelField(UserError, code="E1004"):
    """A field of the model configuration is missing or has an invalid value."""

    def __init__(self, field: str, found: object, wanted: str) -> None:
        what = "is missing" if found is None else f"is `{shown_name(repr(found))}`"
        super().__init__(f"`{field}` of the model configuration {what}; it must be {wanted}")


class UnsupportedModelSetting(UserError, code="E1005"):
    """The configuration enables something that the layer programs do not compute."""

    def __init__(self, field: str, found: object, supported: str) -> None:
        super().__init__(
            f"`{field}` of the model configuration is `{shown_name(repr(found))}`, "
            "which is not supported",
            helps=[f"supported: {supported}"],
        )


class UnknownPreset(UserError, code="E1006"):
    """There is no preset of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"there is no Qwen3 preset `{shown_name(name)}`",
            notes=[f"the presets are {quoted_names(known, 'and')}"],
            helps=did_you_mean(near(name, known)),
        )


class NoWeights(UserError, code="E1007"):
    """A model directory contains no safetensors weights."""

    def __init__(
        self, directory: str, pickled: Sequence[str] = (), shards: Sequence[str] = ()
    ) -> None:
        index = "`model.safetensors.index.json`"
        saved = "save the model with `save_pretrained(directory, safe_serialization=True)`"
        super().__init__(
            f"`{directory}` has no `model.safetensors` and no {index}",
            notes=optional(
                f"{quoted_names(pickled, 'and')} cannot be used: pickled" if pickled else ""
            ),
            helps=[f"`{shards[0]}` needs {index}: download it, too" if shards else saved],
        )


class BadWeightFile(UserError, code="E1008"):
    """A safetensors file is damaged or malformed."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"`{shown_name(file, 200)}` is not a valid safetensors file: {why}",
            helps=["download or save the file again"],
        )


class BadWeightIndex(UserError, code="E1009"):
    """The index of a sharded model does not match its files."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"`{file}` does not match the weights: {why}")


class OutsideModelDirectory(UserError, code="E1010"):
    """The index of a sharded model names a file outside the model's directory."""

    def __init__(self, file: str, target: str) -> None:
        super().__init__(
            f"`{file}` points to `{shown_name(target)}`, outside the model's directory",
            helps=["put all weight files into the directory itself"],
        )


class MissingTensors(UserError, code="E1011"):
    """Tensors that the configuration requires are missing from the weights."""

    def __init__(self, names: Sequence[str], present: Iterable[str] = ()) -> None:
        known = list(present)
        close = near(names[0], known) if len(names) == 1 else []
        super().__init__(
            f"the weights lack {plural(len(names), 'tensor')}: {_first_names(names)}",
            helps=did_you_mean(shown_name(n) for n in close),
        )


class ExtraTensors(UserError, code="E1012"):
    """The weights contain tensors that a Qwen3 model of this configuration does not have."""

    def __init__(self, names: Sequence[str]) -> None:
        count = plural(len(names), "tensor")
        super().__init__(f"the weights have {count} that Qwen3 does not: {_first_names(names)}")


class WrongTensorShape(UserError, code="E1013"):
    """A tensor of the weights has a different shape than the configuration implies."""

    def __init__(self, name: str, found: Sequence[int], wanted: Sequence[int]) -> None:
        super().__init__(
            f"tensor `{shown_name(name)}` has shape `{shape_text(found)}`, but the configuration "
            f"implies `{shape_text(wanted)}`"
        )


class WrongTensorDType(UserError, code="E1014"):
    """A tensor of the weights has a dtype that the layer programs do not support."""

    def __init__(self, name: str, found: str, wanted: Sequence[str]) -> None:
        super().__init__(
            f"tensor `{shown_name(name)}` has dtype `{found}`; "
            f"accepted are {quoted_names(wanted, 'and')}"
        )


class NoSuchLayer(UserError, code="E1015"):
    """The model has no layer of this index."""

    def __init__(self, index: object, layers: int) -> None:
        super().__init__(f"there is no layer `{index}`: the model has {plural(layers, 'layer')}")


class WeightsMismatch(UserError, code="E1016"):
    """Weights passed to a layer stack do not have the shapes or the dtype of its programs."""

    def __init__(self, layer: int, name: str, found: str, wanted: str) -> None:
        super().__init__(f"`{name}` of layer {layer} is `{found}`, the stack needs `{wanted}`")


class BadTile(UserError, code="E1017"):
    """A tile size of a layer program does not fit the model or the other sizes."""

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is {found}; it must be {wanted}")


class BadSequenceLength(UserError, code="E1018"):
    """A sequence has no tokens, or a negative number of them."""

    def __init__(self, sequence: int, length: int) -> None:
        super().__init__(
            f"`seq_lens[{sequence}]` is {length}; it must be at least 1",
            helps=["leave empty sequences out of the batch"],
        )


class SequenceTooLong(UserError, code="E1019"):
    """A sequence does not fit into the cache, or into the program that reads it."""

    def __init__(self, sequence: int, length: int, limit: int, what: str) -> None:
        super().__init__(
            f"sequence {sequence} would have {plural(length, 'position')}, {what} {limit}"
        )


class WrongStep(UserError, code="E1020"):
    """A decode step does not continue the cached sequence."""

    def __init__(self, sequence: int, length: int, cached: int) -> None:
        super().__init__(
            f"`seq_lens[{sequence}]` is {length}, but the cache holds "
            f"{plural(cached, 'position')} of the sequence",
            helps=[
                f"the next decode step has length {cached + 1}"
                if cached
                else "prefill the batch first"
            ],
        )


class NoFreePages(UserError, code="E1021"):
    """The pool of cache pages is exhausted."""

    def __init__(self, needed: int, free: int, page_bytes: int) -> None:
        super().__init__(
            f"{plural(needed, 'page')} of the cache needed, {free} free",
            notes=[f"a page takes {size_text(page_bytes)} per layer"],
            helps=["build the stack with more `pages`"],
        )


class WrongStackInput(UserError, code="E1022"):
    """Hidden states or lengths passed to a layer stack have the wrong shape or dtype."""

    def __init__(self, name: str, found: str, wanted: str, help: str = "") -> None:
        super().__init__(f"`{name}` is `{found}`, the stack takes `{wanted}`", helps=optional(help))
