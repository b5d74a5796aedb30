"""Decorated Python functions, before they are lowered."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CellType
from typing import Any

from tilelet.diag.core import Loc
from tilelet.frontend.context import Style
from tilelet.frontend.desugar import desugar_jumps
from tilelet.frontend.source import SourceFile, find_function
from tilelet.ir.core import FunctionKind


@dataclass(eq=False)
class KernelFunction:
    """A function whose text is kernel code: a method of a program, a helper, or a jit function.

    `generic`: parameter types may come from the call (jit), so it is lowered once per signature.
    """

    name: str
    kind: FunctionKind
    style: Style
    generic: bool = False
    is_method: bool = False
    python: Any = None  # a plain function; None if the text was given
    frame_names: Mapping[str, object] = field(default_factory=dict[str, object])
    given_source: tuple[SourceFile, ast.FunctionDef] | None = None

    def __call__(self, *_: object, **__: object) -> object:
        from tilelet.diag.catalogue.python import OpOutsideKernel

        raise OpOutsideKernel(self.name)

    @functools.cached_property
    def _found(self) -> tuple[SourceFile, ast.FunctionDef]:
        if self.given_source is not None:
            return self.given_source
        return find_function(self.python)

    @property
    def source(self) -> SourceFile:
        return self._found[0]

    @property
    def node(self) -> ast.FunctionDef:
        return self._found[1]

    @functools.cached_property
    def body(self) -> list[ast.stmt]:
        stmts = self.node.body
        if isinstance(stmts[0], ast.Expr) and isinstance(stmts[0].value, ast.Constant):
            stmts = stmts[1:]
        return desugar_jumps(list(stmts), self.source)

    @property
    def parameters(self) -> list[ast.arg]:
        """The parameters, `self` left out."""
        found = [*self.node.args.posonlyargs, *self.node.args.args]
        return found[1:] if self.is_method else found

    def loc(self, caller: Loc | None = None) -> Loc:
        """The `def` line, without the body."""
        at = self.source.loc(self.node, caller)
        name_end = at.col + len("def ") + len(self.name)
        return Loc(at.file, self.node.lineno, at.col, self.node.lineno, name_end, caller)

    def captured(self) -> dict[str, object]:
        """What names outside the function mean: globals, the builder's locals, closure cells."""
        names: dict[str, object] = {}
        if self.python is not None:
            names.update(self.python.__globals__)
        names.update(self.frame_names)
        if self.python is not None and self.python.__closure__:
            cells = zip(self.python.__code__.co_freevars, self.python.__closure__, strict=True)
            names.update({name: cell.cell_contents for name, cell in cells if _is_bound(cell)})
        return names


def _is_bound(cell: CellType) -> bool:
    """Whether the builder has given the name a value yet; if not, reading it is an error."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
