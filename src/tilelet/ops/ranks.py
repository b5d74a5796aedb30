"""Ops of several ranks: `pld.*`. They are defined here and executed by `ranks/`.

They are not in the registry of single-chip ops: no backend of one chip has to know them.
"""

# An ellipsis marks a body that is empty on purpose: the op is only documented here.
# ruff: noqa: PIE790

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tilelet import dtypes
from tilelet.diag.catalogue.ops import BadChoice, RankMismatch
from tilelet.diag.catalogue.ranks import (
    BadCollective,
    BadDeferredWait,
    BadSignal,
    BadWindowBuffer,
    NotDistributed,
    TransferMismatch,
)
from tilelet.dtypes import DType
from tilelet.ir.core import Value
from tilelet.ir.spec import Call, Engine, OpFields, OpSpec, Plane, Trait, op
from tilelet.ir.types import (
    Dim,
    DistributedType,
    ScalarType,
    ShapedType,
    SymDim,
    TensorType,
    TileType,
    shapes_agree,
)
from tilelet.ops import infer
from tilelet.ops.transfers import check_window, fit_rank
from tilelet.syntax.enums import AtomicType
from tilelet.syntax.ranks import NotifyOp, ReduceOp, WaitCmp

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilelet.ops.annotations import Int, Ints, Shaped
    from tilelet.syntax.types import CommCtx, DistributedTensor, Scalar, Tensor, Tile

P = ParamSpec("P")
R = TypeVar("R")

RANK_OPS: dict[str, OpSpec] = {}
"""The ops of `pld` by name."""

_COMM = ScalarType(dtypes.INDEX)
_INT32 = ScalarType(dtypes.INT32)


def _op(
    name: str,
    check: Callable[[Call], infer.Types],
    *,
    family: OpFields | None = None,
    **fields: Unpack[OpFields],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make an op of `pld` of a typed, documented function."""
    given: OpFields = {"infer": check, "era": "HEAD", **(family or {}), **fields}
    return op(name=f"pld.{name}", family=given, registry=RANK_OPS)


# --- what arguments are --------------------------------------------------------------------------


def _distributed_type(call: Call, param: str) -> DistributedType:
    arg = call[param]
    if isinstance(arg, Value) and isinstance(arg.type, DistributedType):
        return arg.type
    raise NotDistributed(call.at(param), call.shown, param, infer.describe(arg))


def _region(call: Call, param: str, t: TensorType, offsets: str, sizes: Sequence[object]) -> None:
    starts = infer.items(call, offsets)
    if len(starts) != len(t.shape):
        raise RankMismatch(call.at(offsets), call.shown, f"`{offsets}`", len(starts), len(t.shape))
    check_window(call, offsets, infer.name_of(call, param), starts, sizes, t.shape)


def _cell(call: Call, param: str) -> None:
    signal = _distributed_type(call, param)
    if signal.dtype is not dtypes.INT32:
        raise BadSignal(call.at(param), call.shown, f"`{param}` has elements of {signal.dtype}")
    starts = infer.items(call, "offsets")
    if len(starts) != len(signal.shape):
        problem = f"{len(starts)} offsets for a signal of {len(signal.shape)} axes"
        raise BadSignal(call.at("offsets"), call.shown, problem)
    check_window(
        call, "offsets", infer.name_of(call, param), starts, [1] * len(starts), signal.shape
    )


def _word(call: Call, param: str) -> None:
    """Check a number that is compared with a cell, or stored in one."""
    infer.integer(call, param)
    found = infer.int_of(call[param])
    if found is not None:
        infer.check_constant(found, dtypes.INT32, call.at(param))


def _choice(call: Call, param: str, kind: type[Any], allowed: Sequence[Any] | None = None) -> None:
    found = call[param]
    if not isinstance(found, kind):
        raise infer.bad(call, param, f"a `pld.{kind.__name__}`")
    if allowed is not None and found not in allowed:
        names = [x.name for x in allowed]
        raise BadChoice(call.at(param), call.shown, param, found.name, names)


def _atomic(call: Call, dtype: DType) -> None:
    _choice(call, "atomic", AtomicType)
    addable = (dtypes.FP32, dtypes.BF16, dtypes.FP16, dtypes.INT32, dtypes.INT16, dtypes.INT8)
    if call["atomic"] is AtomicType.Add:
        infer.check_dtype(call, "atomic", dtype, addable)


def _same_dtype(call: Call, a: str, ta: ShapedType, b: str, tb: ShapedType) -> None:
    if ta.dtype is not tb.dtype:
        problem = f"`{a}` has elements of {ta.dtype}, `{b}` of {tb.dtype}"
        raise TransferMismatch(call.at(b), call.shown, problem)


def _bytes(shape: Sequence[Dim], dtype: DType) -> int | None:
    count = infer.count_of(shape)
    return None if count is None else count * dtype.itemsize


# --- host ----------------------------------------------------------------------------------------


def _infer_world(_: Call) -> infer.Types:
    return (ScalarType(dtypes.INT64),)


@_op("world_size", _infer_world, engine=Engine.SCALAR, plane=Plane.CONTROL, traits=Trait.SHAPE_ONLY)
def world_size() -> Scalar:
    """Number of ranks of the program: the length of `device_ids`. In the host function only.

    result: INT64

    Example: `for r in pl.range(pld.world_size()): per_rank(x[r], y[r], device=r)`
    """
    ...


def _infer_alloc(call: Call) -> infer.Types:
    size, dtype = call["size"], call["dtype"]
    if isinstance(size, tuple):
        if not isinstance(dtype, DType):
            problem = f"`{call.shown}` with a shape needs `dtype=`"
            raise BadWindowBuffer(call.loc, problem, "or give the number of bytes alone")
        shape = infer.dims(call, "size")
        return (DistributedType((_bytes(shape, dtype) or SymDim("bytes"),), dtypes.UINT8),)
    if dtype is not None:
        problem = f"`{call.shown}` with a number of bytes takes no `dtype=`"
        raise BadWindowBuffer(call.at("dtype"), problem, "give a shape: `[rows, columns]`")
    infer.integer(call, "size")
    nbytes = infer.int_of(size)
    if nbytes is not None and nbytes < 1:
        raise BadWindowBuffer(call.at("size"), f"a window buffer of {nbytes} bytes")
    return (DistributedType((nbytes or SymDim("bytes"),), dtypes.UINT8),)


@_op(
    "alloc_window_buffer",
    _infer_alloc,
    engine=Engine.NONE,
    plane=Plane.CONTROL,
    traits=Trait.SUBMITS,
)
def alloc_window_buffer(size: Int | Ints, *, dtype: DType | None = None) -> DistributedTensor:
    """Allocate a window buffer: the same number of bytes on every rank, zero at the start.

    size: a number of bytes, or a shape; dtype: the element type that goes with a shape
    result: what `pld.window` takes

    Example: `signal_buf = pld.alloc_window_buffer([P, 1], dtype=pl.INT32)`
    """
    ...


def _infer_window(call: Call) -> infer.Types:
    buffer = _distributed_type(call, "buf")
    shape, dtype = infer.dims(call, "shape"), infer.dtype(call, "dtype")
    have, need = infer.count_of(buffer.shape), _bytes(shape, dtype)
    if have is not None and need is not None and need > have:
        problem = f"a view of {need} bytes of a window buffer of {have}"
        made = call["buf"].loc if isinstance(call["buf"], Value) else None
        raise BadWindowBuffer(call.loc, problem, "allocate more; the size counts bytes", made)
    return (DistributedType(shape, dtype),)


@_op("window", _infer_window, engine=Engine.NONE, plane=Plane.CONTROL, view="buf")
def window(buf: DistributedTensor, shape: Ints, *, dtype: DType) -> DistributedTensor:
    """A view of a window buffer, from its start.

    buf: made by `pld.alloc_window_buffer`; shape: extents; dtype: its element type
    result: a `pld.DistributedTensor`

    Example: `signal = pld.window(signal_buf, [P, 1], dtype=pl.INT32)`
    """
    ...


def _infer_callback(_: Call) -> infer.Types:
    return ()


@_op("callback", _infer_callback, engine=Engine.NONE, plane=Plane.CONTROL, on_chip=())
def callback(name: str, operands: Sequence[object]) -> None:
    """What a call of a sub-worker becomes: Python that the host runs on tensors.

    name: of the sub-worker; operands: what it is given

    Example: `self.report(outputs)`
    """


# --- where a rank stands -------------------------------------------------------------------------


def _infer_ctx(call: Call) -> infer.Types:
    _distributed_type(call, "tensor")
    return (_COMM,)


@_op(
    "get_comm_ctx",
    _infer_ctx,
    engine=Engine.SCALAR,
    plane=Plane.BOTH,
    traits=Trait.SHAPE_ONLY,
)
def get_comm_ctx(tensor: DistributedTensor) -> CommCtx:
    """The communication domain of a window: the ranks that share it.

    tensor: a view of a window buffer
    result: what `pld.rank` and `pld.nranks` take

    Example: `ctx = pld.get_comm_ctx(signal)`
    """
    ...


def _infer_rank(call: Call) -> infer.Types:
    arg = call["ctx"]
    if not isinstance(arg, Value) or arg.type != _COMM:
        raise infer.bad(call, "ctx", "what `pld.get_comm_ctx` gives")
    return (_INT32,)


_PLACE: OpFields = {
    "engine": Engine.SCALAR,
    "plane": Plane.BOTH,
    "traits": Trait.SHAPE_ONLY,
}


@_op("rank", _infer_rank, family=_PLACE)
def rank(ctx: CommCtx) -> Scalar:
    """Number of the own rank in a domain, counted densely from 0.

    ctx: what `pld.get_comm_ctx` gives
    result: INT32

    Example: `me = pld.rank(pld.get_comm_ctx(signal))`
    """
    ...


@_op("nranks", _infer_rank, family=_PLACE)
def nranks(ctx: CommCtx) -> Scalar:
    """Number of ranks of a domain.

    ctx: what `pld.get_comm_ctx` gives
    result: INT32

    Example: `peer = (me + 1) % pld.nranks(ctx)`
    """
    ...


# --- point to point ------------------------------------------------------------------------------

_TRANSFER: OpFields = {"engine": Engine.MTE, "plane": Plane.SCOPE, "on_chip": ()}


def _infer_remote_load(call: Call) -> infer.Types:
    target = _distributed_type(call, "target")
    infer.integer(call, "peer")
    shape = infer.constant_shape(call, "shape")
    if len(shape) != len(target.shape):
        raise RankMismatch(call.at("shape"), call.shown, "`shape`", len(shape), len(target.shape))
    sizes: Sequence[object] = shape
    if call["valid_shape"] is not None:
        limits = infer.items(call, "valid_shape")
        infer.check_rank(call, "valid_shape", len(limits), len(shape))
        sizes = [infer.int_of(limit) for limit in limits]
    _region(call, "target", target, "offsets", sizes)
    return (TileType(shape, target.dtype),)


@_op("tile.remote_load", _infer_remote_load, family=_TRANSFER)
def remote_load(
    target: DistributedTensor,
    peer: Int,
    offsets: Ints,
    shape: Ints,
    valid_shape: Ints | None = None,
) -> Tile:
    """Load a region of a peer's slice into a tile. Nothing orders it with what the peer does.

    target: a view of a window buffer; peer: its rank in the domain
    offsets, shape: the region, an entry per axis; shape: constants
    valid_shape: how much of it is read
    result: a tile

    Example: `row = pld.tile.remote_load(data, peer=peer, offsets=[0, 0], shape=[1, 64])`
    """
    ...


def _infer_remote_store(call: Call) -> infer.Types:
    source = call["src"]
    if isinstance(source, Value) and isinstance(source.type, DistributedType):
        raise TransferMismatch(
            call.at("src"), call.shown, "`src` is a window itself", "use `pld.tensor.put`"
        )
    stored, target = infer.shaped_type(call, "src"), _distributed_type(call, "target")
    infer.integer(call, "peer")
    _same_dtype(call, "target", target, "src", stored)
    _atomic(call, target.dtype)
    sizes = fit_rank(stored.shape, len(target.shape))
    if sizes is None:
        problem = f"`src` has {len(stored.shape)} axes, `target` {len(target.shape)}"
        raise TransferMismatch(call.at("src"), call.shown, problem)
    certain = [1] * len(sizes) if isinstance(stored, TileType) else sizes
    _region(call, "target", target, "offsets", certain)
    return (target,)


_STORED: OpFields = {**_TRANSFER, "on_chip": ("src",), "writes": ("target",)}


@_op("tile.remote_store", _infer_remote_store, family=_STORED)
def remote_store(
    src: Tile,
    target: DistributedTensor,
    peer: Int,
    offsets: Ints,
    *,
    atomic: AtomicType = AtomicType.None_,
) -> DistributedTensor:
    """Store a tile into a region of a peer's slice.

    src: a tile; target: a view of a window buffer; peer: its rank in the domain
    offsets: where the region starts, an entry per axis
    atomic: `pld.AtomicType.Add` adds to what is there, element by element
    result: the target

    Example: `pld.tile.remote_store(row, data, peer=peer, offsets=[0, 0])`
    """
    ...


@_op("tensor.remote_store", _infer_remote_store, family=_STORED)
def tensor_remote_store(
    src: Shaped,
    target: DistributedTensor,
    peer: Int,
    offsets: Ints,
    *,
    atomic: AtomicType = AtomicType.None_,
) -> DistributedTensor:
    """As `pld.tile.remote_store`, of a value in tensor style.

    src: a value of this rank, not a window; target: a view of a window buffer
    peer: its rank in the domain; offsets: where the region starts; atomic: as there
    result: the target

    Example: `pld.tensor.remote_store(scaled, data, peer, [0, 0])`
    """
    ...


def _infer_transfer(call: Call, remote: str, local: str) -> infer.Types:
    far = _distributed_type(call, remote)
    near = infer.tensor(call, local)
    infer.integer(call, "peer")
    _same_dtype(call, remote, far, local, near)
    given = [call[p] is not None for p in ("dst_offsets", "src_offsets", "shape")]
    dst, src = (far, near) if remote == "dst" else (near, far)
    if any(given) and not all(given):
        problem = "a region needs all of `dst_offsets`, `src_offsets` and `shape`"
        raise TransferMismatch(call.loc, call.shown, problem)
    if all(given):
        sizes = infer.items(call, "shape")
        extents = [infer.int_of(n) for n in sizes]
        for param, t in (("dst", dst), ("src", src)):
            if len(sizes) != len(t.shape):
                problem = f"a region of {len(sizes)} axes, and `{param}` has {len(t.shape)}"
                raise TransferMismatch(call.at("shape"), call.shown, problem)
            _region(call, param, t, f"{param}_offsets", extents)
    elif not shapes_agree(dst.shape, src.shape):
        problem = f"`dst` is {dst}, `src` is {src}"
        advice = "give a region: `dst_offsets=`, `src_offsets=` and `shape=`"
        raise TransferMismatch(call.at(local), call.shown, problem, advice)
    chunks = [infer.constant_int(call, p, at_least=0) for p in ("chunk_rows", "chunk_cols")]
    moved = infer.items(call, "shape") if all(given) else near.shape
    are_fixed = [not isinstance(n, (SymDim, Value)) for n in moved]
    fixed = (all(are_fixed[:-1]), all(are_fixed[-1:]))
    for param, chunk, is_fixed in zip(("chunk_rows", "chunk_cols"), chunks, fixed):
        if not chunk and not is_fixed:
            problem = f"a region whose extent is computed needs `{param}=`"
            advice = "on a device its staging tile has a constant size"
            raise TransferMismatch(call.at("shape"), call.shown, problem, advice)
    if infer.flag(call, "pipeline") and not all(chunks):
        problem = "`pipeline=True` needs `chunk_rows=` and `chunk_cols=`"
        raise TransferMismatch(call.at("pipeline"), call.shown, problem)
    return (dst,)


def _infer_put(call: Call) -> infer.Types:
    types = _infer_transfer(call, "dst", "src")
    _atomic(call, _distributed_type(call, "dst").dtype)
    return types


def _infer_get(call: Call) -> infer.Types:
    return _infer_transfer(call, "src", "dst")


@_op("tensor.put", _infer_put, family=_TRANSFER, writes=("dst",))
def put(
    dst: DistributedTensor,
    peer: Int,
    src: Tensor,
    dst_offsets: Ints | None = None,
    src_offsets: Ints | None = None,
    shape: Ints | None = None,
    *,
    atomic: AtomicType = AtomicType.None_,
    chunk_rows: int = 0,
    chunk_cols: int = 0,
    pipeline: bool = False,
) -> DistributedTensor:
    """Copy local memory into a peer's slice, and wait until it is there.

    dst: a view of a window buffer; peer: its rank in the domain; src: local memory
    dst_offsets, src_offsets, shape: the region; left out: all of `src` to all of `dst`
    atomic: `pld.AtomicType.Add` adds to what is there
    chunk_rows, chunk_cols: size of the staging tile on a device, 0: all; pipeline: two of them. No
        result depends on these
    result: `dst`

    Example: `pld.tensor.put(dst, peer=peer, src=src)`
    """
    ...


@_op("tensor.get", _infer_get, family=_TRANSFER, writes=("dst",))
def get(
    dst: Tensor,
    peer: Int,
    src: DistributedTensor,
    dst_offsets: Ints | None = None,
    src_offsets: Ints | None = None,
    shape: Ints | None = None,
    *,
    chunk_rows: int = 0,
    chunk_cols: int = 0,
    pipeline: bool = False,
) -> Tensor:
    """Copy a peer's slice into local memory, and wait until it is there.

    dst: local memory; peer: the rank in the domain; src: a view of a window buffer
    dst_offsets, src_offsets, shape: the region; left out: all of `src` to all of `dst`
    chunk_rows, chunk_cols, pipeline: as of `pld.tensor.put`
    result: `dst`

    Example: `pld.tensor.get(dst, peer=peer, src=src)`
    """
    ...


# --- signals -------------------------------------------------------------------------------------

_SIGNAL: OpFields = {"engine": Engine.SCALAR, "plane": Plane.SCOPE, "on_chip": ()}


def _infer_notify(call: Call) -> infer.Types:
    _cell(call, "target")
    infer.integer(call, "peer")
    _word(call, "value")
    _choice(call, "op", NotifyOp)
    return (_distributed_type(call, "target"),)


@_op("system.notify", _infer_notify, family=_SIGNAL, writes=("target",))
def notify(
    target: DistributedTensor,
    peer: Int,
    offsets: Ints,
    value: Int,
    *,
    op: NotifyOp,
    in_lane: bool = False,
) -> DistributedTensor:
    """Add to, or set, one cell of a peer's slice (or of the own one). It does not wait.

    target: a window of INT32; peer: its rank in the domain; offsets: the cell
    value: what is added or set; op: `pld.NotifyOp.AtomicAdd` or `.Set`
    in_lane: whether it stands in `pl.split_aiv`; the compiler fills it in
    result: the target

    Example: `pld.system.notify(signal, peer=1, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)`
    """
    ...


def _infer_wait(call: Call) -> infer.Types:
    _cell(call, "signal")
    _word(call, "expected")
    _choice(call, "cmp", WaitCmp)
    return ()


@_op("system.wait", _infer_wait, family=_SIGNAL)
def wait(signal: DistributedTensor, offsets: Ints, expected: Int, *, cmp: WaitCmp) -> None:
    """Wait, on the core, until one cell of the own slice has a value.

    signal: a window of INT32; offsets: the cell; expected: the value
    cmp: `pld.WaitCmp.Ge`, at least that, or `.Eq`, exactly that

    Example: `pld.system.wait(signal, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)`
    """


def _infer_defer_wait(call: Call) -> infer.Types:
    _infer_wait(call)
    expected = infer.int_of(call["expected"])
    if expected is not None and expected < 0:
        raise BadDeferredWait(call.at("expected"), f"it compares unsigned numbers, not {expected}")
    _choice(call, "cmp", WaitCmp, [WaitCmp.Ge])
    return ()


@_op("system.defer_wait", _infer_defer_wait, family=_SIGNAL)
def defer_wait(
    signal: DistributedTensor, offsets: Ints, expected: Int, *, cmp: WaitCmp = WaitCmp.Ge
) -> None:
    """Keep the task open until one cell of the own slice has a value, without holding a core.

    signal: a window of INT32; offsets: the cell; expected: the value; cmp: `pld.WaitCmp.Ge`

    Example: `pld.system.defer_wait(signal, offsets=[0, 0], expected=epoch)`
    """


# --- collectives ---------------------------------------------------------------------------------

_COLLECTIVE: OpFields = {"engine": Engine.MTE, "plane": Plane.BOTH, "on_chip": ()}


def _collective_data(
    call: Call, param: str, allowed: Sequence[DType] | None = None
) -> DistributedType:
    found = _distributed_type(call, param)
    if allowed is not None:
        infer.check_dtype(call, param, found.dtype, allowed)
    return found


def _check_signal(call: Call, param: str = "signal") -> None:
    signal = _distributed_type(call, param)
    if signal.dtype is not dtypes.INT32:
        raise BadSignal(call.at(param), call.shown, f"`{param}` has elements of {signal.dtype}")


def _differ(call: Call, *params: str) -> None:
    """Check that the operands of a collective are different views."""
    seen: dict[Value, str] = {}
    for param in params:
        arg = call[param]
        if isinstance(arg, Value) and seen.setdefault(arg, param) != param:
            problem = f"`{seen[arg]}` and `{param}` are one window"
            raise BadCollective(call.at(param), call.shown, problem, "give each its own buffer")


_REDUCED = (dtypes.FP32, dtypes.FP16)


def _infer_allreduce(call: Call) -> infer.Types:
    target = _collective_data(call, "target", _REDUCED)
    if call["signal"] is None:
        if call.in_scope:
            problem = "in a kernel the signal must be given"
            raise BadCollective(call.loc, call.shown, problem, "pass a signal window")
    else:
        _check_signal(call)
        _differ(call, "target", "signal")
    _choice(call, "op", ReduceOp)
    if call["mode"] not in ("mesh", "ring"):
        raise BadChoice(call.at("mode"), call.shown, "mode", call["mode"], ["mesh", "ring"])
    cores = infer.constant_int(call, "core_num", at_least=1)
    if call.in_scope and cores != 1:
        problem = "`core_num` is 1 in a kernel"
        raise BadCollective(call.at("core_num"), call.shown, problem)
    return (target,)


@_op("tensor.allreduce", _infer_allreduce, family=_COLLECTIVE, writes=("target", "signal"))
def allreduce(
    target: DistributedTensor,
    signal: DistributedTensor | None = None,
    *,
    op: ReduceOp = ReduceOp.Sum,
    mode: str = "mesh",
    core_num: int = 1,
) -> DistributedTensor:
    """Combine the slices of all ranks element by element; every rank gets the result, in place.

    target: FP32 or FP16; signal: INT32, `[P, 1]` for a mesh, `[2 * (P - 1), P]` for a ring
    op: a `pld.ReduceOp`; mode: "mesh" or "ring"; core_num: cores on a device, in the host function
    result: the target

    Example: `data = pld.tensor.allreduce(data, signal, op=pld.ReduceOp.Sum)`
    """
    ...


def _infer_barrier(call: Call) -> infer.Types:
    _check_signal(call)
    return (_distributed_type(call, "signal"),)


@_op("tensor.barrier", _infer_barrier, family=_COLLECTIVE, writes=("signal",))
def barrier(signal: DistributedTensor) -> DistributedTensor:
    """Wait until all ranks of the domain have arrived.

    signal: INT32, `[P]` or `[P, 1]`
    result: the signal

    Example: `signal = pld.tensor.barrier(signal)`
    """
    ...


def _infer_broadcast(call: Call) -> infer.Types:
    target = _collective_data(call, "target")
    _check_signal(call)
    _differ(call, "target", "signal")
    infer.constant_int(call, "root", at_least=0)
    return (target,)


@_op("tensor.broadcast", _infer_broadcast, family=_COLLECTIVE, writes=("target", "signal"))
def broadcast(
    target: DistributedTensor, signal: DistributedTensor, *, root: int
) -> DistributedTensor:
    """Copy the slice of one rank to all others.

    target: a window; signal: INT32, one cell per rank; root: whose slice
    result: the target

    Example: `data = pld.tensor.broadcast(data, signal, root=0)`
    """
    ...


def _rows(call: Call, param: str, target: TensorType) -> None:
    given = infer.tensor(call, param)
    _same_dtype(call, "target", target, param, given)
    a, b = infer.count_of(given.shape[1:]), infer.count_of(target.shape[1:])
    if a is not None and b is not None and a != b:
        problem = f"rows of `{param}` have {a} elements, rows of `target` {b}"
        raise BadCollective(call.at(param), call.shown, problem)


def _infer_allgather(call: Call) -> infer.Types:
    target = _collective_data(call, "target")
    _rows(call, "local", target)
    if infer.tensor(call, "local").shape[0] != 1:
        problem = f"`local` is {infer.tensor(call, 'local')}, not one row"
        raise BadCollective(call.at("local"), call.shown, problem, "pass `[1, S]`")
    _check_signal(call)
    _differ(call, "local", "target", "signal")
    return (target,)


@_op("tensor.allgather", _infer_allgather, family=_COLLECTIVE, writes=("target", "signal"))
def allgather(
    local: DistributedTensor, target: DistributedTensor, signal: DistributedTensor
) -> DistributedTensor:
    """Collect a row of every rank: row s of the target comes from rank s.

    local: `[1, S]`, the own row; target: `[P, S]`; signal: INT32, one cell per rank
    result: the target

    Example: `data = pld.tensor.allgather(stage, data, signal)`
    """
    ...


def _infer_reduce_scatter(call: Call) -> infer.Types:
    target = _collective_data(call, "target", _REDUCED)
    _check_signal(call)
    _differ(call, "target", "signal")
    _choice(call, "op", ReduceOp, [ReduceOp.Sum])
    return (target,)


@_op(
    "tensor.reduce_scatter", _infer_reduce_scatter, family=_COLLECTIVE, writes=("target", "signal")
)
def reduce_scatter(
    target: DistributedTensor, signal: DistributedTensor, *, op: ReduceOp = ReduceOp.Sum
) -> DistributedTensor:
    """Sum row r of all ranks into row r of rank r; the other rows are undefined afterwards.

    target: `[P, S]`; signal: INT32, one cell per rank; op: `pld.ReduceOp.Sum`
    result: the target

    Example: `data = pld.tensor.reduce_scatter(data, signal)`
    """
    ...


def _infer_all_to_all(call: Call) -> infer.Types:
    target = _collective_data(call, "target")
    _rows(call, "input", target)
    _check_signal(call)
    _differ(call, "input", "target", "signal")
    return (target,)


@_op("tensor.all_to_all", _infer_all_to_all, family=_COLLECTIVE, writes=("target", "signal"))
def all_to_all(
    input: DistributedTensor,
    target: DistributedTensor,
    signal: DistributedTensor,
) -> DistributedTensor:
    """Exchange rows: row s of the target is the row of rank s that is meant for this rank.

    input: `[P, S]`, row d for rank d; target: `[P, S]`; signal: INT32, one cell per rank
    result: the target

    Example: `data = pld.tensor.all_to_all(stage, data, signal)`
    """
    ...


def _infer_all_to_all_v(call: Call) -> infer.Types:
    target = _collective_data(call, "target")
    _rows(call, "input", target)
    _check_signal(call)
    _check_signal(call, "recv_counts")
    if infer.tensor(call, "send_counts").dtype is not dtypes.INT32:
        raise infer.bad(call, "send_counts", "counts of pl.INT32")
    _differ(call, "input", "target", "signal", "send_counts", "recv_counts")
    return (target,)


@_op(
    "tensor.all_to_all_v",
    _infer_all_to_all_v,
    family=_COLLECTIVE,
    writes=("target", "signal", "recv_counts"),
)
def all_to_all_v(
    input: DistributedTensor,
    target: DistributedTensor,
    signal: DistributedTensor,
    send_counts: DistributedTensor,
    recv_counts: DistributedTensor,
) -> DistributedTensor:
    """Exchange blocks of M rows, of which some count: as `pld.tensor.all_to_all`, with counts.

    input: `[P * M, S]`, block d for rank d; target: `[P * M, S]`; signal: INT32, `[P, 1]`
    send_counts: `[P]`, how many rows of each block count
    recv_counts: `[P, 1]`, receives how many rows of each block of the target count; rows past it
        are undefined
    result: the target

    Example: `data = pld.tensor.all_to_all_v(stage, data, signal, counts, recv)`
    """
    ...
