"""Compare the script's tolerance with the rounding error of its dtypes and reduction lengths.

Every value gets a typical relative rounding error: the unit roundoff of its dtype for each
operation that leads to it, added in quadrature, since errors have random signs. A reduction of n
terms adds n of them. A sum has the error of its worse term, a product the errors of both factors.
This estimates how far a correct program is from a golden in exact arithmetic. A tolerance far above
it hides mistakes of that size. A golden may round like the kernel, so a tolerance is too tight only
if it is below the rounding of the output's dtype, where results one ulp apart fail.
"""

from __future__ import annotations

import math

from tilelet.analysis.aliases import Aliases, accesses, is_tensor
from tilelet.checks.findings import Finding, Status, make_finding
from tilelet.checks.verdict import CheckResult, Subject, part
from tilelet.diag.catalogue.checks import ToleranceTooLoose, ToleranceTooTight
from tilelet.diag.text import plural
from tilelet.dtypes import DType
from tilelet.ir.core import (
    Arg,
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
    walk,
)
from tilelet.ir.fold import number_of
from tilelet.ir.spec import Cost, Engine, Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import CallView, ForView, yielded_values
from tilelet.numerics.casts import unit_roundoff

MIN_LOOSE_RTOL = 1.0
"""Relative tolerance at which an output of all zeros passes."""


def check(subject: Subject) -> CheckResult:
    """Check the outputs that are compared with `allclose`."""
    comparison = subject.comparison
    if comparison is None or comparison.golden is None:
        return CheckResult(
            "tolerance", Status.NOT_CHECKED, "the script has no golden to compare with"
        )
    errors, counts_once = rounding_errors(subject.program)
    compared = [
        (p, errors.get(p, 0.0))
        for p in subject.program.main.params
        if p.name in comparison.outputs and p.name not in comparison.own and p in errors
    ]
    if not compared:
        return CheckResult("tolerance", Status.NOT_CHECKED, "the script's own comparators decide")
    allowed = comparison.rtol + comparison.atol
    findings: list[Finding] = []
    for param, error in compared:
        assert isinstance(param.type, TensorType)
        if not param.type.dtype.is_float:
            continue
        if comparison.rtol >= MIN_LOOSE_RTOL:
            problem = ToleranceTooLoose(param.name, comparison.rtol, error, param.loc)
            findings.append(make_finding("tolerance", problem))
        # A tolerance of zero requests bitwise equality.
        elif 0 < allowed < min(error, unit_roundoff(param.type.dtype)):
            tight = ToleranceTooTight(
                param.name, comparison.rtol, comparison.atol, error, param.loc
            )
            findings.append(make_finding("tolerance", tight))
    worst = max(error for _, error in compared)
    hidden = f"an error of {100 * allowed:.2g} % in a value of 1 passes"
    if allowed < worst:
        hidden += "; passes only if the golden rounds the same way"
    summary = f"{plural(len(compared), 'output')}: rounding {100 * worst:.2g} %, {hidden}"
    if not counts_once:
        return part("tolerance", findings, Status.PROVED, summary)
    summary += "; sums whose length data decides count as one step"
    return part("tolerance", findings, Status.THIS_RUN, summary)


def rounding_errors(program: Program) -> tuple[dict[Value, float], bool]:
    """Return the typical relative rounding error of each tensor that the program writes.

    The second result says whether an accumulating loop of unknown length was counted once.
    """
    aliases = Aliases(program.main.body, program.functions)
    errors: dict[Value, float] = {}
    counted = [
        _call(program, op, aliases, errors) for op in walk(program.main.body) if op.name == "call"
    ]
    return errors, any(counted)


def _call(program: Program, op: Op, aliases: Aliases, errors: dict[Value, float]) -> bool:
    view = CallView(op)
    kernel = program.functions[view.callee]
    if kernel.kind is not FunctionKind.InCore:
        return False
    roots = [aliases.roots(o) if is_tensor(o) else frozenset[Value]() for o in view.operands]
    given = {
        p: max((errors.get(r, 0.0) for r in mine), default=0.0)
        for p, mine in zip(kernel.params, roots)
    }
    estimate = _Kernel(kernel, given)
    written = estimate.written
    for param, mine in zip(kernel.params, roots):
        for root in mine:
            if param in written:
                errors[root] = max(errors.get(root, 0.0), written[param])
    return estimate.counts_once


class _Kernel:
    """Errors of the values of one kernel, and of the parameters it writes."""

    def __init__(self, kernel: Function, given: dict[Value, float]) -> None:
        self.errors: dict[Value, float] = dict(given)
        self.written: dict[Value, float] = {}
        self.counts_once = False
        self.aliases = Aliases(kernel.body, {})
        self.block(kernel.body)

    def get(self, arg: Arg) -> float:
        return self.errors.get(arg, 0.0) if isinstance(arg, Value) else 0.0

    def block(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "for":
                self._loop(op)
            elif op.blocks:
                self.counts_once |= op.name == "while" and bool(op.results)
                for nested in op.blocks:
                    self.block(nested)
                for result, *values in zip(op.results, *(yielded_values(b) for b in op.blocks)):
                    self.errors[result] = max(map(self.get, values), default=0.0)
            else:
                self._op(op)

    def _loop(self, op: Op) -> None:
        view = ForView(op)
        start, stop, step = (number_of(b) for b in view.bounds)
        known = all(isinstance(n, int) for n in (start, stop, step)) and step
        count = len(range(start, stop, step)) if known else 1  # type: ignore[arg-type]
        for carried, init in zip(view.carried, view.init):
            self.errors[carried] = self.get(init)
        self.block(view.body)
        for result, init, last in zip(op.results, view.init, yielded_values(view.body)):
            before, after = self.get(init), self.get(last)
            # Each iteration adds as much as the first.
            added = count * max(0.0, after**2 - before**2)
            self.errors[result] = math.sqrt(min(before, after) ** 2 + added)
            self.counts_once |= not known and added > 0.0

    def _op(self, op: Op) -> None:
        inputs = [self.get(v) for v in op.operands]
        for value, how in accesses(op, {}):
            if how is not Direction.In:
                for root in self.aliases.roots(value):
                    sources = [v for v in op.operands if isinstance(v.type, TileType)]
                    narrows = any(_unit(v) < _unit(value) for v in sources)
                    worst = max(inputs, default=0.0)
                    error = math.hypot(worst, _unit(value) if narrows else 0.0)
                    self.written[root] = max(self.written.get(root, 0.0), error)
        for result in op.results:
            if isinstance(result.type, TileType):
                self.errors[result] = self._result(op, result, inputs)
            elif is_tensor(result):
                self.errors[result] = max(inputs, default=0.0)

    def _result(self, op: Op, result: Value, inputs: list[float]) -> float:
        unit, worst = _unit(result), max(inputs, default=0.0)
        if op.spec.engine is Engine.CUBE:
            lhs = op.args["lhs"]
            assert isinstance(lhs, Value)
            assert isinstance(lhs.type, TileType)
            length = lhs.type.shape[-2 if op.args.get("a_trans") else -1]
            return math.hypot(*inputs, math.sqrt(length) * unit)
        if op.spec.reduces is not None:
            (x,) = [v for v in op.operands if isinstance(v.type, TileType)][:1]
            assert isinstance(x.type, TileType)
            return math.hypot(worst, math.sqrt(x.type.shape[op.spec.reduces]) * unit)
        if Trait.ARITHMETIC in op.spec.traits:
            multiplies = op.spec.cost in (Cost.MUL, Cost.MULS, Cost.DIV)
            return math.hypot(*(sorted(inputs)[-2:] if multiplies else (worst,)), unit)
        narrowed = any(_unit(v) < unit for v in op.operands if isinstance(v.type, TileType))
        return math.hypot(worst, unit if narrowed else 0.0)


def _unit(value: Value) -> float:
    dtype: DType | None = getattr(value.type, "dtype", None)
    return unit_roundoff(dtype) if dtype is not None and dtype.is_float else 0.0
