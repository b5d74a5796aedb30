"""Static checks of programs with several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilelet.diag.catalogue.ranks import BadDeferredWait, BadDevice, NotifiedTwice, WrongPlace
from tilelet.diag.core import UserError
from tilelet.ir.core import Function, FunctionKind, Program, Value, walk
from tilelet.ir.spec import Engine
from tilelet.ir.types import DistributedType, TileType
from tilelet.ir.views import ForView

# A kernel with deferred waits may also read and compute scalars.
_BESIDE_DEFERRED = ("pld.system.defer_wait", "pld.get_comm_ctx", "pld.rank", "pld.nranks")
_HOST_ONLY = ("pld.world_size", "pld.alloc_window_buffer", "pld.window", "pld.callback")


def check_text(program: Program) -> None:
    """Raise an error at the first statement that no rank could run."""
    _check_places(program)
    _check_devices(program)
    for kernel in program.kernels:
        _check_deferred(kernel)


def _check_devices(program: Program) -> None:
    """Check that a dispatch with windows names its rank by a constant or a loop variable."""
    host = program.main
    loops = {ForView(op).index for op in walk(host.body) if op.name == "for"}
    for op in walk(host.body):
        if op.name != "call":
            continue
        options: Any = op.args["options"] or ()
        rank = dict(options).get("device")
        has_windows = any(isinstance(v.type, DistributedType) for v in op.operands)
        if has_windows and isinstance(rank, Value) and rank not in loops:
            raise BadDevice(op.loc, rank.name)


def _check_deferred(kernel: Function) -> None:
    """Check that `defer_wait` stands alone: its task ends immediately and only registers
    conditions.
    """
    ops = list(walk(kernel.body))
    first = next((op for op in ops if op.name == "pld.system.defer_wait"), None)
    if first is None:
        return
    for op in ops:
        has_tiles = any(isinstance(v.type, TileType) for v in (*op.operands, *op.results))
        talks = op.name.startswith("pld.") and op.name not in _BESIDE_DEFERRED
        if not op.spec.structural and (has_tiles or talks or op.spec.writes):
            raise BadDeferredWait(op.loc, f"its kernel has `{op.name}`, too")


def _check_places(program: Program) -> None:
    """Raise an error at the first `pld` name used where it has no meaning."""
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
    """Return the findings that need no run."""
    for kernel in program.kernels:
        yield from _mixed(kernel)


def _mixed(kernel: Function) -> Iterator[UserError]:
    """Return notifies that both kinds of cores of a mixed kernel execute."""
    ops = list(walk(kernel.body))
    products = [op for op in ops if op.spec.engine is Engine.CUBE]
    if not products or not any(op.spec.engine is Engine.VEC for op in ops):
        return
    for op in ops:
        if op.name == "pld.system.notify" and not op.args["in_lane"]:
            yield NotifiedTwice(op.loc, kernel.name, products[0].loc)
