"""Which part of each tensor a kernel touches, as a function of a task's scalars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilelet.analysis.intervals import Interval, Intervals
from tilelet.device.kernel.view import Bind, Branch, DeviceKernel, Loop, Node, Step, Transfer
from tilelet.ir.core import Value, values_in
from tilelet.ir.spec import Trait


@dataclass(frozen=True, slots=True)
class Footprint:
    """The box of a tensor parameter that one execution reads, or writes.

    extents  per dimension: from the interval's low end to before its high end; None if it is not
             known before the task runs
    run      bytes that one request takes of a row
    """

    param: int
    writes: bool
    extents: tuple[Interval, ...] | None
    run: int


def footprints(kernel: DeviceKernel, blocks: int = 1) -> tuple[Footprint, ...]:
    """One for each parameter and direction; `blocks` is the number of blocks of an spmd task."""
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
    by_block  the index of an spmd block does
    by_data   something else does: elements of tensors, or the control path of a `while`
    """

    params: frozenset[int]
    by_block: bool
    by_data: bool


def control(kernel: DeviceKernel) -> Control:
    feeds: dict[Value, set[Value]] = {}
    deciding: set[Value] = set()
    blocks: set[Value] = set()
    by_data = False
    for node in _walk(kernel.body):
        if isinstance(node, Bind):
            for result in node.op.results:
                feeds.setdefault(result, set()).update(node.op.operands)
                if Trait.BY_BLOCK in node.op.spec.traits:
                    blocks.add(result)
        elif isinstance(node, Loop):
            by_data = by_data or node.site is not None
            deciding.update(values_in((node.start, node.stop, node.step)))
            for carry in node.carries:
                sources = set(values_in((carry.init, carry.following)))
                feeds.setdefault(carry.param, set()).update(sources)
                feeds.setdefault(carry.result, set()).update(sources)
        elif isinstance(node, Branch):
            by_data = by_data or node.site is not None
            deciding.update(values_in((node.cond,)))
            for result, then, orelse in node.joins:
                sources = set(values_in((then, orelse, node.cond)))
                feeds.setdefault(result, set()).update(sources)
        elif isinstance(node.work, Transfer):
            deciding.update(values_in(node.work.deciding))
    pending = list(deciding)
    while pending:
        for source in feeds.get(pending.pop(), ()):
            if source not in deciding:
                deciding.add(source)
                pending.append(source)
    params = frozenset(i for i, p in enumerate(kernel.function.params) if p in deciding)
    return Control(params, bool(deciding & blocks), by_data)


def _walk(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from _walk(node.body)
        elif isinstance(node, Branch):
            yield from _walk(node.then)
            yield from _walk(node.orelse)
