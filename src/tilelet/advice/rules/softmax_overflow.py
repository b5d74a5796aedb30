"""Rule softmax-overflow."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.dataflow import Dataflow, kind, values_of
from tilelet.diag.core import Caution, Label, Loc
from tilelet.ir.core import Op


class SoftmaxOverflow(Caution, code="W1328"):
    """Exponentials are divided by their sum without subtracting the maximum first."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "exponentials are divided by their sum without subtracting the maximum first",
            [Label(loc)],
            helps=["subtract `pl.row_max` first: `pl.exp(pl.row_expand_sub(x, pl.row_max(x)))`"],
        )


_SUMS = ("row_sum", "col_sum", "sum")
_DIVISIONS = ("row_expand_div", "col_expand_div", "div", "row_expand_mul", "col_expand_mul", "mul")
_MAXIMA = ("row_max", "col_max", "max", "maximum")
_PASSING = ("cast", "reshape", "recip", "row_expand", "col_expand")
_BEFORE = ("cast", "reshape", "mul", "muls", "fillpad", "slice")
_DIFFERENCES = ("sub", "row_expand_sub", "col_expand_sub", "row_expand_expdif")


def find(subject: Subject) -> Iterator[Advice]:
    """Find exponentials that are divided by their sum without a prior subtraction."""
    for run in subject.runs:
        flows = {f.name: Dataflow(f.body) for f in run.run.program.kernels}
        if any(kind(op) in _MAXIMA for flow in flows.values() for op in flow.ops):
            continue  # another kernel may have subtracted it
        for name, flow in flows.items():
            for op in flow.ops:
                if kind(op) == "exp" and _is_normalized(op, flow) and not _is_shifted(op, flow):
                    kernels = [k for k in run.summary.kernels if k.name == name]
                    yield subject.advice(SoftmaxOverflow(op.loc), kernels)


def _is_normalized(op: Op, flow: Dataflow) -> bool:
    """Whether the result of an op is divided by its own sum."""
    own = {op.results[0]}
    for user in flow.reached(op.results[0], _PASSING):
        if kind(user) in _PASSING:
            own |= {*user.results}
    for user in flow.reached(op.results[0], _PASSING):
        if kind(user) not in _SUMS:
            continue
        for last in flow.reached(user.results[0], _PASSING):
            if kind(last) in _DIVISIONS and own & {*values_of(last)}:
                return True
    return False


def _is_shifted(op: Op, flow: Dataflow) -> bool:
    """Whether anything was subtracted from the exponents."""
    return any(
        kind(o) in (*_DIFFERENCES, "neg")
        for value in values_of(op)
        for o in flow.origins(value, _BEFORE)
    )


RULE = Rule("softmax-overflow", SoftmaxOverflow, find, is_fault=True)
