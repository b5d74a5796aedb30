"""`with` statements: scopes, and the layout of auto scopes with chunk loops."""

from __future__ import annotations

import ast
from collections.abc import Hashable

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.cautions import (
    ImplicitScope,
    NoEffect,
    RetiredSpelling,
    UndividedScope,
)
from tilelet.diag.catalogue.ops import UnknownKeyword
from tilelet.diag.catalogue.scopes import (
    BadScopeArgument,
    LevelWithRole,
    NestedScope,
    NotAScope,
    OnlyAtOrchestration,
    ScalarLeavesScope,
    SeveralContextManagers,
    TileLeavesSpmd,
)
from tilelet.diag.catalogue.unsupported import UnsupportedLevel
from tilelet.diag.core import Loc
from tilelet.frontend.barriers import check_kernel, has_barrier, launches
from tilelet.frontend.bindings import Binding, Poison, as_items, describe, is_shaped
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import (
    control_block,
    evaluate,
    lower_block,
    lower_statement,
    statement,
    with_recovery,
)
from tilelet.frontend.emitting import emit_scope
from tilelet.frontend.nameflow import Names, argument_of, target_names
from tilelet.frontend.resolve import as_kernel_function, is_compute_helper, static_callee
from tilelet.frontend.source import nodes_in, statements_in
from tilelet.frontend.task_options import block_count, comparison, dependencies
from tilelet.ir.core import Arg, FunctionKind, Op, Value
from tilelet.ir.spec import Trait, spec_of
from tilelet.ir.types import INDEX, ScalarType, TensorType, TileType
from tilelet.syntax import enums, markers

GROUPING = {
    markers.cluster: "cluster",
    markers.manual_scope: "manual",
    markers.scope: "runtime",
    markers.graph: "graph",
}
TASK_KEYWORDS = frozenset(
    {
        "name_hint", "deps", "no_dep_args", "dumps", "windowize", "sync_start",
        "allow_early_resolve", "block_early_dispatch",
    }
)  # fmt: skip
KEYWORDS: dict[object, frozenset[str]] = {
    markers.incore: TASK_KEYWORDS | {"split"},
    markers.auto_incore: TASK_KEYWORDS | {"split"},
    markers.at: TASK_KEYWORDS | {"level", "role", "optimization", "optimizations", "split"},
    markers.spmd: TASK_KEYWORDS | {"core_num", "optimizations", "predicate"},
    markers.cluster: frozenset({"name_hint"}),
    markers.manual_scope: frozenset({"name_hint"}),
    markers.scope: frozenset({"name_hint", "mode"}),
    markers.graph: frozenset({"name_hint"}),
}


@dataclass
class ScopeInfo:
    """The arguments of a `with` header."""

    kind: str
    loc: Loc
    hint: str | None = None
    split: str | None = None
    slots: int | None = None
    count: Arg = None
    deps: tuple[Arg, ...] = ()
    no_dep: tuple[Arg, ...] = ()
    options: list[Arg] = field(default_factory=list[Arg])
    task_id: bool = False
    predicate: Arg = None

    @property
    def controls_tasks(self) -> bool:
        """Whether the header sets properties of its single task."""
        return bool(self.deps or self.no_dep or self.task_id or self.predicate is not None)

    @property
    def arguments(self) -> dict[str, Arg]:
        return {
            "predicate": self.predicate,
            "hint": self.hint, "split": self.split, "slots": self.slots, "count": self.count,
            "deps": self.deps,
            "no_dep": self.no_dep, "options": tuple(self.options), "task_id": self.task_id,
        }  # fmt: skip


@statement(ast.With)
def lower_with(ctx: Context, s: ast.With, live: Names) -> None:
    loc = ctx.loc(s)
    if len(s.items) != 1:
        raise SeveralContextManagers(loc)
    item = s.items[0]
    if not isinstance(item.context_expr, ast.Call):
        raise NotAScope(ctx.loc(item.context_expr))
    if static_callee(ctx, item.context_expr) is markers.spmd and has_barrier(s.body):
        lower_block(ctx, launches(s), live)
        return
    info = parse_header(ctx, item.context_expr)
    alias = item.optional_vars
    if alias is not None:
        if not isinstance(alias, ast.Name) or info.kind in GROUPING.values():
            raise NotAScope(ctx.loc(alias))
        info.task_id = True
    tid = lower_scope(ctx, info, s.body, live)
    if isinstance(alias, ast.Name):
        ctx.env[alias.id] = tid


def parse_header(ctx: Context, node: ast.Call) -> ScopeInfo:
    """Parse `pl.at(...)`, `pl.incore()`, `pl.spmd(n)` and the other scope markers."""
    marker = static_callee(ctx, node)
    loc = ctx.loc(node)
    allowed = KEYWORDS.get(marker) if isinstance(marker, Hashable) else None
    if allowed is None:
        evaluate(ctx, node.func)  # raises for unknown and unsupported names
        raise NotAScope(loc)
    name: str = getattr(marker, "__name__", "")
    info = ScopeInfo(GROUPING.get(marker, "incore"), loc)  # type: ignore[arg-type]
    if marker is markers.auto_incore:
        info.kind = "auto"
        modern = "pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk])"
        ctx.module.note_retired(RetiredSpelling(loc, "pl.auto_incore()", modern))
    elif marker is markers.incore:
        modern = "pl.at(level=pl.Level.CORE_GROUP)"
        ctx.module.note_retired(RetiredSpelling(loc, "pl.incore()", modern))
    elif marker is markers.spmd:
        info.kind = "spmd"
    _positional(ctx, node, marker, name, info)
    for keyword in sorted(node.keywords, key=lambda k: k.arg == "role"):  # `role=` needs `level=`
        if keyword.arg is None or keyword.arg not in allowed:
            raise UnknownKeyword(ctx.loc(keyword), name, keyword.arg or "**", sorted(allowed))
        _keyword(ctx, keyword, name, info)
    if marker is markers.at and not any(k.arg == "level" for k in node.keywords) and not node.args:
        raise BadScopeArgument(loc, "at", "level", "nothing", "`pl.Level.CORE_GROUP`")
    if info.kind == "spmd" and info.count is None:
        raise BadScopeArgument(loc, "spmd", "core_num", "nothing", "the number of blocks")
    return info


def _positional(ctx: Context, node: ast.Call, marker: object, name: str, info: ScopeInfo) -> None:
    if marker is markers.spmd and len(node.args) == 1:
        info.count = block_count(ctx, node.args[0], "spmd")
    elif marker is markers.at and len(node.args) == 1:
        _set_level(ctx, node.args[0], info)
    elif node.args:
        what = describe(evaluate(ctx, node.args[0]))
        raise BadScopeArgument(ctx.loc(node.args[0]), name, "positional", what, "keywords only")


def _keyword(ctx: Context, keyword: ast.keyword, scope: str, info: ScopeInfo) -> None:
    name = keyword.arg
    if name == "deps":
        info.deps = dependencies(ctx, keyword.value)
    elif name == "predicate":
        info.predicate = comparison(ctx, keyword.value)
    elif name == "core_num":
        info.count = block_count(ctx, keyword.value, "spmd")
    elif name == "level":
        _set_level(ctx, keyword.value, info)
    else:
        _evaluated_keyword(ctx, keyword, scope, info)


def _evaluated_keyword(ctx: Context, keyword: ast.keyword, scope: str, info: ScopeInfo) -> None:
    name, loc = keyword.arg or "", ctx.loc(keyword.value)
    value = evaluate(ctx, keyword.value)
    if name == "role":
        if info.kind != "chip" or value is not enums.Role.Orchestrator:
            raise LevelWithRole(loc)
    elif name == "name_hint":
        if not isinstance(value, str) or not value.isidentifier():
            raise BadScopeArgument(loc, scope, name, describe(value), "an identifier in quotes")
        info.hint = value
    elif name == "no_dep_args":
        for item in as_items(value):
            if not isinstance(item, Value):
                raise BadScopeArgument(loc, scope, name, describe(item), "tensors")
        info.no_dep = as_items(value)
    elif name == "split":
        ctx.module.note_retired(RetiredSpelling(loc, "split=", "optimizations=[pl.split(...)]"))
        if value is not None and not isinstance(value, enums.SplitMode):
            wanted = "`pl.SplitMode.UP_DOWN` or `LEFT_RIGHT`"
            raise BadScopeArgument(loc, scope, "split", describe(value), wanted)
        info.split = value.name if value is not None else None
    elif name == "optimization":
        ctx.module.note_retired(RetiredSpelling(loc, "optimization=", "optimizations=[...]"))
        _optimization(info, value, scope, loc)
    elif name == "optimizations":
        if not isinstance(keyword.value, ast.List):
            raise BadScopeArgument(loc, scope, name, describe(value), "a literal list")
        for entry in as_items(value):
            _optimization(info, entry, scope, loc)
    elif name == "dumps":
        ctx.sink.add(NoEffect(loc, "`dumps=`", "use `breakpoint()` or `pl.static_print`"))
    else:
        ctx.sink.add(NoEffect(loc, f"`{name}=`", "it only changes how the device schedules"))
        info.options.append((name, value))


def _set_level(ctx: Context, node: ast.expr, info: ScopeInfo) -> None:
    level = evaluate(ctx, node)
    if level is enums.Level.CORE_GROUP:
        return
    if level is enums.Level.CHIP and ctx.kind is FunctionKind.Host:
        info.kind = "chip"
        return
    if isinstance(level, enums.Level):
        raise UnsupportedLevel(ctx.loc(node), level.name)
    what = describe(level)
    raise BadScopeArgument(ctx.loc(node), "at", "level", what, "`pl.Level.CORE_GROUP`")


def _optimization(info: ScopeInfo, value: Binding, scope: str, loc: Loc) -> None:
    if value is markers.auto_chunk or value is markers.chunked_loop_optimizer:
        info.kind = "auto"
    elif isinstance(value, markers.CrossCoreSlot):
        info.slots = value.slot_num
    elif isinstance(value, markers.Split):
        if value.chunked:
            info.kind = "auto"
        info.split = value.mode.name if value.mode else info.split
        info.slots = value.slot_num or info.slots
    else:
        wanted = "`pl.auto_chunk`, `pl.split(...)`, `pl.cross_core_slot(...)`"
        raise BadScopeArgument(loc, scope, "optimizations", describe(value), wanted)


# --- bodies --------------------------------------------------------------------------------------


def lower_scope(
    ctx: Context, info: ScopeInfo, body: list[ast.stmt], live: Names, index_name: str | None = None
) -> Binding:
    """Lower a scope and bind the stored names that are read later; return the task id."""
    in_core = info.kind in ("incore", "auto", "spmd", "implied")
    if ctx.in_scope:
        if in_core:
            assert ctx.scope_loc is not None
            raise NestedScope(info.loc, ctx.scope_loc)
        raise OnlyAtOrchestration(info.loc, f"a {info.kind} scope", ctx.scope_loc)
    if info.kind == "auto" and has_chunk_loop(body):
        info.kind, in_core = "chunked", False
    elif info.kind == "auto" and _is_several_kernels(ctx, info, body, live):
        inside = ctx.fork(in_chunked=True, runs_of=(info.hint, info.split))
        return lower_control_block(inside, body, live)
    params: tuple[Value, ...] = ()
    inside = _scope_context(ctx, info, in_core)
    if info.kind == "spmd":
        params = (Value(index_name or "block", INDEX, info.loc),)
        if index_name:
            inside.env[index_name] = params[0]
    lower_block(inside, body, live)
    ops, inner = inside.ops, inside.env
    if in_core:
        check_kernel(inside, ops)
    leaving = [n for n in ctx.flow.stores_in_order(body) if n in live and n in inner]
    made = {r for op in ops for r in op.results} | set(params)
    yields: dict[str, Value] = {}
    for name in leaving:
        value = inner[name]
        if not isinstance(value, Value) or value not in made:
            ctx.env[name] = value
        elif in_core and isinstance(value.type, ScalarType):
            ctx.env[name] = _recompute_outside(ctx, name, value, ops, made)
        else:
            if info.kind == "spmd" and isinstance(value.type, TileType):
                raise TileLeavesSpmd(value.loc, info.loc)
            yields[name] = value
    if index_name:
        ctx.env[index_name] = Poison()
    if info.kind == "auto":
        info.kind = "incore"  # one kernel, however its statements are written out
    return _emit_results(ctx, info, ops, params, yields)


def _scope_context(ctx: Context, info: ScopeInfo, in_core: bool) -> Context:
    inside = ctx.nested_scope(info.loc) if in_core else ctx.nested()
    inside.split = info.split
    if info.kind == "spmd":
        inside.blocks = info.count if isinstance(info.count, int) else None
    if info.kind == "chunked":
        inside.in_chunked = True
    if info.kind == "chip":
        inside.kind = FunctionKind.Orchestration
    if info.kind != "implied":
        inside.chunk_ok = info.kind in ("auto", "chunked")
    return inside


def _emit_results(
    ctx: Context,
    info: ScopeInfo,
    ops: list[Op],
    params: tuple[Value, ...],
    yields: dict[str, Value],
) -> Binding:
    names: dict[Arg, str] = {value: name for name, value in yields.items()}
    emitted = emit_scope(ctx, info.kind, ops, (*names,), params, info.loc, names, **info.arguments)
    results = as_items(emitted)
    by_value = dict(zip(names, results, strict=False))
    for name, value in yields.items():
        ctx.env[name] = by_value[value]
    return results[-1] if info.task_id else None


def _recompute_outside(
    ctx: Context, name: str, value: Value, ops: list[Op], inside: set[Value]
) -> Binding:
    """Recompute the index arithmetic of a scalar outside the scope, which it cannot leave."""
    made_by = {r: op for op in ops for r in op.results}

    def recompute(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(recompute(a) for a in arg)
        if not isinstance(arg, Value) or arg not in inside:
            return arg
        op = made_by.get(arg)
        if op is None or Trait.SCALAR not in op.spec.traits:
            raise _NotRecomputableError
        copied = ctx.emit(
            op.spec, {p: recompute(a) for p, a in op.args.items()}, (arg.type,), op.loc, (arg.name,)
        )
        return copied[0]

    try:
        return recompute(value)
    except _NotRecomputableError:
        def_loc = value.loc
        return Poison(lambda use: ScalarLeavesScope(use, name, def_loc))


class _NotRecomputableError(Exception):
    """The scalar depends on data, not only on index arithmetic."""


# --- auto scopes and implied scopes --------------------------------------------------------------


def chunk_keyword(s: ast.stmt) -> ast.keyword | None:
    """Return the `chunk=` of a loop header, unless it is None."""
    if isinstance(s, ast.For) and isinstance(s.iter, ast.Call):
        for k in s.iter.keywords:
            if k.arg == "chunk" and not (
                isinstance(k.value, ast.Constant) and k.value.value is None
            ):
                return k
    return None


def has_chunk_loop(stmts: list[ast.stmt]) -> bool:
    return any(chunk_keyword(s) for s in statements_in(stmts))


def _is_several_kernels(ctx: Context, info: ScopeInfo, body: list[ast.stmt], live: Names) -> bool:
    """Return whether an auto scope without chunk loops becomes several kernels.

    Statements of the control program (windows, shapes, memory, single elements) stay outside; each
    sequence of compute statements between them is a kernel.
    """
    if info.controls_tasks or not _has_several_runs(ctx, info, body, live):
        return False
    ctx.module.ambiguous.add("whole_scopes")
    return not ctx.module.reading.whole_scopes


def _has_several_runs(ctx: Context, info: ScopeInfo, body: list[ast.stmt], live: Names) -> bool:
    """Return whether there are several compute sequences and splitting keeps the results.

    Splitting changes results if one sequence passes a partially valid value to another, since
    memory has no valid region, or if memory is written after a window of it was taken, since a tile
    is a copy. A caution then reports why the scope is not split.
    """
    made: set[str] = set()
    partly = {n for s in ast.walk(ctx.source.tree) if _marks_valid(s) for n in _stored_names(s)}
    before: set[str] = set()  # partially valid names that earlier sequences made
    now: set[str] = set()
    runs, was, wrote, changes = 0, False, False, ""
    inside = ctx.fork(in_chunked=True)
    windows = _Windows(inside)
    for s in body:
        computes = _belongs_in_scope(inside, s, made)
        used = {n.id for n in ast.walk(s) if isinstance(n, ast.Name)}
        if computes and used & before:
            changes = f"`{min(used & before)}` is partially valid and used again"
        elif computes and wrote:
            changes = "memory is written before the last statement that computes"
        windows.note(s, used, is_outside=not computes)
        wrote = wrote or _may_write(inside, s)
        stored = ctx.flow.stores([s])
        if used & partly:
            partly |= stored
        if computes:
            now |= stored & partly
        else:
            before, now = before | now, set()
        runs += computes and not was
        was = computes
        if computes or (isinstance(s, ast.Assign) and not _is_scalar_text(inside, s.value, made)):
            made |= stored
    stale = windows.used_late | windows.writable_after(live)
    if stale and not changes:
        changes = f"`{min(stale)}` is used after the memory it was taken from may be written"
    if changes and runs > 1:
        ctx.sink.add(UndividedScope(info.loc, changes))
    return runs > 1 and not changes


class _Windows:
    """Windows that statements outside the compute sequences take: copies in one kernel, but not if
    the scope is split.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._memory: dict[str, set[str]] = {}  # names of the tensors that a window lies in
        self._memory_written: set[str] = set()
        self._written: set[str] = set()  # windows whose memory was written after they were taken
        self.used_late: set[str] = set()

    def note(self, s: ast.stmt, used: set[str], *, is_outside: bool) -> None:
        """Follow the windows through a statement."""
        self.used_late |= used & self._written
        written = self._in_memory(_written_names(self._ctx, s))
        self._memory_written |= written
        changed = {name for name, memory in self._memory.items() if memory & written}
        if isinstance(s, (ast.For, ast.While)):  # a later iteration reads what this one writes
            self.used_late |= used & changed
        self._written |= changed
        if isinstance(s, ast.Assign):
            for name in self._ctx.flow.stores([s]):
                self._written.discard(name)
                self._memory.pop(name, None)
                if is_outside and _takes_window(self._ctx, s.value):
                    read = {n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)}
                    self._memory[name] = self._in_memory(read)

    def _in_memory(self, names: set[str]) -> set[str]:
        return names.union(*(self._memory.get(n, set[str]()) for n in names))

    def writable_after(self, live: Names) -> set[str]:
        """Return the windows that are read after the scope, and whose memory may be written."""
        names = self._memory.keys() & live
        return {n for n in names if any(map(self._is_writable, self._memory[n]))}

    def _is_writable(self, name: str) -> bool:
        value = self._ctx.env.get(name)
        if not isinstance(value, Value) or not isinstance(value.type, TensorType):
            return name in self._memory_written
        place = self._ctx.facts.storage.get(value)
        return place is None or place in self._ctx.facts.outputs


def _takes_window(ctx: Context, value: ast.expr) -> bool:
    """Return whether an expression may be a window of memory, and writes none."""
    if isinstance(value, ast.Subscript):
        return True
    spec = spec_of(static_callee(ctx, value)) if isinstance(value, ast.Call) else None
    return spec is not None and (spec.view is not None or spec.is_window_load)


def _written_names(ctx: Context, s: ast.stmt) -> set[str]:
    """Return the names of memory that a statement may write; function calls may write arguments."""
    found: set[str] = set()
    for node in ast.walk(s):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= target_names(node)
        if isinstance(node, ast.Call):
            spec = spec_of(static_callee(ctx, node))
            if spec is None:
                found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                continue
            params = list(spec.signature.parameters)
            for param in (*spec.writes, *([spec.replaces] if spec.replaces else [])):
                written = argument_of(spec, node, params.index(param))
                if written is not None:
                    found |= {n.id for n in ast.walk(written) if isinstance(n, ast.Name)}
    return found


def _may_write(ctx: Context, s: ast.stmt) -> bool:
    """Return whether a statement may write existing memory; function calls may."""
    for node in ast.walk(s):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Call):
            spec = spec_of(static_callee(ctx, node))
            if spec is None or spec.writes or spec.replaces:
                return True
    return False


def _marks_valid(node: ast.AST) -> bool:
    """Return whether a statement states the valid region of a value."""
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
        (isinstance(n, ast.keyword) and n.arg in ("valid_shape", "valid_shapes", "clamp"))
        or (isinstance(n, ast.Attribute) and n.attr == "set_validshape")
        for n in ast.walk(node)
    )


def _stored_names(node: ast.AST) -> list[str]:
    return [
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]


@control_block
def lower_control_block(ctx: Context, stmts: list[ast.stmt], live_out: Names) -> None:
    """Lower statements of the control program; compute sequences become implied scopes."""
    points = ctx.flow.live_points(stmts, live_out)
    i = 0
    while i < len(stmts):
        end = i
        made: set[str] = set()
        while end < len(stmts) and _belongs_in_scope(ctx, stmts[end], made):
            if not isinstance(stmts[end], (ast.For, ast.While)):  # which store scalars as well
                made |= ctx.flow.stores([stmts[end]])
            end += 1
        if end > i:
            _lower_run(ctx, stmts[i:end], points[end - 1])
            i = end
        elif _needs_auto_scope(ctx, stmts[i]):
            _lower_chunk_loop(ctx, stmts[i], points[i])
            i += 1
        else:
            lower_statement(ctx, stmts[i], points[i])
            i += 1


def _lower_run(ctx: Context, run: list[ast.stmt], live: Names) -> None:
    loc = ctx.loc(run[0])
    if not ctx.in_chunked:
        nodes = (n for s in run for n in ast.walk(s))
        first = next(
            n
            for n in nodes
            if _is_compute_call(ctx, n, set()) or _is_tensor_operator(ctx, n, set())
        )
        shown = first.func if isinstance(first, ast.Call) else first
        ctx.sink.add(ImplicitScope(ctx.loc(first), ast.unparse(shown)))
    info = ScopeInfo("implied", loc, *ctx.runs_of)
    with_recovery(ctx, run, lambda: lower_scope(ctx, info, run, live))


def _needs_auto_scope(ctx: Context, s: ast.stmt) -> bool:
    """Return whether a chunk loop has no scope around it or in it: early programs need none."""
    if ctx.style.drops_axis or ctx.chunk_ok or chunk_keyword(s) is None:
        return False
    if any(isinstance(inner, ast.With) for inner in statements_in([s])):
        return False
    # A loop that only calls kernels is not split.
    return ctx.style.implied or any(_is_compute_call(ctx, n, set()) for n in ast.walk(s))


def _lower_chunk_loop(ctx: Context, s: ast.stmt, live: Names) -> None:
    modern = "with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):"
    loc = ctx.loc(s)
    ctx.module.note_retired(RetiredSpelling(loc, "chunk= outside a scope", modern))
    info = ScopeInfo("auto", loc)
    with_recovery(ctx, [s], lambda: lower_scope(ctx, info, [s], live))


def _belongs_in_scope(ctx: Context, s: ast.stmt, made: set[str]) -> bool:
    """Return whether a statement outside all scopes computes and so needs a scope.

    `made` are the names that the compute sequence before it stores.
    """
    if not (ctx.style.implied or ctx.in_chunked):
        return False
    if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
        return any(
            _is_compute_call(ctx, n, made) or _is_tensor_operator(ctx, n, made) for n in nodes_in(s)
        )
    if not ctx.in_chunked or not isinstance(s, (ast.For, ast.While, ast.If)):
        return False
    # In an auto scope, a loop or branch without chunk loops goes into one scope.
    has_scope = any(isinstance(inner, ast.With) for inner in statements_in([s]))
    if has_scope or has_chunk_loop([s]):
        return False
    made = made | ctx.flow.stores([s])
    return any(_is_compute_call(ctx, n, made) for n in nodes_in(s))


def _is_compute_call(ctx: Context, node: ast.AST, made: set[str] | Names) -> bool:
    if not isinstance(node, ast.Call):
        return False
    callee = static_callee(ctx, node)
    spec = spec_of(callee)
    if spec is None:
        function = as_kernel_function(callee)
        return function is not None and is_compute_helper(function)
    if spec.name == "cast" and (operand := argument_of(spec, node)) is not None:
        # `pl.cast(n, pl.INDEX)` of a scalar does not need a kernel
        return not _is_scalar_text(ctx, operand, made)
    return spec.is_compute


def _is_tensor_operator(ctx: Context, node: ast.AST, made: set[str] | Names) -> bool:
    """Return whether a node computes on tensors with a Python operator."""
    if isinstance(node, ast.AugAssign):
        return not _is_scalar_text(ctx, node.target, made)
    return isinstance(node, (ast.BinOp, ast.UnaryOp)) and not _is_scalar_text(ctx, node, made)


def _is_scalar_text(ctx: Context, node: ast.expr, made: set[str] | Names) -> bool:
    """Return whether an expression that is not evaluated yet stands for a scalar."""
    match node:
        case ast.Name():
            return node.id not in made and not is_shaped(ctx.env.get(node.id))
        case ast.Call():
            spec = spec_of(static_callee(ctx, node))
            if spec is None:
                return True
            if spec.name == "cast" and (operand := argument_of(spec, node)) is not None:
                return _is_scalar_text(ctx, operand, made)
            return Trait.NUMBER in spec.traits
        case ast.Subscript():
            return not any(isinstance(n, ast.Slice) for n in ast.walk(node.slice))
        case ast.BinOp():
            return all(_is_scalar_text(ctx, n, made) for n in (node.left, node.right))
        case ast.UnaryOp():
            return _is_scalar_text(ctx, node.operand, made)
        case _:
            return True
