"""`for` and `while` loops: the names they carry and the types of these names."""

from __future__ import annotations

import ast
from collections.abc import Hashable

from tilelet import dtypes
from tilelet.analysis.bounds import of_index
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.cautions import (
    LoopMayNotRun,
    NoEffect,
    RetiredSpelling,
    UndividedScope,
)
from tilelet.diag.catalogue.names import TypeChangedInLoop, UndefinedName
from tilelet.diag.catalogue.ops import BadArgument, WrongArity
from tilelet.diag.catalogue.python import (
    BadLoopIterator,
    BadLoopTarget,
    CondNotFirst,
    PythonRange,
    UnsupportedStatement,
    YieldMismatch,
)
from tilelet.diag.catalogue.scopes import (
    BadChunk,
    BarrierInKernel,
    ChunkOutsideAutoScope,
    LoopKeyword,
    NonConstantUnroll,
    OnlyInScope,
    TooManyCopies,
    ZeroStep,
)
from tilelet.diag.core import Loc
from tilelet.diag.text import integer_text
from tilelet.frontend import joins, lanes, scopes
from tilelet.frontend.barriers import has_barrier, launches
from tilelet.frontend.bindings import Binding, Poison, as_items, describe
from tilelet.frontend.context import Context, Lane, finish_block
from tilelet.frontend.dispatch import (
    evaluate,
    evaluate_arg,
    lower_block,
    lower_statement,
    statement,
)
from tilelet.frontend.emitting import check_literal, emit_undefined, to_arg
from tilelet.frontend.nameflow import NONE, Names, target_names
from tilelet.frontend.resolve import static_callee
from tilelet.frontend.statements import as_condition
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Op, Value, scalar_dtype
from tilelet.ir.types import INDEX, Type
from tilelet.syntax import markers
from tilelet.syntax.enums import SplitMode

KINDS: dict[object, str] = {
    markers.range: "range",
    markers.parallel: "parallel",
    markers.unroll: "unroll",
    markers.pipeline: "pipeline",
    markers.split_aiv: "split_aiv",
    markers.spmd: "spmd",
    markers.while_: "while",
}
KEYWORDS: dict[str, frozenset[str]] = {
    "range": frozenset({"init_values", "chunk", "chunk_policy", "unroll", "attrs"}),
    "parallel": frozenset({"init_values", "chunk", "chunk_policy", "attrs"}),
    "unroll": frozenset({"chunk", "chunk_policy", "attrs"}),
    "pipeline": frozenset({"init_values", "stage", "attrs"}),
    "while": frozenset({"init_values"}),
    "split_aiv": frozenset({"mode"}),
}
POLICIES = ("leading_full", "guarded")
MAX_UNROLL = 100_000  # copies of loop bodies in one program, nested copies included
MAX_CHUNK = 1 << 20  # iterations of one task


@dataclass
class LoopHeader:
    """The arguments of `pl.range(start, stop, step, ...)` and the other loop markers."""

    kind: str
    loc: Loc
    start: Arg = 0
    stop: Arg = 0
    step: Arg = 1
    init: tuple[Binding, ...] | None = None
    chunk: int | None = None
    policy: str = "guarded"
    stage: int | None = None
    mode: str | None = None  # of `pl.split_aiv`

    @property
    def trips(self) -> int | None:
        start, stop, step = self.start, self.stop, self.step
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
            return max(0, -((start - stop) // step))  # `len(range(...))` is limited to 63 bits
        return None


@statement(ast.For)
def lower_for(ctx: Context, s: ast.For, live: Names) -> None:
    marker = static_callee(ctx, s.iter) if isinstance(s.iter, ast.Call) else None
    kind = KINDS.get(marker) if isinstance(marker, Hashable) else None
    if kind is None or not isinstance(s.iter, ast.Call):
        if ast.unparse(s.iter).startswith("range(") and marker is None:
            raise PythonRange(ctx.loc(s.iter))
        if isinstance(s.iter, ast.Call):
            evaluate(ctx, s.iter.func)  # raises for unknown and unsupported names
        raise BadLoopIterator(ctx.loc(s.iter), f"`{ast.unparse(s.iter)}`")
    _check_no_else(ctx, s)
    if kind == "spmd":
        _lower_spmd(ctx, s, live)
        return
    if kind == "split_aiv" and not ctx.in_scope:
        raise OnlyInScope(ctx.loc(s.iter), "pl.split_aiv")
    header = _parse_header(ctx, s.iter, kind)
    if header.mode is not None and lanes.is_halving(header.mode):
        _lower_halves(ctx, s, header, live)
    elif kind == "while":
        _lower_explicit_while(ctx, s, header, live)
    elif kind == "unroll" and header.chunk is None:
        _lower_unrolled(ctx, s, header, live)
    elif header.chunk is not None and not ctx.in_scope:
        _lower_chunked(ctx, s, header, live)
    else:
        _lower_counted(ctx, s, header, live)


def _check_no_else(ctx: Context, s: ast.For | ast.While) -> None:
    if s.orelse:
        what, instead = "`else` of a loop", "set a flag in the loop and test it afterwards"
        raise UnsupportedStatement(ctx.loc(s.orelse[0]), what, instead)


def _parse_header(ctx: Context, node: ast.Call, kind: str) -> LoopHeader:
    header = LoopHeader(kind, ctx.loc(node))
    bounds = [evaluate_arg(ctx, a) for a in node.args]
    for argument, bound in zip(node.args, bounds, strict=True):
        dtype = scalar_dtype(bound)
        if dtype is None or not dtype.is_integer:
            what = describe(bound)
            raise BadArgument(ctx.loc(argument), kind, "bound", what, "an integer scalar")
        if isinstance(bound, int):
            check_literal(bound, dtypes.INDEX, ctx.loc(argument))
    if kind == "while":
        if bounds:
            raise WrongArity(header.loc, "while_", len(bounds), 0)
    elif not 1 <= len(bounds) <= 3:
        raise WrongArity(header.loc, kind, len(bounds), "1 to 3 arguments", "(start, stop, step)")
    elif len(bounds) == 1:
        header.stop = bounds[0]
    else:
        header.start, header.stop = bounds[:2]
        header.step = bounds[2] if len(bounds) == 3 else 1
    if header.step == 0:
        raise ZeroStep(header.loc)
    if kind == "split_aiv" and not any(k.arg == "mode" for k in node.keywords):
        raise BadArgument(header.loc, kind, "mode", "missing", "`pl.SplitMode.NONE`")
    for keyword in node.keywords:
        _loop_keyword(ctx, keyword, header)
    return header


def _loop_keyword(ctx: Context, keyword: ast.keyword, header: LoopHeader) -> None:
    loc = ctx.loc(keyword.value)
    name = keyword.arg or "**"
    if name not in KEYWORDS[header.kind]:
        raise LoopKeyword(ctx.loc(keyword), header.kind, name, sorted(KEYWORDS[header.kind]))
    if name == "attrs":
        ctx.module.note_retired(NoEffect(loc, "`attrs=` of a loop", "it only describes the loop"))
        return
    value = evaluate(ctx, keyword.value)
    if name == "init_values":
        header.init = as_items(value)
    elif name == "chunk" and value is not None:
        header.chunk = _chunk_size(ctx, keyword, value)
    elif name == "mode":
        if not isinstance(value, SplitMode):
            raise BadArgument(loc, header.kind, name, describe(value), "a `pl.SplitMode`")
        if lanes.is_halving(value.name) and header.trips != lanes.LANES:
            what = "another number"
            raise BadArgument(header.loc, header.kind, "lanes", what, str(lanes.LANES))
        header.kind, header.mode = "range", value.name  # lanes run one after the other
    elif name == "chunk_policy":
        if value not in POLICIES:
            raise BadArgument(loc, header.kind, name, repr(value), " or ".join(map(repr, POLICIES)))
        header.policy = value  # type: ignore[assignment]
    elif name in ("stage", "unroll"):
        if not isinstance(value, int) or not 1 <= value <= MAX_CHUNK:
            shown = integer_text(value) if isinstance(value, int) else describe(value)
            raise BadArgument(loc, header.kind, name, shown, f"an integer from 1 to {MAX_CHUNK}")
        header.stage = value
        if name == "unroll":
            retired = RetiredSpelling(loc, "pl.range(unroll=N)", "pl.pipeline(stage=N)")
            ctx.module.note_retired(retired)
            header.kind = "pipeline"


def _chunk_size(ctx: Context, keyword: ast.keyword, value: Binding) -> int | None:
    """Return the chunk size, if an auto scope around the loop splits it."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_CHUNK:
        what = integer_text(value) if isinstance(value, int) else describe(value)
        raise BadChunk(ctx.loc(keyword.value), what, MAX_CHUNK)
    if ctx.chunk_ok:
        return value
    if ctx.style.drops_axis:
        raise ChunkOutsideAutoScope(ctx.loc(keyword))
    why = "no automatic scope is around the loop"
    ctx.module.note_retired(NoEffect(ctx.loc(keyword), "`chunk=`", why))
    return None


# --- unroll, spmd, chunk -------------------------------------------------------------------------


def _lower_unrolled(ctx: Context, s: ast.For, header: LoopHeader, live: Names) -> None:
    """Lower the body once per index, which is a compile-time number in each copy."""
    if header.trips is None:
        raise NonConstantUnroll(header.loc)
    ctx.module.copies += header.trips
    if ctx.module.copies > MAX_UNROLL:
        raise TooManyCopies(header.loc, header.trips, ctx.module.copies, MAX_UNROLL)
    index_name = _index_name(ctx, s)
    needed = _needed_after_copies(ctx, s.body, live, header.trips)
    indices = range(header.start, header.stop, header.step)  # type: ignore[arg-type]
    for index, still_needed in zip(indices, needed, strict=True):
        ctx.env[index_name] = index
        lower_block(ctx, s.body, still_needed)
    if not header.trips:
        for name in ctx.flow.stores(s.body) - ctx.env.keys():
            ctx.env[name] = Poison(lambda use, n=name: UndefinedName(use, n))


def _lower_halves(ctx: Context, s: ast.For, header: LoopHeader, live: Names) -> None:
    """Lower the body once per lane, each with its half of the tiles."""
    index_name = _index_name(ctx, s)
    gathered: dict[ast.Call, Value] = {}
    needed = _needed_after_copies(ctx, s.body, live, lanes.LANES)
    for index, still_needed in enumerate(needed):
        ctx.env[index_name] = index
        lane = Lane(header.mode or "", index, gathered)
        lower_block(ctx.fork(lane=lane), s.body, still_needed)


def _index_name(ctx: Context, s: ast.For, wanted: str = "one name") -> str:
    if not isinstance(s.target, ast.Name):
        raise BadLoopTarget(ctx.loc(s.target), wanted)
    return s.target.id


def _needed_after_copies(
    ctx: Context, body: list[ast.stmt], live: Names, copies: int
) -> list[Names]:
    """Return, for each copy of a body, the names read after it, by the next copy or later."""
    needed = [live]
    while len(needed) < copies:
        before = ctx.flow.live_before(body, needed[-1])
        if before == needed[-1]:
            break
        needed.append(before)
    missing = copies - len(needed)
    return [needed[-1]] * missing + needed[:copies][::-1]


def _lower_spmd(ctx: Context, s: ast.For, live: Names) -> None:
    """Lower `for i in pl.spmd(n):`, one task of n blocks."""
    assert isinstance(s.iter, ast.Call)
    index_name = _index_name(ctx, s)
    info = scopes.parse_header(ctx, s.iter)
    if not has_barrier(s.body):
        scopes.lower_scope(ctx, info, s.body, live, index_name)
        return
    with ctx.on_trial() as trial:
        try:
            scopes.lower_scope(trial, info, s.body, live, index_name)
        except BarrierInKernel:
            is_ordering = True
        else:
            is_ordering = False
    if is_ordering:
        ctx.adopt_mistakes(trial)
        lower_block(ctx, launches(s), live)
    else:
        ctx.adopt(trial)


def _lower_chunked(ctx: Context, s: ast.For, header: LoopHeader, live: Names) -> None:
    """Lower a chunk loop in an auto scope.

    A parallel nest stays a loop nest around an implied scope. A sequential loop goes into a scope
    as a whole.
    """
    if header.kind != "parallel" or not _parallel_nest(ctx, s):
        info = scopes.ScopeInfo("implied", ctx.loc(s.iter))
        scopes.lower_scope(ctx, info, [s], live)
        return
    _lower_counted(ctx, s, header, live)


def _parallel_nest(ctx: Context, s: ast.For) -> bool:
    """Return whether every chunk loop perfectly nested in `s` is parallel."""
    inner = chunk_nest_child(ctx, s)
    if inner is None:
        return True
    assert isinstance(inner.iter, ast.Call)
    parallel = static_callee(ctx, inner.iter) is markers.parallel
    return parallel and _parallel_nest(ctx, inner)


def chunk_nest_child(ctx: Context, s: ast.For) -> ast.For | None:
    """Return the chunk loop that is the whole body of `s` (except a yield), if there is one."""
    first, rest = s.body[0], s.body[1:]
    alone = not rest or (len(rest) == 1 and _is_yield(ctx, rest[0]))
    return first if alone and isinstance(first, ast.For) and scopes.chunk_keyword(first) else None


def _lower_loop_body(ctx: Context, s: ast.For | ast.While, live: Names, chunked: bool) -> None:
    if not chunked:
        lower_block(ctx, s.body, live)
        return
    assert isinstance(s, ast.For)
    child = chunk_nest_child(ctx, s)
    if child is not None:
        rest = s.body[1:]
        lower_statement(ctx, child, ctx.flow.live_before(rest, live))
        for statement in rest:
            lower_statement(ctx, statement, live)
        return
    body, handing_on = (s.body[:-1], s.body[-1:]) if _is_yield(ctx, s.body[-1]) else (s.body, [])
    info = scopes.ScopeInfo("implied", ctx.loc(s.iter))
    if scopes.has_chunk_loop(body):
        ctx.sink.add(UndividedScope(info.loc, "other chunk loops are in this one"))
    scopes.lower_scope(ctx, info, body, ctx.flow.live_before(handing_on, live))
    for statement in handing_on:
        lower_statement(ctx, statement, live)


# --- carried names -------------------------------------------------------------------------------


@dataclass
class CarriedName:
    """A name that a loop carries from iteration to iteration."""

    name: str
    init: Binding  # Poison if nothing is bound before the loop
    type: Type | None  # None until the body has been lowered
    init_loc: Loc
    param: Value | None = None


@dataclass
class LoopState:
    carried: list[CarriedName]
    explicit: int = 0  # number of names from `init_values`
    is_overtaken: bool = False  # the body writes memory of which it took windows before the loop

    @property
    def params(self) -> tuple[Value, ...]:
        return tuple(c.param for c in self.carried if c.param is not None)

    def fresh_params(self) -> None:
        for c in self.carried:
            c.param = Value(c.name, c.type, c.init_loc) if c.type is not None else None


def _implicit_names(
    ctx: Context, body: list[ast.stmt], live: Names, exclude: Names, test: Names
) -> list[CarriedName]:
    exposed = ctx.flow.live_before(body) | test
    out: list[CarriedName] = []
    for name in ctx.flow.stores_in_order(body):
        if name in exclude or not (name in exposed or name in live):
            continue
        init = ctx.env.get(name, Poison(lambda use, n=name: UndefinedName(use, n)))
        out.append(_carried_name(name, init, ctx.loc(body[0])))
    return out


def _carried_name(name: str, init: Binding, fallback: Loc) -> CarriedName:
    loc = init.loc if isinstance(init, Value) else fallback
    return CarriedName(name, init, joins.type_of(init), loc)


@dataclass(frozen=True)
class LoopBody:
    """A lowered body.

    ends       bindings of the carried names at its end
    constants  names that hold one compile-time constant whenever they are read
    """

    ops: list[Op]
    ends: dict[str, Binding]
    constants: dict[str, Binding]


def _constants(
    state: LoopState, ends: dict[str, Binding], exposed: Names, runs: bool
) -> dict[str, Binding]:
    """Return the names that are one constant whenever they are read: they need not be carried."""
    constants: dict[str, Binding] = {}
    for c in state.carried[state.explicit :]:
        end = ends[c.name]
        if isinstance(end, Value) or c.name in exposed:
            continue
        if isinstance(end, Poison) or runs or joins.same_binding(end, c.init):
            constants[c.name] = end
    return constants


def _lower_to_fixpoint(
    ctx: Context, s: ast.For | ast.While, state: LoopState, bind: dict[str, Binding], live: Names,
    chunked: bool, header: LoopHeader,
) -> LoopBody:  # fmt: skip
    """Lower the body with the types of the carried names at their fixpoint.

    A body that ends with other types than it began with only serves to find the next types. It is
    dropped with everything it noted, except mistakes.
    """
    exposed = ctx.flow.live_before(s.body)
    while True:
        with ctx.on_trial() as trial:
            state.fresh_params()
            ends, ops = _lower_once(trial, s, state, bind, live, chunked, header)
            constants: dict[str, Binding] = {}
            if isinstance(s, ast.For):
                constants = _constants(state, ends, exposed, bool(header.trips))
            candidates = state.carried
            state.carried = [c for c in candidates if c.name not in constants]
            settled = _settle_types(trial, state, ends, ops, header.loc)
        if settled:
            ctx.adopt(trial)
            return LoopBody(ops, ends, constants)
        ctx.adopt_mistakes(trial)
        # Which names are constants depends on the types, so all candidates are considered again.
        again = {*constants, *(c.name for c in state.carried)}
        state.carried = [c for c in candidates if c.name in again]


def _lower_counted(ctx: Context, s: ast.For, header: LoopHeader, live: Names) -> None:
    index_name, explicit_names = _targets(ctx, s, header)
    state, yield_names = _loop_state(
        ctx, s.body, live, header, explicit_names, frozenset({index_name}), NONE
    )
    chunked = header.chunk is not None and not ctx.in_scope
    # The index and explicitly carried names start anew in every iteration.
    live_inside = live | ctx.flow.live_before(s.body, live)
    live_inside -= {index_name, *explicit_names}
    index = Value(index_name, INDEX, ctx.loc(s.target))
    if isinstance(header.step, int):
        start, stop = ctx.facts.bounds_of(header.start), ctx.facts.bounds_of(header.stop)
        ctx.facts.bounds[index] = of_index(start, stop, header.step)
    bind: dict[str, Binding] = {index_name: index}
    body = _lower_to_fixpoint(ctx, s, state, bind, live_inside, chunked, header)
    args: dict[str, Arg] = {
        "start": header.start, "stop": header.stop, "step": header.step,
        "init": _initial_values(ctx, state, header), "kind": header.kind,
        "chunk": header.chunk if chunked else None, "policy": header.policy, "stage": header.stage,
    }  # fmt: skip
    block = finish_block(
        body.ops, (index, *state.params), _yields(state, body.ends, header.loc), header.loc
    )
    _emit_loop(ctx, structure.FOR, args, (block,), state, yield_names, header.loc)
    ctx.env.update(body.constants)
    ctx.env[index_name] = Poison(lambda use: UndefinedName(use, index_name))


def _lower_once(
    ctx: Context, s: ast.For | ast.While, state: LoopState, bind: dict[str, Binding], live: Names,
    chunked: bool, header: LoopHeader,
) -> tuple[dict[str, Binding], list[Op]]:  # fmt: skip
    """Lower the body with the present types; return what each carried name is at its end."""
    earlier, begin = set(ctx.facts.swapped.values()), len(ctx.facts.windowed)
    inside = ctx.nested()
    inside.env.update(bind)
    for c in state.carried:
        inside.env[c.name] = c.param if c.param is not None else c.init
        if c.param is not None:
            ctx.facts.note_same(c.param, c.init)
            ctx.facts.note_undefined(c.param, c.init)
    if header.init is not None:
        inside.loop_yield = []
        inside.yields_itself = any(_is_yield(ctx, inner) for inner in s.body)
    if header.mode is not None:
        (index,) = bind.values()
        inside.lane = Lane(header.mode, index)
    errors_before = len(ctx.sink.errors)
    _lower_loop_body(inside, s, live, chunked)
    taken = earlier.intersection(ctx.facts.windowed[begin:])
    state.is_overtaken = any(ctx.facts.is_written_since(t) for t in taken)
    ends = {c.name: inside.env.get(c.name, c.init) for c in state.carried}
    # If a statement failed, it may have been the `pl.yield_`: report one mistake once.
    failed = len(ctx.sink.errors) > errors_before
    yielded = inside.loop_yield
    if header.init is not None and (yielded or not failed):
        if not yielded:
            raise YieldMismatch(header.loc, 0, len(header.init), header.loc)
        if len(yielded[0]) != state.explicit:
            raise YieldMismatch(header.loc, len(yielded[0]), state.explicit, header.loc)
        for c, value in zip(state.carried, yielded[0], strict=False):
            ends[c.name] = value
    return ends, inside.ops


def _loop_state(
    ctx: Context, body: list[ast.stmt], live: Names, header: LoopHeader,
    explicit_names: list[str], exclude: Names, test: Names,
) -> tuple[LoopState, list[str]]:  # fmt: skip
    inits: tuple[Binding, ...] = header.init or ()
    explicit = [
        _carried_name(n, init, header.loc) for n, init in zip(explicit_names, inits, strict=True)
    ]
    for c in explicit:
        if c.type is None:
            what, wanted = describe(c.init), "tensors or scalars"
            raise BadArgument(header.loc, header.kind, "init_values", what, wanted)
    yield_names = _yield_targets(ctx, body) if header.init is not None else []
    exclude = exclude | frozenset(explicit_names) | frozenset(yield_names)
    implicit = _implicit_names(ctx, body, live, exclude, test)
    return LoopState(explicit + implicit, len(explicit)), yield_names


def _settle_types(
    ctx: Context, state: LoopState, ends: dict[str, Binding], ops: list[Op], loc: Loc
) -> bool:
    """Return whether every carried name ends the body with the type it began with.

    If not, adapt the types where the language allows it; the body is then lowered again. It is also
    lowered again if it writes memory that it took windows of: then the writes are known.
    """
    settled = not state.is_overtaken
    for c in list(state.carried):
        end = ends[c.name]
        end_type = joins.type_of(end)
        if isinstance(end, Poison) or end_type is None:
            # Reported already, or a compile-time object, which a loop cannot carry.
            state.carried.remove(c)
            ctx.env[c.name] = end if isinstance(end, Poison) else Poison()
            settled = False
        elif c.type is None:
            c.type = end_type
            c.init = joins.memory_of(ctx, end) or c.init
            c.param = Value(c.name, end_type, c.init_loc)
        elif not joins.same_type(c.type, end_type):
            settled = _adapt_type(ctx, c, ends, end_type, ops, loc) and settled
        elif (common := joins.common_type(c.type, end_type)) != c.type:
            c.type = common
            settled = False
    return settled


def _adapt_type(
    ctx: Context, c: CarriedName, ends: dict[str, Binding], end_type: Type, ops: list[Op], loc: Loc
) -> bool:
    """Make start and end agree; return False if the body must be lowered with a new type."""
    assert c.type is not None
    end = ends[c.name]
    start, stop = joins.Side(c.init, ctx.ops, c.init_loc), joins.Side(end, ops, loc)
    adapted = joins.adapt(ctx, start, c.type, stop, end_type)
    if adapted is None:
        end_loc = end.loc if isinstance(end, Value) else loc
        raise TypeChangedInLoop(end_loc, c.name, str(c.type), c.init_loc, str(end_type))
    if adapted.type == c.type:
        ends[c.name] = adapted.other
        return True
    c.init, c.type = adapted.then, joins.type_of(adapted.then)
    return False


def _initial_values(ctx: Context, state: LoopState, header: LoopHeader) -> tuple[Arg, ...]:
    """Return the initial values; a name first bound inside the loop starts undefined."""
    out: list[Arg] = []
    for c in state.carried:
        if isinstance(c.init, Poison):
            if header.trips is None or header.trips == 0:
                ctx.sink.add(LoopMayNotRun(header.loc, c.name))
            assert c.type is not None
            out.append(emit_undefined(ctx, c.type, header.loc))
        else:
            out.append(joins.round_literal(to_arg(ctx, c.init, c.init_loc), c.type, c.init_loc))
    return tuple(out)


def _yields(state: LoopState, ends: dict[str, Binding], loc: Loc) -> tuple[Arg, ...]:
    return tuple(joins.round_literal(ends[c.name], c.type, loc) for c in state.carried)  # type: ignore[arg-type]


def _emit_loop(
    ctx: Context, spec: structure.OpSpec, args: dict[str, Arg], blocks: tuple[Block, ...],
    state: LoopState, yield_names: list[str], loc: Loc,
) -> None:  # fmt: skip
    """Emit the loop and bind its results."""
    names = [c.name for c in state.carried]
    names[: len(yield_names)] = yield_names
    types = tuple(c.type for c in state.carried if c.type is not None)
    results = ctx.emit(spec, args, types, loc, tuple(names), blocks)
    for name, c, result in zip(names, state.carried, results, strict=True):
        ctx.env[name] = result
        ctx.facts.note_same(result, c.init)


def _targets(ctx: Context, s: ast.For, header: LoopHeader) -> tuple[str, list[str]]:
    """Return the index name and the names of explicitly carried values."""
    if header.init is None:
        return _index_name(ctx, s, "one name (values are carried with `init_values=`)"), []
    target, count = s.target, len(header.init)
    wanted = f"an index and {count} carried names, as in `i, (a, b)`"
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        raise BadLoopTarget(ctx.loc(target), wanted)
    index, carried = target.elts
    if not isinstance(index, ast.Name):
        raise BadLoopTarget(ctx.loc(index), wanted)
    return index.id, _carried_names(ctx, carried, count, wanted)


def _carried_names(ctx: Context, node: ast.expr, count: int, wanted: str) -> list[str]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    names = [p.id for p in parts if isinstance(p, ast.Name)]
    if len(names) != len(parts) or len(names) != count:
        raise BadLoopTarget(ctx.loc(node), wanted)
    return names


def _yield_targets(ctx: Context, body: list[ast.stmt]) -> list[str]:
    """Return the names that `a, b = pl.yield_(...)` of this loop binds."""
    for s in body:
        if _is_yield(ctx, s) and isinstance(s, ast.Assign):
            target = s.targets[0]
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            return [p.id for p in parts if isinstance(p, ast.Name)]
    return []


def _is_yield(ctx: Context, s: ast.stmt) -> bool:
    """Return whether `s` is `pl.yield_(...)`, with or without a target."""
    if not isinstance(s, (ast.Assign, ast.Expr)) or not isinstance(s.value, ast.Call):
        return False
    return static_callee(ctx, s.value) is markers.yield_


# --- while ---------------------------------------------------------------------------------------


@statement(ast.While)
def lower_while(ctx: Context, s: ast.While, live: Names) -> None:
    _check_no_else(ctx, s)
    header = LoopHeader("while", ctx.loc(s.test))
    _lower_condition_loop(ctx, s, s.test, header, [], live)


def _lower_explicit_while(ctx: Context, s: ast.For, header: LoopHeader, live: Names) -> None:
    """Lower `for (x,) in pl.while_(init_values=(x0,)):`, whose body begins with `pl.cond(...)`."""
    header.init = header.init or ()
    names = _carried_names(ctx, s.target, len(header.init), f"{len(header.init)} carried names")
    first = s.body[0]
    call = first.value if isinstance(first, ast.Expr) else None
    if not isinstance(call, ast.Call) or static_callee(ctx, call) is not markers.cond:
        raise CondNotFirst(ctx.loc(first))
    test = call.args[0]
    rest = ast.copy_location(ast.While(test, s.body[1:], []), s)
    _lower_condition_loop(ctx, rest, test, header, names, live)


def _lower_condition_loop(
    ctx: Context, s: ast.While, test: ast.expr, header: LoopHeader, names: list[str], live: Names
) -> None:
    test_names = target_names(ast.Tuple([n for n in ast.walk(test) if isinstance(n, ast.Name)]))
    state, yield_names = _loop_state(ctx, s.body, live, header, names, NONE, test_names)
    live_inside = (live | ctx.flow.live_before(s.body, live) | test_names) - frozenset(names)
    body = _lower_to_fixpoint(ctx, s, state, {}, live_inside, False, header)
    inits = _initial_values(ctx, state, header)
    yields = _yields(state, body.ends, header.loc)
    repeated = finish_block(body.ops, state.params, yields, header.loc)
    state.fresh_params()
    before = ctx.nested()
    before.env.update({c.name: c.param for c in state.carried if c.param is not None})
    condition = evaluate(before, test)
    holds = as_condition(before, condition, test, "while")
    cond = finish_block(before.ops, state.params, (holds,), header.loc)
    blocks = (cond, repeated)
    _emit_loop(ctx, structure.WHILE, {"init": inits}, blocks, state, yield_names, header.loc)
