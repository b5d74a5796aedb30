"""Stores and liveness of names in kernel text.

Loops, branches and scopes of the IR pass values explicitly; these sets say which. A loop carries a
name if its body stores it and the name is read before it is written in the body, or after the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from tilelet.frontend.source import nodes_in
from tilelet.ir.spec import OpSpec
from tilelet.ops import spellings

Names = frozenset[str]
NONE: Names = frozenset()

# Names that a bare call rebinds: `pl.write(a, ...)` updates `a`.
Rebinds = Callable[[ast.Call], Iterable[str]]


def target_names(target: ast.expr) -> Names:
    """Return the names bound by an assignment or loop target."""
    if isinstance(target, ast.Name):
        return frozenset({target.id})
    if isinstance(target, (ast.Tuple, ast.List)):
        return NONE.union(*(target_names(t) for t in target.elts))
    if isinstance(target, ast.Starred):
        return target_names(target.value)
    if isinstance(target, ast.Subscript):
        return target_names(target.value)
    return NONE


def argument_of(spec: OpSpec, call: ast.Call, position: int = 0) -> ast.expr | None:
    """Return the argument for the parameter at `position` of an op, by position or by name."""
    if position < len(call.args):
        return call.args[position]
    param = list(spec.signature.parameters)[position]
    named = (
        k for k in call.keywords if k.arg and spellings.parameter_of_keyword(spec, k.arg) == param
    )
    return next((k.value for k in named), None)


def yield_targets(s: ast.For) -> Names:
    """Return the names bound by the `pl.yield_` of a loop with `init_values`."""
    if not isinstance(s.iter, ast.Call) or all(k.arg != "init_values" for k in s.iter.keywords):
        return NONE
    found: Names = NONE
    for inner in s.body:
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call):
            function = inner.value.func
            if (function.attr if isinstance(function, ast.Attribute) else "") == "yield_":
                found = found.union(*(target_names(t) for t in inner.targets))
    return found


class NameFlow:
    """Stores and liveness of statement lists, cached per node."""

    def __init__(self, rebinds: Rebinds) -> None:
        self._rebinds = rebinds
        self._orders: dict[ast.stmt, list[str]] = {}
        self._reads: dict[ast.expr, Names] = {}

    def stores(self, stmts: list[ast.stmt]) -> Names:
        """Return the names that the statements, or statements inside them, bind."""
        return frozenset(name for s in stmts for name in self._order_of(s))

    def stores_in_order(self, stmts: list[ast.stmt]) -> list[str]:
        """Return the stored names in the order of their first store."""
        order: dict[str, None] = {}
        for s in stmts:
            for name in self._order_of(s):
                order.setdefault(name)
        return list(order)

    def live_before(self, stmts: list[ast.stmt], live_after: Names = NONE) -> Names:
        """Return the names whose value at the start of the list may still be read."""
        live = live_after
        for s in reversed(stmts):
            live = self._before(s, live)
        return live

    def live_points(self, stmts: list[ast.stmt], live_after: Names) -> list[Names]:
        """Return the names live after each statement."""
        points: list[Names] = []
        live = live_after
        for s in reversed(stmts):
            points.append(live)
            live = self._before(s, live)
        points.reverse()
        return points

    def reads(self, node: ast.expr | None) -> Names:
        """Return the names an expression reads."""
        if node is None:
            return NONE
        found = self._reads.get(node)
        if found is None:
            found = frozenset([n.id for n in nodes_in(node) if isinstance(n, ast.Name)])
            self._reads[node] = found
        return found

    def _order_of(self, s: ast.stmt) -> list[str]:
        found = self._orders.get(s)
        if found is None:
            found = self._orders[s] = self._find_order(s)
        return found

    def _find_order(self, s: ast.stmt) -> list[str]:
        match s:
            case ast.Assign():
                return [n for t in s.targets for n in sorted(target_names(t))]
            case ast.AnnAssign() | ast.AugAssign():
                return sorted(target_names(s.target))
            case ast.For():
                return sorted(target_names(s.target)) + self.stores_in_order(s.body)
            case ast.While():
                return self.stores_in_order(s.body)
            case ast.If():
                return self.stores_in_order(s.body) + self.stores_in_order(s.orelse)
            case ast.With():
                aliases = [
                    n for i in s.items if i.optional_vars for n in target_names(i.optional_vars)
                ]
                return self.stores_in_order(s.body) + aliases
            case ast.Expr(value=ast.Call() as call):
                return list(self._rebinds(call))
            case _:
                return []

    def _before(self, s: ast.stmt, live: Names) -> Names:
        match s:
            case ast.Assign():
                reads = self.reads(s.value)
                for t in s.targets:
                    if isinstance(t, ast.Subscript):
                        reads |= self.reads(t)
                    else:
                        live -= target_names(t)
                return live | reads
            case ast.AnnAssign():
                return (live - target_names(s.target)) | self.reads(s.value)
            case ast.AugAssign():
                return live | self.reads(s.value) | self.reads(s.target)
            case ast.For():
                # A loop may run zero times, so it kills nothing; but names that `pl.yield_` binds
                # are always defined after it, by the initial values.
                live -= yield_targets(s)
                body = self.live_before(s.body, live) - target_names(s.target)
                return live | body | self.reads(s.iter)
            case ast.While():
                return live | self.live_before(s.body, live) | self.reads(s.test)
            case ast.If():
                arms = self.live_before(s.body, live) | self.live_before(s.orelse, live)
                return arms | self.reads(s.test)
            case ast.With():
                inside = live
                for item in s.items:
                    if item.optional_vars:
                        inside -= target_names(item.optional_vars)
                body = self.live_before(s.body, inside)
                return body.union(*(self.reads(i.context_expr) for i in s.items))
            case ast.Return() | ast.Expr():
                return live | self.reads(s.value)
            case _:
                return live
