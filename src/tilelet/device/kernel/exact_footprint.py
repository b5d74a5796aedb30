"""The exact bytes that tasks access: the boxes of all transfers of tasks with the same control
path.

A box has extents and a start, which is an affine sum of columns: a column has one number per task
(and block). Loops are followed; adjacent boxes are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilelet import dtypes
from tilelet.analysis.affine import Affine, AffineForms
from tilelet.analysis.scalars import (
    Column,
    apply,
    binary_column,
    stays_in_type,
    wrapped_column,
)
from tilelet.dataclasses import dataclass, replace
from tilelet.device.kernel.control_path import ControlPath, Signature
from tilelet.device.kernel.view import Bind, Branch, DeviceKernel, Loop, Node, Transfer
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Op, Value, scalar_dtype
from tilelet.ir.fold import number_of
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType

Sum = Affine[int]
"""Multiples of numbered columns, plus a constant."""

Key = tuple[int, bool]
"""Position of a parameter, and whether it is written."""

MAX_BOXES = 256
MAX_STEPS = 1 << 14
"""Limits of the analysis; beyond them nothing is claimed."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box of `extents` elements per axis from `start`."""

    start: tuple[Sum, ...]
    extents: tuple[int, ...]

    def joined(self, other: Box) -> Box | None:
        """Return both as one box, if that contains no additional byte."""
        axes: list[int] = []
        for axis, (a, b) in enumerate(zip(self.start, other.start)):
            if a.terms != b.terms:
                return None
            if a != b or self.extents[axis] != other.extents[axis]:
                axes.append(axis)
        if len(axes) != 1:
            return None if axes else self
        (axis,) = axes
        lows = [box.start[axis].constant for box in (self, other)]
        highs = [low + box.extents[axis] for low, box in zip(lows, (self, other))]
        if max(lows) > min(highs):
            return None
        first = replace(self.start[axis], constant=min(lows))
        start = (*self.start[:axis], first, *self.start[axis + 1 :])
        length = max(highs) - min(lows)
        return Box(start, (*self.extents[:axis], length, *self.extents[axis + 1 :]))


class ExactFootprint:
    """What executions of a kernel with the same control path access.

    boxes    by parameter and direction; None if unknown
    columns  the numbers that box starts are computed from
    """

    def __init__(
        self,
        kernel: DeviceKernel,
        signature: Signature,
        scalars: Mapping[int, Column],
        block: Column,
    ) -> None:
        """`scalars` are the tasks' integer arguments by position, `block` their block indices."""
        self.boxes: dict[Key, list[Box] | None] = {}
        self.columns: list[Column] = []
        self._path = ControlPath(kernel, signature)
        self._sums = _Sums(self.columns, kernel, scalars, block, signature.blocks)
        self._left = MAX_STEPS
        self._follow(kernel.body)
        for key, boxes in self.boxes.items():
            if boxes is not None:
                self.boxes[key] = _merge_boxes(boxes)

    def starts(self, box: Box, count: int) -> list[Column]:
        """Return the start of the box per axis, for each of `count` executions."""
        return [self._sums.column(s, count) for s in box.start]

    def _follow(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Bind):
                self._path.numbers.bind(node.op)
                self._sums.bind(node.op)
            elif isinstance(node, Branch):
                taken = self._path.takes(node)
                self._follow(node.then if taken else node.orelse)
                self._path.join(node, taken)
                for result, then, orelse in node.joins:
                    self._sums.values[result] = self._sums.get(then if taken else orelse)
            elif isinstance(node, Loop):
                self._loop(node)
            elif isinstance(node.work, Transfer) and node.work.param is not None:
                self._touch(node.work)

    def _loop(self, loop: Loop) -> None:
        path, values = self._path, self._sums.values
        count, index, stride = path.trips(loop)
        first, step = self._sums.get(loop.start), self._sums.get(loop.step)
        path.enter(loop)
        for carry in loop.carries:
            values[carry.param] = self._sums.get(carry.init)
        for i in range(count):
            path.iterate(loop, index + i * stride)
            if loop.index is not None:
                known = first is not None and step is not None and not step.terms
                values[loop.index] = first.plus(step.times(i)) if known else None  # type: ignore[union-attr]
            self._follow(loop.body)
            path.hand_on(loop)
            following = [self._sums.get(carry.following) for carry in loop.carries]
            for carry, value in zip(loop.carries, following):
                values[carry.param] = value
        path.leave(loop)
        for carry in loop.carries:
            values[carry.result] = values[carry.param]

    def _touch(self, work: Transfer) -> None:
        assert work.param is not None
        key = (work.param, work.writes_gm)
        known = self.boxes.setdefault(key, [])
        if known is None:
            return
        self._left -= 1
        sized = self._path.sized(work)
        assert isinstance(sized, Transfer)
        starts = [self._sums.get(o) for o in work.offset]
        rank = len(work.box)
        if self._left < 0 or not rank or len(starts) != rank or any(s is None for s in starts):
            self.boxes[key] = None
            return
        extents = work.box[: rank - len(sized.shape)] + sized.taken
        if 0 in extents:
            return
        box = Box(tuple(s for s in starts if s is not None), extents)
        whole = known[-1].joined(box) if known else None
        if whole is not None:
            known[-1] = whole
        elif len(known) < MAX_BOXES:
            known.append(box)
        else:
            self.boxes[key] = None


def _merge_boxes(boxes: list[Box]) -> list[Box]:
    """Merge boxes that together form a box."""
    kept: list[Box] = []
    for box in dict.fromkeys(boxes):
        current = box
        while True:
            for i, other in enumerate(kept):
                whole = other.joined(current)
                if whole is not None:
                    current = whole
                    del kept[i]
                    break
            else:
                break
        kept.append(current)
    return kept


class _Sums:
    """Scalars of a kernel as sums of columns; None for data-dependent ones."""

    def __init__(
        self,
        columns: list[Column],
        kernel: DeviceKernel,
        scalars: Mapping[int, Column],
        block: Column,
        blocks: int,
    ) -> None:
        self.values: dict[Value, Sum | None] = {}
        self._columns = columns
        self._made: dict[tuple[object, ...], Sum | None] = {}
        self._block, self._blocks = block, blocks
        for i, param in enumerate(kernel.function.params):
            if i in scalars:
                self.values[param] = self._new(scalars[i])

    def get(self, arg: Arg) -> Sum | None:
        if isinstance(arg, Value):
            return self.values.get(arg)
        number = number_of(arg)
        return Affine(number) if isinstance(number, int) else None

    def column(self, total: Sum, count: int) -> Column:
        found = np.full(count, total.constant, np.int64)
        for number, factor in total.terms:
            found += factor * self._columns[number]
        return found

    def bind(self, op: Op) -> None:
        if op.results:
            self.values[op.results[0]] = self._value(op)

    def _new(self, column: Column) -> Sum:
        if len(column) and (column == column[0]).all():
            return Affine(int(column[0]))
        self._columns.append(column)
        return Affine(0, ((len(self._columns) - 1, 1),))

    def _value(self, op: Op) -> Sum | None:
        type_ = op.results[0].type
        if Trait.OF_BLOCK in op.spec.traits:
            return self._of_block(op.name)
        if not isinstance(type_, ScalarType) or _is_unsigned_wide(op):
            return None
        found = apply(_FORMS, op, self.get)
        if found is not None:
            return found if stays_in_type(op) else self._wrapped(found, type_.dtype)
        if "rhs" not in op.args:
            return None
        a, b = self.get(op.args["lhs"]), self.get(op.args["rhs"])
        if a is None or b is None:
            return None
        key = (op.name, a, b, type_.dtype)
        if key not in self._made:
            count = len(self._block)
            made = binary_column(op.name, self.column(a, count), self.column(b, count), type_.dtype)
            self._made[key] = None if made is None else self._new(made)
        return self._made[key]

    def _wrapped(self, total: Sum, dtype: DType) -> Sum:
        """Wrap a sum to its type; unchanged if it overflows in no execution."""
        exact = self.column(total, len(self._block))
        wrapped = wrapped_column(exact, dtype)
        return total if (exact == wrapped).all() else self._new(wrapped)

    def _of_block(self, name: str) -> Sum:
        if name == "get_block_num":
            return Affine(self._blocks)
        if name != "get_block_idx":
            return Affine(0)
        if (name,) not in self._made:
            self._made[name,] = self._new(self._block)
        found = self._made[name,]
        assert found is not None
        return found


_FORMS: AffineForms[int] = AffineForms()


def _is_unsigned_wide(op: Op) -> bool:
    """Return whether values of the op may exceed the range of a column."""
    types = [scalar_dtype(v) for v in (*op.operands, *op.results)]
    return dtypes.UINT64 in types
