"""A `return` at the end of an `if`, as the other arm of one that holds the rest.

if c:                    if c:
a                        a
return x      =>         returned = x
b                        else:
return y                     b
returned = y
return returned
"""

from __future__ import annotations

import ast
from typing import TypeGuard

_NAME = "returned"


def join_returns(stmts: list[ast.stmt]) -> list[ast.stmt]:
    """The same statements with one `return`, at the end; unchanged where that cannot be."""
    for i, s in enumerate(stmts):
        if isinstance(s, ast.If) and _returns(s.body) and not _returns(s.orelse):
            rest = join_returns([*s.orelse, *stmts[i + 1 :]])
            if _returns(rest):
                return [*stmts[:i], *_joined(s, s.body, rest)]
    return stmts


def _returns(stmts: list[ast.stmt]) -> bool:
    last = stmts[-1] if stmts else None
    return isinstance(last, ast.Return) and last.value is not None


def _joined(s: ast.If, then: list[ast.stmt], rest: list[ast.stmt]) -> list[ast.stmt]:
    first, second = _value(then), _value(rest)
    names = [_NAME]
    if _is_tuple(first) and _is_tuple(second) and len(first.elts) == len(second.elts):
        names = [f"{_NAME}_{i}" for i in range(len(first.elts))]
    arms = [_bound(part, names) for part in (then, rest)]
    both = ast.copy_location(ast.If(s.test, *arms), s)
    loads: list[ast.expr] = [_name(n, ast.Load(), rest[-1]) for n in names]
    value = loads[0]
    if len(loads) > 1:
        value = ast.copy_location(ast.Tuple(loads, ast.Load()), rest[-1])
    return [both, ast.copy_location(ast.Return(value), rest[-1])]


def _bound(stmts: list[ast.stmt], names: list[str]) -> list[ast.stmt]:
    """The statements with what they return bound to names instead."""
    value = _value(stmts)
    values = value.elts if len(names) > 1 and isinstance(value, ast.Tuple) else [value]
    return [
        *stmts[:-1],
        *[
            ast.copy_location(ast.Assign([_name(n, ast.Store(), v)], v), v)
            for n, v in zip(names, values, strict=True)
        ],
    ]


def _value(stmts: list[ast.stmt]) -> ast.expr:
    last = stmts[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return last.value


def _name(name: str, how: ast.expr_context, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, how), at)


def _is_tuple(value: ast.expr) -> TypeGuard[ast.Tuple]:
    return isinstance(value, ast.Tuple)
