"""Self-contained source text of Python functions: input generators and goldens.

A function is copied with the values of its closure in place of the names; functions, constants and
imports that it uses are copied before it, once each.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.portability import CannotExport
from tilelet.diag.core import Loc
from tilelet.diag.editing import Edit
from tilelet.dtypes import DType
from tilelet.export.constants import literal
from tilelet.export.text import FileText, one_line
from tilelet.frontend.source import SourceFile, load_code

_OURS = "tilelet."


def _is_cached(value: object) -> bool:
    """Whether a function was decorated with `functools.cache`."""
    return hasattr(value, "cache_info") and hasattr(value, "__wrapped__")


@dataclass
class Bundle:
    """The text collected so far.

    imports       lines, each once
    definitions   functions and constants, each after its dependencies
    """

    imports: dict[str, None] = field(default_factory=dict[str, None])
    definitions: list[list[str]] = field(default_factory=list[list[str]])
    _names: set[str] = field(default_factory=set[str])
    _constants: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    _known: dict[int, str] = field(default_factory=dict[int, str])
    # kept alive, so that ids stay unique
    _kept: list[object] = field(default_factory=list[object])

    def reserve(self, names: Iterable[str], constants: Mapping[str, object]) -> None:
        """`taken` are names that the script has already; `constants` are numbers it may use."""
        self._names |= {*names, *constants}
        for name, value in constants.items():
            self._constants[name, repr(value)] = name

    def function(self, value: Any, name: str = "") -> str:
        """Write a function with its dependencies; return its name in the script."""
        if id(value) in self._known:
            return self._known[id(value)]
        python = value.__wrapped__ if _is_cached(value) else value
        source, node = _definition(python)
        wanted = name or ("values" if isinstance(node, ast.Lambda) else node.name)
        chosen = self._unique(wanted)
        self._remember(value, chosen)
        lines = _Copier(self, python, source, node).lines(chosen)
        if _is_cached(value):
            self.imports["from functools import cache"] = None
            lines.insert(0, "@cache")
        self.definitions.append(lines)
        return chosen

    def value(self, name: str, value: object, loc: Loc, is_global: bool) -> str:
        """Return the text for a global name with a given value."""
        if id(value) in self._known:
            return self._known[id(value)]
        if isinstance(value, types.ModuleType):
            return self._module(name, value)
        is_function = isinstance(value, types.FunctionType) or _is_cached(value)
        if is_function and _is_copied(value):
            return self.function(value)
        home = getattr(value, "__module__", None)
        if home and getattr(value, "__qualname__", "") == getattr(value, "__name__", None):
            return self._imported(name, value, loc)
        text = literal(value)
        if text is not None:
            return self._constant(name, text) if is_global and name.isupper() else text
        if dataclasses.is_dataclass(value):
            return self._record(name, value)
        raise CannotExport(loc, f"`{name}`, a Python {type(value).__name__},")

    def _module(self, name: str, module: types.ModuleType) -> str:
        path = module.__name__
        self.imports[f"import {path}" if path == name else f"import {path} as {name}"] = None
        return name

    def _imported(self, name: str, value: Any, loc: Loc) -> str:
        home = value.__module__
        if home == "builtins":
            return name
        is_there = hasattr(sys.modules.get(home), value.__name__)
        if home.startswith(_OURS) or home == "__main__" or not is_there:
            raise CannotExport(loc, f"`{name}`")
        renamed = "" if value.__name__ == name else f" as {name}"
        self.imports[f"from {home} import {value.__name__}{renamed}"] = None
        return name

    def _constant(self, name: str, text: str) -> str:
        key = name, text
        if key not in self._constants:
            self._constants[key] = self._unique(name)
            self.definitions.append([f"{self._constants[key]} = {text}"])
        return self._constants[key]

    def assignment(self, name: str, source: SourceFile, module: dict[str, object], loc: Loc) -> str:
        """Write the statement that defines a constant without a literal, such as an array."""
        if id(module[name]) in self._known:
            return self._known[id(module[name])]
        found = [
            s
            for s in source.tree.body
            if isinstance(s, ast.Assign)
            and len(s.targets) == 1
            and isinstance(s.targets[0], ast.Name)
            and s.targets[0].id == name
        ]
        if len(found) != 1:
            raise CannotExport(loc, f"`{name}`, a Python {type(module[name]).__name__},")
        chosen = self._unique(name)
        self._remember(module[name], chosen)
        copier = _Copier(self, None, source, found[0].value, module)
        self.definitions.append([f"{chosen} = {one_line(copier.expression(found[0].value))}"])
        return chosen

    def _record(self, name: str, value: object) -> str:
        """Write a record of sizes, including computed ones."""
        self.imports["from types import SimpleNamespace"] = None
        members = [
            member
            for member in dir(value)
            if not member.startswith("_") and isinstance(_attribute(value, member), (int, float))
        ]
        chosen = self._unique(name)
        self._remember(value, chosen)
        lines = [f"{chosen} = SimpleNamespace("]
        lines += [f"    {member}={_attribute(value, member)!r}," for member in members]
        self.definitions.append([*lines, ")"])
        return chosen

    def _remember(self, value: object, name: str) -> None:
        self._known[id(value)] = name
        self._kept.append(value)

    def _unique(self, name: str) -> str:
        chosen, number = name, 2
        while chosen in self._names:
            chosen = f"{name}_{number}"
            number += 1
        self._names.add(chosen)
        return chosen


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except Exception:  # a size that is undefined for this record
        return None


def _is_copied(value: Any) -> bool:
    """Whether a function is copied: the user's and shipped models', not those of libraries."""
    home = inspect.unwrap(value).__module__ or ""
    found = sys.modules.get(home)
    return home.startswith(_OURS) or found is None or _is_own_module(found)


def _is_own_module(module: types.ModuleType) -> bool:
    """Whether a module is the user's or ours, which the exported script cannot import."""
    name = module.__name__
    root = sys.modules.get(name.partition(".")[0], module)
    if name == "__main__" or name.startswith(_OURS):  # `__main__`: the program that was started
        return True
    file = getattr(root, "__file__", None)
    if file is None or root.__name__ in sys.stdlib_module_names:
        return False
    return not any(part in file for part in ("site-packages", "lib/python"))


def _definition(python: Any) -> tuple[SourceFile, ast.FunctionDef | ast.Lambda]:
    """Return the node of a function: its `def` or lambda."""
    code = python.__code__
    source = load_code(code)
    where = Loc(code.co_filename, code.co_firstlineno)
    if source is None:
        raise CannotExport(where, f"`{python.__qualname__}`, whose text is not known,")
    if python.__name__ != "<lambda>":
        from tilelet.frontend.source import find_function

        return find_function(python)
    lambdas = [
        n
        for n in ast.walk(source.tree)
        if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno
    ]
    same = lambdas if len(lambdas) == 1 else [n for n in lambdas if _is_code_of(n, code)]
    if len(same) != 1:
        raise CannotExport(where, "a lambda that is one of several in its line")
    return source, same[0]


def _is_code_of(node: ast.Lambda, code: types.CodeType) -> bool:
    """Whether a lambda has the same names and constants as this code; positions are ignored."""
    whole = compile(ast.Expression(node), code.co_filename, "eval")
    own = next(c for c in whole.co_consts if isinstance(c, types.CodeType))
    names = {*own.co_names, *own.co_freevars}, {*code.co_names, *code.co_freevars}
    return names[0] == names[1] and own.co_consts == code.co_consts


class _Copier:
    """Copies one function, or one expression of a module."""

    def __init__(
        self,
        bundle: Bundle,
        python: Any,
        source: SourceFile,
        node: ast.AST,
        module: dict[str, Any] | None = None,
    ) -> None:
        self._bundle = bundle
        self._source = source
        self._file = FileText(source)
        self._node = node
        self._module: dict[str, object] = python.__globals__ if python is not None else module or {}
        self._cells: dict[str, object] = {}
        if python is not None and python.__closure__:
            cells = zip(python.__code__.co_freevars, python.__closure__, strict=True)
            self._cells = {name: cell.cell_contents for name, cell in cells}
        self._local = {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        } | {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        self._local |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}

    def lines(self, name: str) -> list[str]:
        if isinstance(self._node, ast.Lambda):
            arguments = ", ".join(a.arg for a in self._node.args.args)
            body = one_line(self.expression(self._node.body))
            return [f"def {name}({arguments}):", f"    return {body}"]
        node = cast("ast.FunctionDef", self._node)
        edits = self._all_edits(node)
        start = self._file.span(node)[0]
        text = self._file.edited(edits, *self._file.span(node))
        indent = start - self._file.data.rfind(b"\n", 0, start) - 1
        lines = [line[indent:] if i else line for i, line in enumerate(text.split("\n"))]
        return [lines[0].replace(f"def {node.name}", f"def {name}", 1), *lines[1:]]

    def expression(self, node: ast.expr) -> str:
        return self._file.edited(self._all_edits(node), *self._file.span(node))

    def _all_edits(self, node: ast.AST) -> list[Edit]:
        edits: list[Edit] = []
        self._visit(node, edits)
        return edits

    def _visit(self, node: ast.AST, edits: list[Edit]) -> None:
        if isinstance(node, ast.arg) and node.annotation is not None:
            edits.append(self._file.replace(node, node.arg))
            return
        if isinstance(node, ast.Attribute):
            text = self._attribute(node)
            if text is not None:
                edits.append(self._file.replace(node, text))
                return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            text = self._name(node)
            if text is not None and text != node.id:
                edits.append(self._file.replace(node, text))
            return
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            end_of_target = self._file.span(node.target)[1]
            edits.append(Edit(end_of_target, self._file.span(node.annotation)[1], ""))
            self._visit(node.value, edits)
            return
        if isinstance(node, ast.FunctionDef):
            self._signature(node, edits)
            for child in (*node.args.args, *node.args.defaults, *node.body):
                self._visit(child, edits)
            return
        for child in ast.iter_child_nodes(node):
            self._visit(child, edits)

    def _signature(self, node: ast.FunctionDef, edits: list[Edit]) -> None:
        """Drop the return annotation: its types may be undefined in the script."""
        if node.returns is not None:
            start, end = self._file.span(node.returns)
            arrow = self._file.data.rfind(b"->", 0, start)
            edits.append(Edit(len(self._file.data[:arrow].rstrip()), end, ""))

    def _found(self, name: str) -> object:
        if name in self._local:
            return None
        return self._cells.get(name, self._module.get(name))

    def _name(self, node: ast.Name) -> str | None:
        if node.id in self._local or (node.id not in self._cells and node.id not in self._module):
            return None
        value = self._found(node.id)
        loc = self._source.loc(node)
        is_global = node.id not in self._cells
        if is_global and isinstance(value, np.ndarray):
            return self._bundle.assignment(node.id, self._source, self._module, loc)
        return self._bundle.value(node.id, value, loc, is_global)

    def _attribute(self, node: ast.Attribute) -> str | None:
        """Return the text of an attribute of a global that has no text itself."""
        if not isinstance(node.value, ast.Name):
            return None
        owner = self._found(node.value.id)
        if isinstance(owner, DType) and node.attr == "numpy":
            self._bundle.imports["import numpy as np"] = None
            # NumPy lacks BF16: the script rounds FP32 values.
            is_short = owner.is_float and owner.bits < 32
            return "np.float32" if is_short else f"np.{owner.numpy.name}"
        if dataclasses.is_dataclass(owner) and not isinstance(owner, type):
            return literal(_attribute(owner, node.attr))
        if isinstance(owner, types.ModuleType) and _is_own_module(owner):
            member = getattr(owner, node.attr)
            loc = self._source.loc(node)
            return self._bundle.value(node.attr, member, loc, is_global=True)
        return None
