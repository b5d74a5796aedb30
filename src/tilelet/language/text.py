"""`pl.parse`: programs from text, such as the printer writes. The text is never executed."""

from __future__ import annotations

import ast
import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tilelet.diag.catalogue.python import InvalidSyntax, NotOneProgram
from tilelet.diag.core import Loc
from tilelet.diag.text import plural
from tilelet.frontend.decorators import build_program, lower_alone
from tilelet.frontend.functions import KernelFunction, of_type
from tilelet.frontend.source import SourceFile, from_text
from tilelet.ir.core import Function, FunctionKind, Program
from tilelet.ir.types import SymDim

_serial = itertools.count(1)
_LANGUAGE_MODULES = ("tilelet.language", "pypto.language")


def loads(filepath: str | Path) -> Program | Function:
    """Return the program, or the function, in a file of program text; see `pl.parse`."""
    return parse(Path(filepath).read_text(encoding="utf-8"), str(filepath))


def loads_program(filepath: str | Path) -> Program | Function:
    """As `pl.loads`."""
    return loads(filepath)


def parse_program(code: str, filename: str | None = None) -> Any:
    """As `pl.parse`."""
    return parse(code, filename)


def parse(code: str, filename: str | None = None, source_map: object = None) -> Any:
    """Return the program in `code`: imports of the language, constants, dynamic dims and a class.

    Text with one decorated function and no class gives that function. `pl` is known without an
    import. Messages call the text `filename`; `source_map` has no effect.
    """
    file = filename or f"<pl.parse {next(_serial)}>"
    try:
        source = from_text(code, file)
    except SyntaxError as problem:
        line = problem.lineno or 1
        raise InvalidSyntax(Loc(file, line, (problem.offset or 1) - 1, line), problem.msg) from None
    names: dict[str, object] = {"pl": _language()}
    classes: list[ast.ClassDef] = []
    functions: dict[str, KernelFunction] = {}
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef):
            classes.append(node)
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = functions[node.name] = _function(source, node, names)
        else:
            _top_level(source, node, names)
    if len(classes) + len(functions) != 1:
        count = plural(len(classes), "class") if classes else plural(len(functions), "function")
        raise NotOneProgram(source.loc(source.tree.body[-1]), count)
    if functions:
        (function,) = functions.values()
        return lower_alone(function)
    cls = classes[0]
    methods = {
        n.name: _function(source, n, names) for n in cls.body if isinstance(n, ast.FunctionDef)
    }
    return build_program(cls.name, methods, source.loc(cls))


def _language() -> ModuleType:
    """Return `pl` itself: the package around this module."""
    return sys.modules["tilelet.language"]


def _top_level(source: SourceFile, node: ast.stmt, names: dict[str, object]) -> None:
    """Read an import of the language, a constant or a dynamic dimension."""
    match node:
        case ast.Import(names=[ast.alias(name=module, asname=alias)]) if (
            module in _LANGUAGE_MODULES and alias
        ):
            names[alias] = _language()
        case ast.Import(names=[ast.alias(name=module, asname=alias)]) if (
            module.removesuffix(".distributed") in _LANGUAGE_MODULES and alias
        ):
            names[alias] = importlib.import_module("tilelet.language.distributed")
        case ast.ImportFrom(module="tilelet" | "pypto", names=[ast.alias(name="language")]):
            names[node.names[0].asname or "language"] = _language()
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
            names[name] = value
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(
                func=ast.Attribute(attr="dynamic"), args=[ast.Constant(value=str(text))]
            ),
        ):
            names[name] = SymDim(text)
        case ast.Expr(value=ast.Constant()):
            pass
        case _:
            raise NotOneProgram(source.loc(node), "a statement that has no meaning there")


def _function(
    source: SourceFile, node: ast.FunctionDef, names: dict[str, object]
) -> KernelFunction:
    is_method = bool(node.args.args) and node.args.args[0].arg == "self"
    kind = FunctionKind.Opaque
    strict = False
    attrs: dict[str, object] = {}
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            for k in decorator.keywords:
                if k.arg == "type" and isinstance(k.value, ast.Attribute):
                    kind = FunctionKind[k.value.attr]
                elif k.arg == "level" and isinstance(k.value, ast.Attribute):
                    kind = FunctionKind.Host if k.value.attr == "HOST" else kind
                elif k.arg == "strict_ssa" and isinstance(k.value, ast.Constant):
                    strict = bool(k.value.value)
                elif k.arg == "attrs" and isinstance(k.value, ast.Dict):
                    attrs = _constants(k.value)
    found: dict[str, object] = {"frame_names": names, "given_source": (source, node)}
    return of_type(node.name, kind, strict, attrs, is_method=is_method, **found)


def _constants(node: ast.Dict) -> dict[str, object]:
    """Return the entries of a dict display whose keys and values are constants."""
    return {
        str(name.value): value.value
        for name, value in zip(node.keys, node.values, strict=True)
        if isinstance(name, ast.Constant) and isinstance(value, ast.Constant)
    }
