"""Buffers that the public compiler gives to the stages of pipelined loops.

That compiler copies the body of `pl.pipeline(..., stage=N)` N times, also around nested loops, and
keeps the tiles of different copies apart in every memory, L0A and L0B included. Its own loop over
the pieces of a product has two more stages. A buffer holds tiles that are not live at the same
time and is as large as the largest of them. If a memory cannot hold all copies, the loop with the
largest tiles loses a stage at a time: stages then share buffers and wait for each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping

from tilelet.dataclasses import dataclass, replace
from tilelet.device.kernel.view import (
    Core,
    DeviceKernel,
    Loop,
    TileStorage,
    Transfer,
    loops_in,
    walk_steps,
)
from tilelet.device.machine.description import SPACES, Machine
from tilelet.ir.types import Mem

_ALIGNMENT = 32


@dataclass(frozen=True)
class SharedStages:
    """A pipelined loop whose stages share buffers in one memory.

    stages, depth  copies of its body, and how many of them have buffers of their own
    tile           largest tile of the loop there, in bytes
    needed         bytes with which all copies would have their own
    """

    space: Mem
    loop: Loop
    stages: int
    depth: int
    tile: int
    needed: int
    limit: int


def shared_stages(kernel: DeviceKernel, machine: Machine) -> Iterator[SharedStages]:
    """Yield every pipelined loop of the program that loses stages, memory by memory."""
    written = {loop.number: loop for loop in loops_in(kernel.body) if loop.stages > 1}
    exchanging = set(_exchanging_loops(kernel))
    for space in SPACES:
        tiles = [_Replicated.of(t, exchanging) for t in _in_space(kernel, space)]
        limit = machine.buffers[space].usable
        asked = {number: copies for t in tiles for number, copies in t.stages}
        needed = _footprint(tiles, asked)
        depths = _depths(tiles, asked, limit, written)
        for number, depth in depths.items():
            if depth < asked[number] and number in written:
                largest = max(t.nbytes for t in tiles if number in dict(t.stages))
                yield SharedStages(
                    space, written[number], asked[number], depth, largest, needed, limit
                )


def with_depths(kernel: DeviceKernel, shared: Iterable[SharedStages]) -> DeviceKernel:
    """Return the kernel with the buffers that the stages of these loops get.

    Pieces of a product keep two: their loop loads one piece ahead in any case.
    """
    depths = {(s.space, s.loop.number): s.depth for s in shared}

    def given(tile: TileStorage) -> TileStorage:
        innermost = tile.stages[-1][0] if tile.stages else 0
        depth = depths.get((tile.space, innermost), tile.buffers)
        return replace(tile, buffers=min(tile.buffers, depth))

    return replace(kernel, tiles=tuple(map(given, kernel.tiles)))


def _in_space(kernel: DeviceKernel, space: Mem) -> list[TileStorage]:
    used = {t for step in kernel.walk() for t in (*step.reads, *step.writes)}
    return [t for t in kernel.tiles if t.space is space and t.id in used]


def _exchanging_loops(kernel: DeviceKernel) -> Iterator[tuple[int, Core]]:
    """Yield loops in which a core both sends tiles to the other and receives some.

    The compiler staggers their iterations instead of copying them.
    """
    for loop in loops_in(kernel.body):
        sends: set[Core] = set()
        receives: set[Core] = set()
        for step in walk_steps(loop.body):
            path = step.work.path if isinstance(step.work, Transfer) else ""
            if step.what == "push" or path in ("l0c_to_ub", "ub_to_l1"):
                sends.add(step.core)
            if step.what == "pop":
                receives.add(step.core)
            elif path in ("l0c_to_ub", "ub_to_l1"):
                receives.add(Core.AIV if step.core is Core.AIC else Core.AIC)
        yield from ((loop.number, core) for core in sends & receives)


@dataclass(frozen=True)
class _Replicated:
    """A tile with the loops that copy it."""

    nbytes: int
    live: tuple[int, int]
    stages: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tile: TileStorage, exchanging: Container[tuple[int, Core]]) -> _Replicated:
        stages = tuple(s for s in tile.stages if (s[0], tile.core) not in exchanging)
        # The cube finishes one product before the next: products need no copies.
        copied = () if tile.space is Mem.Acc else stages
        return cls(-(-tile.nbytes // _ALIGNMENT) * _ALIGNMENT, tile.live, copied)


def _depths(
    tiles: list[_Replicated], asked: Mapping[int, int], limit: int, written: Container[int]
) -> dict[int, int]:
    """Return the stages of each loop that have buffers of their own."""
    largest = {n: max(t.nbytes for t in tiles if n in dict(t.stages)) for n in asked}
    depths = {n: max(1, min(stages, limit // largest[n])) for n, stages in asked.items()}
    while _footprint(tiles, depths) > limit:
        # Pieces of a product are loaded one ahead, so their loop keeps its two buffers.
        candidates = [n for n, depth in depths.items() if depth > 1 and n in written]
        if not candidates:
            break
        depths[min(candidates, key=lambda n: (-largest[n], n))] -= 1
    return depths


def _footprint(tiles: list[_Replicated], depths: Mapping[int, int]) -> int:
    """Return the bytes of first-fit packing, largest tiles first."""
    buffers: list[list[tuple[_Replicated, dict[int, int]]]] = []
    for tile in sorted(tiles, key=lambda t: (-t.nbytes, t.live)):
        loops = [number for number, _ in tile.stages]
        for residues in itertools.product(*(range(depths[n]) for n in loops)):
            copy = tile, dict(zip(loops, residues))
            for buffer in buffers:
                if all(_can_share(copy, other) for other in buffer):
                    buffer.append(copy)
                    break
            else:
                buffers.append([copy])
    return sum(buffer[0][0].nbytes for buffer in buffers)


def _can_share(
    a: tuple[_Replicated, Mapping[int, int]], b: tuple[_Replicated, Mapping[int, int]]
) -> bool:
    """Return whether two copies are never live at once; a result may replace a last operand."""
    (first, mine), (second, its) = a, b
    if any(mine[n] != its[n] for n in mine.keys() & its.keys()):
        return False
    return first.live[1] <= second.live[0] or second.live[1] <= first.live[0]
