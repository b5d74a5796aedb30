"""Mistakes of programs of several ranks that their text shows."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.diag.catalogue.ranks import NotifiedTwice, WrongPlace
from tilelet.diag.core import UserError
from tilelet.ir.core import Function, FunctionKind, Program, walk
from tilelet.ir.spec import Engine

_HOST_ONLY = ("pld.world_size", "pld.alloc_window_buffer", "pld.window", "pld.callback")


def check_places(program: Program) -> None:
    """Raise an error at the first name of `pld` that stands where it means nothing."""
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore or function.kind is FunctionKind.Host:
            continue
        for op in walk(function.body):
            if not op.name.startswith("pld.") or op.name == "pld.get_comm_ctx":
                continue
            if op.name in ("pld.rank", "pld.nranks"):
                continue
            belongs = "the host function" if op.name in _HOST_ONLY else "a scope or a kernel"
            raise WrongPlace(op.loc, op.name, "a control program", belongs)


def findings(program: Program) -> Iterator[UserError]:
    """What can be said of a program before it runs."""
    for kernel in program.kernels:
        yield from _mixed(kernel)


def _mixed(kernel: Function) -> Iterator[UserError]:
    """Notifies that both kinds of cores of a mixed kernel run."""
    ops = list(walk(kernel.body))
    products = [op for op in ops if op.spec.engine is Engine.CUBE]
    if not products or not any(op.spec.engine is Engine.VEC for op in ops):
        return
    for op in ops:
        if op.name == "pld.system.notify" and not op.args["in_lane"]:
            yield NotifiedTwice(op.loc, kernel.name, products[0].loc)
