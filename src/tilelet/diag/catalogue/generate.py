"""Text generation from a checkpoint (E15xx)."""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.diag.core import UserError
from tilelet.diag.text import plural, size_text


class ModelTooLarge(UserError):
    """The weights and caches of a model do not fit into free memory.

    Nothing was loaded. Weights are converted once and kept in memory, unless they are streamed
    (`--stream`, `stream=True`: read and converted layer by layer in every pass) or cached on disk
    (`--weights-cache DIR`, `weights_cache=`: converted once into a file, which is then mapped). The
    key/value caches grow with `max_seq` and the batch size.
    """

    code = "E1501"

    def __init__(self, parts: Mapping[str, int], available: int) -> None:
        needed = sum(parts.values())
        notes = [f"{name}: {size_text(size)}" for name, size in parts.items()]
        if needed <= available:
            notes.append("a memory limit is set: see `ulimit -v`")
        super().__init__(
            f"the model needs {size_text(needed)} of memory, {size_text(available)} are free",
            notes=notes,
            helps=[
                "stream the weights (`--stream`), or map them from a file (`--weights-cache DIR`)",
                "a shorter `--max-seq` or a smaller `--batch` reduces the caches",
            ],
        )


class PromptTooLong(UserError):
    """A prompt does not fit into the cache, or leaves no room for a new token.

    A sequence has at most `max_seq` positions, counting prompt and new tokens. Nothing was
    computed.
    """

    code = "E1502"

    def __init__(self, sequence: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"prompt {sequence} has {plural(tokens, 'token')}, but the cache holds "
            f"{plural(limit, 'position')} per sequence",
            helps=["increase `max_seq` (`--max-seq`) for larger caches"],
        )


class NothingToGenerate(UserError):
    """No prompt was given, or a prompt has no tokens.

    A model continues its prompt, so there must be at least one token. An empty text has none if the
    tokenizer adds no start token.
    """

    code = "E1503"

    def __init__(self, what: str) -> None:
        super().__init__(what, helps=["give at least one prompt with at least one token"])


class UnknownToken(UserError):
    """A token id is not in the vocabulary of the model.

    Ids go from 0 to `vocab_size` - 1. Tokens of another model's tokenizer mean something else, even
    if their ids are in range.
    """

    code = "E1504"

    def __init__(self, sequence: int, position: int, found: object, vocabulary: int) -> None:
        super().__init__(
            f"token {position} of prompt {sequence} is {found}; "
            f"the vocabulary has {plural(vocabulary, 'token')}"
        )


class BadTokens(UserError):
    """The prompt tokens have an unsupported form.

    A prompt is a sequence of integers: a list, a NumPy array or a torch tensor. Several prompts are
    a list of those; `forward` also takes an array `[batch, tokens]`.
    """

    code = "E1505"

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"tokens are {found}; they must be {wanted}")


class NoTokenizer(UserError):
    """A text prompt was given, but the model's directory has no readable tokenizer.

    Tilelet reads `tokenizer.json`. Without it, pass and receive token ids: `--tokens "1 2 3"`.
    """

    code = "E1506"

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(
            f"no tokenizer in `{directory}`: {why}",
            helps=['pass token ids: `--tokens "9707 11 1879"`'],
        )


class GenerateExtra(UserError):
    """The request needs a package that is not installed.

    Text needs `tokenizers`; chats and comparisons need `transformers` (which needs `torch`). They
    are optional: install the extra `generate`.
    """

    code = "E1507"

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package `{package}`",
            helps=["`pip install 'tilelet[generate]'`"],
        )


class BadGenerateSetting(UserError):
    """A setting of a model or of generation has an invalid value.

    Counts are at least 1; a page holds whole tiles.
    """

    code = "E1508"

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is {found}; it must be {wanted}")


class WeightsNotCached(UserError):
    """The converted weights could not be written to disk: it is full or not writable.

    The partial file was removed. Without the cache, weights are converted in memory.
    """

    code = "E1509"

    def __init__(self, directory: str, why: str, size: int) -> None:
        super().__init__(
            f"the weights cannot be cached in `{directory}`: {why}",
            notes=[f"the file needs {size_text(size)}"],
            helps=["choose another directory for `--weights-cache`, or omit it"],
        )


class ReferenceFailed(UserError):
    """`transformers`, the reference for the comparison, could not load or run the model.

    The generated text is complete; only the comparison is missing. The message comes from the
    package. Typical causes are a file that it cannot read, or sizes that its kernels do not
    support.
    """

    code = "E1510"

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(f"`transformers` cannot run the model in `{directory}`: {why}")


class LogitsNotFinite(UserError):
    """The logits of a model are not finite, so no token can be chosen.

    Either the weights are not finite, or hidden states exceed the range of the dtype: the largest
    FP16 value is 65504, and models trained in BF16 may exceed it. Tokens generated before this one
    are valid.
    """

    code = "E1511"

    def __init__(self, sequence: int, number: int) -> None:
        super().__init__(
            f"the logits for token {number} of sequence {sequence} are not finite",
            helps=[
                "use `--dtype bfloat16` or `--dtype float32` (`dtype=`) if FP16 overflows",
                "`--compare` shows where the model departs from the reference",
            ],
        )
