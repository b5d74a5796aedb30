"""Find statements in the source that leave no op, and show changes as a diff."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Mapping

from tilelet.diag.core import Loc
from tilelet.divergence.edits import Edit
from tilelet.ir.core import Op, Value, walk
from tilelet.ir.views import ForView


def assignment_of(loop: Op, number: int) -> Loc | None:
    """Return the last assignment to a variable that a loop carries, such as `m = m_new`."""
    name, file = ForView(loop).carried[number].name, loop.loc.file
    lines = [op.loc.line for op in walk(loop.blocks[0]) if op.loc.file == file]
    found = [
        loc
        for loc in _assignments(file, name)
        if loop.loc.line < loc.line <= max(lines, default=0) + 2
    ]
    return max(found, default=None, key=lambda loc: loc.line)


@functools.lru_cache(maxsize=64)
def _assignments(file: str, name: str) -> tuple[Loc, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    return tuple(
        Loc(file, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    )


def renamed_at(op: Op, loops: Mapping[Op, Op]) -> Loc | None:
    """Return the assignment that gives an op's result to a carried variable of another name."""
    for terminator, loop in loops.items():
        values = terminator.args["values"]
        for i, value in enumerate(values if isinstance(values, tuple) else ()):
            carried = ForView(loop).carried[i]
            if isinstance(value, Value) and value in op.results and value.name != carried.name:
                return assignment_of(loop, i)
    return None


def source_diff(edit: Edit) -> list[str]:
    """Return the source line before and after an edit, or nothing if its text is not simple."""
    loc = edit.loc
    line = linecache.getline(loc.file, loc.line).rstrip("\n")
    if edit.also is not None or not edit.new or loc.end_line not in (0, loc.line) or not line:
        return []
    data = line.encode()
    before, mine, after = data[: loc.col], data[loc.col : loc.end_col], data[loc.end_col :]
    text = mine.decode()
    if edit.old:
        places = list(re.finditer(rf"(?<!\w){re.escape(edit.old)}(?!\w)", text))
        if len(places) != 1:
            return []
        changed = text[: places[0].start()] + edit.new + text[places[0].end() :]
    else:
        changed = edit.new.replace("{}", text)
    margin = len(line) - len(line.lstrip())
    new = before.decode() + changed + after.decode()
    return [f"- {line[margin:]}", f"+ {new[margin:]}"]
