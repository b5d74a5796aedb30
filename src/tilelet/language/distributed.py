"""`pld`: several ranks. `import tilelet.language.distributed as pld`.

The host function (`@pl.jit.host`) allocates windows and dispatches control programs to ranks;
kernels move data between ranks and signal each other. See docs/ranks.md.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from tilelet.diag.catalogue.ranks import NotInRanks
from tilelet.diag.core import Loc
from tilelet.ops import ranks as _ops
from tilelet.ops.ranks import (
    alloc_window_buffer,
    get_comm_ctx,
    nranks,
    rank,
    remote_load,
    remote_store,
    window,
    world_size,
)
from tilelet.syntax.ranks import AtomicType, NotifyOp, ReduceOp, WaitCmp
from tilelet.syntax.types import CommCtx, DistributedTensor

__all__ = [
    "AtomicType",
    "CommCtx",
    "CommCtxType",
    "DistributedTensor",
    "NotifyOp",
    "ReduceOp",
    "WaitCmp",
    "alloc_window_buffer",
    "get_comm_ctx",
    "nranks",
    "rank",
    "remote_load",
    "remote_store",
    "system",
    "tensor",
    "tile",
    "window",
    "world_size",
]

CommCtxType = CommCtx


_BELOW = {
    "tensor": ("get_async", "put_async", "test"),
    "tile": ("get", "get_async", "put", "put_async"),
    "system": ("test",),
}
"""Names of the level below the language: transfers in the background, and printed IR."""


def _namespace(name: str, **members: object) -> types.ModuleType:
    module = types.ModuleType(f"{__name__}.{name}", f"`pld.{name}`.")

    def find(absent: str) -> Any:
        if absent in _BELOW[name]:
            frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
            loc = Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0)
            raise NotInRanks(loc, f"pld.{name}.{absent}")
        raise AttributeError(f"module 'pld.{name}' has no attribute {absent!r}")

    vars(module).update(members, __getattr__=find)
    return module


system = _namespace(
    "system",
    defer_wait=_ops.defer_wait,
    get_comm_ctx=get_comm_ctx,
    notify=_ops.notify,
    nranks=nranks,
    rank=rank,
    wait=_ops.wait,
    world_size=world_size,
)
tensor = _namespace(
    "tensor",
    all_to_all=_ops.all_to_all,
    all_to_all_v=_ops.all_to_all_v,
    allgather=_ops.allgather,
    alloc_window_buffer=alloc_window_buffer,
    allreduce=_ops.allreduce,
    barrier=_ops.barrier,
    broadcast=_ops.broadcast,
    get=_ops.get,
    put=_ops.put,
    reduce_scatter=_ops.reduce_scatter,
    remote_store=_ops.tensor_remote_store,
    window=window,
)
tile = _namespace("tile", remote_load=remote_load, remote_store=remote_store)
