"""Rules about names, helpers, signatures and statements; rules about ops are in `operands`."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Collection, Iterator

from tilelet.diag.catalogue.portability import (
    HelperNotTyped,
    HintNotLiteral,
    NameCaptured,
    NameChangesType,
    NotInDialect,
    OpUnderOtherName,
    OutputNotDeclared,
    ParameterAssigned,
    RegionRebound,
    TextNotTaken,
    TupleFromHelper,
)
from tilelet.diag.core import Fix, Loc, UserError
from tilelet.dialects.data import Dialect
from tilelet.dialects.reading import CallFrame, CallSite, Capture, Site, StatementSite
from tilelet.frontend.module import SourceOrigin
from tilelet.frontend.source import spelling
from tilelet.ir.core import Direction, Program
from tilelet.ir.spec import spec_of
from tilelet.ir.types import TensorType
from tilelet.passes.pipeline import run_passes
from tilelet.syntax import markers

_NUMBERS_ONLY = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Pow)


def at_site(site: Site, dialect: Dialect) -> Iterator[UserError]:
    """Yield the errors at one location of the source."""
    if isinstance(site, Capture):
        yield _capture_error(site)
    elif isinstance(site, CallSite):
        yield from _call(site, dialect)
    elif isinstance(site, StatementSite):
        yield from _statement(site, dialect)
    elif isinstance(site, CallFrame):
        yield from _names(site, dialect)


def without_callers(loc: Loc) -> Loc:
    """Return a location without its inlining chain."""
    return dataclasses.replace(loc, caller=None)


def signature(
    program: Program, origin: SourceOrigin, dialect: Dialect, compared: Collection[str] | None
) -> Iterator[UserError]:
    """Yield undeclared outputs, except those that nothing reads, such as caches and scratch."""
    if not dialect.declares_outputs:
        return
    built = (program if program.kernels else run_passes(program)).main
    types = dict(zip((v.name for v in built.params), built.directions, strict=True))
    tensors = {v.name for v in built.params if isinstance(v.type, TensorType)}
    for p in origin.entry.parameters:
        direction = types.get(p.arg, Direction.In)
        if p.arg not in tensors or direction is Direction.In or p.annotation is None:
            continue
        if compared is not None and p.arg not in compared:
            continue
        node = p.annotation
        if isinstance(node, ast.Subscript) and spelling(node.value).endswith(("Out", "InOut")):
            continue
        # Memory with initial contents keeps them where nothing is written.
        name = "InOut" if direction is Direction.InOut else "Out"
        loc = origin.entry.source.loc(node)
        before = Fix(dataclasses.replace(loc, end_line=loc.line, end_col=loc.col), f"pl.{name}[")
        after = Fix(dataclasses.replace(loc, line=loc.end_line, col=loc.end_col), "]")
        yield OutputNotDeclared(loc, p.arg, name, [before, after])


def _capture_error(site: Capture) -> UserError:
    if site.kind == "assigned":
        return NameCaptured(
            site.here, site.name, f"a name of `{site.owner}`", site.there,
            f"already a name of `{site.other}`, of another type",
            "a name keeps its type, and helpers share the names of their callers",
        )  # fmt: skip
    if site.kind == "constant":
        return NameCaptured(
            site.here, site.name, f"from outside `{site.owner}`", site.there,
            f"is a name of `{site.other}`",
            "names from outside a helper are looked up in its callers first",
        )  # fmt: skip
    return NameCaptured(
        site.here, site.name, f"read in `{site.owner}`", site.there, f"assigned in `{site.other}`",
        "a helper's names stay visible, and overwrite the caller's variables of the same name",
    )  # fmt: skip


def _names(frame: CallFrame, dialect: Dialect) -> Iterator[UserError]:
    """Check every `pl.name` in a function's source."""
    calls = {
        id(node.func): node for node in ast.walk(frame.function.node) if isinstance(node, ast.Call)
    }
    for node in ast.walk(frame.function.node):
        if isinstance(node, ast.Attribute):
            name = _in_language(frame, node)
            parent = _in_language(frame, node.value) if name is not None else None
            if name is None or dialect.has(name) or (parent and not dialect.has(parent)):
                continue
            yield _gone(frame, node, name, dialect, calls.get(id(node)))


def _gone(
    frame: CallFrame, node: ast.expr, name: str, dialect: Dialect, call: ast.Call | None
) -> UserError:
    gone = dialect.gone.get(name)
    loc = without_callers(frame.loc(node))
    if gone is None:
        return NotInDialect(loc, f"`pl.{name}`", dialect.name, "", "")
    fixes: list[Fix] = []
    if gone.instead.replace(".", "_").isidentifier():
        fixes = [Fix(loc, gone.instead)]
    elif gone.instead.endswith(")") and call is not None:
        fixes = _as_call(frame, call, gone.instead)
    return NotInDialect(loc, f"`pl.{name}`", dialect.name, gone.why, f"`{gone.instead}`", fixes)


def _as_call(frame: CallFrame, call: ast.Call, instead: str) -> list[Fix]:
    """Suggest another call with the same hint; other arguments do not fit."""
    if call.args or any(k.arg != "name_hint" for k in call.keywords):
        return []
    hints = [f", {ast.unparse(k)}" for k in call.keywords]
    return [Fix(without_callers(frame.loc(call)), instead[:-1] + "".join(hints) + ")")]


def _in_language(frame: CallFrame, node: ast.expr) -> str | None:
    """Return `tile.load` for `pl.tile.load`, or None if it is not a name of the language."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id in frame.names or not parts:
        return None
    root = frame.captured.get(node.id)
    is_ours = getattr(root, "__name__", "") == "tilelet.language"
    return ".".join(reversed(parts)) if is_ours else None


def _call(site: CallSite, dialect: Dialect) -> Iterator[UserError]:
    node, frame = site.node, site.frame
    if site.helper is not None:
        yield from _helper_call(site, dialect)
        return
    name = _in_language(frame, node.func)
    if name is None:
        yield from _other_name(site, dialect)
        return
    known = dialect.parameters(name)
    for keyword in node.keywords:
        gone = dialect.gone.get(f"{name}({keyword.arg})")
        if gone is not None:
            loc = without_callers(frame.loc(keyword))
            yield NotInDialect(
                loc, f"`{keyword.arg}=` of `pl.{name}`", dialect.name, gone.why, gone.instead
            )
        elif keyword.arg == "name_hint" and not dialect.free_hints:
            yield from _hint(frame, keyword)
        elif known is not None and spec_of(site.callee) is None and keyword.arg not in known:
            loc = without_callers(frame.loc(keyword))
            yield NotInDialect(loc, f"`{keyword.arg}=` of `pl.{name}`", dialect.name, "", "")
    if name.rpartition(".")[2] == "set_validshape" and dialect.limits_ops and not site.in_scope:
        yield RegionRebound(
            without_callers(frame.loc(node)),
            "in the control program, where there are no tiles",
            "set `valid_shape=` on the slice that the next scope loads",
        )


def _other_name(site: CallSite, dialect: Dialect) -> Iterator[UserError]:
    """Check a call of an op that is not spelled by its name."""
    node, frame = site.node, site.frame
    spec = spec_of(site.callee)
    marker = getattr(site.callee, "__name__", "")
    if site.callee is None or dialect.aliases:
        return
    if spec is None and getattr(markers, marker, None) is not site.callee:
        return
    name = spec.name if spec is not None else marker
    loc = without_callers(frame.loc(node.func))
    if dialect.has(name):
        yield OpUnderOtherName(loc, spelling(node.func), f"pl.{name}", [Fix(loc, f"pl.{name}")])
    else:
        yield _gone(frame, node.func, name, dialect, node)


def _hint(frame: CallFrame, keyword: ast.keyword) -> Iterator[UserError]:
    if isinstance(keyword.value, ast.Constant):
        return
    value = frame.outside(keyword.value)
    loc = without_callers(frame.loc(keyword.value))
    fixes = [Fix(loc, json.dumps(value))] if isinstance(value, str) else []
    yield HintNotLiteral(loc, value, fixes)


def _helper_call(site: CallSite, dialect: Dialect) -> Iterator[UserError]:
    helper = site.helper
    assert helper is not None
    last = helper.node.body[-1]
    is_tuple = isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple)
    loc = without_callers(site.frame.loc(site.node))
    decorators = [spelling(d) for d in helper.node.decorator_list]
    if any("jit.inline" in text for text in decorators) and dialect.limits_ops:
        for p, a in zip(helper.parameters, site.node.args, strict=False):
            there = helper.source.loc(p)
            if not isinstance(p.annotation, ast.Subscript):
                yield HelperNotTyped(loc, f"parameter `{p.arg}` of `{helper.name}`", there)
            elif isinstance(a, ast.Subscript):
                place = without_callers(site.frame.loc(a))
                yield HelperNotTyped(
                    place, f"a slice, given as `{p.arg}` of `{helper.name}`,", there
                )
    elif is_tuple and not dialect.tuples:
        assert isinstance(last, ast.Return)
        assert last.value is not None
        yield TupleFromHelper(loc, helper.name, helper.source.loc(last.value))
    elif not helper.is_method and not (isinstance(last, ast.Return) and last.value is not None):
        yield TextNotTaken(
            loc, f"a call of `{helper.name}`, which returns nothing,",
            "return what the helper writes, and assign it",
        )  # fmt: skip


def _statement(site: StatementSite, dialect: Dialect) -> Iterator[UserError]:
    node, frame = site.node, site.frame
    loc = without_callers(frame.loc(node))
    if site.old_type is not None:
        is_region = isinstance(node, ast.Assign) and "set_validshape" in ast.unparse(node.value)
        if not is_region:
            types = zip((site.old_type, site.new_type), site.parts, strict=True)
            old, new = (f"{t}, partially valid" if part else str(t) for t, part in types)
            new = new if new != old else "one with another valid region"
            yield NameChangesType(loc, site.name, old, new)
    if site.is_argument and site.in_loop and isinstance(node, (ast.Assign, ast.AugAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        yield ParameterAssigned(loc, ast.unparse(target), frame.function.name)
    if isinstance(node, ast.Assign) and _rebinds_region(node) and not site.is_renamed:
        yield RegionRebound(
            loc, "a name keeps its valid region, which is part of its type",
            "give the result another name",
        )  # fmt: skip
    if isinstance(node, ast.AugAssign):
        name, symbol = ast.unparse(node.target), ast.unparse(node).split("=")[0].split()[-1]
        text = f"{name} = {name} {symbol} ({ast.unparse(node.value)})"
        yield TextNotTaken(loc, f"`{symbol}=`", f"write `{text}`", [Fix(loc, text)])
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and not dialect.tuples:
        yield TextNotTaken(loc, "an assignment of several values", "write one assignment per value")
    yield from _expressions(frame, node)


def _rebinds_region(node: ast.Assign) -> bool:
    call = node.value
    if not isinstance(call, ast.Call) or not spelling(call.func).endswith("set_validshape"):
        return False
    target, first = node.targets[0], call.args[0] if call.args else None
    return isinstance(target, ast.Name) and isinstance(first, ast.Name) and target.id == first.id


def _expressions(frame: CallFrame, node: ast.stmt) -> Iterator[UserError]:
    """Check the expressions of this statement, but not of nested statements."""
    pending = [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt)]
    while pending:
        at = pending.pop()
        told = _expression(frame, at) if isinstance(at, ast.expr) else None
        if told is not None:
            yield told
        if not (isinstance(at, ast.keyword) and at.arg == "deps"):  # which may be a comprehension
            pending += [c for c in ast.iter_child_nodes(at) if not isinstance(c, ast.stmt)]


def _expression(frame: CallFrame, at: ast.expr) -> UserError | None:
    loc = without_callers(frame.loc(at))
    match at:
        case ast.IfExp():
            return TextNotTaken(loc, "a conditional expression", "write an `if` statement")
        case ast.ListComp() | ast.GeneratorExp():
            return TextNotTaken(loc, "a comprehension", "write out its elements")
        case ast.Compare() if len(at.ops) > 1:
            return TextNotTaken(
                loc, "a chained comparison", ("write two comparisons, joined by `and`")
            )
        case ast.BinOp() if isinstance(at.op, _NUMBERS_ONLY):
            names = [n.id for n in ast.walk(at) if isinstance(n, ast.Name)]
            if any(name in frame.names for name in names):
                return TextNotTaken(loc, "this operator", "compute it outside the kernel")
        case ast.Starred():
            return TextNotTaken(loc, "`*` before an argument", "list the arguments")
        case _:
            pass
    return None
