"""Convert text to tokens and back with the tokenizer of a model's directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tilelet.checkpoint.json_file import read_json_object
from tilelet.diag.catalogue.generate import GenerateExtra, NoTokenizer

TOKENIZER = "tokenizer.json"
# Replacement for bytes that do not form a character yet.
_INCOMPLETE = "\ufffd"


class Tokenizer:
    """`tokenizer.json` of a directory, with the chat template of its `tokenizer_config.json`."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        path = self._directory / TOKENIZER
        if not path.is_file():
            raise NoTokenizer(str(directory), f"there is no `{TOKENIZER}`")
        try:
            import tokenizers
        except ImportError:
            raise GenerateExtra("tokenizers", "text") from None
        try:
            self._tokenizer: Any = cast("Any", tokenizers).Tokenizer.from_file(str(path))
        except Exception as error:  # the package has no exception class of its own
            raise NoTokenizer(str(directory), f"`{TOKENIZER}`: {error}") from None

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def chat(self, text: str) -> list[int]:
        """Return the tokens of a chat with the user message `text`, up to the answer."""
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise GenerateExtra("transformers", "`--chat`") from None
        try:
            template: Any = cast("Any", AutoTokenizer).from_pretrained(
                self._directory, local_files_only=True
            )
            said = [{"role": "user", "content": text}]
            shown = template.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # whatever a template engine may raise for an arbitrary file
            why = f"no chat can be made by its template: {error}"
            raise NoTokenizer(str(self._directory), why) from None
        return list(self._tokenizer.encode(shown, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens))


class TextStream:
    """Decodes tokens incrementally, emitting characters once they are complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._given = ""

    def push(self, token: int) -> str:
        """Return the text that one more token adds."""
        self._tokens.append(token)
        return self._new(self._tokenizer.decode(self._tokens), is_last=False)

    def rest(self) -> str:
        """Return the remaining text at the end."""
        return self._new(self._tokenizer.decode(self._tokens), is_last=True)

    def _new(self, text: str, *, is_last: bool) -> str:
        if not is_last and text.endswith(_INCOMPLETE):
            return ""
        # A later token could change emitted text in theory; then continue after it.
        new = text[len(self._given) :]
        self._given = text
        return new


def stop_tokens(directory: str | Path) -> set[int]:
    """Return the tokens that end a model's texts, according to its files."""
    for name in ("generation_config.json", "config.json"):
        path = Path(directory) / name
        if path.is_file():
            found = read_json_object(path).get("eos_token_id")
            every = cast("list[object]", found) if isinstance(found, list) else [found]
            known = {t for t in every if isinstance(t, int) and not isinstance(t, bool)}
            if known:
                return known
    return set()
