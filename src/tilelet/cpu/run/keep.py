"""`--keep-c`, `--keep-plan`: write the C text and the plans of a program for inspection."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tilelet.cpu.emit.program import Compiled
from tilelet.cpu.emit.text import place_text
from tilelet.cpu.plan.text import plan_text
from tilelet.cpu.run.build import SOURCES
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.source import read_line
from tilelet.ir.core import Program, walk

_PLACE = re.compile(r"// (?P<place>\S+:\d+)$", re.MULTILINE)


def keep_text(code: Compiled, program: Program, folder: Path, *, with_plans: bool = False) -> None:
    """Write the C text with the `pl` line of each location, and the headers that it includes."""
    lines = _source_lines(program)
    plans = "\n".join(map(plan_text, code.plans))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, text in enumerate(code.units):
            (folder / f"unit{i}.c").write_text(_with_lines(text, lines), encoding="utf-8")
        if with_plans:
            (folder / "plan.txt").write_text(_with_lines(plans, lines), encoding="utf-8")
        for header in SOURCES.glob("*.h"):
            shutil.copy(header, folder)
    except OSError as error:
        raise CannotWrite.of(error) from error


def _source_lines(program: Program) -> dict[str, str]:
    """Return the program's source lines by location."""
    places = {op.loc for f in program.functions.values() for op in walk(f.body)}
    found = {place_text(loc): read_line(loc.file, loc.line) for loc in places}
    return {place: line.strip() for place, line in found.items() if line}


def _with_lines(text: str, lines: dict[str, str]) -> str:
    def add(match: re.Match[str]) -> str:
        # A comment that ends in a backslash would continue on the next line.
        line = lines.get(match["place"], "").rstrip("\\")
        return f"{match.group()}: {line}" if line else match.group()

    return _PLACE.sub(add, text)
