"""`ir.Program([function, ...], name, span)`: a program of functions that stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelet.diag.core import UNKNOWN, Loc
from tilelet.frontend.decorators import build_program
from tilelet.frontend.functions import KernelFunction
from tilelet.ir import core
from tilelet.ir.programs import Programs


class Span:
    """Where something stands in a file. Functions know that themselves, so it has no effect."""

    def __init__(self, *place: object) -> None:
        self.place = place

    @staticmethod
    def unknown() -> Span:
        return Span()


class _Program(type):
    """`ir.Program` is asked for as a class, too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, core.Program)

    def __call__(  # type: ignore[override]
        cls,
        functions: Sequence[KernelFunction],
        name: str = "",
        span: object = None,  # noqa: ARG002
    ) -> core.Program | Programs:
        methods = {f.name: f for f in functions}
        loc: Loc = functions[0].loc() if functions else UNKNOWN
        return build_program(name or next(iter(methods), "program"), methods, loc)


class Program(metaclass=_Program):
    """A program, made of functions or asked for with `isinstance`."""

    def __init__(self, *_: Any) -> None: ...
