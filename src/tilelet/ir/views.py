"""Typed read access to structural ops, so that passes do not spell out argument names."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.dataclasses import dataclass
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Op, Scalar, Value


@dataclass(frozen=True, slots=True)
class ForView:
    op: Op

    @property
    def kind(self) -> str:
        return self.op.args["kind"]  # type: ignore[return-value]

    @property
    def bounds(self) -> tuple[Scalar, Scalar, Scalar]:
        a = self.op.args
        return a["start"], a["stop"], a["step"]  # type: ignore[return-value]

    @property
    def init(self) -> tuple[Arg, ...]:
        return self.op.args["init"]  # type: ignore[return-value]

    @property
    def chunk(self) -> int | None:
        return self.op.args["chunk"]  # type: ignore[return-value]

    @property
    def policy(self) -> str:
        return self.op.args["policy"]  # type: ignore[return-value]

    @property
    def body(self) -> Block:
        return self.op.blocks[0]

    @property
    def index(self) -> Value:
        return self.body.params[0]

    @property
    def carried(self) -> tuple[Value, ...]:
        return self.body.params[1:]

    @property
    def trip_count(self) -> int | None:
        """Number of iterations, if all bounds are constants."""
        start, stop, step = self.bounds
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and step:
            return max(0, -((start - stop) // step))
        return None


@dataclass(frozen=True, slots=True)
class ScopeView:
    op: Op

    @property
    def kind(self) -> str:
        return self.op.args["kind"]  # type: ignore[return-value]

    @property
    def in_core(self) -> bool:
        return self.kind in structure.IN_CORE_KINDS

    @property
    def hint(self) -> str | None:
        return self.op.args["hint"]  # type: ignore[return-value]

    @property
    def split(self) -> str | None:
        return self.op.args["split"]  # type: ignore[return-value]

    @property
    def slots(self) -> int | None:
        return self.op.args.get("slots")  # type: ignore[return-value]

    @property
    def body(self) -> Block:
        return self.op.blocks[0]

    @property
    def has_task_id(self) -> bool:
        return bool(self.op.args["task_id"])

    @property
    def data_results(self) -> tuple[Value, ...]:
        """The results that stand for yielded values (excluding the task id)."""
        return self.op.results[:-1] if self.has_task_id else self.op.results


@dataclass(frozen=True, slots=True)
class CallView:
    op: Op

    @property
    def callee(self) -> str:
        return self.op.args["callee"]  # type: ignore[return-value]

    @property
    def operands(self) -> tuple[Arg, ...]:
        return self.op.args["operands"]  # type: ignore[return-value]

    @property
    def deps(self) -> tuple[Arg, ...]:
        return self.op.args["deps"]  # type: ignore[return-value]

    @property
    def data_results(self) -> tuple[Value, ...]:
        return self.op.results[:-1] if self.op.args["task_id"] else self.op.results


def yielded_values(block: Block) -> tuple[Arg, ...]:
    """Return the values that the block's terminator yields."""
    values = block.terminator.args["values"]
    assert isinstance(values, tuple)
    return values


def carried_names(op: Op) -> list[tuple[Value, ...]]:
    """Return all names of each loop-carried value: the result, and parameters of its blocks."""
    index = 1 if op.name == "for" else 0
    return list(zip(op.results, *(block.params[index:] for block in op.blocks)))


def carried_values(op: Op) -> Iterator[tuple[Arg, Arg, tuple[Value, ...]]]:
    """Yield each loop-carried value: its initial value, the yielded one, and its names."""
    init = op.args["init"]
    assert isinstance(init, tuple)
    return zip(init, yielded_values(op.blocks[-1]), carried_names(op))
