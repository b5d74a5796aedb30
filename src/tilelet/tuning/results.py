"""Scores in a file, from which a search can resume."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tilelet import __version__
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.tuner import OtherResults
from tilelet.diag.json_types import JsonObject
from tilelet.tuning.evaluate import Question, Score
from tilelet.tuning.knobs import Settings

SCHEMA = "tilelet-tune-1"


class Results:
    """Scores by settings; with a path, every new one is written immediately.

    The file has a line of JSON for what is tuned, then one for each candidate.
    """

    def __init__(self, question: Question, path: Path | None = None) -> None:
        self._path = path
        self._scores: dict[str, Score] = {}
        self._head = {"schema": SCHEMA, "version": __version__, "of": _digest(question)}
        if path is None:
            return
        try:
            if path.exists() and path.stat().st_size:
                self._read(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(self._head) + "\n", encoding="utf-8")
        except OSError as error:
            raise CannotWrite(str(path), error.strerror or str(error)) from error

    def get(self, settings: Settings) -> Score | None:
        return self._scores.get(_key(settings))

    def add(self, settings: Settings, score: Score) -> None:
        self._scores[_key(settings)] = score
        if self._path is None:
            return
        line = json.dumps({"settings": dict(settings), "score": dataclasses.asdict(score)})
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise CannotWrite(str(self._path), error.strerror or str(error)) from error

    def _read(self, path: Path) -> None:
        whole = path.read_text(encoding="utf-8", errors="replace")
        lines = whole.splitlines()
        try:
            head = json.loads(lines[0])
        except ValueError:
            raise OtherResults(str(path), "it is no such file") from None
        if not isinstance(head, dict) or cast(JsonObject, head).get("schema") != SCHEMA:
            raise OtherResults(str(path), "it is no such file")
        if head != self._head:
            why = "another script, other arguments, another machine, or another version of Tilelet"
            raise OtherResults(str(path), f"it is of {why}")
        for number, line in enumerate(lines[1:], 2):
            try:
                settings, score = _entry(json.loads(line))
            except (ValueError, TypeError, KeyError):
                if number == len(lines):  # truncated while being written
                    break
                raise OtherResults(str(path), f"line {number} is damaged") from None
            self._scores[_key(settings)] = score
        if not whole.endswith("\n"):  # continue on a new line
            kept = "".join(f"{line}\n" for line in lines[: len(self._scores) + 1])
            path.write_text(kept, encoding="utf-8")


def _entry(data: Any) -> tuple[Settings, Score]:
    settings: Settings = {str(k): v for k, v in data["settings"].items()}
    score = Score(**data["score"])
    known = dataclasses.replace(score, signature=tuple(score.signature), sizes=tuple(score.sizes))
    return settings, known


def _key(settings: Settings) -> str:
    return json.dumps(dict(sorted(settings.items())))


def _digest(question: Question) -> str:
    """Return a digest of everything but the settings that scores depend on."""
    data: Mapping[str, object] = dataclasses.asdict(question)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
