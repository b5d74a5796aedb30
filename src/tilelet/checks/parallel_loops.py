"""Loops of `pl.parallel` inside a scope whose iterations depend on each other.

Such a loop runs in order within its task, so no two tasks race; but it declares that its iterations
are independent, and compilers may rely on it. Reported is what every iteration certainly shares: a
carried tile or scalar that it computes with, and a window at the same place that it writes. Parts
of a carried tile that iterations fill, and windows whose place depends on the iteration, are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.analysis.aliases import Aliases, accesses, is_tensor
from tilelet.checks.findings import Finding, Place, make_finding
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.checks import ParallelDependence
from tilelet.diag.core import Loc
from tilelet.ir.core import Block, Direction, Function, Op, Program, Value, values_in, walk
from tilelet.ir.types import ScalarType
from tilelet.ir.views import ForView


def dependent_iterations(program: Program) -> list[Finding]:
    """Return a finding for each loop of a kernel whose iterations are not independent."""
    return [finding for kernel in program.kernels for finding in _of_kernel(kernel)]


def parallel_loops(program: Program) -> Iterator[ForView]:
    """Yield the loops of `pl.parallel` in kernels that may have several iterations."""
    for kernel in program.kernels:
        yield from _loops_of(kernel)


def _loops_of(kernel: Function) -> Iterator[ForView]:
    for op in walk(kernel.body):
        if op.name == "for" and ForView(op).kind == "parallel":
            loop = ForView(op)
            if loop.trip_count is None or loop.trip_count > 1:
                yield loop


def _of_kernel(kernel: Function) -> Iterator[Finding]:
    aliases = Aliases(kernel.body, {})
    for loop in _loops_of(kernel):
        shared = _carried_use(loop) or _shared_window(loop, aliases)
        if shared is not None:
            name, loc = shared
            use = (loc, "every iteration uses it")
            problem = ParallelDependence(name, use, use, loop.op.loc, f"`{name}`")
            place = Place(loc, "writes", kernel.name)
            yield make_finding("race", problem, places=(place,))


def _carried_use(loop: ForView) -> tuple[str, Loc] | None:
    """Return a carried value that an iteration computes with, and where."""
    parts = {v for v in loop.carried if not is_tensor(v)}
    varying = _Positions(loop).varying
    for op in walk(loop.body):
        used = parts.intersection(op.operands)
        if not used or op.name == "yield":
            continue
        if op.name in ("for", "while"):
            parts.update(p for block in op.blocks for p in block.params)
            parts.update(op.results)
        elif op.name == "if":
            parts.update(op.results)
        elif op.name == "assemble" and op.args["source"] not in used:
            parts.update(op.results)  # an iteration fills its part
        elif op.name != "slice" or not varying.intersection(op.operands):
            return min(v.name for v in used), op.loc
    return None


@dataclass
class _Positions:
    """Scalars and views of a loop's body that may differ between its iterations.

    fixed  ops that every iteration executes
    """

    loop: ForView
    varying: set[Value] = field(default_factory=set[Value])
    fixed: list[Op] = field(default_factory=list[Op])

    def __post_init__(self) -> None:
        self.varying.add(self.loop.index)
        self.varying.update(v for v in self.loop.carried if isinstance(v.type, ScalarType))
        self._visit(self.loop.body, is_fixed=True)

    def _visit(self, block: Block, *, is_fixed: bool) -> None:
        for op in block.ops:
            varies = bool(self.varying.intersection(op.operands))
            if op.name == "read":
                self.varying.update(op.results)  # the contents may change
            elif op.blocks:
                own = is_fixed and op.name in ("for", "if") and not varies
                if varies or op.name == "while":
                    self.varying.update(p for b in op.blocks for p in b.params)
                for inner in op.blocks:
                    self._visit(inner, is_fixed=own and op.name == "for")
                self.varying.update(r for r in op.results if isinstance(r.type, ScalarType))
            elif varies and not op.spec.writes:
                self.varying.update(op.results)
            if is_fixed and not op.blocks:
                self.fixed.append(op)


def _shared_window(loop: ForView, aliases: Aliases) -> tuple[str, Loc] | None:
    """Return a tensor of which every iteration writes the same window, and where."""
    positions = _Positions(loop)
    for op in positions.fixed:
        scalars = [v for v in values_in(op.args.values()) if isinstance(v.type, ScalarType)]
        for tensor, how in accesses(op, {}):
            if how is not Direction.Out or positions.varying.intersection([tensor, *scalars]):
                continue
            roots = aliases.roots(tensor)
            if len(roots) == 1 and not positions.varying.intersection(roots):
                return next(iter(roots)).name, op.loc
    return None
