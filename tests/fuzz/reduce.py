"""Reduction of a failing program: by its tape, then by its lines."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.fuzz.cases import Case

# Return the index of a case that fails in the same way, or None if none does.
Fails = Callable[[Sequence[Case]], int | None]
FEWEST, MOST = 3, 12  # candidates that are compiled and run at once
SECONDS = 300.0  # per case; the smallest so far is shown


def reduced(case: Case, fails: Fails, seconds: float = SECONDS) -> Case:
    """Return a case that fails in the same way, minimal if time allows."""
    until = time.monotonic() + seconds
    if case.is_generated:
        case = _descend(case, _shorter_tapes, fails, until)
        text = case.as_text()
        if fails([text]) is None:
            return case
        case = text
    return _descend(case, _shorter_texts, fails, until)


def _descend(
    case: Case, candidates: Callable[[Case], Iterator[Case]], fails: Fails, until: float
) -> Case:
    """Accept failing candidates until a whole pass over the tape finds none."""
    position, has_changed = 0, False
    while time.monotonic() < until:
        left = itertools.islice(candidates(case), position, None)
        found = _first(left, fails, until)
        if found is not None:
            position, case, has_changed = position + found[0], found[1], True
        elif has_changed and position:
            position, has_changed = 0, False
        else:
            break
    return case


def _first(candidates: Iterator[Case], fails: Fails, until: float) -> tuple[int, Case] | None:
    """Return the first failing candidate and how many do not fail; they are tried in groups."""
    tried, together = 0, FEWEST
    while time.monotonic() < until and (some := list(itertools.islice(candidates, together))):
        found = fails(some)
        if found is not None:
            return tried + found, some[found]
        tried += len(some)
        together = min(2 * together, MOST)
    return None


def _sizes(length: int) -> Iterator[int]:
    size = length // 2
    while size:
        yield size
        size //= 2


def _shorter_tapes(case: Case) -> Iterator[Case]:
    """Yield tapes without the end, without a piece, or with a piece of zeros (the simplest
    choices).
    """
    tape = bytes.fromhex(case.tape).rstrip(b"\0")
    now = case.kernel().text
    seen = {now}

    def smaller(new: bytes) -> Iterator[Case]:
        candidate = replace(case, tape=new.hex())
        text = candidate.kernel().text
        if text not in seen and len(text) < len(now):
            seen.add(text)
            yield candidate

    for size in _sizes(len(tape) * 2):
        if size < len(tape):
            yield from smaller(tape[:-size])
    for size in _sizes(len(tape) * 2):
        for at in range(0, len(tape), size):
            yield from smaller(tape[:at] + tape[at + size :])
            yield from smaller(tape[:at] + bytes(min(size, len(tape) - at)) + tape[at + size :])


def _shorter_texts(case: Case) -> Iterator[Case]:
    """Yield texts without a statement and its body, without its head alone, without a parameter."""
    lines = case.text.split("\n")
    for at, line in enumerate(lines):
        is_function = line.lstrip().startswith("@")
        end = _end_of(lines, at + is_function)
        if line.strip() and not line.lstrip().startswith(("def ", "class ", "import ")):
            yield replace(case, text="\n".join(lines[:at] + lines[end:]))
            if end > at + 1 and not is_function:
                inside = [inner[4:] for inner in lines[at + 1 : end]]
                yield replace(case, text="\n".join(lines[:at] + inside + lines[end:]))
    for name, *_ in case.params:
        without = re.sub(rf"\b{name}: [^:]*\](?:, (?=\w+: )|(?=\):))", "", case.text, count=1)
        kept = tuple(p for p in case.params if p[0] != name)
        if without != case.text:
            yield replace(case, text=without.replace(", ):", "):"), params=kept)


def _end_of(lines: list[str], at: int) -> int:
    """Return the end of the lines indented deeper than line `at`."""
    depth = _depth(lines[at])
    end = at + 1
    while end < len(lines) and lines[end].strip() and _depth(lines[end]) > depth:
        end += 1
    return end


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
