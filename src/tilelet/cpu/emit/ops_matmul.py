"""Matrix products: calls of `tl_matmul` (c/matmul.h), which reads operands in place."""

from __future__ import annotations

from tilelet.cpu.emit.elements import element
from tilelet.cpu.emit.kernel import KernelEmitter, Product, emits
from tilelet.cpu.emit.ops_elementwise import name_extent
from tilelet.cpu.emit.text import Dim, array_text, lesser, product, total
from tilelet.cpu.emit.tiles import Axis, EmittedTile, Node, TileSlot, merged_axes, strides_in
from tilelet.cpu.plan.forms import accumulator, is_tile
from tilelet.cpu.plan.products import ACCUMULATING, PRODUCTS
from tilelet.cpu.plan.regions import define_products
from tilelet.dataclasses import dataclass
from tilelet.ir.core import Arg, Op
from tilelet.tasks.window import row_major

VERY_FEW_ROWS = 8  # below this, reading the operands takes longer than multiplying them


define_products([*PRODUCTS, "matmul_bias", "gemv_bias"], ACCUMULATING)


@dataclass(frozen=True)
class Operand:
    """A matrix in memory, with a row stride of `ld` elements.

    is_swapped     the product takes its transpose
    is_transposed  the same relative to storage: a transposed view is stored the other way
    """

    tile: EmittedTile
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
    """Return an operand as `tl_matmul` takes it: one of its two axes has stride 1."""
    tile = k.stored(arg)
    row, column = tile.leaf.strides[-2:]
    if row == 1 and column != 1 and tile.shape[-1] != 1:
        return Operand(tile, column, swapped, not swapped)
    return Operand(tile, row, swapped, swapped)


def _batch_region(
    k: KernelEmitter, op: Op, shape: tuple[int, ...], a: EmittedTile, b: EmittedTile
) -> tuple[Dim, ...]:
    """Return the batch axes of the result; those of the operands must be fully valid."""
    for t in (a, b):
        partial = [f"{v} != {n}" for v, n in zip(t.valid[:-2], t.shape[:-2]) if v != n]
        if partial:
            fail = (
                f"tl_fail_region(c, {k.site(op, 'matmul')}, {array_text(t.valid)}, "
                f"{array_text(t.shape)}, {len(t.shape)})"
            )
            k.out.add(f"if ({' || '.join(partial)}) return {fail};")
    return shape[:-2]


@emits(*PRODUCTS)
def emit_matmul(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    a = _operand(k, op.args["lhs"], bool(op.args.get("a_trans")))
    b = _operand(k, op.args["rhs"], bool(op.args.get("b_trans")))
    region = (*_batch_region(k, op, t.shape, a.tile, b.tile), a.rows, b.columns)
    total_type = accumulator(a.tile.dtype)
    slot = k.take_slot()
    k.clear_outside(t.shape, region, slot, total_type)
    result = k.slot_tile(slot, t.shape, total_type, region)
    group = k.plan.group_of(op)
    if group is None:
        _multiply(k, op, a, b, slot, t.shape, region, "NULL")
    else:
        _add_piece(k, op, a, b, k.product(group), region, "NULL")
    k.run_products(op)
    if total_type is not t.dtype:
        e = element(t.dtype)
        node = Node(lambda texts, _: e.rounded(texts[0]), (result,), op.loc)
        result = EmittedTile(t.shape, t.dtype, region, node)
    k.result(op, result)


@emits(*ACCUMULATING)
def emit_matmul_acc(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    acc = k.tile(op.args["acc"])
    a = _operand(k, op.args["lhs"], bool(op.args.get("a_trans")))
    b = _operand(k, op.args["rhs"], bool(op.args.get("b_trans")))
    region = (*_batch_region(k, op, t.shape, a.tile, b.tile), a.rows, b.columns)
    slot = k.take_replaced(op.args["acc"])
    condition = op.args.get("init_cond")
    start = slot.name
    holds = None if condition is None else k.scalar(condition)
    if holds is not None:
        start = f"({holds} ? NULL : {slot.name})"
    region = tuple(
        name_extent(k, _continued_extent(r, v, n, holds))
        for r, v, n in zip(region, acc.valid, t.shape)
    )
    group = k.plan.group_of(op)
    if group is not None:
        product_ = k.product(group)
        _add_piece(k, op, a, b, product_, region, slot.name)
        product_.note_region(k, region)
        k.result(op, k.slot_tile(slot, t.shape, t.dtype, region))
        return
    _multiply(k, op, a, b, slot, t.shape, region, start)
    # The accumulator's elements outside the product's region are no longer valid.
    k.zero_outside(t.shape, region, slot, t.dtype)
    k.result(op, k.slot_tile(slot, t.shape, t.dtype, region))


def _add_piece(
    k: KernelEmitter,
    op: Op,
    a: Operand,
    b: Operand,
    product_: Product,
    region: tuple[Dim, ...],
    start: str,
) -> None:
    """Record the product; pieces of one chain over k run together."""
    with k.out.block("", op.loc):
        _describe(k, a, b, product_.slot, product_.shape, region, start, [], [])
        # A window without unit stride is copied to memory that the next iteration reuses.
        lasting = " && ".join(
            f"(const void *){o.tile.leaf.pointer} != (const void *){o.tile.leaf.slot.name}"
            for o in (a, b)
            if o.tile.leaf.slot is not None
        )
        k.out.add(f"tl_add_piece(&{product_.name}, &product, {lasting or 1}, c);")


def _continued_extent(
    product_extent: Dim, acc_extent: Dim, extent: int, starts_anew: str | None
) -> Dim:
    """Return the intersection of the product's and the accumulator's regions; the product's alone
    if it starts a new sum.
    """
    if acc_extent in (extent, product_extent):
        return product_extent
    both = acc_extent if product_extent == extent else lesser(product_extent, acc_extent)
    return both if starts_anew is None else f"({starts_anew} ? {product_extent} : {both})"


@emits("matmul_bias", "gemv_bias")
def emit_matmul_bias(k: KernelEmitter, op: Op) -> None:
    t = k.tile_type(op.result)
    bias = k.stored(op.args["bias"])
    a, b = _operand(k, op.args["lhs"], False), _operand(k, op.args["rhs"], False)
    region = (*_batch_region(k, op, t.shape, a.tile, b.tile), a.rows, b.columns)
    slot = k.take_slot()
    columns = name_extent(k, lesser(bias.valid[-1], b.columns))
    k.clear_outside(t.shape, (*region[:-1], str(columns)), slot, t.dtype)
    stretched = EmittedTile(
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
    slot: TileSlot,
    shape: tuple[int, ...],
    region: tuple[Dim, ...],
    start: str,
) -> None:
    """Emit one call per matrix of the batch."""
    axes = merged_axes(shape[:-2], region[:-2], [], merge=False)
    if shape[-2] <= VERY_FEW_ROWS:
        _read_ahead(k, op)
    with k.out.block("", op.loc), k.loops(axes, vector=False) as index:
        _describe(k, a, b, slot, shape, region, start, axes, index)
        k.out.add("tl_matmul(&product, c->matmul);")


def _read_ahead(k: KernelEmitter, op: Op) -> None:
    """Emit a prefetch of what this block reads next, if its address is already known."""
    ops = k.uses.home[op.result].ops
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
    slot: TileSlot,
    shape: tuple[int, ...],
    region: tuple[Dim, ...],
    start: str,
    axes: list[Axis],
    index: list[str],
) -> None:
    """Declare `product`: one matrix product of the batch, selected by `axes` and `index`."""
    k.has_products = True
    strides = row_major(shape)
    at = total([product(i, strides[x.last]) for x, i in zip(axes, index)])
    begin = start
    if at != 0 and start != "NULL":
        begin = f"{start} + {at}" if start == slot.name else f"({start} ? {start} + {at} : NULL)"
    k.out.add("const tl_matmul_args product = {")
    k.out.add(
        f"    .a = {_matrix(a, shape, axes, index)}, .lda = {a.ld}, "
        f".a_trans = {int(a.is_transposed)},"
    )
    k.out.add(
        f"    .b = {_matrix(b, shape, axes, index)}, .ldb = {b.ld}, "
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


def _matrix(operand: Operand, shape: tuple[int, ...], axes: list[Axis], index: list[str]) -> str:
    """Return the address of the operand's matrix for one element of the batch."""
    tile = operand.tile
    leaf = tile.leaf
    strides = strides_in(tile.shape[:-2], leaf.strides[:-2], shape[:-2])
    at = total([product(i, strides[x.last]) for x, i in zip(axes, index)])
    return leaf.pointer if at == 0 else f"{leaf.pointer} + {at}"
