"""`ir.Program([function, ...], name, span)`: a program of separate functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.diag.core import UNKNOWN
from tilelet.frontend.decorators import build_program
from tilelet.frontend.functions import KernelFunction
from tilelet.ir import core
from tilelet.ir.programs import Programs


class Span:
    """A source span. It has no effect, because functions have their own locations."""

    def __init__(self, *place: object) -> None:
        self.place = place

    @staticmethod
    def unknown() -> Span:
        return Span()


class _Program(type):
    """Makes `ir.Program` usable with `isinstance`."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, core.Program)

    def __call__(  # type: ignore[override]
        cls,
        functions: Sequence[KernelFunction | core.Function],
        name: str = "",
        span: object = None,  # noqa: ARG002
    ) -> core.Program | Programs:
        name = name or next((f.name for f in functions), "program")
        methods = {f.name: f for f in functions if isinstance(f, KernelFunction)}
        lowered = {f.name: f for f in functions if isinstance(f, core.Function)}
        if not lowered:
            loc = next((f.loc() for f in methods.values()), UNKNOWN)
            return build_program(name, methods, loc)
        for method in methods.values():
            built = build_program(name, {method.name: method}, method.loc())
            assert isinstance(built, core.Program)  # one function has one entry
            lowered |= built.functions
        return _of_lowered(name, lowered)


def _of_lowered(name: str, functions: Mapping[str, core.Function]) -> core.Program | Programs:
    """Build a program of functions from `pl.parse` or from another program."""
    control = [f.name for f in functions.values() if f.kind is not core.FunctionKind.InCore]
    entries = control or list(functions)
    found = {e: core.Program(name, functions, e) for e in entries}
    return found[entries[0]] if len(entries) == 1 else Programs(name, found)


class Program(metaclass=_Program):
    """A program; callable with functions, and usable with `isinstance`."""

    def __init__(self, *_: object) -> None: ...
