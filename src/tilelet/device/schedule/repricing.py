"""Recompute the kernel costs of a run on a machine that differs only in parameters."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from tilelet.device.kernel.pipes import (
    ALL_COLD,
    COLD,
    Follower,
    KernelCost,
    cold_times,
    kernel_cost,
    stores_wait,
)
from tilelet.device.kernel.together import PricingCase, times_together
from tilelet.device.kernel.view import DeviceKernel, ScalarWork, Transfer, VectorWork
from tilelet.device.machine.description import Body, Machine
from tilelet.device.schedule.arrays import Stream
from tilelet.device.schedule.native_walk import follower

_GM = ("l2_line", "l2_slices", "l2_sector", "lockstep", "serial_cycles", "granule")
"""Parameters of global memory that kernel costs depend on."""


def followed_again(stream: Stream, old: Machine, new: Machine) -> Stream:
    """Return the tasks with the costs of their kernels on another machine."""
    changed = {number: _sides(kernel, old, new) for number, kernel in enumerate(stream.kernels)}
    if not any(changed.values()):
        return stream
    costs, follow = list(stream.costs), follower()
    for i, number in enumerate(stream.cost_kernel):
        if changed[number]:
            costs[i] = _cost(stream, new, i, changed[number], follow)
    return dataclasses.replace(stream, costs=costs)


def followed_roughly(stream: Stream, old: Machine, machines: Sequence[Machine]) -> list[Stream]:
    """Like `followed_again` for several machines, but simulate only the longest path per kernel.

    All machines are simulated at once, and the other costs of a kernel change by the same factor.
    """
    found = [list(stream.costs) for _ in machines]
    for number, first in _longest(stream).items():
        kernel = stream.kernels[number]
        if kernel is None:
            continue
        before, cases = stream.costs[first], list[PricingCase]()
        # For each case: the index of the machine, and which time it is.
        of: list[tuple[int, str]] = []
        for i, new in enumerate(machines):
            sides = _sides(kernel, old, new)
            if False in sides:
                cases.append(PricingCase(new))
                of.append((i, "exec_us"))
            if True in sides:
                cases.append(PricingCase(new, COLD))
                of.append((i, "cold_us"))
                if stores_wait(kernel, new):
                    cases.append(PricingCase(new, ALL_COLD))
                    of.append((i, "store_us"))
        if not cases:
            continue
        times = dict(zip(of, times_together(kernel, stream.signatures[first], cases)))
        for i in dict.fromkeys(i for i, _ in of):
            changed = {name: us for (whose, name), us in times.items() if whose == i}
            if "store_us" in changed:
                changed["store_us"] -= changed["cold_us"]
            _change_alike(stream, number, before, changed, found[i])
    same = stream.costs
    return [
        stream if costs == same else dataclasses.replace(stream, costs=costs) for costs in found
    ]


def _cost(
    stream: Stream, machine: Machine, number: int, sides: Sides, follow: Follower
) -> KernelCost:
    """Recompute a cost, keeping the `sides` on which nothing changed."""
    kernel, signature = stream.kernels[stream.cost_kernel[number]], stream.signatures[number]
    assert kernel is not None
    before = stream.costs[number]
    if False not in sides:
        cold_us, store_us = cold_times(kernel, machine, signature, follow)
        return dataclasses.replace(before, cold_us=cold_us, store_us=store_us)
    known = None if True in sides else (before.cold_us, before.store_us)
    return kernel_cost(kernel, machine, signature, known, follow)


def _longest(stream: Stream) -> dict[int, int]:
    """Return, by kernel, the number of the cost that its tasks spend most time on."""
    each = np.diff(stream.cost_ptr)
    blocks = np.repeat(np.where(each == 1, stream.blocks, 1), each)
    used = np.bincount(stream.cost, blocks, len(stream.costs))
    spent = used * np.array([cost.exec_us for cost in stream.costs])
    found: dict[int, int] = {}
    for i, number in enumerate(stream.cost_kernel):
        if number not in found or spent[i] > spent[found[number]]:
            found[number] = i
    return found


def _change_alike(
    stream: Stream,
    kernel: int,
    before: KernelCost,
    after: Mapping[str, float],
    costs: list[KernelCost],
) -> None:
    """Scale all costs of a kernel by the factors by which the times of one changed."""
    factors = {
        name: us / getattr(before, name) for name, us in after.items() if getattr(before, name)
    }
    for i, cost in enumerate(stream.costs):
        if stream.cost_kernel[i] == kernel:
            times = {name: getattr(cost, name) * by for name, by in factors.items()}
            costs[i] = dataclasses.replace(cost, **times)


Sides = frozenset[bool]
"""Subset of {False: everything is in L2, True: nothing is}."""


def _sides(kernel: DeviceKernel | None, old: Machine, new: Machine) -> Sides:
    """Return the sides on which parameters used by the kernel differ."""
    if kernel is None:
        return frozenset()
    paths, has_vector, has_scalar = _used_paths(kernel)
    unused: set[str] = set()
    if len(kernel.cores) == 1:
        unused.add("exchange_cycles")
    if not has_vector:
        unused.add("mask_cycles")
    if not has_scalar and not has_vector:
        unused |= {"element_cycles", "miss_cycles"}
    body = (f.name for f in dataclasses.fields(Body) if f.name not in unused)
    if (
        (old.cores, old.cube) != (new.cores, new.cube)
        or (has_vector and old.vector != new.vector)
        or any(getattr(old.gm, name) != getattr(new.gm, name) for name in _GM)
        or any(getattr(old.body, name) != getattr(new.body, name) for name in body)
    ):
        return frozenset({False, True})
    return frozenset(
        cold
        for cold in (False, True)
        if any(
            _of_path(old, p, cold and outer) != _of_path(new, p, cold and outer)
            for p, outer in paths
        )
    )


def _of_path(machine: Machine, name: str, cold: bool) -> tuple[float, ...]:
    """Return the parameters that a transfer along a path depends on."""
    path = machine.paths[name]
    hot_numbers = path.bytes_per_cycle, path.latency_cycles
    cold_numbers = path.cold_bytes_per_cycle, path.cold_latency_cycles
    each = path.fixed_cycles, path.row_cycles
    if not cold:
        return *each, *hot_numbers
    # A kernel whose reads miss L2 may store into memory that is in L2, or not.
    return *each, *cold_numbers, *(hot_numbers if name.endswith("_to_gm") else ())


@functools.lru_cache(maxsize=1024)
def _used_paths(kernel: DeviceKernel) -> tuple[frozenset[tuple[str, bool]], bool, bool]:
    """Return the paths of a kernel's transfers, with whether they may miss L2, and its units.

    The units say whether it has vector and scalar work.
    """
    works = [step.work for step in kernel.walk()]
    paths = frozenset((w.path, w.param is not None) for w in works if isinstance(w, Transfer))
    has_vector = any(isinstance(work, VectorWork) for work in works)
    return paths, has_vector, any(isinstance(work, ScalarWork) for work in works)
