"""The device view of one kernel: which pipe does what, on which tile, in which memory.

A `DeviceKernel` is a tree of nodes in program order. `Step`s occupy a pipe; `Loop`s and `Branch`es
are control flow; `Bind`s are the scalar ops that trip counts and window offsets need. Tiles are
storage: all names of a value that the device keeps in one place are one `TileStorage`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.core import UNKNOWN, Loc
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Function, Op, Value
from tilelet.ir.spec import Cost
from tilelet.ir.types import Mem


class Core(enum.Enum):
    """The two kinds of core: one AIC (cube) and some AIVs (vector) form a cluster."""

    AIC = "AIC"
    AIV = "AIV"


class Pipe(enum.Enum):
    """The in-order queues of a core; each does one thing at a time, and all work concurrently."""

    SCALAR = "SCALAR"
    MTE2 = "MTE2"  # GM -> L1 or UB
    MTE1 = "MTE1"  # L1 -> L0A, L0B, bias table
    CUBE = "CUBE"
    FIXPIPE = "FIXPIPE"  # L0C -> GM or L1 (and UB, where that path exists)
    VEC = "VEC"
    MTE3 = "MTE3"  # UB -> GM (and L1, where that path exists)


@dataclass(frozen=True, slots=True)
class TileStorage:
    """On-chip storage of one or more values.

    nbytes   size of one buffer, padded to what the hardware stores (fractals, 32-byte rows)
    buffers  number of buffers for pipelining: the tile takes `nbytes * buffers`
    live     first and last position (see `Step.position`) at which the contents are live; a tile
             that an iteration inherits from the previous one is live through the whole loop
    stages   pipelined loops around it, outermost first: number of the loop, copies of its body
    """

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: DType
    space: Mem
    core: Core
    nbytes: int
    buffers: int = 1
    live: tuple[int, int] = (0, 0)
    loc: Loc = UNKNOWN
    stages: tuple[tuple[int, int], ...] = ()

    @property
    def total_bytes(self) -> int:
        return self.nbytes * self.buffers


@dataclass(frozen=True, slots=True)
class Transfer:
    """Data moved along one path of the machine (`Machine.paths`).

    rows, row_bytes  contiguous runs at the GM end
    param            position of the kernel parameter at the GM end; None on chip, and for the
                     scratch memory through which the two kinds of core exchange tiles
    offset, box      window of that parameter: offsets (scalars) and extents in elements
    dense_if_whole   the runs merge into one if the parameter's memory is dense and the window
                     spans full rows
    extents          limits on the box set by a load or store; one entry per axis of `shape`, None
                     for no limit
    limits           extents of the parameter that a window may overhang, () if it may not
    cut_to           remaining `shape` after limiting, () if nothing was cut
    shares_lines     another core moves the other half of every row at the same time
    slices           number of L2 slices that serve it and the same transfer of all other cores that
                     run the kernel, 0 for all
    same_lines       those cores request the same lines, not only the same slices
    own_columns      each of those cores takes its own columns
    """

    path: str
    rows: int
    row_bytes: int
    param: int | None = None
    offset: tuple[Arg, ...] = ()
    box: tuple[int, ...] = ()
    writes_gm: bool = False
    dense_if_whole: bool = False
    shape: tuple[int, ...] = ()
    extents: tuple[Arg, ...] = ()
    limits: tuple[int, ...] = ()
    cut_to: tuple[int, ...] = ()
    shares_lines: bool = False
    slices: int = 0
    same_lines: bool = False
    own_columns: bool = False

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def deciding(self) -> tuple[Arg, ...]:
        """Return the scalars that decide how much is moved."""
        return (*self.extents, *self.offset) if self.limits else self.extents

    def cut(self, extents: tuple[int, ...]) -> Transfer:
        """Return the transfer of a smaller box at the same place."""
        if extents == self.shape:
            return self
        item = self.row_bytes // self.shape[-1]
        same_rows = extents[-1:] == self.shape[-1:]
        return replace(
            self,
            rows=math.prod(extents[:-1]),
            row_bytes=extents[-1] * item,
            dense_if_whole=self.dense_if_whole and same_rows,
            cut_to=extents,
        )

    @property
    def taken(self) -> tuple[int, ...]:
        """Return the elements moved, per axis of `shape`."""
        return self.cut_to or self.shape


@dataclass(frozen=True, slots=True)
class VectorWork:
    """One vector op over `nbytes` bytes in `rows` rows."""

    cost: Cost
    nbytes: int
    rows: int = 1


@dataclass(frozen=True, slots=True)
class CubeWork:
    """One matrix product of operands of `dtype`: m x k x n, already padded to fractals."""

    m: int
    k: int
    n: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class ScalarWork:
    """Work of the scalar unit: `accesses` single elements read from or written to memory.

    misses  how many of them, on average, miss the scalar unit's cache
    cycles  stated time of an external kernel
    """

    accesses: int = 0
    misses: float = 0.0
    cycles: float = 0.0


Work = Transfer | VectorWork | CubeWork | ScalarWork


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction (or a burst of equal ones) on one pipe.

    position  place in the kernel's program order, counting steps of all nodes
    reads, writes  ids of tiles; a step in `accumulates` also depends on what it writes
    """

    position: int
    core: Core
    pipe: Pipe
    what: str
    work: Work
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    loc: Loc = UNKNOWN


@dataclass(frozen=True, slots=True)
class Carry:
    """A loop-carried scalar."""

    param: Value
    init: Arg
    following: Arg
    result: Value


@dataclass(frozen=True, slots=True)
class Loop:
    """A counted loop; `stages` > 1 if `pl.pipeline` requests that many buffers.

    A `while` has no bounds: `index` and `stop` are None. `site` is the number under which a
    data-dependent trip count is recorded (see `tasks.control_points`). `created` are the tiles that
    each iteration creates anew, so that nothing in them comes from the previous one. `number` is
    what `Tile.stages` calls a pipelined loop.
    """

    body: tuple[Node, ...]
    index: Value | None
    start: Arg
    stop: Arg
    step: Arg
    stages: int = 1
    carries: tuple[Carry, ...] = ()
    span: tuple[int, int] = (0, 0)
    loc: Loc = UNKNOWN
    site: int | None = None
    created: frozenset[int] = frozenset()
    number: int = 0


@dataclass(frozen=True, slots=True)
class Branch:
    """An `if` in the kernel; `joins` lists scalar results: (result, then, else).

    `site` is as in `Loop`.
    """

    cond: Arg
    then: tuple[Node, ...]
    orelse: tuple[Node, ...]
    joins: tuple[tuple[Value, Arg, Arg], ...] = ()
    loc: Loc = UNKNOWN
    site: int | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """A scalar op whose result trip counts or offsets may need."""

    op: Op


Node = Step | Loop | Branch | Bind


@dataclass(frozen=True, eq=False)
class DeviceKernel:
    """A kernel as the device runs it.

    cores     kinds of core it needs; with both it is mixed and takes a cluster
    lanes     vector cores of the cluster that share its vector work (2 with a split mode)
    split     "UP_DOWN", "LEFT_RIGHT" or None
    serialized  memories too small for every stage of a pipelined loop: fewer buffers there
    rings     tiles that stand for the rings through which its cores pass others, by direction
    """

    function: Function
    body: tuple[Node, ...]
    tiles: tuple[TileStorage, ...]
    cores: frozenset[Core]
    lanes: int = 1
    split: str | None = None
    steps: int = 0
    notes: tuple[str, ...] = field(default=())
    serialized: tuple[Mem, ...] = ()
    rings: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def shape(self) -> str:
        """How the runtime queues it: "MIX", "AIC" or "AIV"."""
        return "MIX" if len(self.cores) > 1 else next(iter(self.cores)).value

    def walk(self) -> Iterator[Step]:
        """Yield every step once, in program order."""
        yield from walk_steps(self.body)


def loops_in(nodes: tuple[Node, ...]) -> Iterator[Loop]:
    """Yield every loop, outer ones first."""
    for node in nodes:
        if isinstance(node, Loop):
            yield node
            yield from loops_in(node.body)
        elif isinstance(node, Branch):
            yield from loops_in(node.then)
            yield from loops_in(node.orelse)


def walk_steps(nodes: tuple[Node, ...]) -> Iterator[Step]:
    for node in nodes:
        if isinstance(node, Step):
            yield node
        elif isinstance(node, Loop):
            yield from walk_steps(node.body)
        elif isinstance(node, Branch):
            yield from walk_steps(node.then)
            yield from walk_steps(node.orelse)
