"""Decorated Python functions, before they are lowered."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import CellType, FrameType, FunctionType
from typing import Any, TypeGuard

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.names import UnsupportedParameter
from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.diag.core import Loc
from tilelet.frontend.accumulators import write_windows_back
from tilelet.frontend.compile_time import PYTHON, Python
from tilelet.frontend.desugar import desugar_jumps, join_returns
from tilelet.frontend.source import SourceFile, defaults_in, find_function
from tilelet.ir.core import Function, FunctionKind
from tilelet.ir.spec import External
from tilelet.syntax import markers
from tilelet.syntax.enums import SplitMode


@dataclass(frozen=True)
class Style:
    """Properties that depend on the decorator.

    drops_axis      a scalar index among slices drops its axis (`@pl.jit`), else it keeps it
    implied         compute ops in the control program get a scope of their own (Opaque functions)
    strict_ssa      rebinding a name is an error
    guards_outputs  rebinding an output parameter without writing it is an error
    fills_outputs   assigning to an output parameter writes all of it (`attrs={"auto_tile": True}`)
    """

    drops_axis: bool = False
    implied: bool = False
    strict_ssa: bool = False
    guards_outputs: bool = False
    fills_outputs: bool = False


@dataclass(eq=False, repr=False)
class KernelFunction:
    """A function whose text is kernel code: a method of a program, a helper or a jit function.

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
    core: FunctionKind | None = None  # AIC, AIV or Group, if the kernel is declared for one of them
    split: str | None = None  # name of the `pl.SplitMode` by which two vector cores share it
    is_graph: bool = False  # its tasks are submitted as one graph
    external: External | None = None  # a stub for a kernel written outside the language
    is_callback: bool = False  # Python that a host function calls (`pl.Role.SubWorker`)
    host: Python = PYTHON  # evaluates compile-time Python in the text

    def __call__(self, *_: object, **__: object) -> object:
        raise OpOutsideKernel(self.name)

    def __repr__(self) -> str:
        return f"<kernel function {self.name}>"

    def as_python(self) -> str:
        """Return the function alone as `pl` text."""
        assert _lower_alone is not None, "tilelet.frontend.decorators has not been imported"
        return _lower_alone(self).as_python()

    @property
    def _func(self) -> object:
        """The plain function, for scripts that pass it to another decorator."""
        return self.python

    @functools.cached_property
    def _located(self) -> tuple[SourceFile, ast.FunctionDef]:
        if self.given_source is not None:
            return self.given_source
        return find_function(self.python)

    @property
    def source(self) -> SourceFile:
        return self._located[0]

    @property
    def node(self) -> ast.FunctionDef:
        return self._located[1]

    @functools.cached_property
    def body(self) -> list[ast.stmt]:
        stmts = [s for s in self.node.body if not _is_text(s)]
        if self.is_graph:
            stmts = _in_a_graph(stmts)
        return desugar_jumps(write_windows_back(join_returns(stmts)), self.source)

    @functools.cached_property
    def _parameters(self) -> list[ast.arg]:
        """All parameters; raise if one cannot be passed by position."""
        args = self.node.args
        loc = self.source.loc
        for starred, text in ((args.vararg, "*"), (args.kwarg, "**")):
            if starred is not None:
                raise UnsupportedParameter(loc(starred), f"{text}{starred.arg}", "list the tensors")
        if args.kwonlyargs and self.kind is not FunctionKind.Inline:
            first = args.kwonlyargs[0]
            raise UnsupportedParameter(loc(first), first.arg, "drop the `*` before it")
        for p, default in defaults_in(args):
            # `n: pl.Scalar[pl.INT32] = pl.RUNTIME`
            is_runtime = isinstance(default, ast.Attribute) and default.attr == "RUNTIME"
            if p.arg not in self.defaults and not is_runtime:
                advice = "use a name from outside the function instead"
                raise UnsupportedParameter(loc(default), p.arg, advice)
        return [*args.posonlyargs, *args.args, *args.kwonlyargs]

    @functools.cached_property
    def defaults(self) -> dict[str, int | float]:
        """Default values of the number parameters of a jit function."""
        if not self.generic:
            return {}
        if self.python is not None:
            parameters = inspect.signature(self.python).parameters
            found = {n: p.default for n, p in parameters.items()}
        else:
            names, file = self.captured_names(), self.source.path
            pairs = defaults_in(self.node.args)
            found = {p.arg: self.host.expression(d, file, names) for p, d in pairs}
        return {n: d for n, d in found.items() if isinstance(d, (int, float))}

    @property
    def parameters(self) -> list[ast.arg]:
        """The parameters without `self`; a method without it has annotations only."""
        found = self._parameters
        has_self = self.is_method and found and found[0].annotation is None
        return found[1:] if has_self else found

    @property
    def by_position(self) -> int:
        """The number of arguments that a call may pass by position."""
        return len(self.parameters) - len(self.node.args.kwonlyargs)

    def loc(self, caller: Loc | None = None) -> Loc:
        """Return the span of the `def` line, without the body."""
        at = self.source.loc(self.node, caller)
        name_end = at.col + len("def ") + len(self.name)
        return Loc(at.file, self.node.lineno, at.col, self.node.lineno, name_end, caller)

    def captured_names(self) -> dict[str, object]:
        """Return the values of outside names: globals, enclosing locals, closure cells."""
        names: dict[str, object] = {_GRAPH: markers.graph}
        if self.python is not None:
            names.update(self.python.__globals__)
        names.update(self.frame_names)
        if self.python is not None and self.python.__closure__:
            cells = zip(self.python.__code__.co_freevars, self.python.__closure__, strict=True)
            names.update({name: cell.cell_contents for name, cell in cells if _is_bound(cell)})
        return names


_lower_alone: Callable[[KernelFunction], Function] | None = None


def lower_alone_by(lower: Callable[[KernelFunction], Function]) -> None:
    """Let `lower` give the IR of a function alone; the builder is above this module."""
    global _lower_alone  # noqa: PLW0603 - there is one builder in a process
    _lower_alone = lower


_CORES = (FunctionKind.AIC, FunctionKind.AIV, FunctionKind.Group)
# Kernels for one kind of core, or for a group, are kernels; a graph is spliced into its caller.
_AS_KIND = {**dict.fromkeys(_CORES, FunctionKind.InCore), FunctionKind.Graph: FunctionKind.Inline}
# With these, the body is an expression of whole tensors: the compiler chooses tiles and cores.
_WITHOUT_SCHEDULE = ("auto_tile", "auto_fuse")


def of_type(
    name: str,
    declared: FunctionKind,
    strict_ssa: bool,
    attrs: Mapping[str, object] | None = None,
    **more: Any,
) -> KernelFunction:
    """Create a function declared with `@pl.function(type=..., attrs=...)`."""
    attrs = attrs or {}
    mode = attrs.get("split")
    split = mode.name if isinstance(mode, SplitMode) else None
    style = Style(
        implied=declared is FunctionKind.Opaque,
        strict_ssa=strict_ssa,
        guards_outputs=declared in (FunctionKind.Opaque, FunctionKind.Orchestration),
        drops_axis=declared is FunctionKind.Host,
        fills_outputs=any(attrs.get(name) for name in _WITHOUT_SCHEDULE),
    )
    core = declared if declared in _CORES else None
    kind = _AS_KIND.get(declared, declared)
    is_graph = declared is FunctionKind.Graph
    return KernelFunction(name, kind, style, core=core, split=split, is_graph=is_graph, **more)


def _is_text(s: ast.stmt) -> bool:
    """Return whether `s` is a docstring or another bare string."""
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)


_GRAPH = "graph of a function"
"""A name that no program can contain."""


def _in_a_graph(body: list[ast.stmt]) -> list[ast.stmt]:
    """Wrap the statements before the last `return` in a `with pl.graph()`."""
    last = body[-1:] if isinstance(body[-1], ast.Return) else []
    inner = body[: len(body) - len(last)]
    if not inner or any(isinstance(n, ast.Return) for s in inner for n in ast.walk(s)):
        return body
    call = ast.Call(ast.Name(_GRAPH, ast.Load()), [], [])
    scope = ast.With([ast.withitem(call)], inner)
    for node in (scope, call, call.func):
        ast.copy_location(node, inner[0])
    return [scope, *last]


def _is_bound(cell: CellType) -> bool:
    """Return whether a closure cell has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def is_plain(target: object) -> TypeGuard[FunctionType]:
    """Return whether `target` is an ordinary `def`, whose text can be found."""
    return (
        isinstance(target, FunctionType)
        and target.__name__ != "<lambda>"
        and not inspect.iscoroutinefunction(target)
        and not inspect.isasyncgenfunction(target)
    )


def frame_names(depth: int) -> dict[str, object]:
    """Return the names visible where a decorator is applied: locals of the enclosing frames.

    A method's decorator runs in the class body, whose own frame holds only the class; the builder
    function around it holds the sizes. `depth` counts frames from the caller's.
    """
    frame: FrameType | None = sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage]
    layers: list[Mapping[str, object]] = []
    while frame is not None and frame.f_code.co_name != "<module>":
        layers.append(frame.f_locals)
        if not _is_class_body(frame):
            break
        frame = frame.f_back
    names: dict[str, object] = {}
    for layer in reversed(layers):
        names.update(layer)
    return names


def _is_class_body(frame: FrameType) -> bool:
    return "__qualname__" in frame.f_locals and "__module__" in frame.f_locals


def here(depth: int) -> Loc:
    """Return the running line of the frame that is `depth` frames out from the caller's."""
    frame = sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage]
    return Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0)
