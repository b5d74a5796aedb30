"""Rings through which the cores of a mixed kernel pass tiles, as the public compiler makes them.

There is one ring per direction, in memory of the core that receives: UB for tiles that the cube
makes, L1 for the others. A slot is as large as the largest tile that passes in either direction,
and a received tile stays in its slot until its last use.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.dataclasses import dataclass, replace
from tilelet.device.kernel.lowering import EXCHANGE_SLOTS, Ring, lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.kernel.view import Core, DeviceKernel
from tilelet.device.machine.description import Machine
from tilelet.device.memory.plan import plan_memory, with_stages_that_fit
from tilelet.diag.catalogue.device import ShortRing
from tilelet.ir.core import Function, Program
from tilelet.ir.types import Mem

_ALIGNMENT = 32
_MIN_GAIN = 0.02
"""Share of a kernel's time below which more slots are not suggested."""

_MEMORY = {Core.AIV: Mem.Vec, Core.AIC: Mem.Mat}


@dataclass(frozen=True)
class RingUse:
    """One ring: memory, bytes of a slot, bytes of the memory that other tiles take."""

    space: Mem
    slot: int
    others: int
    limit: int

    @property
    def most(self) -> int:
        """Return how many slots fit."""
        return max(0, self.limit - self.others) // self.slot


def ring_findings(program: Program, machine: Machine) -> list[ShortRing]:
    """Report rings whose cores wait for slots, if more of them fit."""
    return [f for function in program.kernels for f in _find_short(function, machine)]


def _find_short(function: Function, machine: Machine) -> Iterator[ShortRing]:
    runtime = machine.period(machine.newest_period)
    kernel = _with_ring(function, machine, Ring(runtime.ring_slots, runtime.ring_slots_both))
    if not kernel.rings:
        return
    uses = list(ring_uses(kernel, machine))
    us = kernel_cost(kernel, machine).exec_us
    fit = [n for n in range(1, EXCHANGE_SLOTS + 1) if all(n <= use.most for use in uses)]
    times = {n: kernel_cost(_with_slots(kernel, n), machine).exec_us for n in fit}
    best = min(times.values(), default=us)
    if us <= best * (1 + _MIN_GAIN):
        return
    enough = next(n for n in fit if times[n] <= best * (1 + _MIN_GAIN / 2))
    slots, slot = kernel.tiles[kernel.rings[0]].buffers, max(use.slot for use in uses)
    place = next(step.loc for step in kernel.walk() if kernel.rings[0] in step.writes)
    yield ShortRing(kernel.name, slots, slot, us, place, enough, times[enough])


def _with_ring(function: Function, machine: Machine, ring: Ring) -> DeviceKernel:
    return with_stages_that_fit(lower_kernel(function, machine, ring), machine)


def _with_slots(kernel: DeviceKernel, slots: int) -> DeviceKernel:
    def given(number: int) -> int:
        return slots if number in kernel.rings else kernel.tiles[number].buffers

    tiles = tuple(replace(tile, buffers=given(i)) for i, tile in enumerate(kernel.tiles))
    return replace(kernel, tiles=tiles)


def ring_uses(kernel: DeviceKernel, machine: Machine) -> Iterator[RingUse]:
    """Yield the rings of a kernel."""
    largest = max(kernel.tiles[ring].nbytes for ring in kernel.rings)
    slot = -(-largest // _ALIGNMENT) * _ALIGNMENT
    received = {t for step in kernel.walk() if step.what == "pop" for t in step.writes}
    # Received tiles need no memory besides their slot.
    tiles = tuple(replace(t, nbytes=0) if t.id in received else t for t in kernel.tiles)
    plan = plan_memory(replace(kernel, tiles=tiles), machine)
    cores = {step.core for step in kernel.walk() if step.what == "pop"}
    for core in sorted(cores, key=lambda c: c.value):
        space = _MEMORY[core]
        others = next((use.used for use in plan.spaces if use.space is space), 0)
        # Each of two vector cores receives one half.
        own = slot // kernel.lanes if core is Core.AIV else slot
        yield RingUse(space, own, others, machine.buffers[space].usable)
