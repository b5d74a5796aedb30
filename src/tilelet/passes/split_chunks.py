"""Split chunk loops into outer loops in the control program and inner loops in a scope.

A nest of parallel chunk loops around an implied scope is split level by level and interchanged: all
outer loops move outside, and one scope holds all inner loops and the body, so that one task runs a
whole block of iterations. For `for a (A, chunk=x): for b (B, chunk=y): scope`:

    leading_full   for a_out: { for b_out: scope{for a_in: for b_in}; scope{for a_in: for b_rest} }
                   for a_rest: the same with `a` fixed
    guarded        for a_out: for b_out: scope{for a_in: if a in range: for b_in: if b in range}

Provably empty parts are omitted. All control loops carry the values of the outermost loop; inside a
scope the original nest runs with each level reduced to its chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelet.analysis.aliases import has_effect
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.internal import InternalError
from tilelet.ir import structure
from tilelet.ir.core import Arg, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import (
    Builder,
    Rewriter,
    ValueMap,
    clone_ops,
    fresh_value,
    substitute,
    substitute_all,
    with_args,
)
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView, ScopeView, yielded_values
from tilelet.ops.infer import int_of


def split_chunks(program: Program) -> Program:
    """Split every chunk loop; dissolve `chunked` scopes."""
    return program.with_functions(
        {name: _split_function(fn) for name, fn in program.functions.items()}
    )


def _split_function(fn: Function) -> Function:
    if fn.kind is FunctionKind.InCore:
        return _Plain().function(fn)
    undefined = {r for op in walk(fn.body) if op.spec is structure.UNDEF for r in op.results}
    return _Splitter(undefined).function(fn)


class _Plain(Rewriter):
    """Ignores `chunk=` inside kernels: every loop there runs on one core."""

    def rewrite(self, op: Op) -> Sequence[Op]:
        if op.spec is structure.FOR and ForView(op).chunk is not None:
            op = with_args(op, chunk=None)
        return (self.descend(op),)


class _Splitter(Rewriter):
    def __init__(self, undefined: set[Value]) -> None:
        super().__init__()
        self._undefined = undefined
        self._wrappers: list[Op] = []  # enclosing `chunked` scopes

    def rewrite(self, op: Op) -> Sequence[Op]:
        if op.spec is structure.SCOPE:
            scope = ScopeView(op)
            if scope.kind == "chunked":
                return self._dissolve(scope)
            if scope.in_core:
                return (self._leaf_scope(op),)
        elif op.spec is structure.FOR and ForView(op).chunk is not None:
            return self._split(op)
        return (self.descend(op),)

    def _dissolve(self, scope: ScopeView) -> Sequence[Op]:
        if scope.has_task_id:
            raise InternalError("a chunked scope is many tasks and has no task id", op="scope")
        self._wrappers.append(scope.op)
        ops = self.ops(scope.body.ops[:-1])
        self._wrappers.pop()
        for result, value in zip(scope.data_results, yielded_values(scope.body)):
            self.mapping[result] = substitute(value, self.mapping)
        return ops

    def _leaf_scope(self, scope: Op) -> Op:
        """Add the options of the enclosing `chunked` scopes to an in-core scope."""
        args = dict(scope.args)
        if args["kind"] == "implied":
            args["kind"] = "incore"
        for wrapper in reversed(self._wrappers):
            for name in ("hint", "split"):
                args[name] = args[name] if args[name] is not None else wrapper.args[name]
            for name in ("deps", "no_dep", "options"):
                args[name] = (*_tuple(args[name]), *_tuple(wrapper.args[name]))
        return _Plain(self.mapping).descend(replace(scope, args=args))

    def _split(self, loop: Op) -> Sequence[Op]:
        nest = _collect_nest(Rewriter(self.mapping).descend(loop), self._undefined)
        nest.scope = ScopeView(self._leaf_scope(nest.scope.op))
        builder = Builder(loop.loc)
        state = nest.control(builder, 0, (), ForView(loop).init)
        self.mapping.update(zip(loop.results, state))
        return builder.ops


def _tuple(arg: Arg) -> tuple[Arg, ...]:
    assert isinstance(arg, tuple)
    return arg


# The nest


@dataclass(frozen=True)
class _Level:
    """One loop of a nest: scalar ops, then the next loop or the scope, then scalar ops."""

    loop: ForView
    before: tuple[Op, ...]
    inner: Op
    after: tuple[Op, ...]


@dataclass(frozen=True)
class _Chunk:
    """A level inside the scope: `count` iterations from `start`, limited by `stop` if set."""

    start: Arg
    count: Arg
    stop: Arg = None


@dataclass(frozen=True)
class _Fixed:
    """A level that the control program iterates one by one."""

    index: Arg


_Mode = _Chunk | _Fixed
_Emit = Callable[[Builder, Value, Sequence[Arg]], Sequence[Arg]]


@dataclass
class _Nest:
    levels: list[_Level]
    split: int  # number of levels that are split; the others stay plain loops in the scope
    scope: ScopeView
    undefined: set[Value]

    # In the control program

    def control(
        self, b: Builder, k: int, modes: tuple[_Mode, ...], state: Sequence[Arg]
    ) -> Sequence[Arg]:
        """Emit levels k and deeper, given the modes of the outer levels; return the new state."""
        if k == self.split:
            return self._task(b, modes, state)
        loop = self.levels[k].loop
        chunk = loop.chunk
        assert chunk is not None
        start, stop, step = loop.bounds
        stride = b.scalar("mul", step, chunk)
        if loop.policy == "guarded":
            guard = None if _divides(chunk, loop.trip_count) else stop
            return self._control_loop(
                b, loop, "out", (start, stop, stride), state,
                lambda b, o, s: self.control(b, k + 1, (*modes, _Chunk(o, chunk, guard)), s),
            )  # fmt: skip
        trips = _trip_count(b, loop)
        full = b.scalar("floordiv", trips, chunk)
        rest = b.scalar("mod", trips, chunk)
        middle = b.scalar("add", start, b.scalar("mul", full, stride))
        if full != 0:
            state = self._control_loop(
                b, loop, "out", (start, middle, stride), state,
                lambda b, o, s: self.control(b, k + 1, (*modes, _Chunk(o, chunk)), s),
            )  # fmt: skip
        if rest == 0:
            return state
        if k < self.split - 1:
            return self._control_loop(
                b, loop, "rest", (middle, stop, step), state,
                lambda b, i, s: self.control(b, k + 1, (*modes, _Fixed(i)), s),
            )  # fmt: skip
        return self._remainder_task(b, (*modes, _Chunk(middle, rest)), rest, state)

    def _remainder_task(
        self, b: Builder, modes: tuple[_Mode, ...], rest: Arg, state: Sequence[Arg]
    ) -> Sequence[Arg]:
        """Emit the task for the remainder of the last level; skip it if the remainder is zero."""
        if not isinstance(rest, Value):
            return self._task(b, modes, state)
        some = b.inside()
        after = self._task(some, modes, state)
        return b.branch(b.scalar("gt", rest, 0), (some, after), (b.inside(), state))

    def _control_loop(
        self,
        b: Builder,
        loop: ForView,
        suffix: str,
        bounds: tuple[Arg, Arg, Arg],
        state: Sequence[Arg],
        emit: _Emit,
    ) -> Sequence[Arg]:
        index = fresh_value(loop.index, f"{loop.index.name}_{suffix}")
        carried = [fresh_value(c) for c in self.levels[0].loop.carried]
        body = b.inside()
        after = emit(body, index, carried)
        return b.loop(bounds, state, index, carried, body, after, loop.kind)

    def _task(self, b: Builder, modes: tuple[_Mode, ...], state: Sequence[Arg]) -> Sequence[Arg]:
        """Emit one scope that runs the nest on one block of iterations."""
        inside = b.inside(in_scope=True)
        inside.loc = self.scope.op.loc
        values = self._level(inside, 0, modes, state, {})
        results = tuple(fresh_value(r) for r in self.levels[0].loop.op.results)
        b.add(Op(structure.SCOPE, self.scope.op.args, results, (inside.block(values),), inside.loc))
        return results

    # Inside the scope

    def _level(
        self,
        b: Builder,
        k: int,
        modes: tuple[_Mode, ...],
        init: Sequence[Arg],
        mapping: ValueMap,
    ) -> Sequence[Arg]:
        """Emit level k with the given carried values; return its results."""
        if k == len(self.levels):
            b.ops.extend(clone_ops(self.scope.body.ops[:-1], mapping))
            return substitute_all(yielded_values(self.scope.body), mapping)
        loop = self.levels[k].loop
        spilled = self._spilled_types(k)
        init = [
            self._on_chip(b, k, m, v, t) if t else v for m, (v, t) in enumerate(zip(init, spilled))
        ]
        mode = modes[k] if k < len(modes) else None
        if isinstance(mode, _Fixed):
            mapping[loop.index] = mode.index
            mapping.update(zip(loop.carried, init))
            return self._body(b, k, modes, mapping)
        carried = [Value(c.name, t or c.type, c.loc) for c, t in zip(loop.carried, spilled)]
        mapping.update(zip(loop.carried, carried))
        body = b.inside()
        if mode is None:
            index = fresh_value(loop.index)
            start, stop, step = substitute_all(loop.bounds, mapping)
            mapping[loop.index] = index
            after = self._body(body, k, modes, mapping)
            return b.loop((start, stop, step), init, index, carried, body, after, loop.kind)
        step = loop.bounds[2]
        index = fresh_value(loop.index, f"{loop.index.name}_in")
        place = body.scalar(
            "add", mode.start, body.scalar("mul", index, step), result=loop.index.name
        )
        mapping[loop.index] = place
        after = (
            self._body(body, k, modes, mapping)
            if mode.stop is None
            else self._emit_guarded(body, k, modes, mapping, place, mode.stop, step, carried)
        )
        return b.loop((0, mode.count, 1), init, index, carried, body, after, loop.kind)

    def _emit_guarded(
        self,
        b: Builder,
        k: int,
        modes: tuple[_Mode, ...],
        mapping: ValueMap,
        place: Arg,
        stop: Arg,
        step: Arg,
        carried: Sequence[Arg],
    ) -> Sequence[Arg]:
        """Emit the body, guarded against indices at or past `stop`."""
        if isinstance(step, Value):
            ahead = b.scalar("mul", b.scalar("sub", place, stop), step)
            in_range = b.scalar("lt", ahead, 0)
        else:
            forwards = (int_of(step) or 0) > 0
            in_range = b.scalar("lt" if forwards else "gt", place, stop)
        then = b.inside()
        after = self._body(then, k, modes, mapping)
        return b.branch(in_range, (then, after), (b.inside(), carried))

    def _body(
        self, b: Builder, k: int, modes: tuple[_Mode, ...], mapping: ValueMap
    ) -> Sequence[Arg]:
        level = self.levels[k]
        b.ops.extend(clone_ops(level.before, mapping))
        deeper = k + 1 < len(self.levels)
        init = substitute_all(ForView(level.inner).init, mapping) if deeper else ()
        values = self._level(b, k + 1, modes, init, mapping)
        mapping.update(zip(level.inner.results, values))
        b.ops.extend(clone_ops(level.after, mapping))
        return substitute_all(yielded_values(level.loop.body), mapping)

    # Carried values that the body computes: in GM outside the scope, on chip inside

    def _spilled_types(self, k: int) -> list[TileType | None]:
        """Return the on-chip type of each carried value of level k that the scope computes."""
        level = self.levels[k]
        if k + 1 < len(self.levels):
            inner_types = self._spilled_types(k + 1)
        else:
            inner_types = [_tile_type(v) for v in yielded_values(self.scope.body)]
        on_chip = dict(zip(level.inner.results, inner_types))
        return [
            on_chip.get(v) if isinstance(v, Value) else None
            for v in yielded_values(level.loop.body)
        ]

    def _on_chip(self, b: Builder, k: int, m: int, value: Arg, tile: TileType) -> Arg:
        """Return the m-th carried value of level k as the tile that loops in the scope carry."""
        if not (isinstance(value, Value) and isinstance(value.type, TensorType)):
            return value
        overwritten = self.split == len(self.levels) and not self._reads(k, m)
        if overwritten or value in self.undefined:
            return b.undef(value.name, tile)
        return b.emit("slice", value, tile.shape, (0,) * len(tile.shape), result=value.name)

    def _reads(self, k: int, m: int) -> bool:
        """Return whether the body reads the m-th carried value of level k."""
        level = self.levels[k]
        carried = level.loop.carried[m]
        others = [*level.before, *level.after, *walk(level.inner.blocks[0])]
        if any(carried in op.operands for op in others):
            return True
        if k + 1 == len(self.levels):
            return False
        inner = ForView(level.inner)
        return any(v is carried and self._reads(k + 1, j) for j, v in enumerate(inner.init))


def _tile_type(arg: Arg) -> TileType | None:
    return arg.type if isinstance(arg, Value) and isinstance(arg.type, TileType) else None


def _collect_nest(outermost: Op, undefined: set[Value]) -> _Nest:
    """Collect the perfect nest of chunk loops that starts at `outermost`."""
    levels: list[_Level] = []
    inside: set[Value] = set()  # values defined by the levels so far
    split = 0
    op = outermost
    while op.spec is structure.FOR:
        level = _level(op)
        # Bounds that depend on the levels above cannot be computed outside the scope.
        outside = level.loop.chunk is not None and inside.isdisjoint(_bounds(level.loop))
        if split == len(levels) and outside:
            split += 1
        levels.append(level)
        inside.update(level.loop.body.params)
        inside.update(r for o in level.before for r in o.results)
        op = level.inner
    return _Nest(levels, split, ScopeView(op), undefined)


def _bounds(loop: ForView) -> tuple[Value, ...]:
    return tuple(v for v in loop.bounds if isinstance(v, Value))


def _level(loop: Op) -> _Level:
    ops = loop.blocks[0].ops[:-1]
    inner = [i for i, op in enumerate(ops) if op.spec in (structure.FOR, structure.SCOPE)]
    if len(inner) != 1 or not all(_is_scalar(op) for i, op in enumerate(ops) if i != inner[0]):
        raise InternalError(
            "the body of a chunk loop must be one loop or one scope", op=loop.name, loc=loop.loc
        )
    (at,) = inner
    return _Level(ForView(loop), ops[:at], ops[at], ops[at + 1 :])


def _is_scalar(op: Op) -> bool:
    """Return whether an op can move into the scope: it computes scalars and has no effect."""
    if op.spec is structure.UNDEF:  # a name first bound by an inner loop
        return True
    if op.spec.structural or has_effect(op):
        return False
    return not any(isinstance(r.type, TensorType) for r in op.results)


def _divides(chunk: int, trips: int | None) -> bool:
    return trips is not None and trips % chunk == 0


def _trip_count(b: Builder, loop: ForView) -> Arg:
    """Emit max(0, ceil((stop - start) / step)); `//` truncates."""
    if loop.trip_count is not None:
        return loop.trip_count
    start, stop, step = loop.bounds
    sign = b.scalar("min", b.scalar("max", step, -1), 1)
    span = b.scalar("add", b.scalar("sub", stop, start), b.scalar("sub", step, sign))
    return b.scalar("max", b.scalar("floordiv", span, step), 0)
