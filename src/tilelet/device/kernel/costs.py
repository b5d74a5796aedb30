"""Cycles of one step on one machine."""

from __future__ import annotations

from tilelet.device.kernel.view import CubeWork, ScalarWork, Transfer, VectorWork, Work
from tilelet.device.machine.description import Machine
from tilelet.dtypes import DType

_BY_COST = {
    "add": "add sub maximum minimum part_add part_max part_min",
    "mul": "mul part_mul",
    "div": "div divs recip rem rems fmod fmods",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "relu": "relu lrelu",
    "muls": "muls neg",
    "adds": "adds subs maximums minimums maxs mins shls shrs",
    "abs": "abs",
    "copy": "copy full expands slice assemble concat fillpad fillpad_inplace fillpad_expand "
    "create_tile create_tensor arange ci move expand_clone",
    "cast": "cast",
    "select": "sel sels prelu",
    "compare": "cmp cmps",
    "logic": "and_ ands or_ ors xor xors not_ shl shr",
    "row_reduce": "row_sum row_max row_min row_prod row_argmax row_argmin "
    "tile.sum tile.max tile.min",
    "col_reduce": "col_sum col_max col_min col_prod col_argmax col_argmin",
    "broadcast": "row_expand row_expand_add row_expand_sub row_expand_mul row_expand_div "
    "row_expand_max row_expand_min row_expand_expdif col_expand col_expand_add "
    "col_expand_sub col_expand_mul col_expand_div col_expand_max col_expand_min "
    "col_expand_expdif addc subc addsc subsc",
    "transpose": "transpose",
    "gather": "gather gather_mask gatherb scatter scatter_mask",
    "sort": "sort32 mrgsort",
    "trigonometric": "sin cos",
}
_PARTIAL_WRITES = ("ub_to_gm", "l1_to_gm")
_THROUGH_L2 = ("gm_to_ub", "gm_to_l1", *_PARTIAL_WRITES)

VECTOR_COST = {op: cost for cost, ops in _BY_COST.items() for op in ops.split()}
"""Which entry of a machine's `[vector.costs]` an op is charged by."""

COMPOSED = {"row_expand_expdif": 2, "col_expand_expdif": 2, "addc": 2, "subc": 2}
"""Ops that are several instructions."""


def work_cycles(
    work: Work, machine: Machine, *, cold: bool = False, dense: bool = True
) -> tuple[float, float]:
    """How long a step's work keeps its pipe busy, and how much later its result is there.

    cold   what it reads from GM is not in L2
    dense  the GM tensor it moves has no gaps between its rows
    """
    if isinstance(work, Transfer):
        return _transfer(work, machine, cold, dense)
    if isinstance(work, VectorWork):
        return vector_cycles(work, machine), 0.0
    if isinstance(work, CubeWork):
        return cube_cycles(work, machine), 0.0
    return scalar_cycles(work, machine), 0.0


def _transfer(work: Transfer, machine: Machine, cold: bool, dense: bool) -> tuple[float, float]:
    path = machine.paths[work.path]
    # Scratch through which tiles are exchanged has just been written: it is in L2.
    cold = cold and work.param is not None
    rate = path.cold_bytes_per_cycle if cold else path.bytes_per_cycle
    # A conversion to fractals goes row by row whether or not the rows touch.
    merged = dense and work.dense_if_whole and work.path != "gm_to_l1"
    rows, run = (1, work.nbytes) if merged else (work.rows, work.row_bytes)
    if work.path in _PARTIAL_WRITES:
        # Writing part of a granule takes as long as writing all of it.
        run = _whole(run, machine.gm.granule)
    line = machine.gm.l2_line
    if work.shares_lines and work.path in _THROUGH_L2 and work.row_bytes % line:
        # L2 serves a line to one core after the other, whatever part of it each wants.
        run = 2 * _whole(work.row_bytes, line)
    busy = path.fixed_cycles + rows * (path.row_cycles + run / rate)
    return busy, path.cold_latency_cycles if cold else path.latency_cycles


def _whole(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step


def vector_cycles(work: VectorWork, machine: Machine) -> float:
    cost = machine.vector.get(VECTOR_COST.get(work.op, "default"), machine.vector["default"])
    repeats = -(-work.nbytes // machine.vector_repeat)
    return COMPOSED.get(work.op, 1) * (cost.slope * repeats + cost.constant)


def cube_cycles(work: CubeWork, machine: Machine) -> float:
    cube = machine.cube
    blocks = -(-work.m // cube.fractal) * -(-work.n // cube.fractal)
    depth = -(-work.k * work.dtype.itemsize // cube.k_bytes)
    return cube.head_cycles + passes(work.dtype, machine) * blocks * depth


def passes(dtype: DType, machine: Machine) -> float:
    return machine.cube.fp32_passes if dtype.name == "FP32" else 1.0


def scalar_cycles(work: ScalarWork, machine: Machine) -> float:
    return work.accesses * machine.body.element_cycles + machine.body.issue_cycles


def macs_per_us(dtype: DType, machine: Machine) -> float:
    """Peak multiply-adds of one cube core per microsecond."""
    cube = machine.cube
    per_cycle = cube.fractal * cube.fractal * (cube.k_bytes // dtype.itemsize)
    return per_cycle / passes(dtype, machine) * machine.cores.clock_ghz * 1000.0
