"""The part of each tensor that a kernel accesses, as a function of a task's scalars."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.analysis.intervals import Interval, Intervals
from tilelet.dataclasses import dataclass
from tilelet.device.kernel.control_path import control_program, walk_nodes
from tilelet.device.kernel.view import Bind, Branch, DeviceKernel, Loop, Node, Step, Transfer
from tilelet.ir.spec import Trait


@dataclass(frozen=True, slots=True)
class Footprint:
    """The box of a tensor parameter that one execution reads, or writes.

    extents  per dimension: from the interval's low end up to but excluding its high end; None if
             unknown before the task runs
    run      bytes that one request takes of a row
    """

    param: int
    writes: bool
    extents: tuple[Interval, ...] | None
    run: int


def footprints(kernel: DeviceKernel, blocks: int = 1) -> tuple[Footprint, ...]:
    """Return one per parameter and direction; `blocks` is the number of blocks of an spmd task."""
    walk = _Walk(kernel, blocks)
    walk.nodes(kernel.body)
    return tuple(
        Footprint(param, writes, walk.boxes[param, writes], walk.runs[param, writes])
        for param, writes in sorted(walk.boxes)
    )


class _Walk:
    def __init__(self, kernel: DeviceKernel, blocks: int) -> None:
        self.intervals = Intervals(kernel.function.params)
        self.blocks = blocks
        self.boxes: dict[tuple[int, bool], tuple[Interval, ...] | None] = {}
        self.runs: dict[tuple[int, bool], int] = {}

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Step):
                if isinstance(node.work, Transfer) and node.work.param is not None:
                    self.touch(node.work)
            elif isinstance(node, Bind):
                self.bind(node)
            elif isinstance(node, Loop):
                self.intervals.iterate(node.index, node.start, node.stop, node.step)
                self.nodes(node.body)
            else:
                self.nodes(node.then)
                self.nodes(node.orelse)

    def bind(self, node: Bind) -> None:
        if node.op.name == "get_block_idx":
            self.intervals.values[node.op.results[0]] = Interval(0, self.blocks - 1)
        else:
            self.intervals.bind(node.op)

    def touch(self, work: Transfer) -> None:
        assert work.param is not None
        key = (work.param, work.writes_gm)
        run = work.nbytes if work.dense_if_whole else work.row_bytes
        self.runs[key] = max(self.runs.get(key, 0), run)
        box: tuple[Interval, ...] | None = None
        starts = [self.intervals.get(o) for o in work.offset]
        if work.box and len(starts) == len(work.box) and all(s is not None for s in starts):
            box = tuple(
                Interval(s.low, s.high + n, s.factors)  # type: ignore[union-attr]
                for s, n in zip(starts, work.box)
            )
        if key in self.boxes:
            box = _union(self.boxes[key], box)
        self.boxes[key] = box


def _union(
    a: tuple[Interval, ...] | None, b: tuple[Interval, ...] | None
) -> tuple[Interval, ...] | None:
    if a is None or b is None or len(a) != len(b):
        return None
    merged = [x.union(y) for x, y in zip(a, b)]
    return None if None in merged else tuple(m for m in merged if m is not None)


@dataclass(frozen=True, slots=True)
class Control:
    """What decides trip counts, branches and sizes of transfers in a kernel.

    params    positions of scalar parameters
    by_block  whether the index of an spmd block does
    by_data   whether something else does: elements of tensors, or a `while`
    """

    params: frozenset[int]
    by_block: bool
    by_data: bool


def control(kernel: DeviceKernel) -> Control:
    needed = control_program(kernel, frozenset[int](), frozenset[int]()).needed
    nodes = list(walk_nodes(kernel.body))
    by_block = any(
        isinstance(node, Bind)
        and Trait.BY_BLOCK in node.op.spec.traits
        and any(result in needed for result in node.op.results)
        for node in nodes
    )
    by_data = any(isinstance(node, Loop | Branch) and node.site is not None for node in nodes)
    params = frozenset(i for i, p in enumerate(kernel.function.params) if p in needed)
    return Control(params, by_block, by_data)
