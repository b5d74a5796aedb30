"""Hand-written transfers between the cores of a group: two functions become one kernel.

Each function of a group is lowered to a list of ops with `push` and `pop` for transfers; `weave`
merges the lists. Every pipe is a queue, so each pop can be matched with its push as long as both
sides take the same control path: loops with transfers are merged iteration by iteration, and so are
the arms of an `if` on the same condition. A popped tile becomes a move of the pushed one, so no
engine knows of pipes.
"""

from __future__ import annotations

import ast
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.cautions import NoEffect
from tilelet.diag.catalogue.ops import BadArgument, MissingArgument, UnknownKeyword, WrongArity
from tilelet.diag.catalogue.unsupported import PipeMismatch, PipeOutsideGroup
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.frontend import annotations
from tilelet.frontend.bindings import Binding, describe, tile_type
from tilelet.frontend.context import Context, CorePart
from tilelet.frontend.dispatch import call, evaluate
from tilelet.frontend.emitting import to_arg
from tilelet.frontend.resolve import static_callee
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Op, Value, walk
from tilelet.ir.rebuild import Rewriter, clone_ops, fresh_value, substitute, with_args, yield_op
from tilelet.ir.spec import REGISTRY, OpSpec, bind
from tilelet.ir.types import Mem, TileType, types_agree
from tilelet.ops.manual import signature_text
from tilelet.syntax import pipes as markers
from tilelet.syntax.types import Tile, TileAnnotation

MAX_COPIES = 4096  # limit of unrolled iterations, if two loops do not run in step

PUSH = OpSpec("pipe.push", structural=True)
POP = OpSpec("pipe.pop", structural=True)

Pipe = tuple[str, int]  # the popping core ("AIC" or "AIV") and the number of the pipe
Queues = dict[Pipe, "deque[tuple[Value, Loc]]"]


@dataclass
class _Weaver:
    ctx: Context
    mapping: dict[Value, Arg] = field(default_factory=dict[Value, Arg])
    definitions: dict[Value, Op] = field(default_factory=dict[Value, Op])
    copies: int = 0

    def weave(self, sides: Sequence[Sequence[Op]], queues: Queues) -> list[Op]:
        """Merge several lists of ops into one; `queues` are the contents of the pipes, before and
        after.
        """
        left = [deque(side) for side in sides]
        done: list[Op] = []
        while any(left):
            moved = [self._advance(side, queues, done) for side in left]
            if any(moved):
                continue
            waiting = [side[0] for side in left if side]
            if not self._join(waiting, left, queues, done) and not self._unroll(left):
                other = waiting[1].loc if len(waiting) > 1 else None
                problem = "it waits for a tile that no core pushes"
                raise PipeMismatch(waiting[0].loc, problem, other)
        return done

    def _advance(self, side: deque[Op], queues: Queues, done: list[Op]) -> bool:
        """Emit the ops of one side until it has to wait; return whether there were any."""
        before = len(side)
        while side:
            op = side[0]
            if op.spec is PUSH:
                tile = substitute(op.args["tile"], self.mapping)
                assert isinstance(tile, Value)
                queues.setdefault(_pipe(op), deque()).append((tile, op.loc))
            elif op.spec is POP:
                queue = queues.get(_pipe(op))
                if not queue:
                    break
                done += self._receive(op, *queue.popleft())
            elif _transfers(op):
                break
            else:
                op = Rewriter(self.mapping).ops([op])[0] if self.mapping else op
                done.append(op)
                self.definitions.update(dict.fromkeys(op.results, op))
            side.popleft()
        return len(side) < before

    def _receive(self, pop: Op, tile: Value, pushed_at: Loc) -> list[Op]:
        """Return the ops for a pop: a move of the pushed tile, with the declared valid region."""
        (result,) = pop.results
        assert isinstance(result.type, TileType)
        assert isinstance(tile.type, TileType)
        if not types_agree(replace(result.type, space=None), replace(tile.type, space=None)):
            problem = f"it declares {result.type}, but {tile.type} is pushed"
            raise PipeMismatch(pop.loc, problem, pushed_at)
        region = substitute(pop.args["region"], self.mapping)
        moved = result if region is None else fresh_value(result)
        spec = REGISTRY["move"]
        args = bind(spec, tile, target_memory=result.type.space)
        ops = [Op(spec, args, (moved,), (), pop.loc)]
        if region is not None:
            assert isinstance(region, tuple)
            spec = REGISTRY["set_validshape"]
            ops.append(Op(spec, bind(spec, moved, *region), (result,), (), pop.loc))
        return ops

    # --- loops and branches -----------------------------------------------------------------------

    def _join(
        self, waiting: list[Op], left: list[deque[Op]], queues: Queues, done: list[Op]
    ) -> bool:
        """Merge loops or branches that run in step, if every side is waiting before one."""
        if len(waiting) < 2 or not all(op.blocks for op in waiting):
            return False
        mapped = [
            with_args(op, **{name: substitute(a, self.mapping) for name, a in op.args.items()})
            for op in waiting
        ]
        if self._run_alike(mapped, structure.FOR, "start", "stop", "step"):
            joined = self._join_loops(mapped, queues)
        elif self._run_alike(mapped, structure.IF, "cond"):
            joined = self._join_branches(mapped, queues)
        else:
            return False
        done.append(joined)
        for side in left:
            if side:
                side.popleft()
        return True

    def _run_alike(self, ops: list[Op], spec: OpSpec, *params: str) -> bool:
        """Return whether all are of one kind, with the same bounds or condition."""
        first, *others = ops
        return all(op.spec is spec for op in ops) and all(
            self._are_same(first.args[p], o.args[p]) for p in params for o in others
        )

    def _are_same(self, a: Arg, b: Arg) -> bool:
        """Return whether two scalars are computed alike from the same values."""
        a, b = substitute(a, self.mapping), substitute(b, self.mapping)
        if not isinstance(a, Value) or not isinstance(b, Value):
            return type(a) is type(b) and a == b
        if a is b or self.ctx.facts.difference(a, b) == 0:
            return True
        x, y = self.definitions.get(a), self.definitions.get(b)
        if x is None or y is None or x.spec is not y.spec or not x.spec.name.startswith("scalar."):
            return False
        return all(self._are_same(x.args[name], y.args[name]) for name in x.args)

    def _join_loops(self, loops: list[Op], queues: Queues) -> Op:
        first = loops[0]
        index = first.blocks[0].params[0]
        for other in loops[1:]:
            self.mapping[other.blocks[0].params[0]] = index
        held = {pipe: list(queue) for pipe, queue in queues.items() if queue}
        params = {pipe: [fresh_value(v) for v, _ in entries] for pipe, entries in held.items()}
        inside: Queues = {
            pipe: deque((p, loc) for p, (_, loc) in zip(params[pipe], entries, strict=True))
            for pipe, entries in held.items()
        }
        body = self.weave([loop.blocks[0].ops[:-1] for loop in loops], inside)
        after = {pipe: list(queue) for pipe, queue in inside.items() if queue}
        if {p: len(q) for p, q in after.items()} != {p: len(q) for p, q in held.items()}:
            problem = "one iteration pushes more tiles than it pops, or fewer"
            raise PipeMismatch(first.loc, problem, loops[-1].loc)
        yields = [v for loop in loops for v in _values(loop.blocks[0].terminator)]
        yields += [v for entries in after.values() for v, _ in entries]
        carried = [p for loop in loops for p in loop.blocks[0].params[1:]]
        carried += [p for ps in params.values() for p in ps]
        init = [v for loop in loops for v in _tuple(loop.args["init"])]
        init += [v for entries in held.values() for v, _ in entries]
        results = [r for loop in loops for r in loop.results]
        queues.clear()
        for pipe, entries in after.items():
            out = [fresh_value(v) for v, _ in entries]
            results += out
            queues[pipe] = deque(zip(out, [loc for _, loc in entries], strict=True))
        mapped = tuple(substitute(v, self.mapping) for v in yields)
        block = Block((index, *carried), (*body, yield_op(mapped, first.loc)))
        kinds = {loop.args["kind"] for loop in loops}
        kind = first.args["kind"] if len(kinds) == 1 else "range"
        starts = tuple(substitute(v, self.mapping) for v in init)
        args = {**first.args, "init": starts, "kind": kind}
        return Op(structure.FOR, args, tuple(results), (block,), first.loc)

    def _join_branches(self, branches: list[Op], queues: Queues) -> Op:
        first = branches[0]
        blocks: list[Block] = []
        ends: list[Queues] = []
        for arm in (0, 1):
            inside: Queues = {pipe: deque(queue) for pipe, queue in queues.items()}
            body = self.weave([b.blocks[arm].ops[:-1] for b in branches], inside)
            values = [v for b in branches for v in _values(b.blocks[arm].terminator)]
            handed = tuple(substitute(v, self.mapping) for v in values)
            blocks.append(Block((), (*body, yield_op(handed, first.loc))))
            ends.append({pipe: queue for pipe, queue in inside.items() if queue})
        if ends[0] != ends[1]:
            problem = "the arms of a branch leave different tiles in a pipe"
            raise PipeMismatch(first.loc, problem, branches[-1].loc)
        queues.clear()
        queues.update(ends[0])
        results = tuple(r for b in branches for r in b.results)
        return Op(structure.IF, first.args, results, tuple(blocks), first.loc)

    def _unroll(self, left: list[deque[Op]]) -> bool:
        """Unroll loops with constant bounds that do not run in step."""
        found = False
        for side in left:
            if side and side[0].spec is structure.FOR:
                bounds = [side[0].args[b] for b in ("start", "stop", "step")]
                if not all(isinstance(b, int) for b in bounds):
                    continue
                trips = range(*bounds)  # type: ignore[arg-type]
                self.copies += len(trips)
                if self.copies > MAX_COPIES:
                    continue
                side.extendleft(reversed(self._iterations(side.popleft(), trips)))
                found = True
        return found

    def _iterations(self, loop: Op, trips: range) -> list[Op]:
        (block,) = loop.blocks
        carried: list[Arg] = list(_tuple(loop.args["init"]))
        ops: list[Op] = []
        for i in trips:
            copied: dict[Value, Arg] = dict(zip(block.params, (i, *carried), strict=True))
            ops += clone_ops(block.ops[:-1], copied)
            carried = [substitute(v, copied) for v in _values(block.terminator)]
        ended = dict(zip(loop.results, carried, strict=True))
        for old, new in self.mapping.items():
            self.mapping[old] = substitute(new, ended)
        self.mapping.update(ended)
        return ops


def weave(ctx: Context, parts: Sequence[CorePart]) -> Mapping[Value, Arg]:
    """Put the joined parts into `ctx.ops`; return the replacements of removed values."""
    weaver = _Weaver(ctx)
    of_parts = {r for part in parts for op in part.ops for r in op.results}
    before: list[Op] = []
    after: list[Op] = []
    for op in ctx.ops:
        uses = {v for inner in walk(Block((), (op,))) for v in inner.operands}
        late = not uses.isdisjoint(of_parts)
        (after if late else before).append(op)
        if late:
            of_parts.update(op.results)
    queues: Queues = {}
    woven = weaver.weave([part.ops for part in parts], queues)
    for queue in queues.values():
        for _, pushed_at in queue:
            ctx.sink.add(NoEffect(pushed_at, "this transfer", "no core pops the tile"))
    ctx.ops[:] = [*before, *woven, *Rewriter(weaver.mapping).ops(after)]
    return weaver.mapping


# --- calls ----------------------------------------------------------------------------------------


def is_pop(ctx: Context, node: ast.expr) -> bool:
    """Return whether `node` is a call that receives a tile."""
    callee = static_callee(ctx, node) if isinstance(node, ast.Call) else None
    return callee is markers.tpop_from_aic or callee is markers.tpop_from_aiv


def _bind_arguments(
    ctx: Context, node: ast.Call, function: Callable[..., object]
) -> dict[str, Binding]:
    """Return the arguments of a call by name, according to the signature of `function`."""
    if ctx.parts is None:
        raise PipeOutsideGroup(ctx.loc(node), f"pl.{function.__name__}")
    args = [evaluate(ctx, a) for a in node.args]
    named = {k.arg: evaluate(ctx, k.value) for k in node.keywords if k.arg}
    signature = inspect.signature(function)
    for keyword in node.keywords:
        if keyword.arg not in signature.parameters:
            allowed = list(signature.parameters)
            raise UnknownKeyword(ctx.loc(keyword), function.__name__, keyword.arg or "**", allowed)
    try:
        bound = signature.bind(*args, **named)
    except TypeError:
        text = signature_text(function.__name__, signature)
        given = len(args) + len(named)
        needed = sum(p.default is p.empty for p in signature.parameters.values())
        wanted = f"at least {needed} arguments"
        raise WrongArity(ctx.loc(node), function.__name__, given, wanted, text) from None
    bound.apply_defaults()
    return bound.arguments


@call(markers.tpush_to_aiv, markers.tpush_to_aic)
def _push(ctx: Context, node: ast.Call) -> None:
    function = evaluate(ctx, node.func)
    given = _bind_arguments(ctx, node, function)
    tile = given["tile"]
    if tile_type(tile) is None:
        raise BadArgument(ctx.loc(node), function.__name__, "tile", describe(tile), "a tile")
    popper = "AIV" if function is markers.tpush_to_aiv else "AIC"
    ctx.emit(PUSH, {"pipe": (popper, given["id"] or 0), "tile": tile}, (), ctx.loc(node))


@call(markers.tpop_from_aic, markers.tpop_from_aiv)
def pop(ctx: Context, node: ast.Call, annotation: Binding = None) -> Value:
    """Lower a pop, whose arguments or the annotation of whose target state the type."""
    by_vector = static_callee(ctx, node) is markers.tpop_from_aic
    function = markers.tpop_from_aic if by_vector else markers.tpop_from_aiv
    given = _bind_arguments(ctx, node, function)
    loc = ctx.loc(node)
    region: Arg = None
    if isinstance(annotation, TileAnnotation):
        declared = annotations.value_type(annotation)
        view = annotation.view
        if view is not None and view.valid_shape:
            region = tuple(to_arg(ctx, v, loc) for v in view.valid_shape)
    elif isinstance(given["shape"], (list, tuple)) and isinstance(given["dtype"], DType):
        declared = annotations.value_type(Tile[given["shape"], given["dtype"]])
    else:
        wanted = "an annotation such as `pl.Tile[[16, 16], pl.FP32]`, or `shape=` and `dtype=`"
        raise MissingArgument(loc, function.__name__, "type", wanted)
    assert isinstance(declared, TileType)
    space = declared.space or (Mem.Vec if by_vector else Mem.Mat)
    result = TileType(declared.shape, declared.dtype, space)
    args: dict[str, Arg] = {"pipe": ("AIV" if by_vector else "AIC", given["id"] or 0)}  # type: ignore[dict-item]
    return ctx.emit(POP, {**args, "region": region}, (result,), loc, ("popped",))[0]


_WITHOUT_EFFECT: dict[Callable[..., object], Binding] = {
    markers.tfree_to_aic: None,
    markers.tfree_to_aiv: None,
    markers.aic_initialize_pipe: None,
    markers.aiv_initialize_pipe: None,
    markers.reserve_buffer: 0,
    markers.import_peer_buffer: 0,
}
"""Calls that only manage buffers, and what they return."""


@call(*_WITHOUT_EFFECT)
def _without_effect(ctx: Context, node: ast.Call) -> Binding:
    function = evaluate(ctx, node.func)
    _bind_arguments(ctx, node, function)
    return _WITHOUT_EFFECT[function]


def _transfers(op: Op) -> bool:
    return bool(op.blocks) and any(o.spec in (PUSH, POP) for b in op.blocks for o in walk(b))


def _pipe(op: Op) -> Pipe:
    return op.args["pipe"]  # type: ignore[return-value]


def _values(terminator: Op) -> tuple[Arg, ...]:
    return _tuple(terminator.args["values"])


def _tuple(arg: Arg) -> tuple[Arg, ...]:
    assert isinstance(arg, tuple)
    return arg
