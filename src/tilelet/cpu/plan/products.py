"""Decide which matrix products of a kernel are deferred, where they run, and where they are handed
over.

A product of two windows need not be computed in place. Partial products that a loop accumulates
become one product, run after the loop, together with the `matmul` before the loop if the sum starts
there. Products of the kernel's outermost block are deferred until one of them is needed, so that
several run in parallel. If nothing else was computed before that point, the kernel may be left
there: its products run beside those of other tasks, and it is re-entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilelet.cpu.plan.forms import Forms, accumulator, is_tile, tile_type
from tilelet.cpu.plan.model import MAX_PRODUCTS, BatchHint, PlanStep, ProductGroup, Stored
from tilelet.cpu.plan.regions import Extent, TileRegions
from tilelet.cpu.plan.uses import Uses
from tilelet.dataclasses import dataclass, replace
from tilelet.dtypes import INT8
from tilelet.ir.core import Block, Function, Op, Value
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView, yielded_values

PRODUCTS = ("matmul", "gemv", "batch_matmul")
ACCUMULATING = ("matmul_acc", "gemv_acc")

MAX_TOGETHER = 8  # tasks; TL_SIDE_BY_SIDE in matmul.h
MAX_STREAMS = 4  # products; TL_STREAMS in matmul.h
WIDE_COLUMNS = 512  # columns that products run together should have: GROUP in matmul.c
WIDE_INT8_COLUMNS = 2048  # the same for one row times INT8: INT8_GROUP in int8_row.h
# Limit of elements of products that stay in the cache until their tasks continue.
MAX_RESULTS = 64 << 10
FEW_ROWS = 64  # with more rows, reading B is a small part of the time

RECOMPUTABLE = Trait.SCALAR | Trait.OF_BLOCK | Trait.SHAPE_ONLY
"""Ops that leave no trace but their value: they may as well run twice."""


def is_recomputable(op: Op, products: set[Op]) -> bool:
    """Whether `op` may run twice: it computes a scalar, view or load, or is one of `products`."""
    if op in products or op.spec.traits & RECOMPUTABLE:
        return True
    if op.spec.is_window_load:
        return op.args.get("pad_value") is None and _is_of_tensor(op)
    if op.name in ("for", "while", "if"):
        tiles = [i for i, r in enumerate(op.results) if isinstance(r.type, TileType)]
        made = {r for p in products for r in p.results}
        carried = all(yielded_values(b)[i] in made for b in op.blocks[-1:] for i in tiles)
        inner = all(is_recomputable(o, products) for b in op.blocks for o in b.ops[:-1])
        return inner and (not tiles or (op.name == "for" and carried))
    return bool(op.spec.view) and _is_of_tensor(op)


def _is_of_tensor(op: Op) -> bool:
    return isinstance(op.operands[0].type, TensorType)


def group_products(
    kernel: Function, uses: Uses, regions: TileRegions, forms: Forms
) -> tuple[ProductGroup, ...]:
    """Return the deferred products in execution order."""
    scan = _Scan(kernel, uses, regions, forms)
    scan.block(kernel.body, None)
    return _with_handover(kernel, regions, scan.groups)


@dataclass(frozen=True)
class _Loop:
    """The loop around a block; `defers`: its products may be deferred until it ends."""

    op: Op
    body: Block
    defers: bool


class _Scan:
    def __init__(self, kernel: Function, uses: Uses, regions: TileRegions, forms: Forms) -> None:
        self.kernel, self.uses, self.regions, self.forms = kernel, uses, regions, forms
        self.groups: list[ProductGroup] = []
        self.starts: dict[
            Op, Op
        ] = {}  # first product of a chain, by the product in a loop that continues it

    def block(self, block: Block, loop: _Loop | None) -> None:
        """Group the products of a block and its nested blocks."""
        ops = block.ops[:-1]
        waiting: list[Op] = []

        def run(after: Op) -> None:
            self.groups += [self._group([op], after) for op in waiting]
            waiting.clear()

        for i, op in enumerate(ops):
            if waiting and self._ends_waiting(op, waiting):
                run(ops[i - 1])
            if op.name in PRODUCTS and self._is_of_windows(op):
                if self._is_start(op):
                    self._start(op, ops[i + 1 :])
                elif self._is_whole(op):
                    waiting.append(op)
                    is_own = block is self.kernel.body
                    if not is_own or len(waiting) == MAX_PRODUCTS or self._is_rounded(op):
                        run(op)
            elif op.name in ACCUMULATING and loop is not None and self._waits(op, loop):
                self.groups.append(self._group([*self._started(op), op], loop.op))
            for inner in op.blocks:
                self.block(inner, self._loop(op, inner) if op.name != "if" else None)
        if waiting:
            run(ops[-1])

    def _loop(self, op: Op, block: Block) -> _Loop:
        is_seen = op.name == "while" and any(
            self.uses.count[p] for p in op.blocks[0].params if is_tile(p)
        )
        return _Loop(
            op, block, block is op.blocks[-1] and not is_seen and op not in self.uses.writes
        )

    def _group(self, ops: Sequence[Op], run_after: Op) -> ProductGroup:
        slot = self._slot(ops[0])
        return ProductGroup(tuple(ops), slot, ops[0].name in PRODUCTS, run_after)

    def _slot(self, product: Op) -> int:
        """Return the slot of a product's result."""
        return self.forms.steps[product].slots[0]

    def _is_of_windows(self, op: Op) -> bool:
        """Whether both matrices are read from global memory."""
        operands = self.forms.steps[op].operands
        return all(f.window is not None and len(f.shape) == 2 for f in operands)

    def _is_whole(self, op: Op) -> bool:
        return is_whole(op, self.regions)

    def _is_rounded(self, op: Op) -> bool:
        return accumulator(tile_type(op.args["lhs"]).dtype) is not tile_type(op.result).dtype

    def _ends_waiting(self, op: Op, waiting: Sequence[Op]) -> bool:
        """Whether the pending products must run before `op`."""
        if any(p.result in op.operands for p in waiting) or op.blocks:
            return True
        if op.name in PRODUCTS:
            # On re-entry, only products that were handed over are skipped.
            return self._is_start(op) or not (self._is_of_windows(op) and self._is_whole(op))
        return not is_recomputable(op, set())

    # --- sums that go on in a loop ----------------------------------------------------------------

    def _is_start(self, op: Op) -> bool:
        """Whether the result's only use is as the initial value of a later loop."""
        if self._is_rounded(op) or not self.uses.is_single(op.result):
            return False
        users = [o for o in self.uses.home[op.result].ops if op.result in o.operands]
        return [o.name for o in users] == ["for"]

    def _start(self, op: Op, later: Sequence[Op]) -> None:
        """Defer a product until the loop that it initializes continues it, or until that loop."""
        before = op
        for other in later:
            if other in self.uses.writes:
                break
            if op.result in other.operands:
                continued = self._continuation(op, other)
                if continued is not None:
                    self.starts[continued] = op
                    return
                break
            before = other
        self.groups.append(self._group([op], before))

    def _continuation(self, start: Op, loop: Op) -> Op | None:
        """Return the product in the loop's own block that accumulates onto `start`."""
        view = ForView(loop)
        last = yielded_values(view.body)[view.init.index(start.result)]
        for op in view.body.ops:
            if op.name in ACCUMULATING and op.result is last:
                is_same = self._slot(op) == self._slot(start)
                return op if is_same and self._waits(op, self._loop(loop, view.body)) else None
        return None

    def _waits(self, op: Op, loop: _Loop) -> bool:
        """Whether nothing reads the accumulator or writes the operands before the loop ends."""
        return (
            op.args.get("init_cond") is None
            and self._is_of_windows(op)
            and loop.defers
            and self.uses.home[op.result] is loop.body
            and self.forms.destinations.get(op.result) == self._slot(op)
        )

    def _started(self, op: Op) -> list[Op]:
        start = self.starts.pop(op, None)
        return [] if start is None else [start]


# --- where the kernel is left ---------------------------------------------------------------------


def _with_handover(
    kernel: Function, regions: TileRegions, groups: Sequence[ProductGroup]
) -> tuple[ProductGroup, ...]:
    """Let the kernel hand over its first products if it does nothing else before them."""
    own = kernel.body.ops
    first = next((op for op in own if any(g.run_after is op for g in groups)), None)
    if first is None:
        return tuple(groups)
    batch = [g for g in groups if g.run_after is first]
    ops = {op for g in batch for op in g.ops}
    # Memory outside a partially valid product is cleared before it runs. Initializing the slot of a
    # product that accumulates onto a tile is not an op, but would be repeated on re-entry.
    leaves = (
        len(batch) <= MAX_PRODUCTS
        and all(g.starts_new for g in batch)
        and all(regions.of[op.result] == tile_type(op.result).shape for op in ops)
        and all(is_recomputable(o, ops) for o in own[: own.index(first) + 1])
    )
    return tuple(replace(g, handover=leaves and g in batch) for g in groups)


def is_whole(op: Op, regions: TileRegions) -> bool:
    """Whether both operands of a product and its result are fully valid."""
    a, b, inner = _extents(op, regions)
    is_full = regions.of[op.result] == tile_type(op.result).shape
    return is_full and None not in (a, b, *inner)


def _extents(op: Op, regions: TileRegions) -> tuple[Extent, Extent, tuple[Extent, Extent]]:
    """Return rows and columns of the result, and both inner extents."""
    a, b = (regions.of[op.args[p]] for p in ("lhs", "rhs"))  # type: ignore[index]
    a = a[::-1] if op.args.get("a_trans") else a
    b = b[::-1] if op.args.get("b_trans") else b
    return a[-2], b[-1], (a[-1], b[-2])


def batch_hint(
    groups: Sequence[ProductGroup],
    steps: Mapping[Op, PlanStep],
    regions: TileRegions,
    window_number: Callable[[Value], int | None],
) -> BatchHint:
    """Return which tasks should run together. `window_number` maps an argument to its window."""
    batch = [g for g in groups if g.handover]
    hint = _hint_of(batch[0].ops[0], steps, regions, window_number) if batch else BatchHint()
    return replace(
        hint,
        streams=max(1, hint.streams // max(1, len(batch))),
        same_a=max(1, hint.same_a // max(1, len(batch))),
    )


def _hint_of(
    op: Op,
    steps: Mapping[Op, PlanStep],
    regions: TileRegions,
    window_number: Callable[[Value], int | None],
) -> BatchHint:
    if not is_whole(op, regions):
        return BatchHint()
    left, right = steps[op].operands
    a, b = (window_number(f.window) if f.window else None for f in (left, right))
    rows, columns, _ = _extents(op, regions)
    if a is None or b is None or _is_transposed(right, bool(op.args.get("b_trans"))):
        return BatchHint()
    assert rows is not None
    assert columns is not None
    dtype = tile_type(op.args["rhs"]).dtype
    wide = WIDE_INT8_COLUMNS if rows == 1 and dtype is INT8 else WIDE_COLUMNS
    most = max(1, min(MAX_TOGETHER, wide // columns))
    streams = MAX_STREAMS if rows == 1 and columns <= WIDE_COLUMNS else 1
    same_a = 1 if rows == 1 else min(MAX_TOGETHER, MAX_RESULTS // (rows * columns))
    if rows > FEW_ROWS or max(most, streams, same_a) < 2:
        return BatchHint()
    return BatchHint(most, a, b, columns * dtype.itemsize, streams, max(1, same_a))


def _is_transposed(form: Stored, swapped: bool) -> bool:
    """Whether a matrix is stored transposed relative to the product's operand."""
    row, column = form.strides[-2:]
    is_view = row == 1 and column != 1 and form.shape[-1] != 1
    return is_view != swapped
