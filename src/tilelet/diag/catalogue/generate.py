"""From a checkpoint to tokens (E15xx)."""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.diag.core import UserError
from tilelet.diag.text import plural, size_text


class ModelTooLarge(UserError):
    """The weights and caches of a model do not fit into the memory that is free.

    Nothing was loaded. Weights are converted once and kept in memory, unless they are streamed
    (`--stream`, `stream=True`: read and converted layer by layer for every pass) or cached on disk
    (`--weights-cache DIR`, `weights_cache=`: converted once into a file that is then mapped). The
    caches of keys and values grow with `max_seq` and the number of sequences at a time.
    """

    code = "E1501"

    def __init__(self, parts: Mapping[str, int], available: int) -> None:
        needed = sum(parts.values())
        notes = [f"{name}: {size_text(size)}" for name, size in parts.items()]
        if needed <= available:
            notes.append("the system does not give them: see `ulimit -v`")
        super().__init__(
            f"the model needs {size_text(needed)} of memory, {size_text(available)} are free",
            notes=notes,
            helps=[
                "stream the weights (`--stream`), or map a file of them (`--weights-cache DIR`)",
                "a shorter `--max-seq` and a smaller `--batch` make smaller caches",
            ],
        )


class PromptTooLong(UserError):
    """A prompt does not fit into the cache, or leaves no room for a new token.

    A sequence has at most `max_seq` positions, prompt and new tokens together. Nothing was
    computed.
    """

    code = "E1502"

    def __init__(self, sequence: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"prompt {sequence} has {plural(tokens, 'token')}, "
            f"the cache holds {plural(limit, 'position')} of a sequence",
            helps=["a larger `max_seq` (`--max-seq`) makes larger caches"],
        )


class NothingToGenerate(UserError):
    """No prompt was given, or one of them has no token.

    A model continues what it is given, so there must be at least one token. With a tokenizer that
    adds none at the beginning, an empty text has none.
    """

    code = "E1503"

    def __init__(self, what: str) -> None:
        super().__init__(what, helps=["give at least one prompt with at least one token"])


class UnknownToken(UserError):
    """A token's number is not in the vocabulary of the model.

    Numbers go from 0 to `vocab_size` - 1. Tokens of another model's tokenizer mean something else,
    even where the numbers fit.
    """

    code = "E1504"

    def __init__(self, sequence: int, position: int, found: object, vocabulary: int) -> None:
        super().__init__(
            f"token {position} of prompt {sequence} is {found}; "
            f"the vocabulary has {plural(vocabulary, 'token')}"
        )


class BadTokens(UserError):
    """Tokens are given in a form that is not understood.

    A prompt is a sequence of integers: a list, a NumPy array or a torch tensor. Several prompts are
    a list of those; `forward` also takes an array `[batch, tokens]`.
    """

    code = "E1505"

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"tokens are {found}; they must be {wanted}")


class NoTokenizer(UserError):
    """A text was given, but the model's directory has no tokenizer that can be read.

    Tilelet reads `tokenizer.json`. Without one, numbers go in and come out: `--tokens "1 2 3"`.
    """

    code = "E1506"

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(
            f"no tokenizer in `{directory}`: {why}",
            helps=['give the tokens themselves: `--tokens "9707 11 1879"`'],
        )


class GenerateExtra(UserError):
    """What was asked for needs a package that is not installed.

    Text needs `tokenizers`, chats and comparisons `transformers` (and that `torch`); Tilelet itself
    does without them. The extra `generate` brings them.
    """

    code = "E1507"

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package `{package}`",
            helps=["`pip install 'tilelet[generate]'`"],
        )


class BadGenerateSetting(UserError):
    """A setting of a model or of its generation has a value that makes no sense.

    Counts are at least 1; a page holds whole tiles.
    """

    code = "E1508"

    def __init__(self, name: str, found: object, wanted: str) -> None:
        super().__init__(f"`{name}` is {found}; it must be {wanted}")


class WeightsNotCached(UserError):
    """Converted weights could not be written to disk: it is full, or may not be written to.

    Nothing of the file is left. Without the cache the weights are converted in memory.
    """

    code = "E1509"

    def __init__(self, directory: str, why: str, size: int) -> None:
        super().__init__(
            f"the weights cannot be cached in `{directory}`: {why}",
            notes=[f"the file would have {size_text(size)}"],
            helps=["choose another directory for `--weights-cache`, or leave it out"],
        )


class ReferenceFailed(UserError):
    """`transformers`, which a model was to be compared with, could not load or run it.

    What was generated stands; only the comparison is missing. The message is that of the package: a
    file that only it reads, or sizes that one of its kernels does not take.
    """

    code = "E1510"

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(f"`transformers` cannot run the model in `{directory}`: {why}")


class LogitsNotFinite(UserError):
    """The logits of a model are not numbers: no token is better than another.

    Either weights are not finite, or hidden states have become too large for the dtype: FP16 ends
    at 65504, and models that were trained in BF16 may exceed that. Tokens before this one stand.
    """

    code = "E1511"

    def __init__(self, sequence: int, number: int) -> None:
        super().__init__(
            f"the logits for token {number} of sequence {sequence} are not finite",
            helps=[
                "`--dtype bfloat16` or `--dtype float32` (`dtype=`) if FP16 is too narrow",
                "`--compare` shows where a model leaves the reference",
            ],
        )
