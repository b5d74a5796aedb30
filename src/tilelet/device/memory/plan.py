"""On-chip addresses of a kernel's tiles, and whether they fit.

Only tiles take on-chip memory: what a scope loads or computes. Tensors in global memory never
count, whatever their size. Tiles with disjoint live ranges share addresses; an elementwise op may
overwrite an operand that is dead afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from tilelet.analysis.packing import Need, first_fit
from tilelet.dataclasses import dataclass, replace
from tilelet.device.kernel.view import CubeWork, DeviceKernel, Pipe, Step, TileStorage
from tilelet.device.machine.description import SPACES, Machine
from tilelet.diag.core import UNKNOWN, Loc
from tilelet.diag.json_types import JsonObject
from tilelet.ir.spec import REGISTRY, Trait
from tilelet.ir.types import Mem

ALIGNMENT = 32
"""Alignment of tiles in bytes."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One tile's placement in its memory.

    nbytes    its size: all its buffers, or one piece if the product is split (see `piece`)
    in_place  name of the tile whose memory it takes over when it is created
    piece     shape of the pieces in which a product too large for Acc is computed and stored
    """

    tile: TileStorage
    offset: int
    nbytes: int
    in_place: str = ""
    piece: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


@dataclass(frozen=True)
class SpaceUse:
    """One memory of the core during a kernel.

    used      bytes up to the highest address of the plan
    peak      largest number of bytes live at once, a lower bound for every plan
    peak_at   position of the statement at the peak
    peak_loc  its source location
    resident  what is live there, largest first
    """

    space: Mem
    used: int
    limit: int
    peak: int
    peak_at: int
    peak_loc: Loc
    placements: tuple[Placement, ...]
    resident: tuple[Placement, ...]

    @property
    def fits(self) -> bool:
        return self.used <= self.limit

    @property
    def share(self) -> float:
        return self.used / self.limit


@dataclass(frozen=True)
class MemoryPlan:
    """All memories that a kernel uses."""

    kernel: str
    shape: str  # "AIC", "AIV" or "MIX"
    machine: str
    spaces: tuple[SpaceUse, ...]

    @property
    def overflows(self) -> tuple[SpaceUse, ...]:
        return tuple(s for s in self.spaces if not s.fits)

    @property
    def used(self) -> Mapping[str, int]:
        """Return bytes by the name of the memory."""
        return {s.space.name: s.used for s in self.spaces}


def plan_memory(kernel: DeviceKernel, machine: Machine) -> MemoryPlan:
    """Plan the addresses of the kernel's tiles."""
    steps = list(kernel.walk())
    used = {t for step in steps for t in (*step.reads, *step.writes)}
    spaces: list[SpaceUse] = []
    for space in SPACES:
        if any(t.space is space and t.id in used for t in kernel.tiles):
            limit = machine.buffers[space].usable
            found = _in_space(space, limit, kernel.tiles, used, steps)
            if not found.fits:
                once = _computed_once(kernel.tiles, steps)
                less = _in_space(space, limit, once, used, steps, packed=True)
                found = less if less.fits else found
            spaces.append(found)
    return MemoryPlan(kernel.name, kernel.shape, machine.name, tuple(spaces))


def with_stages_that_fit(kernel: DeviceKernel, machine: Machine) -> DeviceKernel:
    """Take buffers from tiles in memories that cannot hold the stages of a pipelined loop.

    The public compiler does the same and reports that stages serialize; a kernel that does not fit
    with single buffers either is returned unchanged.
    """
    if all(t.buffers == 1 for t in kernel.tiles):
        return kernel
    for use in plan_memory(kernel, machine).overflows:
        kernel = _with_fewer_buffers(kernel, machine, use.space)
    return kernel


def _with_fewer_buffers(kernel: DeviceKernel, machine: Machine, space: Mem) -> DeviceKernel:
    """Take one buffer at a time, from the largest tile that has several, until the rest fits."""
    found = replace(kernel, serialized=(*kernel.serialized, space))
    while not all(u.fits for u in plan_memory(found, machine).spaces if u.space is space):
        several = [t for t in found.tiles if t.space is space and t.buffers > 1]
        if not several:
            return kernel
        largest = max(several, key=lambda t: (t.nbytes, t.buffers, -t.id))
        fewer = replace(largest, buffers=largest.buffers - 1)
        found = replace(found, tiles=tuple(fewer if t is largest else t for t in found.tiles))
    return found


def _in_space(
    space: Mem,
    limit: int,
    tiles: Sequence[TileStorage],
    used: Container[int],
    steps: Sequence[Step],
    packed: bool = False,
) -> SpaceUse:
    mine = [t for t in tiles if t.space is space and t.id in used]
    pieces = _pieces(mine, steps, limit) if space is Mem.Acc else {}
    return _place(space, limit, mine, _in_place(tiles, steps, packed), pieces, steps)


def _computed_once(tiles: Sequence[TileStorage], steps: Iterable[Step]) -> list[TileStorage]:
    """Reduce the buffers of pipelined loops as a compiler short of memory does.

    Loaded tiles keep several buffers; tiles computed from them get one, since the vector unit does
    one thing at a time.
    """
    computed = {t for step in steps if step.pipe is Pipe.VEC for t in step.writes}
    moved = {t for step in steps if step.pipe is not Pipe.VEC for t in (*step.reads, *step.writes)}
    return [replace(t, buffers=1) if t.id in computed - moved else t for t in tiles]


def _row_views(tiles: Sequence[TileStorage], steps: Iterable[Step]) -> dict[int, int]:
    """Find whole rows of a tile that are only read and so need no copy; return their tile."""
    changed = [t for step in steps for t in step.writes]
    found: dict[int, int] = {}
    for step in steps:
        if step.what != "slice" or step.pipe is not Pipe.VEC or not step.reads:
            continue
        (made,), source = step.writes, tiles[step.reads[0]]
        part = tiles[made]
        rows = part.space is source.space and part.shape[-1:] == source.shape[-1:]
        if rows and changed.count(made) == changed.count(source.id) == 1:
            found[made] = source.id
    return found


def _in_place(tiles: Sequence[TileStorage], steps: Sequence[Step], packed: bool) -> dict[int, int]:
    """Return the tile whose memory each result takes over: an operand of equal size that dies here.

    If the operand has several buffers, the result takes the current one. With `packed`, results of
    broadcast ops also overwrite their tile, and rows need no copy.
    """
    views = _row_views(tiles, steps) if packed else {}
    traits = Trait.ELEMENTWISE if packed else Trait.IN_PLACE
    over: dict[int, int] = dict(views)
    taken: set[int] = set(views.values())
    for step in steps:
        spec = REGISTRY.get(step.what)
        if step.pipe is not Pipe.VEC or spec is None or len(step.writes) != 1:
            continue
        if traits not in spec.traits:
            continue
        born = tiles[step.writes[0]]
        if born.live[0] != step.position or born.id in over or born.id in step.reads:
            continue
        if any(read in views for read in step.reads):
            continue  # its memory is part of another tile
        for read in step.reads:
            dying = tiles[read]
            fits = dying.space is born.space and dying.nbytes == born.nbytes
            fits = fits and born.buffers in (1, dying.buffers)
            if fits and dying.live[1] == step.position and read not in taken:
                over[born.id] = read
                taken.add(read)
                break
    return over


def _pieces(
    tiles: Iterable[TileStorage], steps: Sequence[Step], limit: int
) -> dict[int, tuple[int, int]]:
    """Return products too large for Acc that can be computed piece by piece before the store."""
    found: dict[int, tuple[int, int]] = {}
    for tile in tiles:
        if tile.nbytes <= limit:
            continue
        writers = [s for s in steps if tile.id in s.writes]
        readers = [s for s in steps if tile.id in s.reads]
        work = writers[0].work if len(writers) == 1 else None
        if isinstance(work, CubeWork) and all(r.what in ("store", "push") for r in readers):
            found[tile.id] = (work.m, work.n)
    return found


@dataclass
class _Block:
    """Memory that one or more tiles use one after the other."""

    tiles: list[TileStorage]
    nbytes: int
    first: int
    last: int
    offset: int = 0


def _place(
    space: Mem,
    limit: int,
    tiles: Sequence[TileStorage],
    takes_over: Mapping[int, int],
    pieces: Mapping[int, tuple[int, int]],
    steps: Sequence[Step],
) -> SpaceUse:
    blocks = _blocks(tiles, takes_over, pieces)
    used = _assign(blocks, limit)
    position, peak = _peak(blocks)
    names = {t.id: t.name for t in tiles}
    placements = [
        Placement(
            tile,
            block.offset,
            block.nbytes,
            names[takes_over[tile.id]] if tile.id in takes_over else "",
            pieces.get(tile.id, ()),
        )
        for block in blocks
        for tile in block.tiles
    ]
    resident = [p for p in placements if p.tile.live[0] <= position <= p.tile.live[1]]
    # If one tile takes over another at this statement, only the new one is shown.
    replaced = {takes_over[p.tile.id] for p in resident if p.tile.id in takes_over}
    resident = [p for p in resident if p.tile.id not in replaced]
    loc = next((s.loc for s in steps if s.position == position), UNKNOWN)
    return SpaceUse(
        space,
        used,
        limit,
        peak,
        position,
        loc,
        tuple(sorted(placements, key=lambda p: (p.tile.live, p.offset, p.tile.id))),
        tuple(sorted(resident, key=lambda p: (-p.nbytes, p.tile.id))),
    )


def _blocks(
    tiles: Sequence[TileStorage],
    takes_over: Mapping[int, int],
    pieces: Mapping[int, tuple[int, int]],
) -> list[_Block]:
    by_tile: dict[int, _Block] = {}
    blocks: list[_Block] = []
    for tile in sorted(tiles, key=lambda t: (t.live[0], t.id)):
        before = by_tile.get(takes_over.get(tile.id, -1))
        if before is not None:
            before.tiles.append(tile)
            before.last = max(before.last, tile.live[1])
            by_tile[tile.id] = before
            continue
        nbytes = tile.total_bytes
        if tile.id in pieces:
            m, n = pieces[tile.id]
            nbytes = m * n * 4
        block = _Block([tile], -(-nbytes // ALIGNMENT) * ALIGNMENT, *tile.live)
        by_tile[tile.id] = block
        blocks.append(block)
    return blocks


def _assign(blocks: list[_Block], limit: int) -> int:
    """Assign offsets first-fit; return the bytes used.

    The result depends on the order; the first order that fits is used, else the best.
    """
    keys: tuple[Callable[[_Block], tuple[int, int]], ...] = (
        lambda b: (b.first, -b.nbytes),
        lambda b: (-b.nbytes, b.first),
        lambda b: (-b.nbytes * (b.last - b.first + 1), b.first),
    )
    needs = [Need(b.nbytes, b.first, b.last) for b in blocks]
    best: tuple[int, list[int]] | None = None
    for key in keys:
        order = sorted(range(len(blocks)), key=lambda i, key=key: key(blocks[i]))
        offsets, used = first_fit(needs, order, ALIGNMENT)
        if best is None or used < best[0]:
            best = used, offsets
        if used <= limit:
            break
    assert best is not None
    for block, offset in zip(blocks, best[1]):
        block.offset = offset
    return best[0]


def _peak(blocks: Sequence[_Block]) -> tuple[int, int]:
    """Return the first position with the most live bytes, and those bytes."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.nbytes
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.nbytes
    live = most = at = 0
    for position in sorted(changes):
        live += changes[position]
        if live > most:
            most, at = live, position
    return at, most


# As text and as data


def plan_json(plan: MemoryPlan) -> JsonObject:
    """Return the plan as plain data, including addresses."""
    return {
        "kernel": plan.kernel,
        "cores": plan.shape,
        "spaces": [
            {
                "space": use.space.name,
                "used": use.used,
                "limit": use.limit,
                "peak": use.peak,
                "peak_line": use.peak_loc.line,
                "tiles": [_tile_json(p) for p in use.placements],
            }
            for use in plan.spaces
        ],
    }


def _tile_json(p: Placement) -> JsonObject:
    tile = p.tile
    return {
        "name": tile.name,
        "line": tile.loc.line,
        "shape": list(tile.shape),
        "dtype": str(tile.dtype),
        "offset": p.offset,
        "bytes": p.nbytes,
        "buffers": tile.buffers,
        "live": list(tile.live),
        "in_place_of": p.in_place or None,
        "piece": list(p.piece) or None,
    }
