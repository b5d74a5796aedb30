"""Cycles of one step on one machine."""

from __future__ import annotations

from tilelet.device.kernel.view import CubeWork, ScalarWork, Transfer, VectorWork, Work
from tilelet.device.machine.description import Machine, VectorCost
from tilelet.dtypes import DType
from tilelet.ir.spec import Cost

_PARTIAL_WRITES = ("ub_to_gm", "l1_to_gm")
_SPREAD = (Cost.ROW_BROADCAST, Cost.ROW_DIVIDE)
_BY_ROW = (Cost.BROADCAST, *_SPREAD, Cost.REPEATED_ROWS, Cost.FILLED_ROWS)
"""Ops that process each row separately: short rows do not share a repeat."""

_ROWS_SPREAD = 8
"""Rows whose values one repeat broadcasts."""

_LOADS = ("gm_to_l1", "gm_to_ub")
_THROUGH_L2 = ("gm_to_ub", "gm_to_l1", *_PARTIAL_WRITES)
_BY_RUN = ("gm_to_ub", *_PARTIAL_WRITES)
"""Paths on which adjacent rows form one run."""


def work_cycles(
    work: Work,
    machine: Machine,
    *,
    cold: bool = False,
    cold_stores: bool = False,
    dense: bool = True,
    sharers: int = 1,
) -> tuple[float, float]:
    """Return how long a step occupies its pipe, and how much later its result is available.

    cold     its GM operands are not in L2
    cold_stores  nor is the memory it overwrites
    dense    the GM tensor it moves has no gaps between its rows
    sharers  cores that request the same lines at the same time
    """
    if isinstance(work, Transfer):
        return _transfer(work, machine, cold_stores if work.writes_gm else cold, dense, sharers)
    if isinstance(work, VectorWork):
        return vector_cycles(work, machine), 0.0
    if isinstance(work, CubeWork):
        return cube_cycles(work, machine), 0.0
    return scalar_cycles(work, machine), 0.0


def _transfer(
    work: Transfer, machine: Machine, cold: bool, dense: bool, sharers: int
) -> tuple[float, float]:
    path = machine.paths[work.path]
    # Scratch through which tiles are exchanged was just written, so it is in L2.
    cold = cold and work.param is not None
    rate = path.cold_bytes_per_cycle if cold else path.bytes_per_cycle
    # A conversion from or to fractals works row by row even if rows are adjacent.
    merged = dense and work.dense_if_whole and work.path in _BY_RUN
    rows, run = (1, work.nbytes) if merged else (work.rows, work.row_bytes)
    if work.path in _PARTIAL_WRITES:
        # Writing part of a granule takes as long as writing all of it.
        run = _round_up(run, machine.gm.granule)
    line = machine.gm.l2_line
    if work.shares_lines and work.path in _THROUGH_L2 and work.row_bytes % line:
        # L2 serves a line to one core at a time, whatever part of it each requests.
        run = 2 * _round_up(work.row_bytes, line)
    if work.path.startswith("l0c_"):
        each = max(path.row_cycles, run / rate)
    else:
        each = path.row_cycles + run / rate
        if sharers > 1 and work.path in _LOADS:
            # L2 serves a line to one core at a time.
            each = max(each, -(-run // line) * sharers * machine.gm.serial_cycles)
    busy = path.fixed_cycles + rows * each
    return busy, path.cold_latency_cycles if cold else path.latency_cycles


def _round_up(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step


def vector_cycles(work: VectorWork, machine: Machine) -> float:
    """Return the cycles of one op: one instruction, or as many as its implementation needs."""
    return machine.body.mask_cycles + _instruction_cycles(work, machine)


def _instruction_cycles(work: VectorWork, machine: Machine) -> float:
    across = -(-work.nbytes // (work.rows * machine.vector_repeat))
    if work.cost is Cost.ROW_REDUCE or work.cost is Cost.COL_REDUCE:
        return _reduction(work, machine, across)
    if work.cost is Cost.PAD:
        return _padding(work, machine)
    cost = _cost(machine, work.cost)
    repeats = work.rows * across if work.cost in _BY_ROW else _repeats(work, machine)
    cycles = cost.slope * repeats + cost.constant
    sync = machine.body.sync_cycles
    if work.cost is Cost.GATHER:
        # Row by row: converting indices to addresses, and waiting for it.
        addresses = _cost(machine, Cost.MULS)
        cycles += work.rows * (addresses.slope + addresses.constant + sync)
    spread = machine.vector.get("spread")
    if spread is None:
        return cycles
    if work.cost in _SPREAD:
        # Each row's value is first broadcast to a block.
        cycles += spread.slope * -(-work.rows // _ROWS_SPREAD) + spread.constant + sync
    elif work.cost is Cost.REPEATED_ROWS:
        cycles = max(cycles, work.rows * machine.body.issue_cycles)
    elif work.cost is Cost.FILLED_ROWS:
        # The scalar unit reads each row's value from the vector unit, which waits for it.
        each = cost.slope * across + cost.constant + machine.body.element_cycles + 2 * sync
        cycles = work.rows * each
    return cycles


def _reduction(work: VectorWork, machine: Machine, across: int) -> float:
    """Partial results are combined sequentially in memory, each with a barrier."""
    cost, combine = _cost(machine, work.cost), machine.vector.get("combine")
    if combine is None:
        return cost.slope * work.rows * across + cost.constant
    barrier = machine.body.sync_cycles
    if work.cost is Cost.COL_REDUCE:
        step = combine.slope * across + combine.constant + barrier
        return cost.slope * across + cost.constant + (work.rows - 1) * step
    step = combine.slope * work.rows + combine.constant + barrier
    return cost.slope * work.rows + cost.constant + (across - 1) * step


def _padding(work: VectorWork, machine: Machine) -> float:
    """Rows are copied and filled one at a time; a machine without a cost for it copies the tile."""
    row = machine.vector.get(Cost.PAD.value)
    if row is not None:
        return row.slope * work.rows + row.constant
    copy = _cost(machine, Cost.COPY)
    return copy.slope * _repeats(work, machine) + copy.constant


def _repeats(work: VectorWork, machine: Machine) -> int:
    return -(-work.nbytes // machine.vector_repeat)


def _cost(machine: Machine, cost: Cost) -> VectorCost:
    return machine.vector.get(cost.value, machine.vector["default"])


def cube_cycles(work: CubeWork, machine: Machine) -> float:
    cube = machine.cube
    blocks = -(-work.m // cube.fractal) * -(-work.n // cube.fractal)
    depth = -(-work.k * work.dtype.itemsize // cube.k_bytes)
    return cube.head_cycles + passes(work.dtype, machine) * blocks * depth


def passes(dtype: DType, machine: Machine) -> float:
    return machine.cube.fp32_passes if dtype.name == "FP32" else 1.0


def scalar_cycles(work: ScalarWork, machine: Machine) -> float:
    body = machine.body
    accesses = work.accesses * body.element_cycles + work.misses * body.miss_cycles
    return accesses + work.cycles


def macs_per_us(dtype: DType, machine: Machine) -> float:
    """Return the peak multiply-adds of one cube core per microsecond."""
    cube = machine.cube
    per_cycle = cube.fractal * cube.fractal * (cube.k_bytes // dtype.itemsize)
    return per_cycle / passes(dtype, machine) * machine.cores.clock_ghz * 1000.0
