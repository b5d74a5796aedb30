"""Pairs of nearly equal programs: the prover must not call two equal that some input tells apart.

    python -m tests.fuzz.near_equal --seconds 600 --seed 7

A program of `rewritable.Text` is changed a little: an offset, a bound, an operand, an op, the order
of statements, or an expression by an algebraic identity that floating point may not have. If the
prover shows both programs equal, they are run on inputs with infinities, NaNs and zeros of both
signs. With `rounding`, sums may differ in their last bits, and inputs do not overflow.
"""

from __future__ import annotations

import ast
import copy
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tests.fuzz.rewritable import REJECTED, Text, Version, inputs
from tests.fuzz.search import Tally, search

from tilelet.equivalence.proof import Equivalence
from tilelet.equivalence.trials import difference

_ARITHMETIC = ("add", "sub", "mul", "maximum", "minimum")
_UNARY = ("exp", "neg", "abs", "recip")
_TILES = {*_ARITHMETIC, *_UNARY, "matmul", "slice", "full", "cast"}
_SPECIAL = (np.inf, -np.inf, np.nan, -0.0, 0.0, 1.0, -1.0)
_EXTREME = (3e38, -3e38, 1e-45)

Change = Callable[[ast.AST, random.Random], bool]
"""Changes a tree in place; False if there is nothing to change."""


def _calls(tree: ast.AST, names: Sequence[str] | set[str]) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
    ]


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("pl"), name), [*arguments], [])


def _become(node: ast.Call, other: ast.Call) -> None:
    node.func, node.args, node.keywords = other.func, other.args, other.keywords


def _number(tree: ast.AST, draw: random.Random) -> bool:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    if not found:
        return False
    node = draw.choice(found)
    assert isinstance(node.value, int)
    node.value = max(0, node.value + draw.choice((-1, 1)))
    return True


def _name(tree: ast.AST, draw: random.Random) -> bool:
    groups = (("x", "z", "w", "s", "t"), ("count", "limit"), ("min", "max"), ("range", "parallel"))
    found = [
        (node, group)
        for node in ast.walk(tree)
        for group in groups
        if (isinstance(node, ast.Name) and node.id in group)
        or (isinstance(node, ast.Attribute) and node.attr in group)
    ]
    if not found:
        return False
    node, group = draw.choice(found)
    setattr(node, "id" if isinstance(node, ast.Name) else "attr", draw.choice(group))
    return True


def _op(tree: ast.AST, draw: random.Random) -> bool:
    for group in draw.sample((_ARITHMETIC, _UNARY), 2):
        found = _calls(tree, group)
        if found:
            func = draw.choice(found).func
            assert isinstance(func, ast.Attribute)
            func.attr = draw.choice(group)
            return True
    return False


def _swapped_operands(tree: ast.AST, draw: random.Random) -> bool:
    found = [c for c in _calls(tree, (*_ARITHMETIC, "matmul")) if len(c.args) >= 2]
    if not found:
        return False
    node = draw.choice(found)
    node.args[0], node.args[1] = node.args[1], node.args[0]
    return True


def _comparison(tree: ast.AST, draw: random.Random) -> bool:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    if not found:
        return False
    draw.choice(found).ops[0] = draw.choice((ast.Lt(), ast.LtE(), ast.Gt(), ast.GtE(), ast.Eq()))
    return True


def _statements(tree: ast.AST, draw: random.Random) -> bool:
    """Delete, repeat or swap statements of one block."""
    bodies = [b for n in ast.walk(tree) for b in [getattr(n, "body", None)] if isinstance(b, list)]
    bodies = [b for b in bodies if len(b) > 1 and not isinstance(b[0], ast.ClassDef | ast.Import)]
    if not bodies:
        return False
    body = draw.choice(bodies)
    i = draw.randrange(len(body) - 1)
    how = draw.randrange(3)
    if how == 0:
        del body[i]
    elif how == 1:
        body.insert(i, copy.deepcopy(body[i]))
    else:
        body[i], body[i + 1] = body[i + 1], body[i]
    return True


def _identity(tree: ast.AST, draw: random.Random) -> bool:
    """Replace an expression by one that is equal for real numbers."""
    found = _calls(tree, _TILES)
    if not found:
        return False
    node = draw.choice(found)
    e = copy.deepcopy(node)
    zero, one = ast.Constant(0.0), ast.Constant(1.0)
    _become(
        node,
        draw.choice(
            [
                _call("add", e, zero),
                _call("sub", e, zero),
                _call("mul", e, one),
                _call("neg", _call("neg", e)),
                _call("maximum", e, e),
                _call("sub", _call("add", e, e), e),
                _call("add", _call("sub", e, e), e),
                _call("add", e, _call("mul", e, zero)),
                _call("mul", _call("add", e, e), ast.Constant(0.5)),
                _call("recip", _call("recip", e)),
            ]
        ),
    )
    return True


def _distributed(tree: ast.AST, draw: random.Random) -> bool:
    """`(a + b) @ y` to `a @ y + b @ y`, and the same for elementwise products."""
    found = [c for c in _calls(tree, ("matmul", "mul")) if len(c.args) >= 2]
    if not found:
        return False
    node = draw.choice(found)
    side = draw.randrange(2)
    inner = node.args[side]
    is_sum = isinstance(inner, ast.Call) and inner in _calls(tree, ("add", "sub"))
    a, b = inner.args[:2] if is_sum else (inner, inner)  # type: ignore[attr-defined]
    parts: list[ast.expr] = []
    for part in (a, b):
        product = copy.deepcopy(node)
        product.args[side] = copy.deepcopy(part)
        parts.append(product)
    if not is_sum:
        # Make the sum on one side and its distribution on the other, in two steps.
        node.args[side] = _call("add", inner, copy.deepcopy(inner))
        return True
    _become(node, _call("add", *parts))
    return True


CHANGES: tuple[Change, ...] = (
    *(_number, _name, _op, _swapped_operands, _comparison, _statements),
    *(_identity, _identity, _distributed, _distributed),
)


def pairs(seed: int, count: int = 6) -> Iterator[tuple[str, str]]:
    """Yield a program and nearly equal ones, derived from the previous one or from the first."""
    draw = random.Random(seed)
    first = ast.parse(Text(seed).program())
    before = first
    for _ in range(count):
        after = copy.deepcopy(before)
        if not draw.choice(CHANGES)(after, draw):
            continue
        texts = ast.unparse(before), ast.unparse(after)
        if texts[0] != texts[1]:
            yield texts
        before = draw.choice((first, after))


def special_inputs(seed: int, *, extreme: bool) -> Iterator[dict[str, Any]]:
    """Return inputs as in `rewritable`, with some special values of arithmetic."""
    values = np.array(_SPECIAL + (_EXTREME if extreme else ()), np.float32)
    for given in inputs(seed):
        yield given
        draw = np.random.default_rng([seed, 1])
        changed = dict(given)
        for name in ("x", "y", "z", "w"):
            array = given[name].copy()
            chosen = draw.random(array.shape) < draw.choice((0.02, 0.3))
            array[chosen] = draw.choice(values, int(chosen.sum()))
            changed[name] = array
        yield changed


def differs(seed: int, before: Version, after: Version, *, rounding: bool) -> bool:
    """Return whether an input that the first program accepts distinguishes the two."""
    for given in special_inputs(seed, extreme=not rounding):
        old = before.outputs(given)
        if old is None:
            continue
        new = after.outputs(given)
        if new is None or difference([[_plain(old)]], [[_plain(new)]], rounding=rounding):
            return True
    return False


def _plain(outputs: dict[str, Any]) -> dict[str, Any]:
    """Drop the payloads of NaNs, which no op defines."""
    return {name: np.where(np.isnan(a), np.float32(np.nan), a) for name, a in outputs.items()}


class Judge:
    """Asks the prover about pairs, and runs those that it calls equal."""

    def __init__(self) -> None:
        self.tally = Tally()

    def judge(self, seed: int) -> None:
        self.tally.programs += 1
        outcomes = self.tally.outcomes
        versions: dict[str, Version] = {}
        for texts in pairs(seed):
            before, after = (versions.setdefault(text, Version(text)) for text in texts)
            try:
                programs = before.program, after.program
            except REJECTED:
                outcomes["not a program"] += 1
                continue
            for rounding in (False, True):
                if not Equivalence(programs[0], rounding=rounding).proof(programs[1]).holds:
                    outcomes["not shown equal"] += 1
                elif differs(seed, before, after, rounding=rounding):
                    outcomes["wrong"] += 1
                    evidence = "\n+++\n".join(texts)
                    self.tally.wrong.append((seed, f"{rounding=}", evidence))
                else:
                    outcomes["equal"] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    judge = Judge()
    return search(judge.judge, judge.tally, "near_equal", arguments)


if __name__ == "__main__":
    sys.exit(main())
