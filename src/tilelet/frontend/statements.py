"""Statements of kernel text. A mistake poisons the names it would bind, so later ones are found."""

from __future__ import annotations

import ast

from tilelet import dtypes
from tilelet.diag.catalogue.cautions import NoEffect, RetiredSpelling
from tilelet.diag.catalogue.names import (
    DeclaredTypeDiffers,
    OutputRebound,
    OutputShadowed,
    StrictRebinding,
)
from tilelet.diag.catalogue.python import (
    BadAssignTarget,
    MisplacedReturn,
    NonBoolCondition,
    UnpackCount,
    UnsupportedStatement,
)
from tilelet.diag.core import Loc
from tilelet.frontend import annotations, calls, expressions, joins, pipes, subscripts
from tilelet.frontend.bindings import Binding, describe, items_of, tile_type
from tilelet.frontend.context import Context, finish_block
from tilelet.frontend.dispatch import evaluate, lower_block, statement
from tilelet.frontend.emitting import emit_scalar, to_arg
from tilelet.frontend.nameflow import Names
from tilelet.frontend.resolve import rebound_by, static_callee
from tilelet.ir import structure
from tilelet.ir.core import Arg, Const, Op, Value, scalar_dtype
from tilelet.ir.spec import spec_of

_STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.Try: ("`try`", "check sizes before the kernel; kernels do not raise"),
    ast.Raise: ("`raise`", "use `pl.static_assert` for compile-time checks"),
    ast.Assert: ("`assert`", "use `pl.static_assert` for compile-time checks"),
    ast.FunctionDef: ("a nested function", "define a helper with `@pl.jit.inline` outside"),
    ast.AsyncFunctionDef: ("a nested function", "define a helper with `@pl.jit.inline` outside"),
    ast.ClassDef: ("a class", "define it outside the kernel"),
    ast.Import: ("`import`", "import outside the kernel"),
    ast.ImportFrom: ("`import`", "import outside the kernel"),
    ast.Global: ("`global`", "pass values as parameters"),
    ast.Nonlocal: ("`nonlocal`", "pass values as parameters"),
    ast.Delete: ("`del`", "names need not be deleted"),
    ast.Match: ("`match`", "use `if`"),
}


@statement(ast.stmt)
def _refuse_unsupported(ctx: Context, s: ast.stmt, _: Names) -> None:
    what, instead = _STATEMENTS.get(type(s), (f"`{type(s).__name__}`", ""))
    raise UnsupportedStatement(ctx.loc(s), what, instead)


@statement(ast.Pass)
def _pass(_: Context, __: ast.Pass, ___: Names) -> None:
    pass


@statement(ast.Return)
def _return(ctx: Context, s: ast.Return, _: Names) -> None:
    raise MisplacedReturn(ctx.loc(s), "block")


# --- assignments ---------------------------------------------------------------------------------


@statement(ast.Assign)
def _assign(ctx: Context, s: ast.Assign, _: Names) -> None:
    if len(s.targets) != 1:
        raise BadAssignTarget(ctx.loc(s.targets[1]), "two targets at once")
    target = s.targets[0]
    before = len(ctx.ops)
    value = evaluate(ctx, s.value)
    if isinstance(target, ast.Subscript):
        new = subscripts.write(ctx, target, value, s.value)
        assert isinstance(target.value, ast.Name)
        ctx.env[target.value.id] = new
        return
    assign(ctx, target, value, s, fresh=len(ctx.ops) > before)


def assign(ctx: Context, target: ast.expr, value: Binding, at: ast.stmt, fresh: bool) -> None:
    """Bind the names of `target`; `fresh` values are renamed after their target."""
    if isinstance(target, ast.Name):
        _bind_name(ctx, target, value, at, fresh)
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = items_of(value)
        if parts is None and len(target.elts) == 1 and _gives_a_tuple(ctx, at):
            parts = (value,)
        if parts is None or len(parts) != len(target.elts):
            got = None if parts is None else len(parts)
            where = ctx.loc(at.value) if isinstance(at, ast.Assign) else ctx.loc(at)
            raise UnpackCount(ctx.loc(target), len(target.elts), where, got)
        for t, v in zip(target.elts, parts, strict=True):
            assign(ctx, t, v, at, fresh)
    else:
        raise BadAssignTarget(ctx.loc(target), f"`{ast.unparse(target)}`")


def _gives_a_tuple(ctx: Context, at: ast.stmt) -> bool:
    """Return whether a call returns a tuple even for one value, as `pl.yield_` does."""
    call = at.value if isinstance(at, ast.Assign) else None
    return isinstance(call, ast.Call) and spec_of(static_callee(ctx, call)) is None


def _bind_name(ctx: Context, target: ast.Name, value: Binding, at: ast.stmt, fresh: bool) -> None:
    name = target.id
    loc = ctx.loc(target)
    old = ctx.env.get(name)
    if ctx.style.strict_ssa and isinstance(old, Value):
        raise StrictRebinding(loc, name, old.loc)
    output = ctx.outputs.get(name)
    rebinds = output is not None and ctx.facts.storage_of(value) is not output
    if rebinds and ctx.style.fills_outputs and isinstance(at, ast.Assign):
        whole = ast.copy_location(ast.Subscript(target, ast.Slice()), target)
        ctx.env[name] = subscripts.write(ctx, whole, value, at.value)
        return
    if output is not None and rebinds and not _was_handed_over(ctx, at, output):
        made = [op for op in ctx.ops[-1:] if op.name == "create_tensor" and fresh]
        raise (OutputShadowed if made else OutputRebound)(ctx.loc(at), name, output.loc)
    if fresh and isinstance(value, Value) and ctx.ops and value in ctx.ops[-1].results:
        value = ctx.rename_result(value, name)
    ctx.env[name] = value


def _was_handed_over(ctx: Context, at: ast.stmt, output: Value) -> bool:
    """Return whether `out = helper(x, out)` has written the output."""
    call = at.value if isinstance(at, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(call, ast.Call) or spec_of(static_callee(ctx, call)) is not None:
        return False
    names = [a.id for a in call.args if isinstance(a, ast.Name)]
    return output.name in names and output in ctx.facts.written


@statement(ast.AnnAssign)
def _annotated_assign(ctx: Context, s: ast.AnnAssign, _: Names) -> None:
    if s.value is None:
        raise UnsupportedStatement(ctx.loc(s), "a declaration without a value", "assign a value")
    before = len(ctx.ops)
    if isinstance(s.value, ast.Call) and pipes.is_pop(ctx, s.value):
        value: Binding = pipes.pop(ctx, s.value, evaluate(ctx, s.annotation))
    else:
        value = evaluate(ctx, s.value)
    # Ops that an annotation emits are dropped.
    declared = annotations.value_type(evaluate(ctx.nested(), s.annotation))
    differs = (
        declared is not None
        and isinstance(value, Value)
        and not annotations.agree(value.type, declared)
    )
    if differs:
        name, where = ast.unparse(s.target), ctx.loc(s.annotation)
        raise DeclaredTypeDiffers(ctx.loc(s.value), name, str(declared), where, str(value.type))
    assign(ctx, s.target, value, s, fresh=len(ctx.ops) > before)


@statement(ast.AugAssign)
def _augmented_assign(ctx: Context, s: ast.AugAssign, _: Names) -> None:
    if not isinstance(s.target, ast.Name):
        raise BadAssignTarget(ctx.loc(s.target), "a window with an operator; read, compute, write")
    old = ctx.lookup(s.target)
    new = expressions.binary(ctx, old, evaluate(ctx, s.value), s)
    assign(ctx, s.target, new, s, fresh=True)


@statement(ast.Expr)
def _expression(ctx: Context, s: ast.Expr, _: Names) -> None:
    if isinstance(s.value, ast.Constant):
        return  # a docstring or a bare `...`
    before = len(ctx.ops)
    if isinstance(s.value, ast.Call):
        value = calls.lower_call(ctx, s.value, is_statement=True)
        for name in rebound_by(ctx, s.value):
            ctx.env[name] = value
            return
    else:
        value = evaluate(ctx, s.value)
    if tile_type(value) is not None and len(ctx.ops) > before:
        ctx.sink.add(NoEffect(ctx.loc(s), "the result of this call", "bind it to a name"))


# --- if ------------------------------------------------------------------------------------------


@statement(ast.If)
def _if(ctx: Context, s: ast.If, live: Names) -> None:
    condition = evaluate(ctx, s.test)
    if not isinstance(condition, Value):
        if isinstance(condition, Const):
            condition = condition.value
        arm = ctx.fork(loop_yield=None) if ctx.yields_itself else ctx
        lower_block(arm, s.body if condition else s.orelse, live)
        return
    condition = as_condition(ctx, condition, s.test, "if")
    arms = [ctx.nested(consumed=dict(ctx.consumed)) for _ in range(2)]
    for arm, body in zip(arms, (s.body, s.orelse), strict=True):
        lower_block(arm, body, live)
    for arm in arms:
        ctx.consumed.update(arm.consumed)
    loc = ctx.loc(s)
    names = dict.fromkeys(
        n
        for n in (*ctx.flow.stores_in_order(s.body), *ctx.flow.stores_in_order(s.orelse))
        if n in live
    )
    joined: dict[str, joins.Joined] = {}
    for name in names:
        then, other = (joins.side_of(name, arm.env, arm.ops, loc) for arm in arms)
        paths = ("when the condition holds", "when the condition does not hold")
        found = joins.join(ctx, name, then, other, paths)
        if isinstance(found, joins.Joined):
            joined[name] = found
        else:
            ctx.env[name] = found
    _emit_if(ctx, condition, (arms[0].ops, arms[1].ops), joined, loc)


def _emit_if(
    ctx: Context,
    condition: Arg,
    ops: tuple[list[Op], list[Op]],
    joined: dict[str, joins.Joined],
    loc: Loc,
) -> None:
    blocks = (
        finish_block(ops[0], (), tuple(j.then for j in joined.values()), loc),
        finish_block(ops[1], (), tuple(j.other for j in joined.values()), loc),
    )
    types = tuple(j.type for j in joined.values())
    results = ctx.emit(structure.IF, {"cond": condition}, types, loc, tuple(joined), blocks)
    for (name, join), result in zip(joined.items(), results, strict=True):
        ctx.env[name] = result
        storage = ctx.facts.storage_of(join.then)
        if storage is not None and storage is ctx.facts.storage_of(join.other):
            ctx.facts.note_view(result, join.then)
        root = ctx.facts.root_of(join.then)
        if root is not None and root is ctx.facts.root_of(join.other):
            ctx.facts.note_same(result, join.then)


def as_condition(ctx: Context, condition: Binding, node: ast.expr, word: str) -> Arg:
    """Return the condition of an `if` or `while` (`word`); a nonzero integer holds, as in C."""
    loc, dtype = ctx.loc(node), scalar_dtype(condition)
    if dtype is not None and dtype.is_integer:
        text = ast.unparse(node)
        ctx.module.note_retired(RetiredSpelling(loc, f"{word} {text}", f"{word} {text} != 0"))
        condition = emit_scalar(ctx, "ne", (to_arg(ctx, condition, loc), 0), loc)
    elif dtype is not dtypes.BOOL:
        raise NonBoolCondition(loc, describe(condition))
    return to_arg(ctx, condition, loc)
