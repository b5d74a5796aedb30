"""A product that is added to a sum: the cube adds while it multiplies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Subject
from tilelet.advice.source import Edit, Source
from tilelet.diag.catalogue.advice import AddedProduct


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for body in source.bodies():
        for statement in body:
            if not isinstance(statement, ast.Assign):
                continue
            added = statement.value
            if source.call_of(added) != "add" or not isinstance(added, ast.Call):
                continue
            for place, operand in enumerate(added.args[:2]):
                found = _product(source, body, statement, operand)
                if len(added.args) != 2 or (
                    found is None and not _is_product_elsewhere(source, statement, operand)
                ):
                    continue
                accumulator = added.args[1 - place]
                kernels = subject.kernels_in(*source.scope_lines(statement))
                edits = _edits(source, added, accumulator, *found) if found else None
                problem = AddedProduct(source.loc(added), source.of(accumulator))
                yield subject.advice(problem, kernels, edits, rounding=True)
                break


def _product(
    source: Source, body: list[ast.stmt], user: ast.stmt, operand: ast.expr
) -> tuple[ast.Call, ast.stmt | None] | None:
    """The product that an operand is, and the statement that names it, if nobody else uses it."""
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
            return (value, definition) if _uses(source, operand.id) == 1 else None
    return None


def _is_product_elsewhere(source: Source, user: ast.stmt, operand: ast.expr) -> bool:
    """Whether a scope in front makes the operand by a product: it comes through global memory."""
    makers = [
        n
        for n in ast.walk(source.tree)
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Name)
        and isinstance(operand, ast.Name)
        and n.targets[0].id == operand.id
        and n.lineno < user.lineno
    ]
    return bool(makers) and source.call_of(makers[-1].value) == "matmul"


def _uses(source: Source, name: str) -> int:
    nodes = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id == name]
    return sum(isinstance(n.ctx, ast.Load) for n in nodes)


def _edits(
    source: Source,
    added: ast.Call,
    accumulator: ast.expr,
    product: ast.Call,
    definition: ast.stmt | None,
) -> list[Edit]:
    operands = [source.of(a) for a in product.args]
    operands += [f"{k.arg}={source.of(k.value)}" for k in product.keywords if k.arg != "out_dtype"]
    text = f"{source.language}.matmul_acc({', '.join([source.of(accumulator), *operands])})"
    edits = [source.replace(added, text)]
    return [*edits, source.remove(definition)] if definition is not None else edits
