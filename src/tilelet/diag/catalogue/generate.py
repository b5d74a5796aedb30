"""Text generation from a checkpoint (E15xx)."""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.diag.core import UserError
from tilelet.diag.text import plural, size_text


class ModelTooLarge(UserError, code="E1501"):
    """The weights and caches of a model do not fit into free memory."""

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


class PromptTooLong(UserError, code="E1502"):
    """A prompt does not fit into the cache, or leaves no room for a new token."""

    def __init__(self, sequence: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"prompt {sequence} has {plural(tokens, 'token')}, but the cache holds "
            f"{plural(limit, 'position')} per sequence",
            helps=["increase `max_seq` (`--max-seq`) for larger caches"],
        )


class NothingToGenerate(UserError, code="E1503"):
    """No prompt was given, or a prompt has no tokens."""

    def __init__(self, what: str) -> None:
        super().__init__(what, helps=["give at least one prompt with at least one token"])


class UnknownToken(UserError, code="E1504"):
    """A token id is not in the vocabulary of the model."""

    def __init__(self, sequence: int, position: int, found: object, vocabulary: int) -> None:
        super().__init__(
            f"token {position} of prompt {sequence} is {found}; "
            f"the vocabulary has {plural(vocabulary, 'token')}"
        )


class BadTokens(UserError, code="E1505"):
    """The prompt tokens have an unsupported form."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"tokens are {found}; they must be {wanted}")


class NoTokenizer(UserError, code="E1506"):
    """A text prompt was given, but the model's directory has no readable tokenizer."""

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(
            f"no tokenizer in `{directory}`: {why}",
            helps=['pass token ids: `--tokens "9707 11 1879"`'],
        )


class GenerateExtra(UserError, code="E1507"):
    """The request needs a package that is not installed."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package `{package}`",
            helps=["`pip install 'tilelet[generate]'`"],
        )


class BadGenerateSetting(UserError, code="E1508"):
    """A setting of a model or of generation has an invalid value."""

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is {found}; it must be {wanted}")


class WeightsNotCached(UserError, code="E1509"):
    """The converted weights could not be written to disk: it is full or not writable."""

    def __init__(self, directory: str, why: str, size: int) -> None:
        super().__init__(
            f"the weights cannot be cached in `{directory}`: {why}",
            notes=[f"the file needs {size_text(size)}"],
            helps=["choose another directory for `--weights-cache`, or omit it"],
        )


class ReferenceFailed(UserError, code="E1510"):
    """`transformers`, the reference for the comparison, could not load or run the model."""

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(f"`transformers` cannot run the model in `{directory}`: {why}")


class LogitsNotFinite(UserError, code="E1511"):
    """The logits of a model are not finite, so no token can be chosen."""

    def __init__(self, sequence: int, number: int) -> None:
        super().__init__(
            f"the logits for token {number} of sequence {sequence} are not finite",
            helps=[
                "use `--dtype bfloat16` or `--dtype float32` (`dtype=`) if FP16 overflows",
                "`--compare` shows where the model departs from the reference",
            ],
        )
