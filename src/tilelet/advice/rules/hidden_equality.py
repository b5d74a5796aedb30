"""Rule hidden-equality."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Source
from tilelet.diag.core import Caution, Label, Loc


class HiddenEquality(Caution, code="W1315"):
    """A quotient is correct only as long as two constants are equal."""

    def __init__(self, loc: Loc, quotient: str, step: str, divisor: str) -> None:
        super().__init__(
            f"`{quotient}` is correct only if `{step}` equals `{divisor}`",
            [Label(loc)],
            helps=[f"add `assert {step} == {divisor}`, or divide by `{step}`"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find `kv0 // HEAD_DIM` where `kv0` is a multiple of another constant of equal value."""
    source = subject.source
    values = source.known_numbers
    steps = _steps(source, values)
    for node in source.nodes:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
            continue
        if not isinstance(node.left, ast.Name) or not isinstance(node.right, ast.Name):
            continue
        step, divisor = steps.get(node.left.id), node.right.id
        if step is None or step == divisor:
            continue
        if step in values and values.get(divisor) == values[step]:
            problem = HiddenEquality(source.loc(node), source.of(node), step, divisor)
            yield subject.advice(problem, [])


def _steps(source: Source, values: Mapping[str, int]) -> Mapping[str, str]:
    """Map names to the constant they are multiples of: `kv0 = kb * KV_CHUNK`, loop steps."""
    found: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and isinstance(value.op, ast.Mult):
                for side in (value.left, value.right):
                    if isinstance(side, ast.Name) and side.id in values:
                        found[target.id] = side.id
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            arguments = node.iter.args
            if len(arguments) == 3 and isinstance(arguments[2], ast.Name):
                found[source.of(node.target)] = arguments[2].id
    return found


RULE = Rule("hidden-equality", HiddenEquality, find, is_about_text=True)
