"""The values that names outside a kernel had when it was compiled.

A program depends on its text and on the values of the names in it: sizes, helpers, settings. If one
of these values changes, the kernel has to be compiled again.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import cast

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import Array
from tilelet.frontend.functions import KernelFunction

_MISSING = object()
_NUMBERS = (bool, int, float, complex, str, bytes)
_MAX_DEPTH = 4  # levels of nested lists and objects
_MAX_ARRAY_BYTES = 1 << 16  # bytes; the elements of larger ones are not compared
_LIBRARY = sysconfig.get_path("stdlib")


@dataclass(frozen=True)
class _Read:
    """`name.attribute.attribute` as seen from a function: where it is found, and its value."""

    home: Mapping[str, object] | CellType
    name: str
    path: tuple[str, ...]
    value: object

    def is_current(self) -> bool:
        return _are_same(_snapshot(_look_up(self.home, self.name, self.path)), self.value)


@dataclass
class CapturedNames:
    """All outside names that a function and its callees refer to, and their values."""

    # Most are numbers, functions and modules, for which comparing identities usually suffices.
    _simple: list[tuple[Mapping[str, object], str, object]] = field(
        default_factory=list[tuple[Mapping[str, object], str, object]]
    )
    _cells: list[tuple[CellType, object]] = field(default_factory=list[tuple[CellType, object]])
    _others: list[_Read] = field(default_factory=list["_Read"])

    @classmethod
    def of(cls, function: KernelFunction) -> CapturedNames:
        """Record the present values."""
        captures = cls()
        captures._add_kernel(function, set())
        return captures

    def are_current(self) -> bool:
        """Return whether every name still has the recorded value."""
        for home, name, value in self._simple:
            now = home.get(name, _MISSING)
            if now is not value and not _are_same(_snapshot(now), value):
                return False
        for cell, value in self._cells:
            now = _look_up(cell, "", ())
            if now is not value and not _are_same(_snapshot(now), value):
                return False
        return all(read.is_current() for read in self._others)

    def _add_kernel(self, function: KernelFunction, seen: set[object]) -> None:
        python = function.python
        if python is None or function in seen:
            return
        seen.add(function)
        own = {*python.__code__.co_varnames, *python.__code__.co_cellvars}
        fixed = set(function.frame_names)  # what they stand for was copied by the decorator
        for name, path in _names_in(function.node):
            self._add(python, name, path, own, fixed, seen)

    def _add_helper(self, python: FunctionType, seen: set[object]) -> None:
        """Add the names of a plain function that is called at compile time."""
        if python in seen or _is_library(python.__code__):
            return
        seen.add(python)
        for name in (*python.__code__.co_names, *python.__code__.co_freevars):
            self._add(python, name, (), set(), set(), seen)

    def _add(
        self,
        python: FunctionType,
        name: str,
        path: tuple[str, ...],
        own: set[str],
        fixed: set[str],
        seen: set[object],
    ) -> None:
        home = _home(python, name)
        if name in own or (name in fixed and not isinstance(home, CellType)):
            return
        if _is_language(_look_up(home, name, ())):
            path = ()
        value = _look_up(home, name, path)
        kept = _snapshot(value)
        if kept is value and not path and isinstance(home, CellType):
            self._cells.append((home, value))
        elif kept is value and not path:
            self._simple.append((cast("Mapping[str, object]", home), name, value))
        else:
            self._others.append(_Read(home, name, path, kept))
        kernel = getattr(value, "kernel_function", value)
        if isinstance(kernel, KernelFunction):
            self._add_kernel(kernel, seen)
        elif isinstance(value, FunctionType):
            self._add_helper(value, seen)


def _names_in(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name with the attributes that follow it once, also from quoted annotations."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    pending: list[ast.AST] = [node]
    while pending:
        at = pending.pop()
        path: list[str] = []
        inner = at
        while isinstance(inner, ast.Attribute):
            path.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            found[inner.id, tuple(reversed(path))] = None
            continue
        if isinstance(inner, ast.arg) and isinstance(inner.annotation, ast.Constant):
            pending.extend(_names_in_text(inner.annotation.value))
        pending.extend(ast.iter_child_nodes(inner))
    yield from found


def _names_in_text(text: object) -> Iterable[ast.AST]:
    try:
        return [ast.parse(text, mode="eval")] if isinstance(text, str) else []
    except SyntaxError:  # reported where the annotation is read
        return []


def _home(python: FunctionType, name: str) -> Mapping[str, object] | CellType:
    free = python.__code__.co_freevars
    if name in free and python.__closure__:
        return python.__closure__[free.index(name)]
    return python.__globals__


def _look_up(home: Mapping[str, object] | CellType, name: str, path: tuple[str, ...]) -> object:
    try:
        value = home.cell_contents if isinstance(home, CellType) else home[name]
        for attribute in path:
            value = getattr(value, attribute)
    except Exception:  # no such name or attribute, or whatever a property raises
        return _MISSING
    return value


def _is_language(value: object) -> bool:
    """Return whether `value` is a module of Tilelet, whose attributes do not change."""
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "tilelet"


def _is_library(code: CodeType) -> bool:
    return "site-packages" in code.co_filename or code.co_filename.startswith(_LIBRARY)


class _Contents(list[object]):
    """The contents of a container at the time it was recorded."""


def _snapshot(value: object, depth: int = _MAX_DEPTH) -> object:
    """Return a copy of the contents of a mutable `value`; any other value itself."""
    if isinstance(value, (*_NUMBERS, type, FunctionType, ModuleType, KernelFunction)) or not depth:
        return value
    if isinstance(value, dict):
        value = tuple(cast("dict[object, object]", value).items())
    if isinstance(value, (list, tuple, set, frozenset)):
        items = cast("Iterable[object]", value)
        return _Contents([_snapshot(v, depth - 1) for v in items])
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        if array.nbytes > _MAX_ARRAY_BYTES or array.dtype.hasobject:
            return array
        return _Contents([array.dtype.str, str(array.shape), array.tobytes()])
    if type(value).__module__.partition(".")[0] in ("builtins", "numpy", "torch", "tilelet"):
        return value
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return value
    return _Contents([value, _snapshot(cast("dict[str, object]", attributes), depth - 1)])


def _are_same(a: object, b: object) -> bool:
    """Return whether two snapshots are equal; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, _Contents) and isinstance(b, _Contents):
        return len(a) == len(b) and all(map(_are_same, a, b))
    return isinstance(a, _NUMBERS) and repr(a) == repr(b)
