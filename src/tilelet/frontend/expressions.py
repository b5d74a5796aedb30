"""Expressions: their compile-time value, or the run-time value they compute."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable
from typing import cast

from tilelet.diag.catalogue.ops import UnknownOp
from tilelet.diag.catalogue.python import (
    ChainedComparison,
    CompileTimeFailed,
    UnknownAttribute,
    UnsupportedExpression,
)
from tilelet.diag.catalogue.ranks import NotInRanks
from tilelet.diag.core import Loc
from tilelet.frontend.bindings import (
    Binding,
    close_names,
    describe,
    is_kernel_value,
    is_scalar,
    is_shaped,
)
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import call_rule, evaluate, expression
from tilelet.frontend.emitting import (
    as_index,
    default_args,
    emit_op,
    emit_scalar,
    emit_value,
    extent,
    fold,
    to_arg,
)
from tilelet.frontend.resolve import (
    MethodReference,
    SelfReference,
    ValueMethod,
    as_kernel_function,
    is_language,
    static_callee,
)
from tilelet.frontend.source import nodes_in, spelling
from tilelet.ir.core import Const, Value
from tilelet.ir.spec import REGISTRY, spec_of
from tilelet.ir.types import SymDim, TensorType, TileType
from tilelet.ops.equivalents import equivalent
from tilelet.ops.scalar import as_number
from tilelet.syntax import unsupported

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "bitand",
    ast.BitOr: "bitor", ast.BitXor: "bitxor",
}  # fmt: skip
UNARY: dict[type[ast.unaryop], str] = {
    ast.USub: "neg", ast.Not: "not", ast.Invert: "invert", ast.UAdd: "pos",
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip

PYTHON_COMPARE: dict[type[ast.cmpop], Callable[[Binding, Binding], bool]] = {
    ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip

MAX_TUPLE_ITEMS = 1 << 16  # tuples inside tuples included: a name may stand for any of them


def tree_size(value: object) -> int:
    """Return the number of items in containers, nested ones included, up to the limit."""
    count, pending = 0, [value]
    while pending and count <= MAX_TUPLE_ITEMS:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            pending.extend(cast("dict[object, object]", item).values())
        elif isinstance(item, (tuple, list, set, frozenset)):
            pending.extend(cast("Iterable[object]", item))
    return count


# Python operators on tensors are sugar for these ops (N3).
TENSOR_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}
# Operators that exist only between compile-time values.
PYTHON_ONLY = frozenset({"pow", "bitand", "bitor", "bitxor"})


@expression(ast.Constant)
def _constant(_: Context, node: ast.Constant) -> Binding:
    return node.value


@expression(ast.Name)
def _name(ctx: Context, node: ast.Name) -> Binding:
    return ctx.lookup(node)


@expression(ast.Tuple, ast.List)
def _tuple(ctx: Context, node: ast.Tuple | ast.List) -> Binding:
    made = tuple([evaluate(ctx, e) for e in node.elts])
    if tree_size(made) > MAX_TUPLE_ITEMS:
        raise UnsupportedExpression(ctx.loc(node), f"a tuple of {MAX_TUPLE_ITEMS} items or more")
    return made


@expression(ast.Attribute)
def _attribute(ctx: Context, node: ast.Attribute) -> Binding:
    if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" not in ctx.env:
        # In the public compiler, functions beside a `@pl.jit` function are methods of one class.
        beside = ctx.captured.get(node.attr)
        if "self" not in ctx.captured and as_kernel_function(beside) is not None:
            return beside
    base = evaluate(ctx, node.value)
    loc = ctx.loc(node)
    if isinstance(base, Value):
        return _value_attribute(ctx, base, node.attr, loc)
    if isinstance(base, SelfReference):
        return MethodReference(node.attr)
    of_language = isinstance(base, types.ModuleType) and is_language(base)
    name = spelling(node).partition(".")[2]  # without the alias of the module
    if of_language:
        unsupported.check(name, loc)
    try:
        return ctx.host.attribute(base, node.attr)
    except AttributeError:
        pass
    except NotInRanks as error:
        raise NotInRanks(loc, error.name) from None
    if of_language:
        space = f"pl.{name}".removesuffix(node.attr)
        alike = [other for other in dir(base) if _same_case(other, node.attr)]
        known = [f"{space}{other}" for other in close_names(node.attr, alike)]
        raise UnknownOp(loc, f"pl.{name}", known, equivalent(f"pl.{node.attr}"))
    owner = base if isinstance(base, (type, types.ModuleType)) else type(base)
    known = close_names(node.attr, dir(base))
    raise UnknownAttribute(loc, owner.__name__, node.attr, known)


def _same_case(known: str, name: str) -> bool:
    """Return whether two names have the same case pattern, or differ only in case."""
    return known[0].isupper() == name[0].isupper() or known.lower() == name.lower()


def _value_attribute(ctx: Context, value: Value, name: str, loc: Loc) -> Binding:
    if isinstance(value.type, (TensorType, TileType)):
        if name == "shape":
            return tuple(extent(ctx, value, axis, loc) for axis in range(len(value.type.shape)))
        if name == "dtype":
            return value.type.dtype
        if name in ("bind_dynamic", "reshape", "transpose"):
            return ValueMethod(value, name)
    elif name == "dtype":
        return value.type.dtype
    raise UnknownAttribute(loc, str(value.type), name, ["shape", "dtype"], equivalent(name))


@expression(ast.BinOp)
def _binary(ctx: Context, node: ast.BinOp) -> Binding:
    return binary(ctx, evaluate(ctx, node.left), evaluate(ctx, node.right), node)


def binary(ctx: Context, left: Binding, right: Binding, node: ast.BinOp | ast.AugAssign) -> Binding:
    """Apply the operator of `node`: by Python on compile-time values, else as an op."""
    loc = ctx.loc(node)
    operation, symbol = BINARY.get(type(node.op)), SYMBOLS[type(node.op)]
    if is_shaped(left) or is_shaped(right):
        if operation not in TENSOR_BINARY:
            raise UnsupportedExpression(loc, f"`{symbol}` on tensors", equivalent(symbol))
        lhs, rhs = to_arg(ctx, left, loc), to_arg(ctx, right, loc)
        return emit_value(ctx, TENSOR_BINARY[operation], loc, lhs=lhs, rhs=rhs)
    if operation is None:
        raise UnsupportedExpression(loc, f"`{symbol}`", equivalent(symbol))
    left, right = _resolve_dims(ctx, left, loc), _resolve_dims(ctx, right, loc)
    if is_kernel_value(left) or is_kernel_value(right):
        if operation in PYTHON_ONLY:
            what, instead = "this operator on run-time scalars", "compute it outside the kernel"
            raise UnsupportedExpression(loc, what, instead)
        if not (is_scalar(left) and is_scalar(right)):
            what = describe(right if is_scalar(left) else left)
            raise UnsupportedExpression(loc, f"arithmetic with {what}")
        return _emit_scalar(ctx, operation, (left, right), loc)
    return _fold_as_in_kernel(ctx, operation, (left, right), node)


def _emit_scalar(ctx: Context, operation: str, operands: tuple[Binding, ...], loc: Loc) -> Binding:
    return emit_scalar(ctx, operation, tuple([to_arg(ctx, x, loc) for x in operands]), loc)


def _resolve_dims(ctx: Context, x: Binding, loc: Loc) -> Binding:
    return to_arg(ctx, x, loc) if isinstance(x, SymDim) else x


def _fold_as_in_kernel(
    ctx: Context, operation: str, operands: tuple[Binding, ...], node: ast.expr | ast.stmt
) -> Binding:
    """Fold as at run time if a kernel variable takes part, else as Python does.

    So `pl.unroll` and `pl.range` agree.
    """
    result = _fold_by_python(operation, operands, ctx.loc(node))
    meant = as_index(operation, operands, result)
    in_kernel = meant != result and any(
        isinstance(n, ast.Name) and n.id in ctx.env for n in ast.walk(node)
    )
    return meant if in_kernel else result


def _fold_by_python(operation: str, operands: tuple[Binding, ...], loc: Loc) -> Binding:
    try:
        return fold(operation, *operands)
    except Exception as problem:
        raise CompileTimeFailed(loc, problem) from None


@expression(ast.UnaryOp)
def _unary(ctx: Context, node: ast.UnaryOp) -> Binding:
    operation = UNARY[type(node.op)]
    operand = evaluate(ctx, node.operand)
    loc = ctx.loc(node)
    if is_shaped(operand):
        names = {"neg": "neg", "invert": "not_"}
        if operation not in names:
            raise UnsupportedExpression(loc, f"`{operation}` on tensors", equivalent(operation))
        spec = REGISTRY[names[operation]]
        param = next(iter(spec.signature.parameters))
        return emit_op(ctx, spec, default_args(spec, **{param: to_arg(ctx, operand, loc)}), loc)
    operand = _resolve_dims(ctx, operand, loc)
    if isinstance(operand, Const) and operation == "neg":
        return Const(as_number(-operand.value, operand.dtype), operand.dtype)
    if is_kernel_value(operand):
        return _emit_scalar(ctx, operation, (operand,), loc)
    return _fold_as_in_kernel(ctx, operation, (operand,), node)


@expression(ast.Compare)
def _compare(ctx: Context, node: ast.Compare) -> Binding:
    loc = ctx.loc(node)
    if len(node.ops) > 1:
        raise ChainedComparison(loc)
    left, right = evaluate(ctx, node.left), evaluate(ctx, node.comparators[0])
    operation = COMPARE.get(type(node.ops[0]))
    if not is_kernel_value(left) and not is_kernel_value(right):
        if operation is None:
            return PYTHON_COMPARE[type(node.ops[0])](left, right)
        return _fold_by_python(operation, (left, right), loc)
    if operation is None or is_shaped(left) or is_shaped(right):
        instead = "compare tensors with `pl.cmp`, scalars with < <= > >= == !="
        raise UnsupportedExpression(loc, "this comparison", instead)
    return _emit_scalar(ctx, operation, (left, right), loc)


@expression(ast.BoolOp)
def _bool_op(ctx: Context, node: ast.BoolOp) -> Binding:
    operation = "and" if isinstance(node.op, ast.And) else "or"
    result = evaluate(ctx, node.values[0])
    for part in node.values[1:]:
        # The device evaluates both sides (no short circuit), but a side that Python would skip
        # must not be an error at compile time.
        if not is_kernel_value(result) and bool(result) == (operation == "or"):
            return result
        value = evaluate(ctx, part)
        if is_kernel_value(value) or is_kernel_value(result):
            if isinstance(result, bool):
                result = value
            elif isinstance(value, bool):
                result = result if value == (operation == "and") else value
            else:
                result = _emit_scalar(ctx, operation, (result, value), ctx.loc(node))
        else:
            result = value
    return result


@expression(ast.IfExp)
def _conditional(ctx: Context, node: ast.IfExp) -> Binding:
    test = evaluate(ctx, node.test)
    if is_kernel_value(test):
        instead = "use an `if` statement, or `pl.min`/`pl.max`"
        raise UnsupportedExpression(ctx.loc(node), "a conditional expression", instead)
    return evaluate(ctx, node.body if test else node.orelse)


_WORDS: dict[type[ast.expr], tuple[str, str]] = {
    ast.Lambda: ("a lambda", "define a helper with `@pl.jit.inline`"),
    ast.ListComp: ("a comprehension", "use a `pl.range` or `pl.unroll` loop"),
    ast.SetComp: ("a comprehension", "use a `pl.range` or `pl.unroll` loop"),
    ast.DictComp: ("a comprehension", "use a `pl.range` or `pl.unroll` loop"),
    ast.GeneratorExp: ("a comprehension", "use a `pl.range` or `pl.unroll` loop"),
    ast.JoinedStr: ("an f-string", "f-strings are for `pl.static_print` only"),
    ast.Await: ("await", ""),
    ast.Yield: ("`yield`", "hand values on with `pl.yield_`"),
    ast.YieldFrom: ("`yield`", "hand values on with `pl.yield_`"),
    ast.NamedExpr: ("`:=`", "assign on a line of its own"),
    ast.Starred: ("`*` unpacking", "list the arguments"),
    ast.Dict: ("a dict", ""),
    ast.Set: ("a set", ""),
}


_NEVER = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom)  # not even on captured objects


@expression(ast.expr)
def _python_only(ctx: Context, node: ast.expr) -> Binding:
    """Evaluate syntax that the language lacks, if it is plain Python on captured objects."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    what, instead = _WORDS.get(type(node), ("this expression", ""))
    never = any(isinstance(n, _NEVER) for n in ast.walk(node))
    if never or names & ctx.env.keys() or _mentions_ops(ctx, node):
        raise UnsupportedExpression(ctx.loc(node), what, instead)
    return run_python(ctx, node)


def _mentions_ops(ctx: Context, node: ast.AST) -> bool:
    """Return whether the text calls something that exists only in kernels."""
    for n in nodes_in(node):
        if isinstance(n, ast.Call):
            callee = static_callee(ctx, n)
            if spec_of(callee) or call_rule(callee) or as_kernel_function(callee):
                return True
    return False


def run_python(ctx: Context, node: ast.expr) -> Binding:
    """Let Python evaluate an expression made only of captured objects."""
    try:
        return ctx.host.expression(node, ctx.source.path, ctx.captured)
    except Exception as problem:
        raise CompileTimeFailed(ctx.loc(node), problem) from None
