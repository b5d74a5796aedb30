"""Rule missing-root."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.dataflow import Dataflow, kind, values_of
from tilelet.diag.core import Caution, Label, Loc
from tilelet.ir.core import Op, Value
from tilelet.ir.types import TensorType, TileType


class MissingRoot(Caution, code="W1314"):
    """A mean of squares plus a small constant is used without a square root."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "a mean of squares plus a small constant is used without its square root",
            [Label(loc)],
            helps=["normalization multiplies by its `pl.rsqrt`"],
        )


_ROOTS = ("sqrt", "rsqrt")
_PASSING = ("reshape", "cast", "add", "mul", "div", "recip", "row_expand", "neg")
_SUMS = ("row_sum", "col_sum", "sum")
_CARRYING = ("reshape", "cast", "add", "mul", "div", "transpose")


def find(subject: Subject) -> Iterator[Advice]:
    """Find RMSNorm or LayerNorm that multiplies by `mean(x^2) + eps` without a square root.

    Nothing else adds a small constant to a mean of squares.
    """
    for run in subject.runs:
        for function in run.run.program.kernels:
            flow = Dataflow(function.body)
            for op in flow.ops:
                if not _is_mean_plus_eps(op, flow):
                    continue
                users = flow.reached(op.results[0], _PASSING)
                if users and not any(kind(o) in _ROOTS for o in users):
                    kernels = [k for k in run.summary.kernels if k.name == function.name]
                    yield subject.advice(MissingRoot(op.loc), kernels)


def _is_mean_plus_eps(op: Op, flow: Dataflow) -> bool:
    """Whether an op is `add(mul(sum, 1 / n), eps)` with a sum of squares and a small `eps`."""
    if kind(op) != "add":
        return False
    values = list(op.args.values())
    small = [v for v in values if isinstance(v, float) and 0 < v < 1e-2]
    sums = [v for v in values if isinstance(v, Value)]
    if not small or not sums or not isinstance(sums[0].type, (TileType, TensorType)):
        return False
    mean = flow.maker(sums[0])
    if mean is None or kind(mean) not in ("mul", "div"):
        return False
    if not any(isinstance(v, (int, float)) and v not in (0, 1) for v in mean.args.values()):
        return False
    before = flow.origins(mean.results[0], (*_CARRYING, *_SUMS))
    return any(kind(o) in _SUMS for o in before) and any(_is_square(o, flow) for o in before)


def _is_square(op: Op, flow: Dataflow) -> bool:
    values = values_of(op)
    if kind(op) != "mul" or len(values) != 2:
        return kind(op) == "square"
    loads = [flow.maker(value) for value in values]
    same_load = loads[0] is not None and loads[1] is not None and loads[0].args == loads[1].args
    return values[0] is values[1] or (same_load and {kind(o) for o in loads if o} == {"slice"})


RULE = Rule("missing-root", MissingRoot, find, is_fault=True)
