"""Views of the control program that may extend past the end of their tensor."""

from __future__ import annotations

from tilelet.analysis.intervals import Intervals
from tilelet.ir.core import Block, Function, Op
from tilelet.ir.fold import number_of
from tilelet.ir.types import ScalarType, TensorType
from tilelet.ir.views import ForView


def may_overhang(function: Function) -> bool:
    """Return whether some view is not provably inside its tensor for all arguments."""
    return _Walk().block(function.body)


class _Walk:
    def __init__(self) -> None:
        self.intervals = Intervals(())

    def block(self, block: Block) -> bool:
        return any(self._op(op) for op in block.ops)

    def _op(self, op: Op) -> bool:
        if op.name == "for":
            view = ForView(op)
            self.intervals.iterate(view.index, *view.bounds)
        elif not op.blocks and op.results and isinstance(op.results[0].type, ScalarType):
            self.intervals.bind(op)
        elif op.name == "slice" and isinstance(op.result.type, TensorType):
            return not self._is_inside(op)
        return any(map(self.block, op.blocks))

    def _is_inside(self, op: Op) -> bool:
        if op.args["clamp"] or op.args["valid_shape"] is not None:
            return True  # checked where it is created
        source = op.operands[0].type
        assert isinstance(source, TensorType)
        offsets, sizes = op.args["offset"], op.args["shape"]
        assert isinstance(offsets, tuple)
        assert isinstance(sizes, tuple)
        for offset, size, extent in zip(offsets, sizes, source.shape):
            if extent == size and number_of(offset) == 0:
                continue
            start, length = self.intervals.get(offset), self.intervals.get(size)
            if start is None or length is None or not isinstance(extent, int):
                return False
            if start.factors or length.factors or start.high + length.high > extent:
                return False
        return True
