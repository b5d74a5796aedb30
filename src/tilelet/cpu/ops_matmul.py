"""Matrix products: calls of `tl_matmul` (c/matmul.h), reading operands where they are."""

from __future__ import annotations

from dataclasses import dataclass

from tilelet.cpu.elements import element
from tilelet.cpu.kernel import (
    PRODUCTS,
    BatchHint,
    KernelEmitter,
    Product,
    emits,
)
from tilelet.cpu.ops_elementwise import named, spread
from tilelet.cpu.ops_movement import is_tile, replaced
from tilelet.cpu.plan.regions import define_products
from tilelet.cpu.text import Dim, array_text, lesser, product, total
from tilelet.cpu.tiles import Axis, Node, Slot, Tile, count, merged_axes, strides_in
from tilelet.dtypes import FP32, INT8, INT32, UINT8, DType
from tilelet.ir.core import Arg, Op
from tilelet.tasks.window import row_major

MOST_TOGETHER = 8  # tasks; as TL_SIDE_BY_SIDE in matmul.h
MOST_STREAMS = 4  # products; as TL_STREAMS there
WIDE_COLUMNS = 512  # that products run together are to have: GROUP in matmul.c
MOST_RESULTS = 64 << 10  # elements of products that wait in the cache for their tasks to go on
VERY_FEW_ROWS = 8  # so few that operands are read for longer than they are multiplied
FEW_ROWS = 64  # with more of them, reading B takes a small part of the time


define_products([*PRODUCTS, "matmul_bias", "gemv_bias"], ["matmul_acc", "gemv_acc"])


@dataclass(frozen=True)
class Operand:
    """A matrix in memory, rows `ld` elements apart.

    is_swapped     the product takes its transpose
    is_transposed  the same, as seen from what is stored: a transposed view is stored the other way
    """

    tile: Tile
    ld: Dim
    is_swapped: bool
    is_transposed: bool

    @property
    def rows(self) -> Dim:
        return self.tile.valid[-1 if self.is_swapped else -2]

    @property
    def columns(self) -> Dim:
        return self.tile.valid[-2 if self.is_swapped else -1]


def _operand(k: KernelEmitter, arg: Arg, swapped: bool) -> Operand:
    """An operand as `tl_matmul` takes it: one of its two axes has stride 1."""
    tile = k.in_memory(arg)
    row, column = tile.leaf.strides[-2:]
    if row == 1 and column != 1 and tile.shape[-1] != 1:
        return Operand(tile, column, swapped, not swapped)
    if column != 1 and tile.shape[-1] != 1:
        tile = k.materialize(arg)
        row = tile.leaf.strides[-2]
    return Operand(tile, row, swapped, swapped)


def _accumulator(dtype: DType) -> DType:
    return INT32 if dtype in (INT8, UINT8) else FP32


def _batch_region(k: KernelEmitter, shape: tuple[int, ...], a: Tile, b: Tile) -> tuple[Dim, ...]:
    batch = shape[:-2]
    region: list[Dim] = list(batch)
    for t in (a, b):
        part = Tile(t.shape[:-2], t.dtype, t.valid[:-2], t.form)
        region = [
            v if w == n else (w if v == n else lesser(w, v))
            for w, v, n in zip(region, spread(part, batch), batch)
        ]
    return tuple(named(k, v) for v in region)


@emits(*PRODUCTS)
def emit_matmul(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    a = _operand(k, op.args["lhs"], bool(op.args.get("a_trans")))
    b = _operand(k, op.args["rhs"], bool(op.args.get("b_trans")))
    region = (*_batch_region(k, t.shape, a.tile, b.tile), a.rows, b.columns)
    total_type = _accumulator(a.tile.dtype)
    slot = k.new_slot(op.result.name, total_type, count(t.shape))
    k.clear_outside(t.shape, region, slot, total_type)
    result = k.slot_tile(slot, t.shape, total_type, region)
    goes_on = total_type is t.dtype and _continues_in_loop(k, op)
    waits = _is_of_windows(a, b) and (goes_on or _is_whole(a, b, t.shape, region))
    if goes_on or not waits:
        k.flush_due()  # where the kernel is entered again, nothing but those is skipped
    if waits:
        product_ = _new_product(k, a, b, slot, t.shape, region, is_new=True)
        _add_piece(k, op, a, b, product_, region, "NULL")
        if goes_on:
            k.pending[slot] = product_
        else:
            k.run_with_next(product_)
    else:
        _multiply(k, op, a, b, slot, t.shape, region, "NULL")
    if total_type is not t.dtype:
        k.flush_due()  # its result is perhaps rounded at once
        e = element(t.dtype)
        node = Node(lambda texts, _: e.rounded(texts[0]), (result,), op.loc)
        result = Tile(t.shape, t.dtype, region, node)
    k.result(op, result)


@emits("matmul_acc", "gemv_acc")
def emit_matmul_acc(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    acc = k.tile(op.args["acc"])
    a = _operand(k, op.args["lhs"], bool(op.args.get("a_trans")))
    b = _operand(k, op.args["rhs"], bool(op.args.get("b_trans")))
    region = (*_batch_region(k, t.shape, a.tile, b.tile), a.rows, b.columns)
    slot = replaced(k, op.args["acc"], op.result)
    condition = op.args.get("init_cond")
    start = slot.name
    holds = None if condition is None else k.scalar(condition)
    if holds is not None:
        start = f"({holds} ? NULL : {slot.name})"
    region = tuple(
        named(k, _continued(r, v, n, holds)) for r, v, n in zip(region, acc.valid, t.shape)
    )
    if condition is None and _is_of_windows(a, b) and _can_wait(k, op, slot):
        product_ = k.loops[-1].started.pop(slot, None) or _new_product(
            k, a, b, slot, t.shape, region, is_new=False
        )
        _add_piece(k, op, a, b, product_, region, slot.name)
        product_.note_region(k, region)
        k.loops[-1].products.append(product_)
        k.result(op, k.slot_tile(slot, t.shape, t.dtype, region))
        return
    _multiply(k, op, a, b, slot, t.shape, region, start)
    # What the accumulator had outside the product's region is no longer part of it.
    k.zero_outside(t.shape, region, slot, t.dtype)
    k.result(op, k.slot_tile(slot, t.shape, t.dtype, region))


# --- products that are deferred -------------------------------------------------------------------


def _is_of_windows(a: Operand, b: Operand) -> bool:
    """A product of two matrices read from global memory."""
    return all(len(o.tile.shape) == 2 and o.tile.leaf.window is not None for o in (a, b))


def _is_whole(a: Operand, b: Operand, shape: tuple[int, ...], region: tuple[Dim, ...]) -> bool:
    return shape == region and all(isinstance(n, int) for n in (a.columns, b.rows))


def _can_wait(k: KernelEmitter, op: Op, slot: Slot) -> bool:
    """Whether nobody looks at the accumulator, nor changes the operands, before the loop ends."""
    body = k.loops[-1].body if k.loops else None
    return body is not None and k.home[op.result] is body and k.destinations.get(op.result) is slot


def _continues_in_loop(k: KernelEmitter, op: Op) -> bool:
    """Whether the result's one use is the start of what a loop after it carries."""
    users = [o for o in k.home[op.result].ops if op.result in o.operands]
    return (
        k.uses[op.result] == 1
        and k.user[op.result] is k.home[op.result]
        and [o.name for o in users] == ["for"]
    )


def _new_product(
    k: KernelEmitter,
    a: Operand,
    b: Operand,
    slot: Slot,
    shape: tuple[int, ...],
    region: tuple[Dim, ...],
    *,
    is_new: bool,
) -> Product:
    name = k.name("product")
    k.declarations.append(f"tl_product {name} = {{0}};")
    batch_hint = _batch_hint(k, a, b) if _is_whole(a, b, shape, region) else BatchHint()
    product_ = Product(name, slot, shape, batch_hint, is_new)
    k.deferred.append(product_)
    return product_


def _batch_hint(k: KernelEmitter, a: Operand, b: Operand) -> BatchHint:
    windows = [k.window_numbers.get(o.tile.leaf.window or "") for o in (a, b)]
    rows, columns = a.rows, b.columns
    if None in windows or b.is_transposed:
        return BatchHint()
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    most = max(1, min(MOST_TOGETHER, WIDE_COLUMNS // columns))
    streams = MOST_STREAMS if rows == 1 and columns <= WIDE_COLUMNS else 1
    same_a = 1 if rows == 1 else min(MOST_TOGETHER, MOST_RESULTS // (rows * columns))
    if rows > FEW_ROWS or max(most, streams, same_a) < 2:
        return BatchHint()
    step = columns * b.tile.dtype.itemsize
    return BatchHint(most, windows[0] or 0, windows[1] or 0, step, streams, max(1, same_a))


def _add_piece(
    k: KernelEmitter,
    op: Op,
    a: Operand,
    b: Operand,
    product_: Product,
    region: tuple[Dim, ...],
    start: str,
) -> None:
    """Note the product; pieces of one chain over k are run together."""
    product_.ops.append(op)
    with k.out.block("", op.loc):
        k.hold(product_.slot)
        _describe(k, a, b, product_.slot, product_.shape, region, start, [], [])
        # A window without unit stride is copied to memory that the next iteration uses again.
        lasting = " && ".join(
            f"(const void *){o.tile.leaf.pointer} != (const void *){o.tile.leaf.slot.name}"
            for o in (a, b)
            if o.tile.leaf.slot is not None
        )
        k.out.add(f"tl_add_piece(&{product_.name}, &product, {lasting or 1}, c);")


def _continued(product_extent: Dim, acc_extent: Dim, extent: int, starts_anew: str | None) -> Dim:
    """What both the product and the accumulator have; the product's alone if it starts anew."""
    if acc_extent in (extent, product_extent):
        return product_extent
    both = acc_extent if product_extent == extent else lesser(product_extent, acc_extent)
    return both if starts_anew is None else f"({starts_anew} ? {product_extent} : {both})"


@emits("matmul_bias", "gemv_bias")
def emit_matmul_bias(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    bias = k.in_memory(op.args["bias"])
    a, b = _operand(k, op.args["lhs"], False), _operand(k, op.args["rhs"], False)
    region = (*_batch_region(k, t.shape, a.tile, b.tile), a.rows, b.columns)
    slot = k.new_slot(op.result.name, t.dtype, count(t.shape))
    k.touch(slot)
    columns = named(k, lesser(bias.valid[-1], b.columns))
    k.clear_outside(t.shape, (*region[:-1], str(columns)), slot, t.dtype)
    stretched = Tile(
        t.shape, t.dtype, (*region[:-1], columns), Node(lambda texts, _: texts[0], (bias,), op.loc)
    )
    k.evaluate(stretched, slot.name, row_major(t.shape))
    _multiply(k, op, a, b, slot, t.shape, region, slot.name)
    k.result(op, k.slot_tile(slot, t.shape, t.dtype, region))


def _multiply(
    k: KernelEmitter,
    op: Op,
    a: Operand,
    b: Operand,
    slot: Slot,
    shape: tuple[int, ...],
    region: tuple[Dim, ...],
    start: str,
) -> None:
    """One call for each matrix of the batch."""
    axes = merged_axes(shape[:-2], region[:-2], [], merge=False)
    if shape[-2] <= VERY_FEW_ROWS:
        _read_ahead(k, op)
    with k.out.block("", op.loc), k.nest(axes, vector=False) as index:
        k.touch(slot)
        _describe(k, a, b, slot, shape, region, start, axes, index)
        k.out.add("tl_matmul(&product, c->matmul);")


def _read_ahead(k: KernelEmitter, op: Op) -> None:
    """What is taken from memory next in this block, if it is known by now where that lies: memory
    can be read while the product is computed.
    """
    ops = k.home[op.result].ops
    at = next(i for i, other in enumerate(ops) if other is op)
    for later in ops[at + 1 :]:
        if later.blocks:
            return
        if later.name == "slice" and not is_tile(later.args["x"]):
            if all(v in k.values for v in later.operands):
                size = later.args["shape" if later.args["valid_shape"] is None else "valid_shape"]
                place = f"{array_text(k.dims(later.args['offset']))}, {array_text(k.dims(size))}"
                k.out.add(f"tl_read_ahead({k.tensor(later.args['x']).pointer}, {place});")
            return


def _describe(
    k: KernelEmitter,
    a: Operand,
    b: Operand,
    slot: Slot,
    shape: tuple[int, ...],
    region: tuple[Dim, ...],
    start: str,
    axes: list[Axis],
    index: list[str],
) -> None:
    """Declares `product`: one matrix product of the batch that `axes` and `index` point at."""
    k.has_products = True
    strides = row_major(shape)
    at = total([product(i, strides[x.last]) for x, i in zip(axes, index)])
    begin = start
    if at != 0 and start != "NULL":
        begin = f"{start} + {at}" if start == slot.name else f"({start} ? {start} + {at} : NULL)"
    k.out.add("const tl_matmul_args product = {")
    k.out.add(
        f"    .a = {_matrix(k, a, shape, axes, index)}, .lda = {a.ld}, "
        f".a_trans = {int(a.is_transposed)},"
    )
    k.out.add(
        f"    .b = {_matrix(k, b, shape, axes, index)}, .ldb = {b.ld}, "
        f".b_trans = {int(b.is_transposed)},"
    )
    k.out.add(
        f"    .c = {slot.name} + {at}, .ldc = {shape[-1]}, "
        f".start = {begin}, .ld_start = {shape[-1]},"
    )
    k.out.add(f"    .m = {region[-2]}, .n = {region[-1]}, .k = {lesser(a.columns, b.rows)},")
    k.out.add(
        f"    .a_type = {element(a.tile.dtype).enum}, .b_type = {element(b.tile.dtype).enum}}};"
    )


def _matrix(
    k: KernelEmitter, operand: Operand, shape: tuple[int, ...], axes: list[Axis], index: list[str]
) -> str:
    """Address of the operand's matrix for one element of the batch."""
    tile = operand.tile
    leaf = tile.leaf
    if leaf.slot is not None:
        k.touch(leaf.slot)
    strides = strides_in(tile.shape[:-2], leaf.strides[:-2], shape[:-2])
    at = total([product(i, strides[x.last]) for x, i in zip(axes, index)])
    return leaf.pointer if at == 0 else f"{leaf.pointer} + {at}"
