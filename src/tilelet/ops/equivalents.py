"""Names from torch, NumPy and Triton, and what to write in `pl` instead.

The table is `equivalents.md`, a part of docs/ops.md. Names are without their module:
`torch.sigmoid`, `pl.sigmoid` and `x.sigmoid()` are the same entry. Each replacement is code with
`x`, `y` (tiles `[16, 64]` in FP32), `w` (`[64, 16]`), `mask` and `idx`; entries that need more than
code have a remark after a semicolon. Names that `pl` also has need no entry.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from tilelet.ir.spec import REGISTRY


class Equivalent(NamedTuple):
    """Code to write instead (may be empty), and a remark."""

    code: str
    remark: str = ""

    @property
    def help(self) -> str:
        """Return a help line for a message."""
        if not self.code:
            return self.remark
        return f"write `{self.code}`" + (f": {self.remark}" if self.remark else "")


@functools.cache
def equivalents() -> dict[str, Equivalent]:
    """Return what to write, by the name that other libraries have for it."""
    found: dict[str, Equivalent] = {}
    for row in equivalents_markdown().splitlines()[2:]:
        elsewhere, here = (
            cell.replace(r"\|", "|").strip() for cell in re.split(r" \| ", row[2:-2])
        )
        code = re.fullmatch(r"`([^`]*)`(?:; (.*))?", here)
        entry = Equivalent(code[1], code[2] or "") if code else Equivalent("", here)
        found.update(dict.fromkeys(re.findall("`([^`]*)`", elsewhere), entry))
    return found


def equivalent(name: str) -> str:
    """Return a help line for a name of another library; empty if unknown."""
    last = name.rpartition(".")[2]
    if last in equivalents():
        return equivalents()[last].help
    if name != f"pl.{last}" and last in REGISTRY:
        return f"write `pl.{last}`"
    return ""


def equivalents_markdown() -> str:
    """Return the table for docs/ops.md, with synonyms in one row."""
    return Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip()
