"""Which slices of L2 serve a transfer.

Memory lines are distributed round-robin over the slices of L2. Rows at a pitch of many lines fall
on few slices. If all cores of a kernel request the same columns, these are the same slices, and a
slice serves one request at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelet.device.machine.description import Gm
from tilelet.ir.core import Arg, Function, Op, Value, walk
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import TensorType


def pitch_of(tensor: TensorType) -> int:
    """Return the row pitch in bytes, or 0 if unknown."""
    width = tensor.shape[-1] if tensor.shape else 1
    return tensor.dtype.packed(width) if isinstance(width, int) else 0


def slices_of(pitch: int, row_bytes: int, gm: Gm) -> int:
    """Return how many slices rows of `pitch` fall on; 0 for all."""
    if not pitch or pitch % gm.l2_line:
        return 0
    apart = math.gcd(pitch // gm.l2_line, gm.l2_slices)
    lines = -(-row_bytes // gm.l2_line)
    return gm.l2_slices // apart * min(lines, apart)


class SliceUse:
    """The slices that windows of one kernel's parameters fall on."""

    def __init__(self, function: Function, definition: Mapping[Value, Op], gm: Gm) -> None:
        self._gm = gm
        self._definition = definition
        ops = list(walk(function.body))
        self._loops = {op.blocks[0].params[0]: op for op in ops if op.name == "for"}
        # Blocks of one task share its scalars; separate tasks do not.
        by_block = any(Trait.BY_BLOCK in op.spec.traits for op in ops)
        self._differs: dict[Value, bool] = dict.fromkeys(function.params, not by_block)

    def of_rows(self, tensor: TensorType, row_bytes: int, column: Arg) -> int:
        """Return how many slices serve rows of a tensor that begin at a column; 0 for all."""
        pitch = pitch_of(tensor)
        return 0 if self.differs(column) else slices_of(pitch, row_bytes, self._gm)

    def differs(self, scalar: Arg) -> bool:
        """Return whether cores that run the kernel concurrently differ in a scalar's value."""
        if not isinstance(scalar, Value):
            return False
        if scalar not in self._differs:
            self._differs[scalar] = True  # a loop-carried value may be anything
            self._differs[scalar] = self._found(scalar)
        return self._differs[scalar]

    def _found(self, scalar: Value) -> bool:
        if scalar in self._loops:
            return self.differs(self._loops[scalar].args["start"])
        op = self._definition.get(scalar)
        if op is None or op.blocks or Trait.BY_BLOCK in op.spec.traits or op.name == "read":
            return True
        return op.spec.engine is not Engine.SCALAR or any(self.differs(v) for v in op.operands)
