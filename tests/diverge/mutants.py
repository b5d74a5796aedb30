"""Random changes of one expression in the text of a kernel."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = "+", "-", "*", "//", "%"
_SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_SIBLINGS = (
    ("add", "sub", "mul", "div", "maximum", "minimum"),
    ("row_max", "row_sum", "row_min"),
    ("col_max", "col_sum"),
    ("row_expand_add", "row_expand_sub", "row_expand_mul", "row_expand_div"),
    ("col_expand_add", "col_expand_sub", "col_expand_mul"),
    ("exp", "log", "sqrt", "rsqrt", "recip", "neg", "abs"),
    ("min", "max"),
)


@dataclass(frozen=True)
class Mutant:
    """A changed text: what was changed, where, and the lines."""

    text: str
    what: str
    lines: frozenset[int]


def mutants(text: str, seed: int) -> Iterator[Mutant]:
    """Yield changes of the function `kernel`, endlessly; not all of them compile or matter."""
    tree = ast.parse(text)
    kernel = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "kernel")
    constants = [
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    ]
    inside = [n for s in kernel.body for n in ast.walk(s)]
    places = [n for n in inside if isinstance(n, ast.Name | ast.Constant | ast.BinOp | ast.Call)]
    rng = random.Random(seed)
    while True:
        node = rng.choice(places)
        old, new = (
            ast.get_source_segment(text, node),
            _changed(node, inside, kernel, constants, rng),
        )
        if old is not None and new is not None and old != new:
            yield _replaced(text, node, old, new)


def _changed(
    node: ast.expr,
    inside: list[ast.AST],
    kernel: ast.FunctionDef,
    constants: list[str],
    rng: random.Random,
) -> str | None:
    """Return other text for a node."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load) or node.id == "pl":
            return None
        names = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        is_constant = node.id in constants
        others = constants if is_constant else [*names, *(a.arg for a in kernel.args.args)]
        return rng.choice(sorted(others))
    if isinstance(node, ast.Constant):
        if type(node.value) is int:
            return str(rng.choice([node.value + 1, node.value - 1, 2 * node.value, 0, 1]))
        if type(node.value) is float:
            return repr(rng.choice([0.0, 1.0, -node.value, 2 * node.value]))
        return repr(not node.value) if type(node.value) is bool else None
    if isinstance(node, ast.BinOp):
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        symbol = _SYMBOLS.get(type(node.op), "+")
        swapped = f"({right}) {symbol} ({left})"
        others = [f"({left}) {s} ({right})" for s in _OPERATORS if s != symbol]
        return rng.choice([left, right, swapped, *others])
    assert isinstance(node, ast.Call)
    return _changed_call(node, rng)


def _changed_call(node: ast.Call, rng: random.Random) -> str | None:
    """Return another op, the operands in another order, or one of them alone."""
    args = [ast.unparse(a) for a in node.args]
    named = [f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords]
    function = ast.unparse(node.func)
    found = [*args]
    if len(args) > 1:
        found.append(f"{function}({', '.join([args[1], args[0], *args[2:], *named])})")
    for family in _SIBLINGS:
        if function.removeprefix("pl.") in family:
            found += [f"pl.{op}({', '.join([*args, *named])})" for op in family]
    return rng.choice(found) if found else None


def _replaced(text: str, node: ast.expr, old: str, new: str) -> Mutant:
    lines = text.splitlines(keepends=True)
    start = sum(len(line) for line in lines[: node.lineno - 1]) + node.col_offset
    # The lines after the change keep their numbers.
    flat = new if old.count("\n") == 0 else f"({new}" + "\n" * old.count("\n") + ")"
    changed = text[:start] + flat + text[start + len(old) :]
    what = f"line {node.lineno}, `{' '.join(old.split())}` -> `{new}`"
    return Mutant(changed, what, frozenset({node.lineno}))
