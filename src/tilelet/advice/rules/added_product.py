"""Rule added-product: the cube can accumulate while it multiplies.

In a loop the accumulator starts with the first product, because loading anything else into it has a
cost; the initial value of the sum is added once, at the end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.source import Body, Source, names_bound, names_read
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit


class AddedProduct(Caution, code="W1303"):
    """The vector unit adds a product to an accumulator."""

    def __init__(self, loc: Loc, accumulator: str) -> None:
        super().__init__(
            f"the vector unit adds a product to `{accumulator}`",
            [Label(loc)],
            helps=["`pl.matmul_acc` accumulates in the cube"],
        )


_FILLS = ("full", "tile.full", "zeros")
_LOOPS = ("range", "pipeline")


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    in_loops: set[int] = set()
    for body in source.bodies():
        for loop in body:
            summing = _match_loop(source, body, loop) if isinstance(loop, ast.For) else None
            if summing is not None:
                in_loops.add(id(summing.added))
                yield _advice(subject, summing.step, summing.sum_name, _loop_edits(source, summing))
    for body in source.bodies():
        for statement in body:
            if not isinstance(statement, (ast.Assign, ast.Expr)):
                continue
            for added in ast.walk(statement):
                is_new = source.call_of(added) == "add" and id(added) not in in_loops
                if is_new and isinstance(added, ast.Call) and len(added.args) == 2:
                    yield from _single_additions(subject, body, statement, added)


def _advice(subject: Subject, step: ast.stmt, name: str, edits: list[Edit] | None) -> Advice:
    source = subject.source
    kernels = subject.kernels_in(*source.scope_lines(step))
    problem = AddedProduct(source.loc(step), name)
    return subject.advice(problem, kernels, edits, rounding=True)


def _single_additions(
    subject: Subject, body: Body, statement: ast.stmt, added: ast.Call
) -> Iterator[Advice]:
    """Find a single addition outside loops."""
    source = subject.source
    for place, operand in enumerate(added.args):
        found = _product(source, body, statement, operand)
        if found is not None or _is_product_elsewhere(source, statement, operand):
            accumulator = added.args[1 - place]
            edits = _edits(source, added, accumulator, *found) if found else None
            yield _advice(subject, statement, source.of(accumulator), edits)
            return


def _product(
    source: Source, body: Body, user: ast.stmt, operand: ast.expr
) -> tuple[ast.Call, ast.Assign | None] | None:
    """Return the product that an operand is, and its only definition, if any."""
    if source.call_of(operand) == "matmul" and isinstance(operand, ast.Call):
        return operand, None
    if not isinstance(operand, ast.Name):
        return None
    place = body.index(user)
    for definition in reversed(body[:place]):
        if not isinstance(definition, ast.Assign) or len(definition.targets) != 1:
            continue
        target = definition.targets[0]
        if isinstance(target, ast.Name) and target.id == operand.id:
            value = definition.value
            if source.call_of(value) != "matmul" or not isinstance(value, ast.Call):
                return None
            return (value, definition) if len(source.uses(operand.id)) == 1 else None
    return None


def _is_product_elsewhere(source: Source, user: ast.stmt, operand: ast.expr) -> bool:
    """Whether an earlier scope computes the operand as a product and stores it in global memory."""
    makers = [
        n
        for n in source.nodes
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Name)
        and isinstance(operand, ast.Name)
        and n.targets[0].id == operand.id
        and n.lineno < user.lineno
    ]
    return bool(makers) and source.call_of(makers[-1].value) == "matmul"


def _edits(
    source: Source,
    added: ast.Call,
    accumulator: ast.expr,
    product: ast.Call,
    definition: ast.stmt | None,
) -> list[Edit]:
    text = _accumulating_call(source, source.of(accumulator), product)
    edits = [source.replace(added, text)]
    return [*edits, source.remove(definition)] if definition is not None else edits


def _accumulating_call(source: Source, accumulator: str, product: ast.Call) -> str:
    operands = [source.of(a) for a in product.args]
    operands += [f"{k.arg}={source.of(k.value)}" for k in product.keywords if k.arg != "out_dtype"]
    return f"{source.language}.matmul_acc({', '.join([accumulator, *operands])})"


@dataclass(frozen=True)
class _Loop:
    """A loop in a scope whose last statement adds a product to a sum.

    start       the definition of the sum, if it is a fill with zeros just before the loop
    added       the addition, in the last statement `step`
    definition  the statement that defines the product, if any
    """

    loop: ast.For
    first: str
    others: str
    start: ast.Assign | None
    sum_name: str
    step: ast.Assign
    added: ast.Call
    product: ast.Call
    definition: ast.Assign | None


def _match_loop(source: Source, body: Body, loop: ast.For) -> _Loop | None:
    step = loop.body[-1]
    if source.loop(loop) not in _LOOPS or not isinstance(step, ast.Assign) or loop.orelse:
        return None
    target, added = step.targets[0], step.value
    if not isinstance(target, ast.Name) or source.call_of(added) != "add":
        return None
    assert isinstance(added, ast.Call)
    if not isinstance(loop.target, ast.Name) or not source.is_in_scope(loop):
        return None
    names = [a.id if isinstance(a, ast.Name) else "" for a in added.args]
    if len(names) != 2 or target.id not in names:
        return None
    operand = added.args[1 - names.index(target.id)]
    found = _product(source, loop.body, step, operand)
    bounds = _bounds(source, loop)
    others = [s for s in loop.body[:-1] if found is not None and s is not found[1]]
    if found is None or bounds is None or not all(isinstance(s, ast.Assign) for s in others):
        return None
    if target.id in names_read(others) | names_read(found[0]) | names_bound(others):
        return None
    start = _zero_start(source, body[: body.index(loop)], target.id)
    return _Loop(loop, *bounds, start, target.id, step, added, *found)


def _bounds(source: Source, loop: ast.For) -> tuple[str, str] | None:
    """Peel the first iteration of a loop that is known not to be empty."""
    assert isinstance(loop.iter, ast.Call)
    if names_read(loop.iter.args) - source.constants:
        return None
    stages = [f"{k.arg}={source.of(k.value)}" for k in loop.iter.keywords]
    if any(k.arg != "stage" for k in loop.iter.keywords):
        return None
    arguments = [source.of(a) for a in loop.iter.args]
    head = source.of(loop.iter.func)
    if len(arguments) == 1:
        return "0", f"{head}({', '.join(['1', arguments[0], *stages])})"
    first, last, *step = arguments
    by = step[0] if step else "1"
    after = f"{first} + {by}" if first != "0" else by
    return first, f"{head}({', '.join([after, last, *step, *stages])})"


def _zero_start(source: Source, before: Body, name: str) -> ast.Assign | None:
    """Return the fill that defines the sum, if the sum is not read in between."""
    for statement in reversed(before):
        if isinstance(statement, ast.Assign) and names_bound(statement) == {name}:
            call = statement.value
            if source.call_of(call) not in _FILLS or not isinstance(call, ast.Call):
                return None
            values = [*call.args, *(k.value for k in call.keywords)]
            numbers = [v.value for v in values if isinstance(v, ast.Constant)]
            return statement if numbers[-1:] in ([0.0], [0]) else None
        if name in names_read(statement) | names_bound(statement):
            return None
    return None


def _loop_edits(source: Source, found: _Loop) -> list[Edit]:
    margin = " " * found.loop.col_offset
    own = f"{found.sum_name}_product"
    if found.definition is not None:
        own = source.of(found.definition.targets[0])
    name = found.sum_name if found.start is not None else own
    index = source.of(found.loop.target)
    wanted = f"({found.first})" if not found.first.isalnum() else found.first
    once = [
        source.substituted(s, {index: wanted})
        for s in found.loop.body[:-1]
        if s is not found.definition
    ]
    once.append(f"{name} = {source.substituted(found.product, {index: wanted})}")
    line = found.loop.lineno
    edits = [
        source.replace_lines(line, line - 1, "".join(f"{margin}{text}\n" for text in once)),
        source.replace(found.loop.iter, found.others),
        source.replace(found.step, f"{name} = {_accumulating_call(source, name, found.product)}"),
    ]
    if found.definition is not None:
        last = found.definition.end_lineno or 0
        edits.append(source.replace_lines(found.definition.lineno, last, ""))  # keep the comments
    if found.start is not None:
        return [*edits, source.remove(found.start)]
    end = (found.loop.end_lineno or 0) + 1
    last = f"{margin}{found.sum_name} = {source.language}.add({found.sum_name}, {name})\n"
    return [*edits, source.replace_lines(end, end - 1, last)]


RULE = Rule("added-product", AddedProduct, find, rewrites=True)
