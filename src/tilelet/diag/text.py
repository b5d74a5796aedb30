"""Small pieces of message text, so that all messages spell things alike."""

from __future__ import annotations

import difflib
import math
import re
import textwrap
from collections.abc import Iterable, Sequence

# All but tab and line feed; then what is not seen, or changes where the rest is seen.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_SHOWN_BITS = 200  # integers up to here are written in full


def near(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """The candidates spelled most like `name`, best first; for "did you mean"."""
    wanted = name.lower()
    scores = {c: difflib.SequenceMatcher(None, c.lower(), wanted).ratio() for c in set(candidates)}
    # One very close candidate makes the merely similar ones noise.
    bar = max(0.6, max(scores.values(), default=0.0) - 0.1)
    return sorted((c for c in scores if scores[c] >= bar), key=lambda c: (-scores[c], c))[:limit]


def ticked(names: Iterable[object], joiner: str = "or") -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{n}`" for n in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {joiner} {quoted[-1]}"


def did_you_mean(suggestions: Iterable[str]) -> list[str]:
    """One help line offering the first three suggestions, or none."""
    shown = list(suggestions)[:3]
    return [f"did you mean {ticked(shown)}?"] if shown else []


def shape_text(shape: Iterable[object]) -> str:
    """A shape as the language writes it: `[16, 128]`."""
    return f"[{', '.join(str(d) for d in shape)}]"


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 error`, `2 errors`; `many` for nouns that do not just take an s."""
    return f"1 {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def printable(text: str) -> str:
    """A text with its control characters spelled out: names may hold any, and terminals obey them.

    So are those that change the direction of writing, and halves of characters, which no stream
    takes.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def integer_text(number: int) -> str:
    """An integer in a message: Python itself refuses to write those of thousands of digits."""
    if number.bit_length() <= _SHOWN_BITS:
        return str(number)
    sign = "-" if number < 0 else ""
    return f"{sign}10^{round(number.bit_length() * math.log10(2))} or so"


def size_text(count: int) -> str:
    """A number of bytes in the largest unit that leaves at least 1: `1.5 GiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{int(size)} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def wrapped(text: str, width: int) -> str:
    """Lines that are too long go on below, two spaces further in."""
    lines: list[str] = []
    for line in text.splitlines():
        if len(line) <= width:
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line.strip(),
            max(width, len(indent) + 20),
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def optional(*texts: str) -> Sequence[str]:
    """The texts that are not empty: for notes and helps that may be missing."""
    return [t for t in texts if t]
