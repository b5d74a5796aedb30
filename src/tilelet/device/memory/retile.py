"""Tile sizes with which an oversized kernel would fit, fastest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.kernel.view import DeviceKernel, loops_in
from tilelet.device.machine.description import Machine
from tilelet.device.memory.axis_classes import Axis, AxisClasses, resize_tiles, without_pipelining
from tilelet.device.memory.plan import MemoryPlan, plan_memory
from tilelet.device.memory.stages import shared_stages
from tilelet.diag.text import shape_text
from tilelet.ir.core import Function
from tilelet.ir.types import Mem, TileType

MAX_TRIED = 60
"""Limit on kernels lowered and priced in the search."""

_NAMED = 3


@dataclass(frozen=True)
class Fit:
    """One way to make a kernel fit.

    change  in words: the tiles with their new shapes
    used    bytes of the memory that overflowed
    us      modelled time for the same work, in as many smaller executions as needed
    """

    change: str
    used: int
    us: float


def sizes_that_fit(
    kernel: DeviceKernel,
    machine: Machine,
    space: Mem,
    count: int = 3,
    *,
    stages_apart: bool = False,
) -> list[Fit]:
    """Return smaller kernels that do the same work and fit, best first.

    stages_apart  in `space`, every stage of a pipelined loop must get buffers of its own
    """
    search = _Search(kernel.function, machine, space, stages_apart)
    found = list(search.without_pipelining(kernel))
    found += search.one_axis()
    if not found:
        found += search.two_axes()
    return sorted(found, key=lambda fit: (fit.us, fit.change))[:count]


class _Search:
    def __init__(
        self, function: Function, machine: Machine, space: Mem, stages_apart: bool
    ) -> None:
        self.function = function
        self.machine = machine
        self.space = space
        self.stages_apart = stages_apart
        self.dims = AxisClasses(function)
        self.tried = 0
        # Axes of length 1 cannot shrink.
        self.classes = {
            root: members
            for root, members in self.dims.classes().items()
            if _extent(root) > self.dims.step(members)
        }

    def without_pipelining(self, kernel: DeviceKernel) -> Iterator[Fit]:
        if any(loop.stages > 1 for loop in loops_in(kernel.body)):
            fit = self._fit(without_pipelining(self.function), 1, "`pl.range`, not `pl.pipeline`")
            if fit:
                yield fit

    def one_axis(self) -> Iterator[Fit]:
        """For each class of axes, yield the largest extent that fits."""
        for root in self.classes:
            for extent in self._smaller(root):
                fit = self._resized({root: extent})
                if fit:
                    yield fit
                    break

    def two_axes(self) -> Iterator[Fit]:
        """Halve pairs of classes in turn until the kernel fits."""
        roots = list(self.classes)
        for i, first in enumerate(roots):
            for second in roots[i + 1 :]:
                sizes = {first: self._smaller(first), second: self._smaller(second)}
                at = dict.fromkeys(sizes, 0)
                halved = first
                while all(at[root] < len(sizes[root]) for root in at):
                    fit = self._resized({root: sizes[root][at[root]] for root in at})
                    if fit:
                        yield fit
                        break
                    at[halved] += 1
                    halved = second if halved is first else first

    def _smaller(self, root: Axis) -> list[int]:
        """Return divisors of the extent that keep rows and fractals whole, largest first."""
        extent, step = _extent(root), self.dims.step(self.classes[root])
        return [n for n in range(extent // 2, 0, -1) if extent % n == 0 and n % step == 0]

    def _resized(self, extents: Mapping[Axis, int]) -> Fit | None:
        axes = {axis: n for root, n in extents.items() for axis in self.classes[root]}
        pieces = 1
        for root, n in extents.items():
            pieces *= _extent(root) // n
        function = resize_tiles(self.function, axes)
        return self._fit(function, pieces, self._describe(extents, axes))

    def _fit(self, function: Function, pieces: int, change: str) -> Fit | None:
        if self.tried >= MAX_TRIED:
            return None
        self.tried += 1
        kernel = lower_kernel(function, self.machine)
        plan = plan_memory(kernel, self.machine)
        shared = shared_stages(kernel, self.machine) if self.stages_apart else ()
        if plan.overflows or any(s.space is self.space for s in shared):
            return None
        us = kernel_cost(kernel, self.machine).exec_us * pieces
        return Fit(change, _used_bytes(plan, self.space), us)

    def _describe(self, extents: Mapping[Axis, int], axes: Mapping[Axis, int]) -> str:
        shown: dict[str, str] = {}
        for value, _ in axes:
            assert isinstance(value.type, TileType)
            shape = [axes.get((value, i), n) for i, n in enumerate(value.type.shape)]
            shown.setdefault(value.name, f"`{value.name}` {shape_text(shape)}")
        texts = list(shown.values())
        more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
        text = ", ".join(texts[:_NAMED]) + more
        if any(self.dims.needs_sum(self.classes[root]) for root in extents):
            text += ", accumulating over the parts"
        return text


def _extent(axis: Axis) -> int:
    value, i = axis
    assert isinstance(value.type, TileType)
    return value.type.shape[i]


def _used_bytes(plan: MemoryPlan, space: Mem) -> int:
    return plan.used.get(space.name, 0)
