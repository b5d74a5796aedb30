"""Finding the AST of a decorated function or class, with exact locations in its file.

Only the lines of the definition are parsed, after as many empty lines as precede it, so spans are
those of the file. If the extent of the definition is uncertain, the whole file is parsed and the
definition is found by its first line.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import linecache
import os
import stat
import types
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, cast

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.python import SourceUnavailable
from tilelet.diag.core import Loc

Definition = ast.FunctionDef | ast.ClassDef


def statements_in(stmts: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yield all statements of a list and those inside them, outer before inner."""
    for s in stmts:
        if isinstance(s, ast.stmt):
            yield s
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(s, name, None)
            if inner:
                yield from statements_in(inner)


def nodes_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and all nodes inside it, as `ast.walk`, in any order, without operators."""
    stack = [node]
    while stack:
        n = stack.pop()
        yield n
        if isinstance(n, (ast.Name, ast.Constant)):
            continue  # leaves, which are half of all nodes
        for name in n._fields:
            child = getattr(n, name, None)
            if isinstance(child, list):
                items = cast("list[object]", child)
                stack.extend([c for c in items if isinstance(c, ast.AST)])
            elif isinstance(child, ast.AST) and child._fields:
                stack.append(child)


def defaults_in(args: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    """Return the parameters of a signature that have a default, and the defaults."""
    positional = [*args.posonlyargs, *args.args]
    last = positional[len(positional) - len(args.defaults) :]
    pairs = zip((*last, *args.kwonlyargs), (*args.defaults, *args.kw_defaults), strict=True)
    return [(p, default) for p, default in pairs if default is not None]


def spelling(node: ast.expr) -> str:
    """Return an expression as text; fast for names with and without dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
        return f"{spelling(node.value)}.{node.attr}"
    return ast.unparse(node)


@dataclass
class SourceFile:
    """A Python file, or the text given to `pl.parse`."""

    path: str
    text: str
    _by_line: dict[int, Definition] = field(default_factory=dict[int, Definition])

    @cached_property
    def tree(self) -> ast.Module:
        """The AST of the whole text; `SyntaxError` if it is not Python."""
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def definitions(self) -> list[Definition]:
        """All functions and classes, also nested ones; none if the text is not Python."""
        try:
            return _definitions(self.tree.body)
        except SyntaxError:
            return []

    def definitions_at(self, line: int) -> Iterator[Definition]:
        """Yield the definition that begins at `line`, decorators included, then all others."""
        if line not in self._by_line:
            self._parse_block(line)
        if line in self._by_line:
            yield self._by_line[line]
        yield from self.definitions

    def _parse_block(self, line: int) -> None:
        """Parse the definition that begins at `line`, if its lines can be cut out."""
        with contextlib.suppress(SyntaxError):
            parsed = ast.parse(_indented_block(self._lines, line), filename=self.path)
            for found in _definitions(parsed.body):
                self._by_line.setdefault(_first_line(found), found)

    @cached_property
    def _lines(self) -> list[str]:
        """The lines as Python counts them; none if line ends or indentation are unusual."""
        return [] if "\r" in self.text or "\f" in self.text else self.text.split("\n")

    def loc(self, node: ast.AST, caller: Loc | None = None) -> Loc:
        """Return the span of `node`."""
        at: Any = node
        try:
            end_line, end_col = at.end_lineno or at.lineno, at.end_col_offset or 0
            return Loc(self.path, at.lineno, at.col_offset, end_line, end_col, caller)
        except AttributeError:  # some kinds of node have no location
            return Loc(self.path, 0, caller=caller)


def _definitions(stmts: Iterable[ast.stmt]) -> list[Definition]:
    return [s for s in statements_in(stmts) if isinstance(s, (ast.FunctionDef, ast.ClassDef))]


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


_INDENTATION = " \t"


def _indented_block(lines: list[str], first: int) -> str:
    """Return the definition that begins at line `first`, after as many lines as precede it.

    It ends before the next line that begins a statement and is not indented more. A line inside a
    string, brackets or a continued line may look like that; then the block is incomplete and Python
    does not parse it, so a block that parses is complete.
    """
    if not 0 < first <= len(lines):
        return ""
    indent = _indent(lines[first - 1])
    is_header = True
    for end in range(first - 1, len(lines)):
        line = lines[end].lstrip(_INDENTATION)
        if not line or line[0] in "#)]}" or _indent(lines[end]) > indent:
            continue
        if not is_header:
            break
        is_header = line[0] == "@"
    else:
        end = len(lines)
    before = ["if True:"] if indent else []
    empty = [""] * (first - 1 - len(before))
    return "\n".join([*empty, *before, *lines[first - 1 : end]])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(_INDENTATION))


_files: dict[str, SourceFile] = {}


def load_file(path: str) -> SourceFile | None:
    """Return the file behind a code object's file name; None if it cannot be read."""
    linecache.checkcache(path)
    text = "".join(linecache.getlines(path))
    if not text:
        return None
    known = _files.get(path)
    if known is not None and known.text == text:
        return known
    _files[path] = SourceFile(path, text)
    return _files[path]


# File names of code without a file, which several texts may share.
_NO_FILES = ("<stdin>", "<string>")


def load_code(code: types.CodeType) -> SourceFile | None:
    """Return the text that code was compiled from; None if it was not kept.

    Notebooks keep their cells in `linecache`, and so does the prompt from Python 3.13 on. A script
    from standard input can be read again if that is a file.
    """
    if code.co_filename not in _NO_FILES:
        return load_file(code.co_filename)
    candidates = ["".join(linecache.getlines(code.co_filename))]
    if code.co_filename == "<stdin>":
        candidates.append(_standard_input())
    for text in candidates:
        if text and _contains(text, code):
            lines = text.splitlines(keepends=True)
            linecache.cache[code.co_filename] = (len(text), None, lines, code.co_filename)
            return SourceFile(code.co_filename, text)
    return None


def _standard_input() -> str:
    try:
        found = os.fstat(0)
        if not stat.S_ISREG(found.st_mode):
            return ""
        return os.pread(0, found.st_size, 0).decode()
    except (AttributeError, OSError, UnicodeDecodeError):
        return ""


def _contains(text: str, code: types.CodeType) -> bool:
    """Return whether compiling the text gives this code."""
    flags = code.co_flags & __future__.annotations.compiler_flag  # which `exec` may inherit
    try:
        whole = compile(text, code.co_filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    pending: list[types.CodeType] = [whole]
    while pending:
        found = pending.pop()
        if found == code:
            return True
        pending.extend([c for c in found.co_consts if isinstance(c, types.CodeType)])
    return False


def from_text(text: str, name: str) -> SourceFile:
    """Return source given as a string, registered so that messages can quote it."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    source = SourceFile(name, text)
    _ = source.tree
    return source


def find_function(function: types.FunctionType) -> tuple[SourceFile, ast.FunctionDef]:
    """Return the AST of `function`, found by the first line of its code."""
    code = function.__code__
    source = load_code(code)
    if source is not None:
        line, name = code.co_firstlineno, function.__name__
        for node in source.definitions_at(line):
            begins_here = line in (_first_line(node), node.lineno)
            if isinstance(node, ast.FunctionDef) and node.name == name and begins_here:
                return source, node
    raise SourceUnavailable(function.__qualname__, code.co_filename)


def find_class(cls: type, code: types.CodeType, frame_line: int) -> tuple[SourceFile, ast.ClassDef]:
    """Return the AST of a class being decorated by `code`, which is at `frame_line`."""
    source = load_code(code)
    if source is not None:
        for node in source.definitions_at(frame_line):
            is_here = _first_line(node) <= frame_line <= (node.end_lineno or node.lineno)
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and is_here:
                return source, node
    raise SourceUnavailable(cls.__qualname__, code.co_filename)
