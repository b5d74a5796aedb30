"""Moving elements by position: gather and scatter.

An index out of range stops the run; the message gives the line, the index and the extent.
"""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet import numerics
from tilelet.diag.catalogue.ops import (
    BadArgument,
    BadChoice,
    NoSuchForm,
    RankMismatch,
    ShapeMismatch,
)
from tilelet.dtypes import INT16, INT32, INT64, UINT16, UINT32, Array, DType
from tilelet.ir.core import Arg
from tilelet.ir.faults import IndexFault, RegionFault
from tilelet.ir.spec import (
    Call,
    Cost,
    Engine,
    Plane,
    Shape,
    Trait,
    Valid,
    composition,
    op,
)
from tilelet.ir.types import Mem, ShapedType, SymDim, TileType, shapes_agree
from tilelet.numerics import MASK_PATTERNS
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Ints, Number, Shaped
from tilelet.ops.families import VECTOR
from tilelet.ops.padding import check_valid_extent
from tilelet.ops.selection import check_comparison, cmp_mask
from tilelet.ops.transfers import slice as window
from tilelet.ops.valid import Args, Operands
from tilelet.ops.views import concat
from tilelet.syntax.enums import CmpType, MaskPattern

if TYPE_CHECKING:
    from tilelet.syntax.types import Tensor, Tile

__all__ = [
    "deinterleave",
    "gather",
    "gather_mask",
    "gatherb",
    "interleave",
    "mgather",
    "mscatter",
    "paged_gather",
    "scatter",
    "scatter_mask",
    "scatter_update",
]

_INDEX_DTYPES = (INT16, INT32, INT64, UINT16, UINT32)


def _check_indices(op_name: str, index: Array, axis: int, extent: int) -> Array:
    """Convert indices for NumPy; raise a fault at the first that is out of range."""
    wide = index.astype(np.int64)
    outside = (wide < 0) | (wide >= extent)
    if outside.any():
        raise IndexFault(op_name, axis, int(wide[outside][0]), extent)
    return wide


def _index_tile(call: Call, param: str) -> TileType:
    index = infer.tile(call, param)
    infer.check_dtype(call, param, index.dtype, _INDEX_DTYPES)
    return index


# --- mask patterns -------------------------------------------------------------------------------


def pattern_name(pattern: Arg) -> str | None:
    """Return the name of a mask pattern given as an enum member, a name or a code, or None."""
    if isinstance(pattern, str):
        return pattern if pattern in MASK_PATTERNS else None
    try:
        return MaskPattern(pattern).name  # type: ignore[arg-type]
    except ValueError:
        return None


def _check_pattern(call: Call) -> tuple[int, int]:
    """Return the first column and step of the call's mask pattern."""
    name = pattern_name(call["mask_pattern"])
    if name is None:
        shown = call["mask_pattern"]
        raise BadChoice(
            call.at("mask_pattern"), call.shown, "mask_pattern", shown, [*MASK_PATTERNS]
        )
    return MASK_PATTERNS[name]


def _infer_gather_mask(call: Call) -> infer.Types:
    x = infer.tile(call, "x")
    first, step = _check_pattern(call)
    dtype, columns = x.dtype, x.shape[-1]
    if call["output_dtype"] is not None:
        dtype = infer.dtype(call, "output_dtype")
        if columns * x.dtype.itemsize % dtype.itemsize:
            expected = f"a dtype of which rows of {columns} {x.dtype} hold a whole number"
            raise infer.bad(call, "output_dtype", expected)
        columns = columns * x.dtype.itemsize // dtype.itemsize
    picked = len(range(first, columns, step))
    if picked == 0:
        why = f"`x` with at least {first + 1} columns"
        raise infer.bad(call, "x", why)
    return (TileType((*x.shape[:-1], picked), dtype, infer.vector_space(call, "x")),)


def _gather_mask(x: Array, mask_pattern: Arg, output_dtype: DType | None) -> Array:
    return numerics.gather_mask(x, pattern_name(mask_pattern) or "", output_dtype)


def _valid_gather_mask(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    shape, region = operands["x"]
    if region[-1] == shape[-1]:
        return (*region[:-1], result_shape[-1])
    if args["output_dtype"] is not None:
        raise RegionFault("gather", region, shape)
    first, step = MASK_PATTERNS[pattern_name(args["mask_pattern"]) or ""]
    return (*region[:-1], len(range(first, region[-1], step)))


@op(
    infer=_infer_gather_mask,
    reference=_gather_mask,
    valid=_valid_gather_mask,
    era="APR",
    cost=Cost.COMPACT,
    family=VECTOR,
    moves=("x",),
)
def gather_mask(
    x: Shaped, mask_pattern: MaskPattern | int | str, output_dtype: DType | None = None
) -> Shaped:
    """Select columns by a pattern: the tile-level name of `pl.gather(x, mask_pattern=...)`.

    x: a tile; mask_pattern, output_dtype: as in `pl.gather`
    result: the selected columns, side by side

    Example: `values = pl.tile.gather_mask(pairs, pl.tile.MaskPattern.P0101)`
    """
    ...


def _infer_scatter_mask(call: Call) -> infer.Types:
    return (_scatter_mask_type(call, "src"),)


def _scatter_mask_type(call: Call, source: str) -> TileType:
    dst, src = infer.tile(call, "dst"), infer.tile(call, source)
    first, step = _check_pattern(call)
    infer.same_dtype(call, source, src.dtype, "dst", dst.dtype)
    wanted = (*dst.shape[:-1], len(range(first, dst.shape[-1], step)))
    if src.shape != wanted:
        why = f"the pattern picks {wanted[-1]} columns of `dst`"
        raise ShapeMismatch(call.shown, call.at(source), src.shape, call.at("dst"), dst.shape, why)
    return TileType(dst.shape, dst.dtype, infer.vector_space(call, "dst", source))


def _scatter_mask(dst: Array, src: Array, mask_pattern: Arg) -> Array:
    return numerics.scatter_mask(dst, src, pattern_name(mask_pattern) or "")


@op(
    infer=_infer_scatter_mask,
    reference=_scatter_mask,
    valid=valid.kept("dst"),
    era="HEAD",
    cost=Cost.SCATTER,
    family=VECTOR,
    moves=("dst", "src"),
)
def scatter_mask(dst: Shaped, src: Shaped, mask_pattern: MaskPattern | int | str) -> Shaped:
    """Write columns by a pattern: the tile-level `pl.scatter(..., mask_pattern=...)`.

    dst: `[M, N]`; src: `[M, K]`, where the pattern selects K of N columns
    mask_pattern: as in `pl.gather`
    result: `dst` with those columns replaced

    Example: `pairs = pl.tile.scatter_mask(pairs, values, pl.tile.MaskPattern.P0101)`
    """
    ...


def _infer_pair(call: Call) -> infer.Types:
    lhs, rhs = infer.tile(call, "lhs"), infer.tile(call, "rhs")
    infer.check_rank(call, "lhs", len(lhs.shape), 2)
    infer.same_dtype(call, "rhs", rhs.dtype, "lhs", lhs.dtype)
    if lhs.shape != rhs.shape:
        why = "both have one shape"
        raise ShapeMismatch(call.shown, call.at("rhs"), rhs.shape, call.at("lhs"), lhs.shape, why)
    if lhs.shape[1] % 2:
        raise infer.bad(call, "lhs", "an even number of columns")
    return (lhs, lhs)


@composition(infer=_infer_pair, era="HEAD")
def interleave(lhs: Shaped, rhs: Shaped) -> Shaped:
    """Alternate the columns of two tiles: `lhs[:, 0]`, `rhs[:, 0]`, `lhs[:, 1]`, and so on.

    lhs, rhs: `[M, N]` of one dtype, N even
    result: two tiles of that shape: the first and the second half of the columns

    Example: `lo, hi = pl.tile.interleave(x, y)`
    """
    rows, columns = lhs.type.shape  # type: ignore[attr-defined]
    both = scatter_mask(concat(lhs, rhs), lhs, MaskPattern.P0101)
    both = scatter_mask(both, rhs, MaskPattern.P1010)
    return tuple(window(both, (rows, columns), (0, at)) for at in (0, columns))  # type: ignore[return-value]


@composition(infer=_infer_pair, era="HEAD")
def deinterleave(lhs: Shaped, rhs: Shaped) -> Shaped:
    """The inverse of `pl.tile.interleave`: even and odd columns of two tiles side by side.

    lhs, rhs: `[M, N]` of one dtype, N even
    result: two tiles of that shape: columns 0, 2, 4 and so on, and columns 1, 3, 5 and so on

    Example: `even, odd = pl.tile.deinterleave(lo, hi)`
    """
    both = concat(lhs, rhs)
    even, odd = (gather_mask(both, p) for p in (MaskPattern.P0101, MaskPattern.P1010))
    return even, odd  # type: ignore[return-value]


# --- gather --------------------------------------------------------------------------------------

_GATHER_FORMS = (
    "pl.gather(x, mask_pattern=P, output_dtype=None)",
    "pl.gather(x, dim=-1, index=I)",
    "pl.gather(x, index=I)",
    "pl.gather(x, kvalue=V, cmp_mode=C, out_cols=N, offset=0, count_dtype=pl.INT32)",
)


def _form(call: Call) -> str:
    """Return which form of `gather` the arguments match."""
    given = {name for name, arg in call.args.items() if arg is not None} - {"x", "tmp"}
    if given in ({"mask_pattern"}, {"mask_pattern", "output_dtype"}):
        return "mask"
    if given in ({"index"}, {"dim", "index"}):
        return "index"
    if given - {"offset", "count_dtype", "cmp_mode"} == {"kvalue", "out_cols"}:
        return "compare"
    raise NoSuchForm(call.loc, call.shown, _GATHER_FORMS)


def _infer_gather(call: Call) -> infer.Types:
    infer.scratch(call, "tmp")
    form = _form(call)
    if form == "mask":
        return _infer_gather_mask(call)
    x = infer.tile(call, "x")
    space = infer.vector_space(call, "x")
    if form == "index":
        index = _index_tile(call, "index")
        if call["dim"] is not None:
            axis = infer.axis(call, "dim", len(x.shape))
            _check_along(call, x, index, axis)
        return (TileType(index.shape, x.dtype, space),)
    infer.check_rank(call, "x", len(x.shape), 2)
    if call["cmp_mode"] is not None:
        check_comparison(call, "cmp_mode")
    infer.fitting_scalar(call, "kvalue", "x", x.dtype)
    columns = infer.constant_int(call, "out_cols", at_least=1)
    rows, counts = x.shape[0], INT32
    if call["offset"] is not None:
        infer.constant_int(call, "offset")
    if call["count_dtype"] is not None:
        counts = infer.dtype(call, "count_dtype")
        infer.check_dtype(call, "count_dtype", counts, (INT32, UINT32))
    return (TileType((rows, columns), INT32, space), TileType((1, rows), counts, space))


def _check_along(call: Call, x: TileType, index: ShapedType, axis: int) -> None:
    """Check an index for one axis: the same rank, and no larger in the other axes."""
    fits = len(index.shape) == len(x.shape) and all(
        isinstance(i, int) and (i <= d or a == axis)
        for a, (i, d) in enumerate(zip(index.shape, x.shape))
    )
    if not fits:
        why = f"`index` must have the rank of `x`, and may differ from it in axis {axis}"
        raise ShapeMismatch(call.shown, call.at("x"), x.shape, call.at("index"), index.shape, why)


def _gather(x: Array, valid: dict[str, Valid], **args: Any) -> Array | tuple[Array, Array]:
    if args["mask_pattern"] is not None:
        return _gather_mask(x, args["mask_pattern"], args["output_dtype"])
    if args["index"] is None:
        return _gather_compare(x, valid["x"], **args)
    index = args["index"]
    # Outside its valid region the index is 0, which is in range.
    if args["dim"] is None:
        return np.ravel(x)[_check_indices("gather", index, 0, x.size)]
    axis = args["dim"] % x.ndim
    positions = _check_indices("gather", index, axis, x.shape[axis])
    lines = tuple(
        slice(None) if a == axis else slice(0, extent) for a, extent in enumerate(index.shape)
    )
    return np.take_along_axis(x[lines], positions, axis)


def _gather_compare(x: Array, region: Valid, **args: Any) -> tuple[Array, Array]:
    rows, columns = region
    indices = np.zeros((x.shape[0], args["out_cols"]), np.int32)
    counts = np.zeros((1, x.shape[0]), (args["count_dtype"] or INT32).numpy)
    kind = CmpType.EQ if args["cmp_mode"] is None else args["cmp_mode"]
    holds = cmp_mask(x[:rows, :columns], args["kvalue"], kind)
    for row, line in enumerate(holds):
        found = np.flatnonzero(line)[: args["out_cols"]]
        indices[row, : len(found)] = found + (args["offset"] or 0)
        counts[0, row] = len(found)
    return indices, counts


def _valid_gather(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    if args["mask_pattern"] is not None:
        return _valid_gather_mask(operands, result_shape, args)
    if "index" in operands:
        return operands["index"][1]
    rows, columns = operands["x"][1][0], args["out_cols"]
    return (1, rows) if result_shape != (operands["x"][0][0], columns) else (rows, columns)


@op(
    infer=_infer_gather,
    reference=_gather,
    takes_valid=True,
    valid=_valid_gather,
    era="APR",
    cost=Cost.GATHER,
    family=VECTOR,
    moves=("x",),
)
def gather(
    x: Shaped,
    dim: int | None = None,
    index: Shaped | None = None,
    *,
    mask_pattern: MaskPattern | int | str | None = None,
    output_dtype: DType | None = None,
    kvalue: Number | None = None,
    cmp_mode: CmpType | int | str | None = None,
    out_cols: int | None = None,
    offset: int | None = None,
    count_dtype: DType | None = None,
    tmp: Shaped | None = None,
) -> Any:
    """Select elements by position. Four forms:

    `gather(x, mask_pattern=P)`: columns. P0101 selects the even ones, P1010 the odd ones, P0001 to
        P1000 every fourth with phase 0 to 3, P1111 all. With `output_dtype` each row's bytes are
        read as that type first (nothing is converted)
    `gather(x, dim=-1, index=I)`: `result[i, k] = x[i, I[i, k]]` (for dim=-1), in I's shape
    `gather(x, index=I)`: `result[i, k]` is the element number `I[i, k]` of x in row-major order
    `gather(x, kvalue=V, cmp_mode=C, out_cols=N)`: for each row the columns whose element compares
        to V by C (codes as in `pl.cmp`; default equal). Two INT32 results: `[M, N]`
        columns in ascending order, 0 after the last, and `[1, M]` their number, at most N.
        `offset` is added to each column; `count_dtype` (INT32 or UINT32) is the dtype of the counts

    index: integers; tmp: scratch tile, accepted for compatibility and ignored

    Example: `values = pl.gather(pairs, mask_pattern=pl.tile.MaskPattern.P0101)`
    """
    ...


# --- scatter -------------------------------------------------------------------------------------

_SCATTER_FORMS = (
    "pl.scatter(x, dim=-1, index=I, src=S)",
    "pl.scatter(x, index=I, src=S)",
    "pl.scatter(x, mask_pattern=P, dst=D)",
)


def _infer_scatter(call: Call) -> infer.Types:
    given = {name for name, arg in call.args.items() if arg is not None} - {"x"}
    if given == {"mask_pattern", "dst"}:
        return (_scatter_mask_type(call, "x"),)
    if given - {"dim"} != {"index", "src"}:
        raise NoSuchForm(call.loc, call.shown, _SCATTER_FORMS)
    x, src = infer.tile(call, "x"), infer.tile(call, "src")
    index = _index_tile(call, "index")
    if call["dim"] is not None:
        _check_along(call, x, index, infer.axis(call, "dim", len(x.shape)))
    infer.same_shape(call, "index", index, "src", src)
    infer.same_dtype(call, "src", src.dtype, "x", x.dtype)
    return (TileType(x.shape, x.dtype, infer.vector_space(call, "x", "src")),)


def _scatter(x: Array, valid: dict[str, Valid], **args: Any) -> Array:
    if args["mask_pattern"] is not None:
        return _scatter_mask(args["dst"], x, args["mask_pattern"])
    region = tuple(slice(0, min(a, b)) for a, b in zip(valid["index"], valid["src"]))
    if args["dim"] is None:
        return _scatter_flat("scatter", x, args["index"][region], args["src"][region])
    axis = args["dim"] % x.ndim
    positions = _check_indices("scatter", args["index"][region], axis, x.shape[axis])
    result: Array = np.array(x)
    # Sequentially along the axis: for equal positions the last one wins.
    for k in range(positions.shape[axis]):
        at = (slice(None),) * axis + (slice(k, k + 1),)
        line = positions[at]
        where = np.indices(line.shape)
        target = tuple(line if a == axis else where[a] for a in range(x.ndim))
        result[target] = args["src"][region][at]
    return result


def _scatter_flat(op_name: str, into: Array, index: Array, src: Array) -> Array:
    """Replace elements of `into` at row-major positions; the last one wins."""
    elements: Array = np.array(np.ravel(into))
    positions = _check_indices(op_name, np.ravel(index), 0, len(elements))
    for position, element in zip(positions, np.ravel(src)):
        elements[position] = element
    return np.reshape(elements, into.shape)


def _valid_scatter(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    return operands["dst" if args["mask_pattern"] is not None else "x"][1]


@op(
    infer=_infer_scatter,
    reference=_scatter,
    takes_valid=True,
    valid=_valid_scatter,
    era="HEAD",
    cost=Cost.SCATTER,
    family=VECTOR,
    moves=("x", "src", "dst"),
)
def scatter(
    x: Shaped,
    dim: int | None = None,
    index: Shaped | None = None,
    src: Shaped | None = None,
    *,
    mask_pattern: MaskPattern | int | str | None = None,
    dst: Shaped | None = None,
) -> Shaped:
    """Write elements to positions; for equal positions the last one wins. Three forms:

    `scatter(x, dim=-1, index=I, src=S)`: x with `result[i, I[i, k]] = S[i, k]` (for dim=-1)
    `scatter(x, index=I, src=S)`: x with element number `I[i, k]`, in row-major order, replaced by
        `S[i, k]`; also written `pl.tile.scatter(x, S, I)`
    `scatter(x, mask_pattern=P, dst=D)`: D with the columns selected by P replaced by those of x;
        the inverse of `pl.gather(..., mask_pattern=P)`

    index: integers of S's shape; S has x's dtype
    result: the shape and dtype of x (of D)

    Example: `marked = pl.scatter(scores, dim=-1, index=chosen, src=ones)`
    """
    ...


def _infer_scatter_update(call: Call) -> infer.Types:
    target = infer.shaped_type(call, "input")
    axis = infer.constant_int(call, "dim") if call["dim"] is not None else -2
    rank = len(target.shape)
    if rank not in (2, 4):
        raise RankMismatch(call.at("input"), call.shown, "`input`", rank, "2 or 4")
    if axis not in (-2, rank - 2):
        raise BadChoice(call.at("dim"), call.shown, "dim", axis, [-2])
    for param in ("index", "src"):
        if call[param] is None:
            raise BadArgument(call.at(param), call.shown, param, "missing", "given")
    index, src = infer.shaped_type(call, "index"), infer.shaped_type(call, "src")
    infer.check_rank(call, "index", len(index.shape), 2)
    infer.check_dtype(call, "index", index.dtype, _INDEX_DTYPES)
    infer.check_rank(call, "src", len(src.shape), rank)
    infer.same_dtype(call, "src", src.dtype, "input", target.dtype)
    count = infer.count_of(index.shape)
    rows = index.shape if rank == 4 else (SymDim("rows") if count is None else count,)
    wanted = (*rows, *target.shape[2 if rank == 4 else 1 :])
    if not shapes_agree(src.shape, wanted):
        why = "`src` has one row of `input` for each entry of `index`"
        raise ShapeMismatch(
            call.shown, call.at("src"), src.shape, call.at("index"), index.shape, why
        )
    return (target,)


def _scatter_update(input: Array, dim: int, index: Array, src: Array) -> Array:
    row_shape = input.shape[2:] if input.ndim == 4 else input.shape[1:]
    rows: Array = np.array(np.reshape(input, (-1, *row_shape)))
    positions = _check_indices("scatter_update", np.ravel(index), 0, len(rows))
    for position, row in zip(positions, np.reshape(src, (-1, *row_shape))):
        rows[position] = row
    return np.reshape(rows, input.shape)


@op(
    infer=_infer_scatter_update,
    reference=_scatter_update,
    engine=Engine.MTE,
    plane=Plane.BOTH,
    on_chip=("index", "src"),
    writes=("input",),
    valid=valid.kept("input"),
    traits=Trait.BY_INDEX,
    moves=("input", "src"),
)
def scatter_update(
    input: Shaped, dim: int = -2, index: Shaped | None = None, src: Shaped | None = None
) -> Shaped:
    """Replace whole rows: `input[index.flat[k]] = src[k]`, in ascending k.

    input: `[rows, D]`, or `[blocks, block_size, 1, D]`, whose rows are numbered through the blocks.
        A tensor is written in place
    dim: -2; index: `[b, s]` of integers
    src: `[b * s, D]`, or `[b, s, 1, D]`, of input's dtype
    result: `input` with those rows replaced

    Example: `cache = pl.scatter_update(cache, -2, slots, keys)`
    """
    ...


# --- through global memory -----------------------------------------------------------------------

_COALESCE = ("row", "elem")
_OUT_OF_BOUNDS = ("undefined", "clamp", "wrap", "zero")


def _infer_mgather(call: Call) -> infer.Types:
    mem = infer.tensor(call, "mem")
    idx = _index_tile(call, "idx")
    for param, choices in (("coalesce", _COALESCE), ("gather_oob", _OUT_OF_BOUNDS)):
        if _choice(call[param], choices) is None:
            raise BadChoice(call.at(param), call.shown, param, call[param], choices)
    if call["target_memory"] not in (Mem.Vec, Mem.Mat):
        raise infer.bad(call, "target_memory", "`pl.Mem.Vec` or `pl.Mem.Mat`")
    placed = idx.space is not None or call["target_memory"] is Mem.Mat
    shape = idx.shape
    if _choice(call["coalesce"], _COALESCE) == "row":
        infer.check_rank(call, "mem", len(mem.shape), 2)
        columns = mem.shape[1]
        if not isinstance(columns, int):
            raise infer.bad(call, "mem", "a tensor whose rows have constant length")
        shape = (math.prod(idx.shape), columns)
    if call["valid_shape"] is not None:
        limits = infer.items(call, "valid_shape")
        if len(limits) != len(shape):
            raise RankMismatch(
                call.at("valid_shape"), call.shown, "`valid_shape`", len(limits), len(shape)
            )
        for axis, (limit, size) in enumerate(zip(limits, shape)):
            check_valid_extent(call, "valid_shape", axis, limit, size)
    return (TileType(shape, mem.dtype, call["target_memory"] if placed else None),)


def _choice(given: object, choices: tuple[str, ...]) -> str | None:
    """Return one of several words, given as such or by its number."""
    if isinstance(given, int) and 0 <= given < len(choices):
        return choices[given]
    return given if isinstance(given, str) and given in choices else None


def _within(idx: Array, extent: int, rule: str) -> tuple[Array, Array]:
    """Apply the out-of-range `rule` to indices; return also where the result must be zero."""
    # The device reads indices as unsigned, so a negative one is past the end.
    bits = np.uint64(2 ** max(32, 8 * idx.itemsize) - 1)
    positions = idx.astype(np.int64).astype(np.uint64) & bits
    outside = positions >= extent
    if rule == "clamp":
        return np.minimum(positions, np.uint64(extent - 1)), np.zeros_like(outside)
    if rule == "wrap":
        return positions % np.uint64(extent), np.zeros_like(outside)
    if rule == "zero":
        return np.where(outside, 0, positions), outside
    return _check_indices("mgather", idx, 0, extent), outside


def _mgather(
    mem: Array,
    idx: Array,
    coalesce: str | int,
    gather_oob: str | int,
    target_memory: Mem,
    valid_shape: tuple[int, ...] | None,
) -> Array:
    by_row = _choice(coalesce, _COALESCE) == "row"
    table = mem if by_row else np.ravel(mem)
    rule = _choice(gather_oob, _OUT_OF_BOUNDS) or ""
    where, zero = _within(np.ravel(idx) if by_row else idx, len(table), rule)
    result = table[where]
    result[zero] = 0
    return result


def _valid_mgather(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    region = _region_of_mgather(operands, result_shape, args)
    if args["valid_shape"] is None:
        return region
    return tuple(map(min, region, valid.check_region(args["valid_shape"], result_shape)))


def _region_of_mgather(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    shape, region = operands["idx"]
    if _choice(args["coalesce"], _COALESCE) == "elem":
        return region
    if region == shape:
        return result_shape
    leading = region[:-1]
    if any(v != 1 for v in leading):
        raise RegionFault("mgather", region, shape)
    return (region[-1], result_shape[1])


@op(
    infer=_infer_mgather,
    reference=_mgather,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    on_chip=("idx",),
    valid=_valid_mgather,
    era="HEAD",
    traits=Trait.LOAD | Trait.BY_INDEX,
    moves=("mem",),
)
def mgather(
    mem: Tensor,
    idx: Tile | Tensor,
    coalesce: str | int = "row",
    *,
    gather_oob: str | int = "undefined",
    target_memory: Mem = Mem.Vec,
    valid_shape: Ints | None = None,
) -> Tile:
    """Load rows or elements of a tensor by a tile of indices.

    mem: a tensor; idx: integers
    coalesce: "row": each index names a row of the 2-D `mem`, and the result has one row per index;
        "elem": each names an element of `mem` in row-major order, and the result has idx's shape
    gather_oob: handling of indices out of range: "undefined" (here: an error), "clamp", "wrap"
        or "zero". Indices are unsigned: -1 is far past the end
    target_memory: where the result goes
    valid_shape: the valid part of the result; default all that `idx` has indices for
    result: a tile of mem's dtype. Both options may also be given by number, from 0

    Example: `rows = pl.mgather(table, row_ids, coalesce="row")`
    """
    ...


def _infer_paged_gather(call: Call) -> infer.Types:
    src = infer.tensor(call, "src")
    infer.check_rank(call, "src", len(src.shape), 2)
    for param in ("indices", "block_table"):
        infer.check_dtype(call, param, infer.tensor(call, param).dtype, (INT32,))
    infer.constant_int(call, "block_size", at_least=1)
    first = infer.constant_int(call, "col_off", at_least=0)
    size = infer.constant_int(call, "size", at_least=1)
    columns = src.shape[1]
    if isinstance(columns, int) and first + size > columns:
        raise infer.bad(call, "size", f"at most the {columns - first} columns from `col_off` on")
    if call["space"] not in (Mem.Mat, Mem.Vec):
        raise infer.bad(call, "space", "`pl.Mem.Mat` or `pl.Mem.Vec`")
    infer.flag(call, "is_b_matrix")
    shape = (infer.constant_int(call, "max_indices", at_least=1), size)
    return (TileType(shape[::-1] if infer.flag(call, "is_trans") else shape, src.dtype),)


def _paged_gather(src: Array, indices: Array, block_table: Array, **args: Any) -> Array:
    logical = np.ravel(indices)[: args["max_indices"]]
    blocks = _check_indices("paged_gather", logical // args["block_size"], 0, block_table.size)
    rows = np.ravel(block_table)[blocks] * args["block_size"] + logical % args["block_size"]
    first = args["col_off"]
    result = np.zeros((args["max_indices"], args["size"]), src.dtype)
    picked = _check_indices("paged_gather", rows, 0, len(src))
    result[: len(picked)] = src[picked, first : first + args["size"]]
    return np.transpose(result) if args["is_trans"] else result


def _valid_paged(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    count = min(args["max_indices"], math.prod(operands["indices"][1]))
    return (result_shape[0], count) if args["is_trans"] else (count, result_shape[1])


@op(
    infer=_infer_paged_gather,
    reference=_paged_gather,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    on_chip=(),
    valid=_valid_paged,
    era="HEAD",
    traits=Trait.LOAD | Trait.BY_INDEX,
    moves=("src",),
)
def paged_gather(
    src: Tensor,
    indices: Tensor,
    block_table: Tensor,
    block_size: int,
    size: int,
    max_indices: int,
    *,
    space: Mem = Mem.Mat,
    col_off: int = 0,
    is_trans: bool = False,
    is_b_matrix: bool = False,
) -> Tensor:
    """Load rows of a paged tensor by their logical numbers.

    src: `[rows, columns]`; indices: INT32 logical row numbers
    block_table: INT32; row number i is row `block_table[i // block_size] * block_size
        + i % block_size` of `src`
    size: number of elements of each row, starting at column `col_off`
    max_indices: rows of the result; if there are fewer indices, only that many rows are valid
    space, is_b_matrix: hints for the device; results do not depend on them
    is_trans: return the rows as columns
    result: `[max_indices, size]`, or `[size, max_indices]` with is_trans

    Example: `keys = pl.paged_gather(pool, chosen, pages, block_size=128, size=64, max_indices=32)`
    """
    ...


def _infer_mscatter(call: Call) -> infer.Types:
    src, idx = infer.tile(call, "src"), _index_tile(call, "idx")
    target = infer.tensor(call, "output_tensor")
    infer.same_shape(call, "src", src, "idx", idx)
    infer.same_dtype(call, "src", src.dtype, "output_tensor", target.dtype)
    return (target,)


def _mscatter(src: Array, idx: Array, output_tensor: Array, valid: dict[str, Valid]) -> Array:
    region = tuple(slice(0, min(a, b)) for a, b in zip(valid["src"], valid["idx"]))
    return _scatter_flat("mscatter", output_tensor, idx[region], src[region])


@op(
    infer=_infer_mscatter,
    reference=_mscatter,
    takes_valid=True,
    engine=Engine.MTE,
    plane=Plane.SCOPE,
    on_chip=("src", "idx"),
    writes=("output_tensor",),
    era="APR",
    traits=Trait.BY_INDEX,
    moves=("src", "output_tensor"),
)
def mscatter(src: Tile | Tensor, idx: Tile | Tensor, output_tensor: Tensor) -> Tensor:
    """Store elements into a tensor by a tile of indices, in place.

    src: a tile; idx: integers of its shape, each an element of the tensor in row-major order
    output_tensor: of src's dtype; for equal indices the last one in row-major order wins
    result: the tensor, written; use it instead of the old name

    Example: `out = pl.mscatter(values, slots, out)`
    """
    ...


_BLOCK_BYTES = 32


def _infer_gatherb(call: Call) -> infer.Types:
    src, offset = infer.tile(call, "src"), infer.tile(call, "offset")
    infer.check_dtype(call, "offset", offset.dtype, (UINT32, INT32))
    dtype = src.dtype if call["output_dtype"] is None else infer.dtype(call, "output_dtype")
    if math.prod(src.shape) * src.dtype.itemsize % dtype.itemsize:
        raise infer.bad(
            call, "output_dtype", f"one of which {src.shape} {src.dtype} hold a whole number"
        )
    shape = (*offset.shape[:-1], offset.shape[-1] * (_BLOCK_BYTES // dtype.itemsize))
    return (TileType(shape, dtype, infer.vector_space(call, "src", "offset")),)


def _gatherb(src: Array, offset: Array, output_dtype: DType | None) -> Array:
    if output_dtype is not None:
        src = np.frombuffer(src.tobytes(), output_dtype.numpy)
    flat = np.ravel(src)
    per_block = _BLOCK_BYTES // src.itemsize
    starts = offset.astype(np.int64)
    last = flat.size * src.itemsize - _BLOCK_BYTES
    wrong = (starts < 0) | (starts > last) | (starts % src.itemsize != 0)
    if wrong.any():
        raise IndexFault("gatherb", 0, int(starts[wrong][0]), flat.size * src.itemsize)
    positions = starts[..., None] // src.itemsize + np.arange(per_block)
    return np.reshape(flat[positions], (*offset.shape[:-1], -1))


def _valid_gatherb(operands: Operands, result_shape: Shape, args: Args) -> Valid:
    shape, region = operands["offset"]
    return (*region[:-1], region[-1] * (result_shape[-1] // shape[-1]))


@op(
    infer=_infer_gatherb,
    reference=_gatherb,
    valid=_valid_gatherb,
    era="HEAD",
    cost=Cost.GATHER,
    family=VECTOR,
    moves=("src",),
)
def gatherb(src: Shaped, offset: Shaped, *, output_dtype: DType | None = None) -> Shaped:
    """Copy blocks of 32 bytes by their byte offsets.

    src: a tile; offset: `[M, K]` UINT32 byte offsets of the blocks in src
    output_dtype: type of the result's elements; default src's dtype
    result: `[M, K * 32 / element size]` of that dtype

    Example: `blocks = pl.gatherb(src, offsets)`
    """
    ...
