"""Compute the lifetime of each slot of a kernel and its offset in scratch memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilelet.analysis.packing import Need, first_fit
from tilelet.cpu.plan.model import PlanStep, ProductGroup, RowNest, Slot
from tilelet.ir.core import Block, Function, Op

ALIGNMENT = 64


def place_slots(
    kernel: Function,
    slots: Sequence[Slot],
    steps: Mapping[Op, PlanStep],
    groups: Sequence[ProductGroup],
    nests: Sequence[RowNest],
) -> tuple[tuple[Slot, ...], int]:
    """Return the slots with lifetimes and offsets, and the total size in bytes."""
    lives = _Lives(len(slots), steps, groups, nests)
    lives.block(kernel.body)
    return pack([replace(s, first=f, last=n) for s, f, n in zip(slots, lives.first, lives.last)])


def pack(slots: Sequence[Slot]) -> tuple[tuple[Slot, ...], int]:
    """Pack slots with disjoint lifetimes into shared memory, large ones first."""
    order = sorted(range(len(slots)), key=lambda i: (-slots[i].nbytes, slots[i].first))
    needs = [Need(s.nbytes, s.first, s.last) for s in slots]
    offsets, end = first_fit(needs, order, ALIGNMENT)
    return tuple(replace(s, offset=offset) for s, offset in zip(slots, offsets)), end


class _Lives:
    """A walk that numbers ops. What a loop uses from outside stays live until the loop ends; what
    a row nest uses is live in all of it.
    """

    def __init__(
        self,
        count: int,
        steps: Mapping[Op, PlanStep],
        groups: Sequence[ProductGroup],
        nests: Sequence[RowNest],
    ) -> None:
        self.steps, self.groups = steps, groups
        self.nests = {op: nest for nest in nests for op in (nest.ops[0], nest.ops[-1])}
        self.first = [0] * count
        self.last = [-1] * count
        self.depth = [0] * count  # loop depth at which the slot is taken
        self.clock = 0
        self.loops: list[set[int]] = []

    def use(self, slots: Sequence[int] | frozenset[int]) -> None:
        for slot in slots:
            if self.last[slot] < 0:
                self.first[slot] = self.clock
                self.depth[slot] = len(self.loops)
            self.last[slot] = max(self.last[slot], self.clock)
            for used in self.loops[self.depth[slot] :]:
                used.add(slot)

    def block(self, block: Block) -> None:
        for op in block.ops[:-1]:
            self.clock += 1
            if op in self.nests:
                for other in self.nests[op].ops:
                    self._op(other, self.steps[other])
            self._op(op, self.steps[op])
            for group in self.groups:
                if group.run_after is op:
                    self._run(group)

    def _op(self, op: Op, step: PlanStep) -> None:
        taken = [slot for _, slot in (*step.copies, *step.stored)]
        self.use([*taken, *step.slots, *step.touched])
        if op.name == "if":
            for block, moved in zip(op.blocks, step.moved):
                self.block(block)
                self.use(moved)
            self.use(step.slots)
        elif op.blocks:
            self.loops.append(set())
            self.use(step.slots)
            for block in op.blocks:
                self.block(block)
            self.use(step.moved[0])
            self.use(step.slots)
            used = self.loops.pop()
            self.clock += 1
            self.use([*used])

    def _run(self, group: ProductGroup) -> None:
        # The slot is reserved until here, even where nothing reads it.
        self.use([group.slot])
        if group.handover:
            self.first[group.slot] = 0  # ops repeated on re-entry must not overwrite it
