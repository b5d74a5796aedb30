"""Record the tasks of each dispatch without executing any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tilelet.dataclasses import dataclass
from tilelet.interp.state import State
from tilelet.ir.core import Program
from tilelet.ranks.host import Dispatch, Plan
from tilelet.ranks.memory import moved, on_rank
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Buffer, Window


@dataclass(frozen=True)
class RankStreams:
    """The tasks of every dispatch of a plan, in order; None for collectives."""

    dispatches: Sequence[Dispatch]
    streams: Sequence[TaskStream | None]

    def counts(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for dispatch, stream in zip(self.dispatches, self.streams):
            if stream is not None:
                found.update(stream.counts())
            elif dispatch.callback is None:
                found[dispatch.op.name] += 1
        return dict(found)

    @property
    def total(self) -> int:
        return sum(self.counts().values())


def record_streams(program: Program, plan: Plan) -> RankStreams:
    """Run the control programs of all dispatches; record their kernels without running them."""
    streams = [_stream(program, d) if d.function else None for d in plan.dispatches]
    return RankStreams(plan.dispatches, streams)


def _stream(program: Program, dispatch: Dispatch) -> TaskStream:
    state = State(program.functions, execute=False, poison=True, seed_valid=False)
    copies: dict[int, Buffer] = {}
    state.code(dispatch.function).run([_own(v, dispatch.rank, copies) for v in dispatch.operands])
    return state.tasks


def _own(value: object, rank: int, copies: dict[int, Buffer]) -> Any:
    """Return an operand with a buffer of its own number, which shares the memory."""
    if not isinstance(value, Window):
        return value
    window = on_rank(value, rank)
    old = window.buffer
    if old.id not in copies:
        copies[old.id] = Buffer(old.name, old.nbytes, old.data, old.origin)
    return moved(window, copies[old.id])
