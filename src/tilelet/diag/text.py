"""Text helpers that keep the wording of messages uniform."""

from __future__ import annotations

import difflib
import math
import re
import textwrap
from collections.abc import Iterable, Sequence

# Control characters other than tab and line feed; then invisible and bidirectional ones.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_SHOWN_BITS = 200  # larger integers are abbreviated


def near(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """Return the candidates spelled most like `name`, best first, for "did you mean"."""
    # All options begin with dashes, which therefore do not count as similarity.
    wanted = name.lower().lstrip("-")
    scores = {
        c: difflib.SequenceMatcher(None, c.lower().lstrip("-"), wanted).ratio()
        for c in set(candidates)
    }
    # One very close candidate makes the merely similar ones noise.
    bar = max(0.6, max(scores.values(), default=0.0) - 0.1)
    return sorted((c for c in scores if scores[c] >= bar), key=lambda c: (-scores[c], c))[:limit]


def quoted_names(names: Iterable[object], joiner: str = "or") -> str:
    """Format names as `a`, `b` or `c`."""
    quoted = [f"`{n}`" for n in names]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {joiner} {quoted[-1]}"


def did_you_mean(suggestions: Iterable[str]) -> list[str]:
    """Return one help line with the first three suggestions, or none."""
    shown = list(suggestions)[:3]
    return [f"did you mean {quoted_names(shown)}?"] if shown else []


def shape_text(shape: Iterable[object]) -> str:
    """Format a shape as the language writes it: `[16, 128]`."""
    return f"[{', '.join(str(d) for d in shape)}]"


def plural(count: int, noun: str, many: str = "") -> str:
    """Format a count: `1 error`, `2 errors`; `many` is an irregular plural."""
    return f"1 {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def escape_controls(text: str) -> str:
    """Escape control characters, which names may contain and terminals would obey.

    Bidirectional controls and lone surrogates, which no stream accepts, are escaped too.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def integer_text(number: int) -> str:
    """Format an integer, abbreviating those with more digits than Python converts."""
    if number.bit_length() <= _SHOWN_BITS:
        return str(number)
    sign = "-" if number < 0 else ""
    return f"{sign}10^{round(number.bit_length() * math.log10(2))} or so"


def size_text(count: int) -> str:
    """Format bytes in the largest unit that leaves at least 1: `1.5 GiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{int(size)} {unit}" if size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def wrap_lines(text: str, width: int) -> str:
    """Wrap long lines, indenting continuation lines by two more spaces."""
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
    """Return the non-empty texts, for optional notes and helps."""
    return [t for t in texts if t]
