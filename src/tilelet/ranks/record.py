"""The tasks of each dispatch, recorded without executing any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilelet.dataclasses import dataclass
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.state import State
from tilelet.ir.core import FunctionKind, Op, Program
from tilelet.ranks.host import Dispatch, Plan
from tilelet.ranks.memory import on_rank, view_of_buffer
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Buffer, Window


@dataclass(frozen=True)
class RankStreams:
    """The tasks of every dispatch of a plan, in its order; of collectives, None."""

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


def record_streams(
    program: Program, plan: Plan, reads: Mapping[int, Sequence[object]] | None = None
) -> RankStreams:
    """Run the control programs of all dispatches; their kernels are recorded, not run.

    `reads` are what the control program of each dispatch has read in a run.
    """
    streams = [
        _stream(program, d, None if reads is None else _KnownReads(iter(reads.get(i, ()))))
        if d.function
        else None
        for i, d in enumerate(plan.dispatches)
    ]
    return RankStreams(plan.dispatches, streams)


@dataclass(frozen=True)
class _KnownReads:
    """Gives a control program the values that it has read in a run."""

    values: Iterator[Any]

    def lower(self, low: Lowering, op: Op) -> Step:
        if op.name != "read" or low.function.kind is FunctionKind.InCore:
            return low.plain_op(op)
        result, values = low.result(op), self.values

        def read(frame: Frame) -> None:
            frame[result] = next(values)

        return read


def _stream(program: Program, dispatch: Dispatch, observer: _KnownReads | None) -> TaskStream:
    state = State(
        program.functions, execute=False, poison=True, seed_valid=False, observer=observer
    )
    copies: dict[int, Buffer] = {}
    state.code(dispatch.function).run(
        [_own_operand(v, dispatch.rank, copies) for v in dispatch.operands]
    )
    return state.tasks


def _own_operand(value: object, rank: int, copies: dict[int, Buffer]) -> object:
    """An operand whose buffer no other stream has numbered; it shares the memory."""
    if not isinstance(value, Window):
        return value
    window = on_rank(value, rank)
    old = window.buffer
    if old.id not in copies:
        copies[old.id] = Buffer(old.name, old.nbytes, old.data, old.origin)
    return view_of_buffer(window, copies[old.id])
