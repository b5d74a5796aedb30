"""The decorators users write: `@pl.program`, `@pl.function`, `@pl.inline`."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, overload

from tilelet.diag.catalogue.names import DuplicateFunction
from tilelet.diag.catalogue.python import BadDecorator
from tilelet.diag.catalogue.unsupported import UnsupportedFunctionType
from tilelet.diag.core import Loc, UserError, UserErrors
from tilelet.frontend.context import Style
from tilelet.frontend.functions import KernelFunction, frame_names, here, is_plain
from tilelet.frontend.jit import jit
from tilelet.frontend.module import ModuleBuilder, Origin, as_entry, entry_of
from tilelet.frontend.source import SourceFile, find_class
from tilelet.ir.core import SUPPORTED_KINDS, FunctionKind, Program

__all__ = ["function", "inline", "jit", "keep_refused", "program"]

Refusal = Callable[[UserError | UserErrors], Any]

_refused: Refusal | None = None


def keep_refused(make: Refusal | None) -> None:
    """Let `make(error)` stand for functions and programs with mistakes; None: raise the error."""
    global _refused  # noqa: PLW0603 - set once, by what runs many programs of one file
    _refused = make


@overload
def function(python: Callable[..., Any], /) -> Any: ...
@overload
def function(
    *,
    type: FunctionKind = ...,
    strict_ssa: bool = ...,
    auto_scope: bool = ...,
    attrs: Mapping[str, object] | None = ...,
) -> Callable[[Callable[..., Any]], Any]: ...
def function(
    python: Callable[..., Any] | None = None,
    /,
    *,
    type: FunctionKind = FunctionKind.Opaque,  # noqa: A002
    strict_ssa: bool = False,
    auto_scope: bool = True,  # noqa: ARG001
    attrs: Mapping[str, object] | None = None,  # noqa: ARG001
    **options: object,
) -> Any:
    """A function of a program: `@pl.function` or `@pl.function(type=pl.FunctionType.InCore)`.

    Opaque (the default) may hold scopes and becomes the control program; Orchestration is a
    hand-written control program; InCore is a kernel body, one task per call; Inline is spliced
    into its callers. `strict_ssa=True` forbids rebinding a name. `auto_scope=False` only tells the
    device runtime not to place memory scopes by itself; results do not depend on it. `attrs` are
    hints to a device's compiler, such as how to split a kernel; they change no result either.
    """
    visible, where = frame_names(1), here(1)
    if options:
        raise BadDecorator(where, "pl.function", f"it has no option `{next(iter(options))}`")

    def decorate(target: Callable[..., Any]) -> KernelFunction:
        if not is_plain(target):
            raise BadDecorator(where, "pl.function", "it decorates plain functions")
        if type not in SUPPORTED_KINDS:
            error = UnsupportedFunctionType(where, type.name)
            if _refused is None:
                raise error
            return _refused(error)
        style = Style(
            implied=type is FunctionKind.Opaque,
            strict_ssa=strict_ssa,
            guards_outputs=type in (FunctionKind.Opaque, FunctionKind.Orchestration),
        )
        return KernelFunction(target.__name__, type, style, python=target, frame_names=visible)

    return decorate if python is None else decorate(python)


def inline(python: Callable[..., Any]) -> Any:
    """A helper whose body is spliced into every caller. It must return a value."""
    if not is_plain(python):
        raise BadDecorator(here(1), "pl.inline", "it decorates plain functions")
    return KernelFunction(
        python.__name__,
        FunctionKind.Inline,
        Style(),
        generic=True,
        python=python,
        frame_names=frame_names(1),
    )


def program(cls: Any) -> Program:
    """Make a program of a class whose methods are decorated with `@pl.function`.

    The class is parsed, never instantiated. Its entry is the Orchestration function, or the Opaque
    one that no other method calls. Mistakes are reported here, where the class is defined.
    """
    if not isinstance(cls, type):
        raise BadDecorator(here(1), "pl.program", "it decorates classes")
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    source, node = find_class(cls, frame.f_code, frame.f_lineno)
    names = frame_names(1)
    if _refused is None:
        return _program(cls, source, node, names)
    for member in vars(cls).values():
        if isinstance(_refused, type) and isinstance(member, _refused):
            return member  # type: ignore[return-value]
    try:
        return _program(cls, source, node, names)
    except (UserError, UserErrors) as error:
        return _refused(error)


def _program(
    cls: type, source: SourceFile, node: ast.ClassDef, names: dict[str, object]
) -> Program:
    seen: dict[str, Loc] = {}
    for member in node.body:
        if isinstance(member, ast.FunctionDef):
            if member.name in seen:
                raise DuplicateFunction(source.loc(member), member.name, seen[member.name])
            seen[member.name] = source.loc(member)
    methods: dict[str, KernelFunction] = {}
    for name, member in vars(cls).items():
        if isinstance(member, KernelFunction):
            member.is_method = True
            member.frame_names = {**names, **member.frame_names}
            methods[name] = member
    return build_program(cls.__name__, methods, source.loc(node))


def build_program(name: str, methods: Mapping[str, KernelFunction], loc: Loc) -> Program:
    """Lower all functions of a program; raises every mistake found (ten at most)."""
    builder = ModuleBuilder(name, methods)

    def lower_all() -> str:
        entry = entry_of(name, methods, loc)
        for method in methods.values():
            if method is not entry and method.kind is FunctionKind.InCore and not method.generic:
                builder.kernel(method, (), method.loc())
        return (
            builder.kernel(entry, (), entry.loc()).name
            if entry.kind is FunctionKind.InCore
            else builder.lower(entry).name
        )

    origin = None
    with contextlib.suppress(UserError):  # reported by `lower_all`
        origin = Origin(entry_of(name, methods, loc), methods)
    built = builder.build(lower_all, origin)
    in_text_order = {m: built.functions[m] for m in methods if m in built.functions}
    built = built.with_functions({**in_text_order, **built.functions})
    return as_entry(built.main, built)
