"""The dispatch table: how each construct of kernel text is lowered.

A module that lowers a construct enters its functions here, and lowers what is nested in the
construct through `evaluate` and `lower_block`. So no such module needs to import another only
because their constructs nest, and a new construct is one entry.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, TypeVar

from tilelet.analysis import patience
from tilelet.diag.catalogue.python import NestedTooDeeply
from tilelet.diag.core import UserError
from tilelet.frontend.bindings import Binding, Poison, ReportedError
from tilelet.frontend.context import Context
from tilelet.frontend.emitting import is_arg, to_arg
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.nameflow import NONE, Names
from tilelet.frontend.source import spelling
from tilelet.ir.core import Arg, FunctionKind, Value

# `Any` is the kind of node under which a rule is entered.
ExpressionRule: TypeAlias = Callable[[Context, Any], Binding]
StatementRule: TypeAlias = Callable[[Context, Any, Names], None]
CallRule: TypeAlias = Callable[[Context, ast.Call], Binding]
FunctionCallRule: TypeAlias = Callable[[Context, KernelFunction, ast.Call, bool], Binding]
BlockRule: TypeAlias = Callable[[Context, list[ast.stmt], Names], None]
Rule = TypeVar("Rule", bound=Callable[..., Any])

_EXPRESSIONS: dict[type[ast.AST], ExpressionRule] = {}
_STATEMENTS: dict[type[ast.AST], StatementRule] = {}
_CALLS: dict[object, CallRule] = {}
_FUNCTION_CALLS: dict[FunctionKind | None, FunctionCallRule] = {}
_CONTROL_BLOCKS: list[BlockRule] = []


def expression(*kinds: type[ast.expr]) -> Callable[[Rule], Rule]:
    """Enter the rule for expressions of these kinds; `ast.expr` stands for all others."""
    return _enter(_EXPRESSIONS, kinds)


def statement(*kinds: type[ast.stmt]) -> Callable[[Rule], Rule]:
    """Enter the rule for statements of these kinds; `ast.stmt` stands for all others."""
    return _enter(_STATEMENTS, kinds)


def call(*markers: object) -> Callable[[Rule], Rule]:
    """Enter the rule for calls of these objects of the language, which are not ops."""
    return _enter(_CALLS, markers)


def function_call(*callers: FunctionKind) -> Callable[[Rule], Rule]:
    """Enter the rule for calls of kernel functions, other than helpers, by callers of these kinds.

    Without a kind it is the rule for all other calls.
    """
    return _enter(_FUNCTION_CALLS, callers or (None,))


def control_block(rule: BlockRule) -> BlockRule:
    """Enter the rule for statement lists of the control program."""
    _CONTROL_BLOCKS.append(rule)
    return rule


def _enter(table: dict[Any, Any], keys: tuple[object, ...]) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        for key in keys:
            assert key not in table, f"{key} has a rule already"
            table[key] = rule
        return rule

    return enter


def call_rule(callee: object) -> CallRule | None:
    """The rule for calls of `callee`, if it is an object of the language that is not an op."""
    return _CALLS.get(callee) if isinstance(callee, Hashable) else None


# --- expressions ---------------------------------------------------------------------------------


def evaluate(ctx: Context, node: ast.expr) -> Binding:
    """Return the binding an expression stands for; ops are emitted on the way."""
    rule = _EXPRESSIONS.get(type(node)) or _EXPRESSIONS[ast.expr]
    return rule(ctx, node)


def evaluate_arg(ctx: Context, node: ast.expr) -> Arg:
    """Return an expression as an op argument."""
    found = evaluate(ctx, node)
    if is_arg(found) and not isinstance(found, int):
        return found  # the common case needs neither location nor spelling
    name = spelling(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    return to_arg(ctx, found, ctx.loc(node), name)


def call_function(
    ctx: Context, function: KernelFunction, node: ast.Call, is_statement: bool
) -> Binding:
    """Lower a call of a kernel function; an expression statement need not return a value."""
    caller = None if function.kind is FunctionKind.Inline else ctx.kind
    rule = _FUNCTION_CALLS.get(caller) or _FUNCTION_CALLS[None]
    return rule(ctx, function, node, is_statement)


# --- statements ----------------------------------------------------------------------------------


def lower_body(ctx: Context, body: list[ast.stmt], live: Names = NONE) -> None:
    """Lower a whole function body; `ctx.returned` gets the values of its `return`.

    `live` are the names that are read afterwards.
    """
    stmts = body
    last = stmts[-1] if stmts else None
    if isinstance(last, ast.Return):
        stmts = stmts[:-1]
        live |= ctx.flow.reads(last.value)
    lower_block(ctx, stmts, live)
    if isinstance(last, ast.Return):
        with_recovery(ctx, [last], lambda: _return(ctx, last))


def _return(ctx: Context, s: ast.Return) -> None:
    if s.value is None:
        return
    parts = s.value.elts if isinstance(s.value, ast.Tuple) else [s.value]
    values: list[Binding] = []
    for part in parts:
        if isinstance(part, ast.Name) and isinstance(ctx.env.get(part.id), Value):
            # Naming a result moves no data, so an old name of the same memory will do.
            values.append(ctx.env[part.id])
        else:
            values.append(evaluate(ctx, part))
    ctx.returned = tuple(values)


def lower_block(ctx: Context, stmts: list[ast.stmt], live_out: Names) -> None:
    """Lower a statement list; `live_out` are the names read after it."""
    if not ctx.in_scope:
        _CONTROL_BLOCKS[0](ctx, stmts, live_out)
        return
    for s, live in zip(stmts, ctx.flow.live_points(stmts, live_out), strict=True):
        lower_statement(ctx, s, live)


def lower_statement(ctx: Context, s: ast.stmt, live: Names) -> None:
    """Lower a statement; `live` are the names read after it."""
    patience.step()
    rule = _STATEMENTS.get(type(s)) or _STATEMENTS[ast.stmt]
    with_recovery(ctx, [s], lambda: rule(ctx, s, live))


def with_recovery(ctx: Context, stmts: list[ast.stmt], lower: Callable[[], object]) -> None:
    """Run `lower`; report a mistake and poison the names it would have bound."""
    try:
        lower()
    except (UserError, ReportedError, RecursionError) as problem:
        if isinstance(problem, UserError):
            ctx.sink.add(problem)
        elif isinstance(problem, RecursionError):
            ctx.sink.add(NestedTooDeeply(ctx.loc(stmts[0])))
        for name in ctx.flow.stores(stmts):
            ctx.env[name] = Poison()
