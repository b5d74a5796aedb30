"""Costs of a run's kernels on a machine that differs from its own in numbers only."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from tilelet.device.kernel.pipes import KernelCost, kernel_cost
from tilelet.device.kernel.view import DeviceKernel, ScalarWork, Transfer, VectorWork
from tilelet.device.machine.description import Body, Machine
from tilelet.device.schedule.arrays import Stream

_GM = ("l2_line", "l2_slices", "lockstep", "serial_cycles", "granule")
"""What the cost of a kernel depends on, of global memory."""


def followed_again(stream: Stream, old: Machine, new: Machine, *, roughly: bool) -> Stream:
    """The tasks with the costs that their kernels have on another machine.

    roughly  of each kernel only the way that takes most time is followed, the others change alike
    """
    changed = {
        number
        for number, kernel in enumerate(stream.kernels)
        if kernel is not None and not _costs_alike(kernel, old, new)
    }
    if not changed:
        return stream
    costs = list(stream.costs)
    if roughly:
        for number, first in _longest(stream).items():
            if number in changed:
                _change_alike(stream, new, number, first, costs)
    else:
        for i, number in enumerate(stream.cost_kernel):
            if number in changed:
                costs[i] = _cost(stream, new, i)
    return dataclasses.replace(stream, costs=costs)


def _cost(stream: Stream, machine: Machine, number: int) -> KernelCost:
    kernel = stream.kernels[stream.cost_kernel[number]]
    assert kernel is not None
    return kernel_cost(kernel, machine, stream.signatures[number])


def _longest(stream: Stream) -> dict[int, int]:
    """By kernel: the number of the cost that its tasks spend most time on."""
    blocks = np.repeat(
        np.where(np.diff(stream.cost_ptr) == 1, stream.blocks, 1), np.diff(stream.cost_ptr)
    )
    used = np.bincount(stream.cost, blocks, len(stream.costs))
    spent = used * np.array([cost.exec_us for cost in stream.costs])
    found: dict[int, int] = {}
    for i, number in enumerate(stream.cost_kernel):
        if number not in found or spent[i] > spent[found[number]]:
            found[number] = i
    return found


def _change_alike(
    stream: Stream, machine: Machine, number: int, first: int, costs: list[KernelCost]
) -> None:
    before, after = costs[first], _cost(stream, machine, first)
    hot, cold = after.exec_us / before.exec_us, after.cold_us / before.cold_us
    for i, cost in enumerate(stream.costs):
        if stream.cost_kernel[i] == number:
            costs[i] = dataclasses.replace(
                cost, exec_us=cost.exec_us * hot, cold_us=cost.cold_us * cold
            )
    costs[first] = after


def _costs_alike(kernel: DeviceKernel, old: Machine, new: Machine) -> bool:
    """Whether nothing that the kernel uses differs."""
    paths, has_vector, has_scalar = _used(kernel)
    if any(old.paths[path] != new.paths[path] for path in paths):
        return False
    if has_vector and old.vector != new.vector:
        return False
    if (old.cores, old.cube) != (new.cores, new.cube):
        return False
    if any(getattr(old.gm, name) != getattr(new.gm, name) for name in _GM):
        return False
    unused: set[str] = set()
    if len(kernel.cores) == 1:
        unused.add("exchange_cycles")
    if not has_scalar and not has_vector:
        unused |= {"element_cycles", "miss_cycles"}
    return all(
        getattr(old.body, f.name) == getattr(new.body, f.name)
        for f in dataclasses.fields(Body)
        if f.name not in unused
    )


@functools.lru_cache(maxsize=1024)
def _used(kernel: DeviceKernel) -> tuple[frozenset[str], bool, bool]:
    """The paths that a kernel's transfers take; whether it has vector and scalar work."""
    works = [step.work for step in kernel.walk()]
    paths = frozenset(work.path for work in works if isinstance(work, Transfer))
    has_vector = any(isinstance(work, VectorWork) for work in works)
    return paths, has_vector, any(isinstance(work, ScalarWork) for work in works)
