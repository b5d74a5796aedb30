"""Names for hand-written transfers between the cores of a group, and between its vector lanes.

A function of type `Group` runs an `AIC` (cube) and an `AIV` (vector) function together; tiles go
between them through pipes, which are queues. The two functions are one task and become one kernel:
tiles are popped in the order in which they were pushed. Results do not depend on the depth of a
pipe or on where its slots lie.
"""

# `...` marks bodies that are empty on purpose: only the signature and the docstring count.
# ruff: noqa: PIE790

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tilelet.dtypes import DType
from tilelet.syntax.enums import KernelType, SyncAllMode
from tilelet.syntax.markers import marker
from tilelet.syntax.views import AUTO

if TYPE_CHECKING:
    from tilelet.syntax.types import Scalar, Tile

__all__ = [
    "aic_gather",
    "aic_initialize_pipe",
    "aiv_initialize_pipe",
    "aiv_shard",
    "import_peer_buffer",
    "reserve_buffer",
    "tfree_to_aic",
    "tfree_to_aiv",
    "tpop_from_aic",
    "tpop_from_aiv",
    "tpush_to_aic",
    "tpush_to_aiv",
]

V = TypeVar("V")


@marker
def tpush_to_aiv(
    tile: Tile,
    *,
    split: int,
    lane_stride: int | None = None,
    id: int | None = None,
    span: object = None,
) -> None:
    """In an AIC function: hand a tile to the AIV function of the same group.

    tile: what is handed over, with its valid region
    id: which of several pipes, 0 unless given
    split, lane_stride: how two vector cores share the tile; both halves are computed here at once
    span: without effect
    """
    ...


@marker
def tpush_to_aic(tile: Tile, *, split: int, id: int | None = None, span: object = None) -> None:
    """In an AIV function: hand a tile to the AIC function of the same group.

    tile, id, split, span: as of `pl.tpush_to_aiv`
    """
    ...


@marker
def tpop_from_aic(
    *,
    shape: list[int] | None = None,
    dtype: DType | None = None,
    split: int = 0,
    lane_stride: int | None = None,
    id: int | None = None,
    span: object = None,
) -> Tile:
    """In an AIV function: the next tile that the AIC function pushed.

    shape, dtype: of the tile; needed unless the name is annotated, as in
        `x: pl.Tile[[16, 16], pl.FP32, pl.Mem.Vec] = pl.tpop_from_aic(split=1)`. A `pl.TileView`
        there may narrow the valid region
    id: which of several pipes, 0 unless given
    split, lane_stride, span: as of `pl.tpush_to_aiv`
    """
    ...


@marker
def tpop_from_aiv(
    *,
    shape: list[int] | None = None,
    dtype: DType | None = None,
    split: int = 0,
    id: int | None = None,
    span: object = None,
) -> Tile:
    """In an AIC function: the next tile that the AIV function pushed.

    shape, dtype, id, split, span: as of `pl.tpop_from_aic`
    """
    ...


@marker
def tfree_to_aic(
    tile: Tile, span: object = None, *, split: int | None = None, id: int | None = None
) -> None:
    """Free a slot of a pipe; accepted, without effect: queues here are unbounded."""
    ...


@marker
def tfree_to_aiv(
    tile: Tile, span: object = None, *, split: int | None = None, id: int | None = None
) -> None:
    """As `pl.tfree_to_aic`."""
    ...


@marker
def aic_initialize_pipe(
    c2v_consumer_buf: object = None,
    v2c_consumer_buf: object = None,
    *,
    dir_mask: int,
    slot_size: int,
    slot_num: int | None = None,
    local_slot_num: int | None = None,
    id: int | None = None,
    span: object = None,
) -> None:
    """Set up a pipe in an AIC function; accepted, without effect: pipes need no setup here."""
    ...


@marker
def aiv_initialize_pipe(
    c2v_consumer_buf: object = None,
    v2c_consumer_buf: object = None,
    *,
    dir_mask: int,
    slot_size: int,
    slot_num: int | None = None,
    local_slot_num: int | None = None,
    id: int | None = None,
    span: object = None,
) -> None:
    """As `pl.aic_initialize_pipe`, in an AIV function."""
    ...


@marker
def reserve_buffer(*, name: str, size: int, base: int = AUTO, span: object = None) -> Scalar:
    """On-chip memory for the slots of a pipe; accepted, without effect. Its address is 0."""
    ...


@marker
def import_peer_buffer(*, name: str, peer_func: str, span: object = None) -> Scalar:
    """The address of the buffer that the other function of the group reserved; always 0."""
    ...


@marker
def syncall(
    *,
    core_type: str | KernelType = "mix",
    mode: str | SyncAllMode = "hard",
    gm_workspace: object = None,
    used_cores: object = None,
    span: object = None,
) -> None:
    """All blocks of a `pl.spmd` launch wait for each other.

    In the body of `for block in pl.spmd(n):`, also in its loops and branches, what follows is a
    launch of its own: no tile goes across. In a hand-written kernel tiles may, but no tensor that
    is written before may be used after it, nor written after it if it was used before: blocks run
    there one after the other.

    core_type, mode, gm_workspace, used_cores, span: how a device does it, without effect
    """
    ...


@marker
def aiv_shard(x: V, span: object = None) -> V:
    """In `for lane in pl.split_aiv(2, mode=...)`: what the lane has of a tile of the cube core.

    x: a 2-D tile; result: half of its rows (UP_DOWN) or columns (LEFT_RIGHT); all of it with NONE
    """
    ...


@marker
def aic_gather(x: V, span: object = None) -> V:
    """In `for lane in pl.split_aiv(2, mode=...)`: the tile that the lanes' halves make together.

    x: the lane's half; result: a tile of twice its rows or columns, to be read after the loop; with
    NONE, x itself
    """
    ...
