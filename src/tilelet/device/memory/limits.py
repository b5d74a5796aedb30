"""What a machine would reject: tiles that do not fit, unsupported rows, blocks and types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from tilelet import dtypes
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.parts import is_gm, is_tile
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.kernel.storage import round_up
from tilelet.device.kernel.view import DeviceKernel, loops_in
from tilelet.device.machine.description import Machine, load_machine, machine_names
from tilelet.device.memory.plan import (
    MemoryPlan,
    Placement,
    SpaceUse,
    plan_memory,
    with_stages_that_fit,
)
from tilelet.device.memory.retile import Fit, sizes_that_fit
from tilelet.device.memory.stages import SharedStages, shared_stages, with_depths
from tilelet.diag.catalogue.device import (
    MatmulExtent,
    MissingDType,
    NonFractalTile,
    OnChipOverflow,
    Resident,
    SerializedStages,
    UnalignedTile,
    VectorDType,
)
from tilelet.diag.core import Loc, UserError
from tilelet.diag.text import shape_text, size_text
from tilelet.ir.core import Block, Function, Op, Program, Value, walk
from tilelet.ir.spec import Engine, Trait
from tilelet.ir.types import Mem, TensorType, TileType
from tilelet.ir.views import carried_values, yielded_values

BLOCK = 32
"""Block size of on-chip memory in bytes."""

LARGEST_EXTENT = 4095
"""Limit on rows, inner dimension and columns of one product."""


def program_findings(program: Program, machine: Machine) -> list[UserError]:
    """Return everything that the machine would reject or slow down, in program order."""
    found: list[UserError] = []
    for function in program.kernels:
        found += shape_findings(function, machine)
        kernel = with_stages_that_fit(lower_kernel(function, machine), machine)
        found += overflow_findings(kernel, machine, plan_memory(kernel, machine))
        found += serialized_stages(kernel, machine)
    return without_repeats(found)


def without_repeats(found: Sequence[UserError]) -> list[UserError]:
    """Remove duplicates: kernels inlined from one piece of source share its mistakes."""
    kept: dict[tuple[str, str, Loc | None], UserError] = {}
    for problem in found:
        d = problem.diagnostic
        kept.setdefault((d.code, d.message, d.loc), problem)
    return list(kept.values())


def overflow_findings(
    kernel: DeviceKernel, machine: Machine, plan: MemoryPlan
) -> Iterator[OnChipOverflow]:
    """Report each memory that is too small."""
    for use in plan.overflows:
        fits = sizes_that_fit(kernel, machine, use.space)
        yield OnChipOverflow(
            kernel.name,
            use.space.name,
            machine.name,
            max(use.used, use.peak),
            use.limit,
            _place(use, kernel),
            [_resident(p, kernel) for p in use.resident],
            _fit_lines(fits),
        )


def serialized_stages(kernel: DeviceKernel, machine: Machine) -> Iterator[SerializedStages]:
    """Report each memory that holds only one buffer of every pipelined tile."""
    wanted = lower_kernel(kernel.function, machine) if kernel.serialized else kernel
    for use in plan_memory(wanted, machine).spaces:
        if use.space in kernel.serialized:
            pipelined = (n.loc for n in loops_in(kernel.body) if n.stages > 1)
            place = next(pipelined, _place(use, kernel))
            needed = max(use.used, use.peak)
            yield _serialized_finding(kernel, wanted, machine, use.space, needed, place)


def shared_stage_findings(program: Program, machine: Machine) -> list[UserError]:
    """Report each memory in which the public compiler lets stages of a loop share buffers."""
    found: list[UserError] = []
    for function in program.kernels:
        wanted = lower_kernel(function, machine)
        by_space: dict[Mem, list[SharedStages]] = {}
        for shared in shared_stages(wanted, machine):
            by_space.setdefault(shared.space, []).append(shared)
        for space, loops in by_space.items():
            kernel = with_depths(wanted, loops)
            place, needed = loops[0].loop.loc, loops[0].needed
            found.append(_serialized_finding(kernel, wanted, machine, space, needed, place))
    return without_repeats(found)


def _serialized_finding(
    kernel: DeviceKernel, wanted: DeviceKernel, machine: Machine, space: Mem, needed: int, loop: Loc
) -> SerializedStages:
    return SerializedStages(
        kernel.name,
        space.name,
        machine.name,
        needed,
        machine.buffers[space].usable,
        loop,
        kernel_cost(kernel, machine).exec_us,
        kernel_cost(wanted, machine).exec_us,
        _fit_lines(sizes_that_fit(wanted, machine, space, stages_apart=True)),
    )


def _fit_lines(fits: Iterable[Fit]) -> list[str]:
    return [f"{f.change}: {size_text(f.used)}, {f.us:.2f} us for the same work" for f in fits]


def _place(use: SpaceUse, kernel: DeviceKernel) -> Loc:
    return use.peak_loc if use.peak_loc.line > 0 else kernel.function.loc


def _resident(p: Placement, kernel: DeviceKernel) -> Resident:
    tile = p.tile
    text = f"{shape_text(tile.shape)} {tile.dtype.name}"
    if tile.buffers > 1 and not p.piece:
        text += f" x {tile.buffers} buffers"
    if p.piece:
        text += f" in pieces {shape_text(p.piece)}"
    loc = tile.loc if tile.loc.line > 0 else kernel.function.loc
    return Resident(tile.name, loc, text, p.nbytes)


def shape_findings(function: Function, machine: Machine) -> Iterator[UserError]:
    """Check rows, cube blocks, product extents and element types."""
    ops = list(walk(function.body))
    yield from _missing_types(function, ops, machine)
    for_cube = _cube_only(ops)
    products = _products(function.body)
    narrow: set[Value] = set()
    for op in ops:
        if op.spec.engine is Engine.CUBE:
            yield from _product(op, machine)
        elif Trait.ARITHMETIC in op.spec.traits and not _takes_bf16(machine):
            yield from _bf16(op, products, machine)
        for value in op.results:
            if is_tile(value) and value not in for_cube and not op.spec.structural:
                found = _rows(value, op, machine)
                # Results of a narrow tile are narrow, too: one message is enough.
                if found and not narrow.intersection(op.operands):
                    yield found
                if found:
                    narrow.add(value)


def _missing_types(
    function: Function, ops: Sequence[Op], machine: Machine
) -> Iterator[MissingDType]:
    """Report each element type that the machine does not have, where it is first used."""
    first: dict[dtypes.DType, Loc] = {}
    for value in (*function.params, *(r for op in ops for r in op.results)):
        if isinstance(value.type, (TensorType, TileType)):
            first.setdefault(value.type.dtype, value.loc)
    for dtype, loc in first.items():
        if dtype in dtypes.NARROW and dtype not in machine.narrow_types:
            known = machine_names()
            others = [name for name in known if dtype in load_machine(name).narrow_types]
            yield MissingDType(dtype.name, machine.name, others, loc)


def _cube_only(ops: list[Op]) -> set[Value]:
    """Return the values that only the cube uses, to which its own rule (`_product`) applies."""
    made = {r for op in ops if op.spec.engine is Engine.CUBE for r in op.results}
    used: dict[Value, set[bool]] = {}
    for op in ops:
        for v in op.operands:
            used.setdefault(v, set()).add(op.spec.engine is Engine.CUBE)
    return made | {v for v, by_cube in used.items() if by_cube == {True}}


def _rows(value: Value, op: Op, machine: Machine) -> UnalignedTile | None:
    t = value.type
    assert isinstance(t, TileType)
    # A column is stored along its rows; a single element takes a whole block.
    contiguous = t.shape[-1] if t.shape[-1] > 1 else math.prod(t.shape)
    nbytes = t.dtype.packed(contiguous)
    if contiguous == 1 or nbytes % BLOCK == 0:
        return None
    wider = list(t.shape)
    axis = len(wider) - 1 if t.shape[-1] > 1 else len(wider) - 2
    wider[axis] = round_up(wider[axis], BLOCK * 2 // t.dtype.packed(2))
    loc = value.loc if value.loc.line > 0 else op.loc
    return UnalignedTile(value.name, _tile_text(t), nbytes, machine.name, tuple(wider), loc)


def _product(op: Op, machine: Machine) -> Iterator[UserError]:
    lhs, rhs = op.args["lhs"], op.args["rhs"]
    assert isinstance(lhs, Value)
    assert isinstance(rhs, Value)
    if is_gm(lhs) or is_gm(rhs):
        return
    for operand in (lhs, rhs):
        yield from _fractals(operand, op, machine)
    result = op.results[0].type
    assert isinstance(lhs.type, TileType)
    assert isinstance(result, TileType)
    m, n = result.shape[-2:]
    k = lhs.type.shape[-2] if op.args.get("a_trans") else lhs.type.shape[-1]
    for which, extent in (("M", m), ("K", k), ("N", n)):
        if extent > LARGEST_EXTENT:
            yield MatmulExtent(which, extent, LARGEST_EXTENT, op.loc)


def _fractals(operand: Value, op: Op, machine: Machine) -> Iterator[UserError]:
    t = operand.type
    assert isinstance(t, TileType)
    if Trait.ONE_ROW in op.spec.traits and t.shape[-2] == 1:
        return
    rows, columns = machine.cube.fractal, max(1, machine.cube.k_bytes // t.dtype.itemsize)
    padded = (*t.shape[:-2], round_up(t.shape[-2], rows), round_up(t.shape[-1], columns))
    loc = operand.loc if operand.loc.line > 0 else op.loc
    for axis, multiple, what in ((-2, rows, "rows"), (-1, columns, "columns")):
        if t.shape[axis] % multiple:
            yield NonFractalTile(
                operand.name, _tile_text(t), what, t.shape[axis], multiple, padded, op.loc, loc
            )
            return


def _takes_bf16(machine: Machine) -> bool:
    """Return whether the vector unit computes in BF16, as with direct cube-vector paths."""
    return machine.has_path("l0c_to_ub")


def _products(body: Block) -> set[Value]:
    """Return BF16 products, and values computed only from them.

    The vector unit gets them as accumulated, in FP32; only a cast rounds them.
    """
    found: set[Value] = set()
    for op in body.ops:
        _follow_products(op, found)
    return found


def _follow_products(op: Op, found: set[Value]) -> None:
    if op.name in ("for", "while"):
        found.update(v for first, _, same in carried_values(op) if first in found for v in same)
    for block in op.blocks:
        for inner in block.ops:
            _follow_products(inner, found)
    if op.name == "if":
        arms = zip(op.results, *map(yielded_values, op.blocks))
        found.update(result for result, *given in arms if found.issuperset(given))
    operands = [v for v in op.operands if _is_bf16(v)]
    computed = operands and op.name != "cast" and found.issuperset(operands)
    if op.spec.engine is Engine.CUBE or (computed and not op.blocks):
        found.update(filter(_is_bf16, op.results))


def _is_bf16(value: Value) -> bool:
    return isinstance(value.type, TileType) and value.type.dtype is dtypes.BF16


def _bf16(op: Op, products: set[Value], machine: Machine) -> Iterator[UserError]:
    if any(_is_bf16(v) and v not in products for v in (*op.operands, *op.results)):
        yield VectorDType(op.name, "BF16", machine.name, op.loc)


def _tile_text(t: TileType) -> str:
    return f"{shape_text(t.shape)} {t.dtype.name}"
