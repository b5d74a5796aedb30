"""Early `return`, `break` and `continue`, so that the IR needs only structured control flow.

A `return` at the end of an `if` becomes the other arm of one that holds the rest:

    if c:                    if c:
        a                        a
        return x      =>         returned = x
    b                        else:
    return y                     b
                                 returned = y
                             return returned

`break` and `continue` become flags:

    while c:                     stop = False
        a                        while not stop:
        if p:            =>          if c:
            break                        a
        b                                if p:
                                             stop = True
                                         if not stop:
                                             b
                                     else:
                                         stop = True

The condition is not evaluated again after a `break`: it may be undefined there. A `for` loop
keeps its trip count; its body is guarded by the flag instead.
"""

from __future__ import annotations

import ast
import itertools
from typing import TypeVar

from tilelet.diag.catalogue.python import MisplacedJump
from tilelet.diag.core import Loc
from tilelet.frontend.source import SourceFile, statements_in

Node = TypeVar("Node", bound=ast.AST)


def desugar_jumps(stmts: list[ast.stmt], source: SourceFile) -> list[ast.stmt]:
    """Return the statements without `break` and `continue`; unchanged if there are none."""
    if not any(isinstance(s, (ast.Break, ast.Continue)) for s in statements_in(stmts)):
        return stmts
    return _Jumps(source).block(stmts, None)


class _JumpTarget:
    def __init__(self, number: int, kind: str, loc: Loc) -> None:
        self.kind = kind
        self.loc = loc
        self.stop = f"loop_stop_{number}"
        self.skip = f"loop_skip_{number}"
        self.uses: set[str] = set()


class _Jumps:
    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._numbers = itertools.count()

    def block(self, stmts: list[ast.stmt], loop: _JumpTarget | None) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for i, s in enumerate(stmts):
            out.extend(self.statement(s, loop))
            if loop is not None and _jumps_in(s):
                rest = self.block(stmts[i + 1 :], loop)
                if rest and not isinstance(s, (ast.Break, ast.Continue)):
                    out.append(_guard(s, loop, rest))
                return out
        return out

    def statement(self, s: ast.stmt, loop: _JumpTarget | None) -> list[ast.stmt]:
        match s:
            case ast.Break() | ast.Continue():
                keyword = "break" if isinstance(s, ast.Break) else "continue"
                if loop is None:
                    raise MisplacedJump(self._source.loc(s), keyword)
                if loop.kind not in ("range", "while"):
                    raise MisplacedJump(self._source.loc(s), keyword, loop.kind, loop.loc)
                flag = loop.stop if isinstance(s, ast.Break) else loop.skip
                loop.uses.add(flag)
                return [_assign(s, flag, True)]
            case ast.For() | ast.While():
                return self._loop(s)
            case ast.If():
                new = ast.If(s.test, self.block(s.body, loop), self.block(s.orelse, loop))
                return [ast.copy_location(new, s)]
            case ast.With():
                return [ast.copy_location(ast.With(s.items, self.block(s.body, loop)), s)]
            case _:
                return [s]

    def _loop(self, s: ast.For | ast.While) -> list[ast.stmt]:
        loc = self._source.loc(s.iter if isinstance(s, ast.For) else s.test)
        loop = _JumpTarget(next(self._numbers), _kind(s), loc)
        body: list[ast.stmt] = self.block(s.body, loop)
        before: list[ast.stmt] = []
        if loop.skip in loop.uses:
            body.insert(0, _assign(s, loop.skip, False))
        if loop.stop in loop.uses:
            before.append(_assign(s, loop.stop, False))
        if isinstance(s, ast.For):
            if loop.stop in loop.uses:
                body = [_if_not(s, loop.stop, body)]
            return [*before, ast.copy_location(ast.For(s.target, s.iter, body, s.orelse), s)]
        test = s.test
        if loop.stop in loop.uses:
            guarded = ast.If(test, body, [_assign(s, loop.stop, True)])
            body = [ast.copy_location(guarded, test)]
            test = _not(s, loop.stop)
        return [*before, ast.copy_location(ast.While(test, body, s.orelse), s)]


def _kind(s: ast.For | ast.While) -> str:
    """Return the spelling of the loop: "range", "parallel", ..., "while"."""
    if isinstance(s, ast.For) and isinstance(s.iter, ast.Call):
        function = s.iter.func
        name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
        return "while" if name == "while_" else name
    return "while"


def _jumps_in(s: ast.stmt) -> bool:
    """Return whether `s` can jump out of the loop around it (inner loops keep their own jumps)."""
    if isinstance(s, (ast.Break, ast.Continue)):
        return True
    if isinstance(s, ast.If):
        return any(map(_jumps_in, s.body + s.orelse))
    return isinstance(s, ast.With) and any(map(_jumps_in, s.body))


def _locate(new: Node, at: ast.AST) -> Node:
    return ast.fix_missing_locations(ast.copy_location(new, at))


def _assign(at: ast.AST, name: str, value: ast.expr | bool) -> ast.stmt:
    shown = ast.Constant(value) if isinstance(value, bool) else value
    return _locate(ast.Assign([ast.Name(name, ast.Store())], shown), at)


def _guard(at: ast.stmt, loop: _JumpTarget, body: list[ast.stmt]) -> ast.stmt:
    for flag in (loop.stop, loop.skip):
        if flag in loop.uses:
            body = [_if_not(at, flag, body)]
    return body[0]


def _if_not(at: ast.stmt, flag: str, body: list[ast.stmt]) -> ast.stmt:
    return ast.copy_location(ast.If(_not(at, flag), body, []), at)


def _not(at: ast.stmt, flag: str) -> ast.expr:
    return _locate(ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load())), at)


# --- return --------------------------------------------------------------------------------------

_NAME = "returned"


def join_returns(stmts: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements with one `return`, at the end; unchanged where that is impossible."""
    for i, s in enumerate(stmts):
        if isinstance(s, ast.If) and _returns(s.body) and not _returns(s.orelse):
            rest = join_returns([*s.orelse, *stmts[i + 1 :]])
            if _returns(rest):
                return [*stmts[:i], *_join_branches(s, s.body, rest)]
    return stmts


def _returns(stmts: list[ast.stmt]) -> bool:
    last = stmts[-1] if stmts else None
    return isinstance(last, ast.Return) and last.value is not None


def _join_branches(s: ast.If, then: list[ast.stmt], rest: list[ast.stmt]) -> list[ast.stmt]:
    tuples = [v.elts for v in (_value(then), _value(rest)) if isinstance(v, ast.Tuple)]
    names = [_NAME]
    if len(tuples) == 2 and len(tuples[0]) == len(tuples[1]):
        names = [f"{_NAME}_{i}" for i in range(len(tuples[0]))]
    both = ast.copy_location(
        ast.If(s.test, *(_bind_return(part, names) for part in (then, rest))), s
    )
    loads: list[ast.expr] = [ast.Name(n, ast.Load()) for n in names]
    last = ast.Return(loads[0] if len(loads) == 1 else ast.Tuple(loads, ast.Load()))
    return [both, _locate(last, rest[-1])]


def _bind_return(stmts: list[ast.stmt], names: list[str]) -> list[ast.stmt]:
    """Return the statements with their `return` replaced by assignments to `names`."""
    value = _value(stmts)
    values = value.elts if len(names) > 1 and isinstance(value, ast.Tuple) else [value]
    return [*stmts[:-1], *(_assign(v, n, v) for n, v in zip(names, values, strict=True))]


def _value(stmts: list[ast.stmt]) -> ast.expr:
    last = stmts[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return last.value
