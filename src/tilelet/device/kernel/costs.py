"""Cycles of one step on one machine."""

from __future__ import annotations

from tilelet.device.kernel.view import CubeWork, ScalarWork, Transfer, VectorWork, Work
from tilelet.device.machine.description import Machine
from tilelet.dtypes import DType
from tilelet.ir.spec import Cost

_PARTIAL_WRITES = ("ub_to_gm", "l1_to_gm")
_BY_ROW = (Cost.ROW_REDUCE, Cost.COL_REDUCE, Cost.BROADCAST)
"""What treats each row apart: short rows do not share a repeat."""

_LOADS = ("gm_to_l1", "gm_to_ub")
_THROUGH_L2 = ("gm_to_ub", "gm_to_l1", *_PARTIAL_WRITES)
_BY_RUN = ("gm_to_ub", *_PARTIAL_WRITES)
"""Paths on which rows that touch are one run."""


def work_cycles(
    work: Work, machine: Machine, *, cold: bool = False, dense: bool = True, sharers: int = 1
) -> tuple[float, float]:
    """How long a step's work keeps its pipe busy, and how much later its result is there.

    cold     what it reads from GM is not in L2
    dense    the GM tensor it moves has no gaps between its rows
    sharers  cores that ask for the same lines at the same time
    """
    if isinstance(work, Transfer):
        return _transfer(work, machine, cold, dense, sharers)
    if isinstance(work, VectorWork):
        return vector_cycles(work, machine), 0.0
    if isinstance(work, CubeWork):
        return cube_cycles(work, machine), 0.0
    return scalar_cycles(work, machine), 0.0


def _transfer(
    work: Transfer, machine: Machine, cold: bool, dense: bool, sharers: int
) -> tuple[float, float]:
    path = machine.paths[work.path]
    # Scratch through which tiles are exchanged has just been written: it is in L2.
    cold = cold and work.param is not None
    rate = path.cold_bytes_per_cycle if cold else path.bytes_per_cycle
    # A conversion from or to fractals goes row by row whether or not the rows touch.
    merged = dense and work.dense_if_whole and work.path in _BY_RUN
    rows, run = (1, work.nbytes) if merged else (work.rows, work.row_bytes)
    if work.path in _PARTIAL_WRITES:
        # Writing part of a granule takes as long as writing all of it.
        run = _whole(run, machine.gm.granule)
    line = machine.gm.l2_line
    if work.shares_lines and work.path in _THROUGH_L2 and work.row_bytes % line:
        # L2 serves a line to one core after the other, whatever part of it each wants.
        run = 2 * _whole(work.row_bytes, line)
    if work.path.startswith("l0c_"):
        each = max(path.row_cycles, run / rate)
    else:
        each = path.row_cycles + run / rate
        if sharers > 1 and work.path in _LOADS:
            # L2 serves a line to one core after the other.
            each = max(each, -(-run // line) * sharers * machine.gm.serial_cycles)
    busy = path.fixed_cycles + rows * each
    return busy, path.cold_latency_cycles if cold else path.latency_cycles


def _whole(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step


def vector_cycles(work: VectorWork, machine: Machine) -> float:
    cost = machine.vector.get(work.cost.value, machine.vector["default"])
    if work.cost in _BY_ROW:
        repeats = work.rows * -(-work.nbytes // (work.rows * machine.vector_repeat))
    else:
        repeats = -(-work.nbytes // machine.vector_repeat)
    cycles = cost.slope * repeats + cost.constant
    if work.cost is Cost.GATHER:
        # Row by row: indices become addresses, and wait for that.
        addresses = machine.vector.get(Cost.MULS.value, machine.vector["default"])
        cycles += work.rows * (addresses.slope + addresses.constant + machine.body.sync_cycles)
    return cycles


def cube_cycles(work: CubeWork, machine: Machine) -> float:
    cube = machine.cube
    blocks = -(-work.m // cube.fractal) * -(-work.n // cube.fractal)
    depth = -(-work.k * work.dtype.itemsize // cube.k_bytes)
    return cube.head_cycles + passes(work.dtype, machine) * blocks * depth


def passes(dtype: DType, machine: Machine) -> float:
    return machine.cube.fp32_passes if dtype.name == "FP32" else 1.0


def scalar_cycles(work: ScalarWork, machine: Machine) -> float:
    body = machine.body
    return work.accesses * body.element_cycles + work.misses * body.miss_cycles


def macs_per_us(dtype: DType, machine: Machine) -> float:
    """Peak multiply-adds of one cube core per microsecond."""
    cube = machine.cube
    per_cycle = cube.fractal * cube.fractal * (cube.k_bytes // dtype.itemsize)
    return per_cycle / passes(dtype, machine) * machine.cores.clock_ghz * 1000.0
