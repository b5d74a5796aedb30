"""Simulation of kernels in C; data shared by all executions is passed once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.course import Course, Move, Rounds
from tilelet.device.kernel.pipes import (
    ALL_COLD,
    BUSY,
    COLD,
    CORE_OF,
    HOT,
    IS_VECTOR,
    LAST,
    PIPES,
    SCALAR,
    TILES,
    Followed,
    Follower,
    Levels,
    first_of,
    follow_reference,
    key_of,
    periods_of,
    plans_of,
)
from tilelet.device.kernel.step_costs import StepCosts
from tilelet.device.kernel.view import DeviceKernel
from tilelet.device.machine.description import Machine
from tilelet.device.schedule import structures
from tilelet.device.schedule.library import library
from tilelet.device.schedule.structures import fill

_ROUNDS = -1
_LEVELS = (HOT, COLD, ALL_COLD)
_SUMS = 3
_NOTHING = -1


def follower() -> Follower:
    """Return a follower in C if there is a compiler; it gives the same numbers as `followed`."""
    lib = library()
    return follow_reference if lib is None else NativeWalks(lib)


class NativeWalks:
    """A `Follower` that caches step costs."""

    def __init__(self, lib: ctypes.CDLL) -> None:
        self._lib = lib
        self._kernels: dict[DeviceKernel, _Kernel] = {}

    def __call__(
        self, course: Course, machine: Machine, levels: Sequence[Levels]
    ) -> list[Followed]:
        known = self._kernels.get(course.kernel)
        if known is None or known.machine is not machine:
            known = self._kernels[course.kernel] = _Kernel(course.kernel, machine)
        return known.follow(self._lib, course, levels)


class _Kernel:
    """Data shared by all executions of a kernel on a machine."""

    def __init__(self, kernel: DeviceKernel, machine: Machine) -> None:
        self.kernel = kernel
        self.machine = machine
        self.periods = periods_of(kernel)
        self.params = len(kernel.function.params)
        self._tables: dict[tuple[frozenset[int], int], _Table] = {}
        plans = plans_of(kernel)
        first, size = first_of(kernel)
        body = machine.body
        self.given = structures.WalkInput(
            size=size,
            params=self.params,
            tiles=len(kernel.tiles),
            busy_at=BUSY,
            scalar=SCALAR,
            last=LAST,
            issue=body.issue_cycles,
            sync=body.sync_cycles,
            across=body.exchange_cycles,
            start=body.start_cycles,
        )
        written = [w for p in plans for w in p.written]
        columns: dict[str, Sequence[int]] = {
            "is_vector": IS_VECTOR,
            "core_of": CORE_OF,
            "first": first,
            "depth": [tile.buffers for tile in kernel.tiles],
            "pipe": [p.pipe for p in plans],
            "flags": [p.is_scalar + 2 * p.is_pop for p in plans],
            "read_ptr": np.cumsum([0, *(len(p.reads) for p in plans)]).tolist(),
            "write_ptr": np.cumsum([0, *(len(p.written) for p in plans)]).tolist(),
            "reads": [tile for p in plans for tile in p.reads],
            "writes": [tile for tile, _ in written],
            "next": [is_next for _, is_next in written],
        }
        self.arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
        fill(self.given, self.arrays)

    def table(self, signature: Signature) -> _Table:
        key = signature.strided, signature.blocks
        found = self._tables.get(key)
        if found is None:
            costs = StepCosts(self.kernel, self.machine, signature)
            found = self._tables[key] = _Table(costs, self.params)
        return found

    def follow(self, lib: ctypes.CDLL, course: Course, levels: Sequence[Levels]) -> list[Followed]:
        table = self.table(course.signature)
        rows: dict[int, int] = {}
        code: list[int] = []
        self.write(course.body, table, rows, code)
        width = 1 + TILES + len(PIPES) + _SUMS + 2 * self.params
        out = np.empty((len(levels), width))
        given = self.given
        given.costs, given.levels, given.code_length = len(rows), len(levels), len(code)
        changing = {
            "numbers": np.array([table.numbers[row] for row in rows], np.float64),
            "into": np.array([table.into[row] for row in rows], np.int64),
            "level": np.array([_LEVELS.index(level) for level in levels], np.int64),
            "code": np.array(code, np.int64),
            "out": out,
        }
        fill(given, changing)
        if lib.tl_walk(ctypes.byref(given)):
            raise MemoryError("the modelled device found no memory for a kernel's pipes")
        return [self.result(row) for row in out.tolist()]

    def write(
        self,
        moves: Sequence[Move | Rounds],
        table: _Table,
        rows: dict[int, int],
        code: list[int],
    ) -> None:
        """Append the course in the form that C reads; `rows` numbers the table rows it needs."""
        for move in moves:
            if isinstance(move, Move):
                row = table.row(move)
                code += (move.step.position, rows.setdefault(row, len(rows)))
                continue
            loop = move.loop
            code += (_ROUNDS, move.count, self.periods[id(loop)], loop.stages > 1, len(move.runs))
            for run in move.runs:
                code += (run.end, 0)
                begin = len(code)
                self.write(run.body, table, rows, code)
                code[begin - 1] = len(code) - begin

    def result(self, row: list[float]) -> Followed:
        begin = row[1 + TILES : 1 + TILES + len(PIPES)]
        exchanged, macs, served, *moved = row[1 + TILES + len(PIPES) :]
        read, written = moved[: self.params], moved[self.params :]
        return Followed(
            end=row[0],
            times=row[1 : 1 + TILES],
            begin={pipe: at for pipe, at in enumerate(begin) if at >= 0},
            read={p: n for p, n in enumerate(read) if n >= 0},
            written={p: n for p, n in enumerate(written) if n >= 0},
            exchanged=exchanged,
            macs=macs,
            served=served,
        )


class _Table:
    """The costs of moves requested so far, as rows of numbers for `walk.c`."""

    def __init__(self, costs: StepCosts, params: int) -> None:
        self.numbers: list[tuple[float, ...]] = []
        self.into: list[int] = []
        self._costs = costs
        self._params = params
        self._rows: dict[tuple[int, tuple[int, ...]], int] = {}

    def row(self, move: Move) -> int:
        key = key_of(move)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = len(self.numbers)
            each = [self._costs.cycles(move.work, *level) for level in _LEVELS]
            moved = self._costs.moved(move.step, move.work)
            sums = moved.exchanged, moved.macs, moved.served, moved.nbytes
            self.numbers.append((*(busy for busy, _ in each), *(late for _, late in each), *sums))
            param = _NOTHING if moved.param is None else moved.param + moved.writes * self._params
            self.into.append(param)
        return found
