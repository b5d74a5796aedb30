"""Emit a whole program as C: kernels, control functions, and the table that describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.analysis.aliases import Aliases
from tilelet.analysis.overhang import may_overhang

# Imported to register their ops in the table of emitters.
from tilelet.cpu.emit import (  # noqa: F401
    flow,
    ops_elementwise,
    ops_host,
    ops_matmul,
    ops_movement,
    ops_reduction,
)
from tilelet.cpu.emit.control import ControlEmitter, KernelEntry, has_partial_windows, signature
from tilelet.cpu.emit.distributed_loops import one_iteration
from tilelet.cpu.emit.emitter import OpNumbers
from tilelet.cpu.emit.footprint import footprint_lines
from tilelet.cpu.emit.kernel import KernelCode, KernelEmitter, Windows
from tilelet.cpu.emit.sites import Site, Sites
from tilelet.cpu.emit.text import identifier
from tilelet.cpu.plan.model import KernelPlan
from tilelet.cpu.plan.planner import plan_kernel
from tilelet.cpu.plan.unread_rows import without_unread_rows
from tilelet.cpu.plan.verify import verify
from tilelet.cpu.run.native import RANK
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.unsupported import UnsupportedConstruct
from tilelet.ir.core import Direction, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import CallView

_DIRECTIONS = {Direction.In: "r", Direction.Out: "w", Direction.InOut: "b"}


@dataclass(frozen=True)
class Compiled:
    """C text of a program in units that compile in parallel, and what its numbers refer to."""

    units: list[str]
    kernels: list[str]  # kernel names, by number
    sites: list[Site]
    host_ops: list[Op]
    calls: list[Op]  # ops that submit tasks, by number
    plans: list[KernelPlan]  # by kernel number


# Larger than any memory; a larger 64-bit size could overflow to a small one.
_MAX_BYTES = 1 << 62


def emit_program(program: Program, parts: int = 2) -> Compiled:
    """Return the program (after all passes) as C."""
    _check_ranks(program)
    program, rows_read = without_unread_rows(program)
    sites, host = Sites(), OpNumbers()
    for p in program.main.params:
        sites.number(p.loc, "param", p.name)
    control = [f for f in program.functions.values() if f.kind is not FunctionKind.InCore]
    used = _called_kernels(program, control)
    full = not has_partial_windows(control)
    windows = Windows(full, full and not any(map(may_overhang, control)))
    codes: list[tuple[Function, KernelCode]] = []
    plans: list[KernelPlan] = []
    for kernel in used:
        part, iterations = one_iteration(kernel, program)
        aliases = Aliases(part.body, program.functions)
        plan = plan_kernel(part, aliases, windows_are_full=windows.are_full)
        verify(plan)
        plans.append(plan)
        emitter = KernelEmitter(plan, program.functions, sites, host, windows=windows)
        codes.append((part, replace(emitter.emit(), iterations=iterations)))
    units = _kernel_units(codes, parts)
    calls = OpNumbers()
    units[-1] += "\n" + _control_unit(program, control, codes, sites, host, calls, rows_read)
    return Compiled(units, [f.name for f in used], sites.all(), host.ops, calls.ops, plans)


def _check_ranks(program: Program) -> None:
    """Raise an error for tensors with more than `RANK` axes, the limit of windows in C."""
    for fn in program.functions.values():
        values = [*fn.params, *(v for op in walk(fn.body) for v in op.results)]
        for v in values:
            if isinstance(v.type, (TensorType, TileType)) and len(v.type.shape) > RANK:
                what = f"`{v.name}`, which has {len(v.type.shape)} axes,"
                help_ = f"the native engine takes up to {RANK} axes; `--engine interp` takes any"
                raise UnsupportedConstruct(v.loc, what, help_)


def _called_kernels(program: Program, control: Sequence[Function]) -> list[Function]:
    names: dict[str, None] = {}
    for fn in control:
        for op in walk(fn.body):
            if op.name == "call":
                names.setdefault(CallView(op).callee)
    found = [program.functions[n] for n in names]
    return [f for f in found if f.kind is FunctionKind.InCore]


_HEAD = '#include "kernel.h"\n'


def _kernel_units(codes: Sequence[tuple[Function, KernelCode]], parts: int) -> list[str]:
    """Divide the kernels into texts of similar length."""
    bins: list[list[str]] = [[] for _ in range(max(1, min(parts, len(codes))))]
    for _, code in sorted(codes, key=lambda c: -len(c[1].lines)):
        min(bins, key=len).extend(code.lines)
    return [_HEAD + "\n" + "\n".join(lines) for lines in bins]


def _control_unit(
    program: Program,
    control: Sequence[Function],
    codes: Sequence[tuple[Function, KernelCode]],
    sites: Sites,
    host: OpNumbers,
    calls: OpNumbers,
    rows_read: Mapping[Value, int],
) -> str:
    entries = {
        fn.name: KernelEntry(i, code.windows, code.scalars, _fills(code))
        for i, (fn, code) in enumerate(codes)
    }
    lines: list[str] = []
    for _, code in codes:
        lines.append(f"int {code.name}(tl_ctx *c, const tl_win *w, const tl_word *x);")
    lines += [f"{signature(fn)};" for fn in control]
    lines.append("")
    for fn in control:
        emitter = ControlEmitter(fn, program.functions, sites, host, entries, calls, rows_read)
        lines += emitter.emit()
    footprints: list[str] = []
    for fn, _ in codes:
        name, text = footprint_lines(fn, program.functions)
        footprints.append(name)
        lines += text
    lines += _tables(program, codes, footprints)
    return "\n".join(lines) + "\n"


def _fills(code: KernelCode) -> Mapping[int, int]:
    """Return what a task fills; one of several iterations may fill only its own part."""
    return code.fills if code.iterations == 1 else {}


def _tables(
    program: Program, codes: Sequence[tuple[Function, KernelCode]], footprints: Sequence[str]
) -> list[str]:
    lines = ["static const tl_kernel kernels[] = {"]
    for (fn, code), footprint in zip(codes, footprints):
        directions = "".join(_DIRECTIONS[fn.directions[i]] for i in code.windows)
        sizes = f"{len(code.windows)}, {len(code.scalars)}"
        batch_hint = code.batch_hint
        batch = f"{batch_hint.batch_max}, {batch_hint.a}, {batch_hint.b}, {batch_hint.b_stride}"
        batch += f", {batch_hint.streams}, {batch_hint.same_a}"
        lines.append(
            f'    {{{code.name}, "{identifier(fn.name)}", {sizes}, "{directions}", {footprint}, '
            f"{batch}, {min(code.scratch, _MAX_BYTES)}, {code.iterations}}},"
        )
    lines += ["    {0},", "};", ""]
    entry = f"f_{identifier(program.main.name)}"
    scratch = max([c.scratch * c.batch_hint.most for _, c in codes], default=0)
    has_products = any(c.has_products for _, c in codes)
    lines += [
        "static int control(tl_ctx *c, const tl_win *w, const tl_word *x) {",
        f"    return {entry}(c, (tl_win *)w, x, NULL, NULL);",
        "}",
        "",
        '__attribute__((visibility("default"))) const tl_program tl_main = {',
        f"    kernels, {len(codes)},",
        f"    {max([len(c.windows) for _, c in codes], default=0)},",
        f"    {max([len(c.scalars) for _, c in codes], default=0)},",
        f"    {min(scratch, _MAX_BYTES)},",
        "    control,",
        f"    {'tl_matmul_side_by_side' if has_products else 'NULL'},",
        "};",
    ]
    return lines
