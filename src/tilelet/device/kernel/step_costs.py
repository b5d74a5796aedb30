"""The cost of each step of an execution on one machine, and the bytes it moves."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.costs import work_cycles
from tilelet.device.kernel.footprint import footprints
from tilelet.device.kernel.view import Core, CubeWork, DeviceKernel, Step, Transfer, Work
from tilelet.device.machine.description import Machine
from tilelet.ir.types import TensorType


class Moved(NamedTuple):
    """What a step adds to the totals of an execution.

    param      position of the parameter that `nbytes` are read from or written to
    exchanged  bytes that AIC and AIV exchange through GM
    served     granules requested from each slice of L2
    """

    param: int | None = None
    writes: bool = False
    nbytes: int = 0
    exchanged: int = 0
    macs: int = 0
    served: float = 0.0


_NOTHING = Moved()


class StepCosts:
    """Step costs of one kernel, for all signatures with the same row gaps and blocks."""

    def __init__(self, kernel: DeviceKernel, machine: Machine, signature: Signature) -> None:
        self.kernel = kernel
        self.machine = machine
        self.strided = signature.strided
        self.blocks = signature.blocks

    def cycles(self, work: Work, cold: bool, cold_stores: bool) -> tuple[float, float]:
        """Return how long a step occupies its pipe, and how much later its result is available."""
        is_transfer = isinstance(work, Transfer)
        return work_cycles(
            work,
            self.machine,
            cold=cold,
            cold_stores=cold_stores,
            dense=not (is_transfer and work.param in self.strided),
            sharers=self.sharers(work) if is_transfer else 1,
        )

    def sharers(self, work: Transfer) -> int:
        """Return the number of cores that read their own parts of the same lines at once.

        Blocks of one task do, because they start together. Tasks start at different times, so they
        read different rows.
        """
        if not work.own_columns or work.writes_gm or work.param is None:
            return 1
        width = _columns(self.kernel).get(work.param, 0)
        cores = self.machine.gm.l2_line // width if width else 1
        return max(1, min(cores, self.blocks))

    def moved(self, step: Step, work: Work) -> Moved:
        if isinstance(work, CubeWork):
            return Moved(macs=work.m * work.k * work.n)
        if not isinstance(work, Transfer):
            return _NOTHING
        if work.param is None:
            return Moved(exchanged=work.nbytes) if work.writes_gm else _NOTHING
        lanes = self.kernel.lanes if step.core is Core.AIV else 1
        served = self.requests(work) * lanes
        return Moved(work.param, work.writes_gm, work.nbytes * lanes, served=served)

    def requests(self, work: Transfer) -> float:
        """Return the granules requested from each slice, if shared with others."""
        gm = self.machine.gm
        dense = work.dense_if_whole and work.param not in self.strided
        rows, run = (1, work.nbytes) if dense else (work.rows, work.row_bytes)
        together = 1.0 if work.same_lines or not work.slices else gm.lockstep
        # A line that all cores request is served as a whole; rows of single cores, by sectors.
        step = gm.granule if work.same_lines or not work.slices else gm.l2_sector
        served = -(-run // step) * step / gm.granule
        return together * rows * served / (work.slices or gm.l2_slices)


@functools.lru_cache(maxsize=1024)
def _columns(kernel: DeviceKernel) -> dict[int, int]:
    """Return the bytes of a row that one execution reads over all its loops, by parameter."""
    found: dict[int, int] = {}
    for touched in footprints(kernel):
        tensor = kernel.function.params[touched.param].type
        if touched.extents and not touched.writes and isinstance(tensor, TensorType):
            last = touched.extents[-1]
            found[touched.param] = tensor.dtype.packed(last.high - last.low)
    return found
