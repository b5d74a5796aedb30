"""Finding the AST of a decorated function or class, with exact places in its file.

The whole file is parsed (once) and the node looked up by its first line, so spans are the file's
own: nothing is dedented or re-indented.
"""

from __future__ import annotations

import ast
import linecache
import types
from dataclasses import dataclass
from functools import cached_property

from tilelet.diag.catalogue.python import SourceUnavailable
from tilelet.diag.core import Loc


@dataclass
class SourceFile:
    """One parsed Python file (or text given to `pl.parse`)."""

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def definitions(self) -> list[ast.FunctionDef | ast.ClassDef]:
        """All functions and classes of the file, however deep."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]

    def loc(self, node: ast.AST, caller: Loc | None = None) -> Loc:
        """The span of `node`, as `ast` has it."""
        line: int = getattr(node, "lineno", 0)
        return Loc(
            self.path,
            line,
            getattr(node, "col_offset", 0),
            getattr(node, "end_lineno", None) or line,
            getattr(node, "end_col_offset", None) or 0,
            caller,
        )


_files: dict[str, SourceFile] = {}


def load_file(path: str) -> SourceFile | None:
    """The parsed file behind a code object's file name; None if its text cannot be had."""
    linecache.checkcache(path)
    text = "".join(linecache.getlines(path))
    if not text:
        return None
    known = _files.get(path)
    if known is not None and known.text == text:
        return known
    try:
        parsed = SourceFile(path, text, ast.parse(text, filename=path))
    except SyntaxError:
        return None
    _files[path] = parsed
    return parsed


def from_text(text: str, name: str) -> SourceFile:
    """Source given as a string; registered so that messages can quote it."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return SourceFile(name, text, ast.parse(text, filename=name))


def find_function(function: types.FunctionType) -> tuple[SourceFile, ast.FunctionDef]:
    """The AST of `function`, found by the first line of its code (a decorator's, if it has one)."""
    code = function.__code__
    source = load_file(code.co_filename)
    if source is not None:
        for node in source.definitions:
            if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
                first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
                if code.co_firstlineno in (first, node.lineno):
                    return source, node
    raise SourceUnavailable(function.__qualname__, code.co_filename)


def find_class(cls: type, frame_file: str, frame_line: int) -> tuple[SourceFile, ast.ClassDef]:
    """The AST of a class being decorated in the frame at `frame_line` of `frame_file`."""
    source = load_file(frame_file)
    if source is not None:
        candidates = [
            node
            for node in source.definitions
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        ]
        for node in candidates:
            first = min([d.lineno for d in node.decorator_list] + [node.lineno])
            if first <= frame_line <= (node.end_lineno or node.lineno):
                return source, node
    raise SourceUnavailable(cls.__qualname__, frame_file)
