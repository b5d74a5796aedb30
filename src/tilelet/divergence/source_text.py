"""Find statements in the source that leave no op, and show changes as a diff."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Collection, Iterator

from tilelet.diag.core import Loc
from tilelet.divergence.edits import Edit
from tilelet.ir.core import Op, walk
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
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def statement_line(loc: Loc) -> int:
    """Return the first line of the innermost statement at a place."""
    return _first_lines(loc.file).get(loc.line, loc.line)


@functools.lru_cache(maxsize=64)
def _first_lines(file: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in ast.walk(_tree(file)):  # outer statements first
        if isinstance(node, ast.stmt):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found.update(dict.fromkeys(lines, node.lineno))
    return found


def _assignments(file: str, name: str) -> Iterator[Loc]:
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Assign) and name in assigned_names(node):
            yield loc_of(file, node)


def loc_of(file: str, node: ast.stmt) -> Loc:
    return Loc(file, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def assigned_names(node: ast.Assign) -> set[str]:
    return {t.id for t in node.targets if isinstance(t, ast.Name)}


def assignments_without_op(
    loc: Loc, lines: Collection[tuple[str, int]], edited: Collection[tuple[str, int]] = ()
) -> Iterator[Loc]:
    """Yield assignments beside a statement that have no op, such as `m = m_new` and `first = 0`.

    They define what the statement reads, directly or through each other, or rename its result.
    `lines` are the lines that have ops. Definitions at `edited` lines are left out.
    """
    function = _function_at(loc)
    if function is None:
        return
    silent = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and (loc.file, node.lineno) not in lines
    ]
    read, made = _names_at(function, loc.line)
    yield from (loc_of(loc.file, node) for node in silent if made & _names_read(node.value))
    seen: set[str] = set()
    while read - seen:
        name = (read - seen).pop()
        seen.add(name)
        for node in silent:
            if name in assigned_names(node) and (loc.file, node.lineno) not in edited:
                yield loc_of(loc.file, node)
                read |= _names_read(node.value)


def _function_at(loc: Loc) -> ast.FunctionDef | None:
    found = [
        node
        for node in ast.walk(_tree(loc.file))
        if isinstance(node, ast.FunctionDef) and node.lineno <= loc.line <= (node.end_lineno or 0)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def _names_at(function: ast.FunctionDef, line: int) -> tuple[set[str], set[str]]:
    """Return the names that the statement at a line reads, and those that it assigns."""
    read: set[str] = set()
    made: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.Assign):
            made |= assigned_names(node)
        if hasattr(node, "body"):  # its header only
            headers = [getattr(node, part, None) for part in ("test", "iter")]
            parts = [part for part in headers if part is not None and node.lineno == line]
        else:
            parts = [node]
        read |= {name for part in parts for name in _names_read(part)}
    return read, made


def _names_read(node: ast.AST) -> set[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Load)}


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
