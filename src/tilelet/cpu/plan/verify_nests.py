"""Verify row nests: that their ops may run row by row instead of one after the other.

Row i of every tile of a nest must follow from row i of the nest's own tiles, so no op may read
another row of them. Whether tiles are in memory when they are read is checked by executing the
ops in order (`verify.py`): within a row they run in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.cpu.plan.model import KernelPlan, RowNest
from tilelet.ir.core import Op, Value, values_in, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType

Problem = tuple[Op, str]


def problem_of(nest: RowNest, plan: KernelPlan) -> Problem | None:
    """Return what is wrong with a nest, and where."""
    ops = plan.kernel.body.ops
    if not nest.ops or nest.ops[0] not in ops:
        return plan.kernel.body.ops[0], "is empty, or not in the outermost block"
    start = ops.index(nest.ops[0])
    if ops[start : start + len(nest.ops)] != nest.ops or nest.rows < 2:
        return nest.ops[0], "is not a sequence of ops on rows"
    products = {op for g in plan.groups for op in (*g.ops, g.run_after)}
    made: set[Value] = set()
    written: set[int] = set()
    for at, op in enumerate(nest.ops):
        problem = _problem(op, nest, made, plan)
        if op in products or op.blocks:
            problem = "runs a product, or contains a block"
        elif _writes(op) and at + 1 < len(nest.ops):
            problem = "writes a tensor before its last op"
        new = {*plan.steps[op].slots, *(slot for _, slot in plan.steps[op].stored)}
        if new & written:
            problem = "writes a slot twice"
        if plan.steps[op].copies or any(v not in made for v, _ in plan.steps[op].stored):
            problem = "writes a whole tile"
        written |= new
        if problem is not None:
            return op, problem
        made.update(op.results)
    outside = {v for op in walk(plan.kernel.body) if op not in nest.ops for v in op.operands}
    if nest.one_row & outside or not nest.one_row <= made:
        return nest.ops[-1], "leaves one row of a tile that is needed whole"
    return None


def _problem(op: Op, nest: RowNest, made: set[Value], plan: KernelPlan) -> str | None:
    own = [v for v in values_in(op.args.values()) if v in made]
    tiles = [v for v in (*own, *op.results) if isinstance(v.type, TileType)]
    if any(plan.regions.of[v] != _shape(v) for v in tiles):
        return "has tiles that are partially valid"
    if _writes(op):
        return None if all(_shape(v)[0] == nest.rows for v in own) else "stores other rows"
    if op.spec.reduces == -1:
        is_row = own in ([], [op.args["x"]]) and _shape(op.args["x"])[0] == nest.rows
        return None if is_row else "reduces something else"
    result = _shape(op.result)
    axis = _row_axis(result, nest.rows)
    if axis is None:
        return "computes a tile without its rows"
    if op.name == "reshape":
        is_column = all(nest.rows == _count(_shape(v)) == _count(result) for v in own)
        return None if own and is_column else "reshapes rows"
    if not op.spec.traits & Trait.ELEMENTWISE and not op.spec.traits & Trait.CREATION:
        return "mixes rows"
    for v in own:
        shape = _shape(v)
        if shape[axis - len(result)] != nest.rows or _row_axis(shape, nest.rows) != axis:
            return "reads other rows"
    return None


def _row_axis(shape: Sequence[int], rows: int) -> int | None:
    """Return the axis of the rows: the first, or the second of a column in a row's shape."""
    if len(shape) != 2 or rows not in shape:
        return None
    if shape[0] == rows:
        return 0
    return 1 if shape[0] == 1 else None


def _shape(value: object) -> tuple[int, ...]:
    assert isinstance(value, Value)
    assert isinstance(value.type, TileType)
    return value.type.shape


def _count(shape: Sequence[int]) -> int:
    return shape[0] * shape[1]


def _writes(op: Op) -> bool:
    return any(
        isinstance(v.type, TensorType) for p in op.spec.writes for v in values_in([op.args[p]])
    )
