"""Small pieces of message text, so that all messages spell things alike."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence


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
