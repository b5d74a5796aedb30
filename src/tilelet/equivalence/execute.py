"""Symbolic execution of a program: the final memory as terms of its inputs.

Loops with known bounds are unrolled. A loop with a data-dependent trip count is executed once, from
an unknown state: its effect is a function of that iteration, its bounds and the state before it.
Both sides of a data-dependent branch are executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.dtypes import BOOL, DType
from tilelet.equivalence import tiles
from tilelet.equivalence.loops import Iteration, TermLoop, changed_positions, digests, window_labels
from tilelet.equivalence.memory import (
    Buffer,
    Memory,
    UnprovableError,
    View,
    whole_view,
    with_valid,
)
from tilelet.equivalence.rings import MODULUS
from tilelet.equivalence.terms import (
    ZERO,
    Scalar,
    Symbol,
    Terms,
    combine,
    constant,
    difference,
    digest,
    grid,
    has_symbol,
    symbol,
    tag,
)
from tilelet.equivalence.tiles import UNDEFINED, TermTile
from tilelet.ir.core import (
    Arg,
    Block,
    Const,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
    scalar_dtype,
)
from tilelet.ir.faults import Fault
from tilelet.ir.spec import Trait
from tilelet.ir.types import ArrayType, ScalarType, TensorType, TileType
from tilelet.ir.views import CallView, ForView, yielded_values
from tilelet.ops.reference import wrap_integer
from tilelet.ops.transfers import fit_rank
from tilelet.syntax.enums import AtomicType

Env = dict[Value, Any]
Values = tuple[Any, ...]

MAX_WORK = 400_000_000
"""Maximum number of elements hashed for one program, which takes some seconds."""

MAX_GUARDED = 64
"""Maximum length of a loop whose iterations are executed one by one, each on a condition."""

_PER_OP = 2000
"""Fixed work of an op, in elements."""

_NO_TASK = -1

_RING_OPS = {"scalar.add": "add", "scalar.sub": "sub", "scalar.mul": "mul"}


@dataclass(frozen=True)
class Outcome:
    """The final state of a program.

    parameters   names and types
    buffers      final memory of parameters and returned tensors, by name
    returned     scalars, and the windows of `buffers`, in order
    obligations  accesses that may fail and loops that may not end, each with its path
    modulus      terms are compared modulo this number, if any
    """

    parameters: tuple[object, ...]
    buffers: Mapping[str, Buffer]
    returned: tuple[object, ...]
    obligations: frozenset[np.uint64]
    modulus: int | None


def execute(program: Program, *, rounding: bool, budget: int | None = None) -> Outcome:
    """Execute a program on unknown inputs.

    rounding  ignore the order of FP32 sums
    budget    elements that may be hashed; None: `MAX_WORK`
    """
    return _SymbolicRun(program, rounding, MAX_WORK if budget is None else budget).outcome()


class _SymbolicRun:
    def __init__(self, program: Program, rounding: bool, budget: int) -> None:
        self.program = program
        self.rounding = rounding
        self.budget = budget
        self.memory = Memory()
        self.obligations: set[np.uint64] = set()
        self.path: list[np.uint64] = []
        self.work = 0
        self.block = 0
        self.blocks = 1
        self._buffers: list[Buffer] = []
        self._names: dict[str, int] = {}
        self._minima: dict[Symbol, tuple[tuple[Scalar, Scalar], ...]] = {}

    def outcome(self) -> Outcome:
        main = self.program.main
        arguments = [self._parameter(p) for p in main.params]
        returned = self._function(main, arguments)
        named = zip(main.params, arguments)
        names = {a.buffer: p.name for p, a in named if isinstance(a, View)}
        results: list[object] = []
        for place, (value, made) in enumerate(zip(returned, yielded_values(main.body))):
            if isinstance(value, View):
                name = names.setdefault(value.buffer, f"result {place}")
                results.append((name, value.place, value.valid, _element_type(made)))
            else:
                results.append((value, _element_type(made)))
        return Outcome(
            tuple((p.name, _extents(p), _element_type(p)) for p in main.params),
            {name: buffer for buffer, name in names.items()},
            tuple(results),
            frozenset(self.obligations),
            int(MODULUS) if self.rounding else None,
        )

    # Values

    def _parameter(self, param: Value) -> object:
        if isinstance(param.type, ScalarType):
            return symbol("parameter", param.name)
        if not isinstance(param.type, TensorType):
            raise UnprovableError("a parameter is neither a tensor nor a scalar")
        return self._fresh(param.name, self._shape(param.type.shape), None)

    def _shape(self, shape: Sequence[Any]) -> tuple[int, ...]:
        if not all(isinstance(n, int) for n in shape):
            raise UnprovableError("an extent is known only when the program runs")
        return tuple(shape)

    def _fresh(self, name: str, shape: tuple[int, ...], element: np.uint64 | None) -> View:
        """Create memory of a parameter (`element` None), or filled with one element."""
        count = self._names[name] = self._names.get(name, 0) + 1
        size = math.prod(shape)
        buffer = Buffer(f"{name} {count}", size)
        if element is not None:
            self._spend(size)
            buffer.data = np.full(size, element, np.uint64)
        self._buffers.append(buffer)
        return whole_view(buffer, shape)

    def _spend(self, elements: int) -> None:
        self.work += elements
        if self.work > self.budget:
            raise UnprovableError(f"it takes more than {self.budget:,} symbolic elements")

    def _get(self, arg: Arg, env: Env) -> Any:
        if isinstance(arg, Value):
            return env[arg]
        if isinstance(arg, Const):
            return arg.value
        if isinstance(arg, tuple):
            return tuple(self._get(a, env) for a in arg)
        return arg

    # Blocks and functions

    def _function(self, function: Function, arguments: Sequence[object]) -> Values:
        return self._block(function.body, dict(zip(function.params, arguments)))

    def _block(self, block: Block, env: Env) -> tuple[object, ...]:
        for op in block.ops[:-1]:
            self._spend(_PER_OP)
            handler = getattr(self, f"_op_{op.name.replace('.', '_')}", self._other)
            results: tuple[object, ...] = handler(op, env)
            env.update(zip(op.results, results))
        return tuple(self._get(v, env) for v in yielded_values(block))

    def _other(self, op: Op, env: Env) -> tuple[object, ...]:
        known = {"get_block_idx": self.block, "get_block_num": self.blocks}
        if op.name in known:
            return (known[op.name],)
        if Trait.SCALAR in op.spec.traits:
            return (self._scalar(op, env),)
        if op.name.startswith("system."):
            return (_NO_TASK,) * len(op.results)
        if op.name == "undef":
            return (self._undefined(op.result),)
        if op.spec.reference is None or op.spec.writes:
            raise UnprovableError(f"`pl.{op.name}` is not modelled")
        return self._compute(op, env)

    @contextmanager
    def _under(self, condition: np.uint64) -> Generator[None]:
        self.path.append(condition)
        yield
        self.path.pop()

    def _oblige(self, *parts: object) -> None:
        """Record an access that may fail."""
        self.obligations.add(tag(tuple(self.path), *parts))

    # Scalars

    def _scalar(self, op: Op, env: Env) -> Scalar:
        args = {name: self._get(arg, env) for name, arg in op.args.items()}
        fixed = {"result_type": op.result.type} if op.spec.takes_result_type else {}
        if not any(isinstance(a, Symbol) for a in args.values()):
            assert op.spec.reference is not None
            try:
                return op.spec.reference(**args, **fixed)
            except Fault as fault:
                raise UnprovableError("a scalar operation fails") from fault
        assert isinstance(op.result.type, ScalarType)
        dtype = op.result.type.dtype
        if op.name in _RING_OPS and dtype.is_integer:
            a, b = (_widen(op.args[n], args[n], dtype) for n in ("lhs", "rhs"))
            a = a if isinstance(a, Symbol) else Symbol(int(a) % ((1 << 127) - 1))
            found = {"add": a.__add__, "sub": a.__sub__, "mul": a.__mul__}[_RING_OPS[op.name]](b)
            return found if isinstance(found, Symbol) else wrap_integer(found, dtype)
        if op.name in ("scalar.floordiv", "scalar.mod", "scalar.truediv"):
            self._oblige("division", args["rhs"])
        found = symbol(op.name, dtype, tuple(args.items()))
        if op.name == "scalar.min" and dtype.is_integer:
            a, b = args.values()
            self._minima[found] = ((a, b), (b, a))
        return found

    def _op_tensor_dim(self, op: Op, env: Env) -> Values:
        value, axis = self._get(op.args["tensor"], env), self._get(op.args["axis"], env)
        return (value.shape[axis],)

    def _op_array_create(self, op: Op, env: Env) -> Values:
        return ((0,) * self._get(op.args["length"], env),)

    def _op_array_get(self, op: Op, env: Env) -> Values:
        array, index = self._get(op.args["array"], env), self._get(op.args["index"], env)
        if isinstance(index, Symbol) or not 0 <= index < len(array):
            self._oblige("array", array, index)
            return (symbol("array.get", scalar_dtype(op.result), array, index),)
        return (array[index],)

    def _op_array_set(self, op: Op, env: Env) -> Values:
        array, index, value = (self._get(op.args[n], env) for n in ("array", "index", "value"))
        if isinstance(index, Symbol) or not 0 <= index < len(array):
            raise UnprovableError("an array of scalars is written at an unknown place")
        return ((*array[:index], value, *array[index + 1 :]),)

    # Memory

    def _op_create_tensor(self, op: Op, env: Env) -> Values:
        type_ = op.result.type
        if isinstance(type_, TileType):
            return (TermTile(np.full(type_.shape, UNDEFINED), type_.shape),)
        assert isinstance(type_, TensorType)
        value = self._get(op.args.get("init_value"), env)
        element = UNDEFINED if value is None else constant(value, type_.dtype)
        shape = self._shape(self._get(op.args["shape"], env))
        return (self._fresh(op.result.name, shape, element),)

    _op_create_tile = _op_create_tensor

    def _window(self, op: Op, env: Env, source: str, offset: str, shape: str, limit: Arg) -> View:
        view: View = self._get(op.args[source], env)
        offsets = self._get(_as_tuple(op.args[offset]), env)
        shapes = self._shape(self._get(_as_tuple(op.args[shape]), env))
        if op.args["clamp"] or view.valid is not None:
            raise UnprovableError("a window is clamped, or of a view that is valid in part")
        made = view.sliced(offsets, shapes)
        valid = None if limit is None else self._get(_as_tuple(limit), env)
        if made.unknown or valid is not None:
            self._oblige("window", view.place, offsets, shapes, valid)
        if valid is not None and op.args["sized"]:
            if any(isinstance(v, int) and v < 0 for v in valid):
                raise UnprovableError("the size of a window is negative")
            if has_symbol(valid):
                self._oblige("sized", shapes, valid)
        if valid is not None and tuple(valid) != shapes:
            made = with_valid(made, tuple(valid), shapes)
        return made

    def _op_slice(self, op: Op, env: Env) -> Values:
        if isinstance(self._get(op.args["x"], env), TermTile):
            return self._compute(op, env)
        view = self._window(op, env, "x", "offset", "shape", op.args["valid_shape"])
        drop = op.args["drop_dims"]
        if drop:
            view = view.without(self._get(_as_tuple(drop), env))
        if isinstance(op.result.type, TensorType):
            return (view,)
        if op.args["pad_value"] is not None:
            raise UnprovableError("a padded load is not modelled")
        return (self._loaded(view),)

    def _op_load(self, op: Op, env: Env) -> tuple[object, ...]:
        limit = (
            op.args["valid_shapes"] if op.args["valid_shape"] is None else op.args["valid_shape"]
        )
        tile = self._loaded(self._window(op, env, "tensor", "offsets", "shapes", limit))
        if op.args["transpose"]:
            valid = (*tile.valid[:-2], tile.valid[-1], tile.valid[-2])
            tile = TermTile(np.ascontiguousarray(np.swapaxes(tile.terms, -1, -2)), valid)
        return (tile,)

    def _loaded(self, view: View) -> TermTile:
        self._spend(math.prod(view.reach))
        terms = self.memory.load(view)
        return TermTile(terms % MODULUS if self.rounding else terms, view.valid or view.shape)

    def _op_assemble(self, op: Op, env: Env) -> tuple[object, ...]:
        if isinstance(self._get(op.args["target"], env), TermTile):
            return self._compute(op, env)
        return self._stored(op, env, "target", "source", "offset")

    def _op_store(self, op: Op, env: Env) -> tuple[object, ...]:
        return self._stored(op, env, "tensor", "tile", "offsets")

    def _stored(self, op: Op, env: Env, target: str, source: str, offset: str) -> Values:
        view: View = self._get(op.args[target], env)
        value = self._get(op.args[source], env)
        tile = self._loaded(value) if isinstance(value, View) else value
        offsets = self._get(_as_tuple(op.args[offset]), env)
        types = [a.type for a in (op.args[target], op.args[source]) if isinstance(a, Value)]
        dtypes = [t.dtype for t in types if isinstance(t, (TensorType, TileType))]
        terms = tile.terms
        extra = [op.args.get(n) for n in ("pre_quant", "pre_relu")]
        if dtypes[0] is not dtypes[1] or any(extra):
            if any(isinstance(e, Value) for e in extra):
                raise UnprovableError("a store that quantizes is not modelled")
            terms = combine(tag("stored as", tuple(dtypes), tuple(extra)), terms)
        atomic = op.args["atomic"] is AtomicType.Add
        shape, valid = (fit_rank(n, len(view.shape)) for n in (terms.shape, tile.valid))
        assert shape is not None
        assert valid is not None
        terms = terms.reshape(shape)
        if all(isinstance(v, int) for v in valid):
            if 0 in valid:
                return (view,)
            terms = terms[tuple(slice(0, v) for v in valid)]
            valid = terms.shape
        window = view.sliced(offsets, terms.shape)
        if window.unknown or valid != terms.shape:
            self._oblige("store", view.place, offsets, valid)
        self._spend(math.prod(window.reach))
        self.memory.store(window, terms, valid, tag("atomic") if atomic else ZERO)
        return (view,)

    def _op_reshape(self, op: Op, env: Env) -> Values:
        view = self._get(op.args["x"], env)
        if isinstance(view, TermTile):
            return self._compute(op, env)
        shape = self._shape(self._get(_as_tuple(op.args["shape"]), env))
        dense = whole_view(view.buffer, view.shape).strides == view.strides
        if view.unknown or view.valid is not None or not dense:
            raise UnprovableError("a view that is not dense is reshaped")
        made = whole_view(view.buffer, shape)
        return (View(made.buffer, view.offset, *made.place[1:]),)  # type: ignore[arg-type]

    def _op_transpose(self, op: Op, env: Env) -> Values:
        view = self._get(op.args["x"], env)
        if isinstance(view, TermTile):
            return self._compute(op, env)
        a, b = (self._get(op.args[n], env) for n in ("axis1", "axis2"))
        return (view.transposed(a, b),)

    def _op_set_validshape(self, op: Op, env: Env) -> tuple[object, ...]:
        if isinstance(self._get(op.args["x"], env), TermTile):
            return self._compute(op, env)
        raise UnprovableError("a view that is valid in part is not modelled")

    def _op_reinterpret_view(self, op: Op, env: Env) -> tuple[object, ...]:
        if isinstance(self._get(op.args["x"], env), TermTile):
            return self._compute(op, env)
        raise UnprovableError("memory is read as another type")

    def _element(self, op: Op, env: Env) -> View:
        view: View = self._get(op.args["x"], env)
        indices = self._get(_as_tuple(op.args["indices"]), env)
        made = view.sliced(indices, (1,) * len(view.shape))
        if made.unknown:
            self._oblige("element", view.place, indices)
        return made

    def _op_read(self, op: Op, env: Env) -> Values:
        x = self._get(op.args["x"], env)
        if isinstance(x, TermTile):
            indices = self._get(_as_tuple(op.args["indices"]), env)
            if any(isinstance(i, Symbol) for i in indices):
                self._oblige("tile element", x.terms.shape, indices)
                term = combine(tag("read", indices), digest(x.terms))[()]
            else:
                if not all(0 <= i < n for i, n in zip(indices, x.terms.shape)):
                    raise UnprovableError("an element outside of a tile is read")
                term = x.terms[tuple(indices)]
        else:
            view = self._element(op, env)
            self._spend(math.prod(view.reach))
            term = self.memory.load(view).reshape(())[()]
        assert isinstance(op.result.type, ScalarType)
        return (0 if term == ZERO else symbol("element", term, op.result.type.dtype),)

    def _op_write(self, op: Op, env: Env) -> Values:
        x = self._get(op.args["x"], env)
        if isinstance(x, TermTile):
            raise UnprovableError("an element of a tile is written")
        value, type_ = self._get(op.args["value"], env), op.args["x"]
        assert isinstance(type_, Value)
        assert isinstance(type_.type, TensorType)
        view = self._element(op, env)
        term = np.full(view.shape, constant(value, type_.type.dtype), np.uint64)
        self._spend(math.prod(view.reach))
        self.memory.store(view, term, view.shape, ZERO)
        return (x,)

    # Tiles

    def _compute(self, op: Op, env: Env) -> tuple[object, ...]:
        args = {name: self._get(arg, env) for name, arg in op.args.items()}
        for name, value in args.items():
            if isinstance(value, View):
                args[name] = self._loaded(value)
        try:
            made, in_detail = tiles.compute(op, args, rounding=self.rounding)
        except Fault as fault:
            raise UnprovableError(f"`pl.{op.name}` fails") from fault
        given = [a for a in args.values() if isinstance(a, TermTile)]
        regions = tuple((t.terms.shape, t.valid) for t in given)
        numbers = tuple(a for a in args.values() if not isinstance(a, TermTile))
        if has_symbol((regions, numbers)) or not in_detail:
            contents = () if in_detail else tuple(digest(t.terms)[()] for t in given)
            self._oblige(op.name, regions, numbers, contents)
        self._spend(sum(t.terms.size for t in (*given, *made) if isinstance(t, TermTile)))
        return tuple(made)

    # Calls

    def _op_scope(self, op: Op, env: Env) -> tuple[object, ...]:
        if op.args.get("predicate") is not None or op.args["count"] is not None:
            raise UnprovableError("a scope that is not outlined")
        values = self._block(op.blocks[0], env)
        return (*values, _NO_TASK) if op.args["task_id"] else values

    def _op_call(self, op: Op, env: Env) -> Values:
        view = CallView(op)
        callee = self.program.functions[view.callee]
        arguments = [self._get(a, env) for a in view.operands]
        predicate = op.args["predicate"]
        if predicate is not None:
            raise UnprovableError("a task has a predicate")
        if callee.kind is not FunctionKind.InCore:
            return self._function(callee, arguments)
        count = self._get(op.args["count"], env)
        if isinstance(count, Symbol):
            raise UnprovableError("data decides how many blocks a task has")
        values: tuple[object, ...] = ()
        outer = self.block, self.blocks
        for block in range(1 if count is None else count):
            self.block, self.blocks = block, 1 if count is None else count
            values = self._function(callee, arguments)
        self.block, self.blocks = outer
        return (*values, _NO_TASK) if op.args["task_id"] else values

    def _undefined(self, result: Value) -> object:
        type_ = result.type
        if isinstance(type_, TileType):
            return TermTile(np.full(type_.shape, UNDEFINED), type_.shape)
        if isinstance(type_, ScalarType):
            return 0
        if isinstance(type_, ArrayType):
            return (0,) * type_.length
        return self._fresh(result.name, self._shape(type_.shape), UNDEFINED)

    # Control

    def _op_for(self, op: Op, env: Env) -> Values:
        view = ForView(op)
        bounds = [self._get(b, env) for b in view.bounds]
        values = tuple(self._get(v, env) for v in view.init)
        if any(isinstance(b, Symbol) for b in bounds):
            if isinstance(bounds[2], Symbol):
                self._oblige("step", bounds[2])
            guarded = self._guarded_length(*bounds)
            if guarded is not None:
                return self._guarded_loop(view, bounds[0], values, env, *guarded)
            return self._summary(env, view.body, None, tuple(bounds), values)
        if not bounds[2]:
            raise UnprovableError("the step of a loop is 0")
        for index in range(*bounds):
            env[view.index] = index
            env.update(zip(view.carried, values))
            values = self._block(view.body, env)
        return values

    def _guarded_length(self, start: Any, stop: Any, step: Any) -> tuple[int, Scalar] | None:
        """Return n and `limit` of a loop from `start` to the minimum of `start + n` and `limit`."""
        for end, limit in self._minima.get(stop, ()) if step == 1 else ():
            length = None if isinstance(end, float) else difference(end, start)
            if length is not None and 0 < length <= MAX_GUARDED:
                return length, limit
        return None

    def _guarded_loop(self, view: ForView, start: Any, values: Any, env: Env, *guard: Any) -> Any:
        """Execute as many iterations as `guard` says, each if it is below the guard's limit."""
        length, limit = guard
        for offset in range(length):
            index = start + offset
            inside = {**env, view.index: index, **dict(zip(view.carried, values))}
            condition = symbol("scalar.lt", BOOL, (("lhs", index), ("rhs", limit)))
            body, kept = partial(self._block, view.body, inside), values
            values = self._either(condition, view.carried, (body, lambda: kept))  # noqa: B023
        return values

    def _op_while(self, op: Op, env: Env) -> Values:
        values = self._get(op.args["init"], env)
        cond, body = op.blocks
        while True:
            env.update(zip(cond.params, values))
            (holds,) = self._block(cond, env)
            if isinstance(holds, Symbol):
                return self._summary(env, body, cond, (), values)
            if not holds:
                return values
            env.update(zip(body.params, values))
            values = self._block(body, env)

    def _op_if(self, op: Op, env: Env) -> tuple[object, ...]:
        condition = self._get(op.args["cond"], env)
        if not isinstance(condition, Symbol):
            return self._block(op.blocks[0 if condition else 1], env)
        sides = [partial(self._block, block, dict(env)) for block in op.blocks]
        return self._either(condition, op.results, sides)

    def _either(
        self,
        condition: Symbol,
        results: Sequence[Value],
        sides: Sequence[Callable[[], Values]],
    ) -> Values:
        """Execute both sides of a branch, and merge what they leave."""
        ends: list[tuple[Values, dict[Buffer, Terms]]] = []
        before: dict[Buffer, Terms] = {}
        for number, side in enumerate(sides):
            with self._under(tag("if", condition, number)), self._saved() as frame:
                values = side()
                ends.append((values, {b: b.elements().copy() for b in frame}))
            before.update(frame)
            self._restore(frame)
        head = tag("either", condition)
        for buffer, old in before.items():
            then, orelse = (end.get(buffer, old) for _, end in ends)
            self.memory.touch(buffer)
            self._spend(4 * buffer.size)
            buffer.data = np.where(then == orelse, then, combine(head, then, orelse))
            buffer.last = None
        pairs = zip(results, ends[0][0], ends[1][0])
        return tuple(self._joined(condition, scalar_dtype(r), a, b) for r, a, b in pairs)

    def _joined(self, condition: Symbol, dtype: DType | None, a: Any, b: Any) -> object:
        """Merge the values of two branches; `dtype` is that of a scalar."""
        if isinstance(a, View) and isinstance(b, View):
            if a.is_same(b) and a.valid == b.valid:
                return a
            raise UnprovableError("a branch decides which tensor a name means")
        if isinstance(a, TermTile) and isinstance(b, TermTile):
            if a.valid != b.valid:
                raise UnprovableError("a branch decides how much of a tile is valid")
            both = combine(tag("either", condition), a.terms, b.terms)
            return TermTile(np.where(a.terms == b.terms, a.terms, both), a.valid)
        if isinstance(a, tuple):
            pairs: list[tuple[object, object]] = list(zip(a, b))  # pyright: ignore[reportUnknownArgumentType]
            return tuple(self._joined(condition, dtype, x, y) for x, y in pairs)
        return a if a == b and type(a) is type(b) else symbol("either", condition, dtype, a, b)

    @contextmanager
    def _saved(self) -> Generator[dict[Buffer, Terms]]:
        """Collect the previous contents of buffers that are written."""
        frame: dict[Buffer, Terms] = {}
        known, names = {*self._buffers}, dict(self._names)
        self.memory.saved.append(frame)
        yield frame
        self.memory.saved.pop()
        self._names = names  # buffers created inside are gone
        for buffer in [b for b in frame if b not in known]:
            del frame[buffer]  # created inside

    def _restore(self, frame: Mapping[Buffer, Terms]) -> None:
        for buffer, old in frame.items():
            buffer.data, buffer.last = old.copy(), None

    def _summary(
        self,
        env: Env,
        body: Block,
        cond: Block | None,
        bounds: tuple[object, ...],
        init: tuple[object, ...],
    ) -> Values:
        """Execute a loop with an unknown trip count by one iteration in an unknown state."""
        depth = len(self.path)
        name = tag("loop", bounds, depth, tuple(scalar_dtype(p) for p in _scalars(body.params)))
        loop = TermLoop(
            name, depth, env, body, cond, init, window_labels(init), frozenset(self._buffers)
        )
        step = self._settled_iteration(loop)
        written = list(step.after)
        before = {b: b.elements().copy() for b in written}
        relevant = self._relevant(loop, step)
        given = tuple(self._handed_on(k in loop.vague, v) for k, v in enumerate(init))
        parts: list[object] = [name, digests(step.holds, step.values), digests((), given)]
        for buffer in sorted(relevant, key=lambda b: b.key):
            parts += [buffer.key, digest(step.after[buffer])[()], digest(before[buffer])[()]]
        effect = tag(*parts)
        # Loops with the same bounds share symbols; their state is determined by the effect.
        self.obligations |= {tag("iteration", effect, o) for o in step.obligations}
        if cond is not None:
            self._oblige("termination", effect)
        hidden = [b for b in sorted(written, key=lambda b: b.key) if b not in relevant]
        everything = tag(
            effect, *(digest(terms[b])[()] for b in hidden for terms in (step.after, before))
        )
        for buffer in written:
            own = effect if buffer in relevant else everything
            self._write_summary(loop, buffer, own, before[buffer], step.after[buffer])
        return tuple(
            self._carried_out(tag(effect, loop.labels[k]), first, value, k in loop.vague)
            for k, (first, value) in enumerate(zip(init, given))
        )

    def _settled_iteration(self, loop: TermLoop) -> Iteration:
        """Execute an iteration in which everything that it writes was unknown before."""
        written: list[Buffer] = []
        step = self._iteration(loop, {})
        while len(step.after) > len(written):  # without the assumptions, it may write more buffers
            written = list(step.after)
            step = self._iteration(loop, dict.fromkeys(written, _PLAIN))
        return step

    def _iteration(self, loop: TermLoop, salts: Mapping[Buffer, np.uint64]) -> Iteration:
        """Execute one iteration, repeatedly with fewer assumptions until it respects them."""
        while True:
            found, changed = self._attempt(loop, salts)
            if changed <= loop.vague:
                return found
            loop.vague.update(changed)

    def _attempt(
        self, loop: TermLoop, salts: Mapping[Buffer, np.uint64]
    ) -> tuple[Iteration, set[int]]:
        init, vague = loop.init, loop.vague
        for k in vague:
            if isinstance(init[k], View):
                init[k].buffer.is_frozen = True  # its id may be reused for later memory
        state = [
            self._unknown(v, loop.depth, loop.labels[k], k in vague) for k, v in enumerate(init)
        ]
        inner = dict(loop.env)
        outside, self.obligations = self.obligations, set()
        with self._under(loop.name), self._saved() as frame:
            for buffer, salt in salts.items():
                self.memory.touch(buffer)
                self._spend(buffer.size)
                buffer.data, buffer.last = loop.unknown_contents(buffer, salt), None
            holds: tuple[object, ...] = ()
            if loop.cond is not None:
                inner.update(zip(loop.cond.params, state))
                holds = self._block(loop.cond, inner)
            first = [] if loop.cond is not None else [symbol("index", loop.depth)]
            inner.update(zip(loop.body.params, [*first, *state]))
            values = self._block(loop.body, inner)
            after = {b: b.elements().copy() for b in frame if b in loop.outer}
            if any(
                isinstance(v, View) and v.buffer in loop.outer
                for k, v in enumerate(values)
                if k in vague
            ):
                raise UnprovableError("a loop that data bounds carries different windows")
            values = tuple(self._handed_on(k in vague, v) for k, v in enumerate(values))
        self._restore(frame)
        obligations, self.obligations = self.obligations, outside
        return Iteration(holds, values, after, obligations), changed_positions(state, values)

    def _relevant(self, loop: TermLoop, step: Iteration) -> list[Buffer]:
        """Return the written buffers whose contents before the loop can matter."""
        written = list(step.after)
        temporary = [b for b in written if b.key.split()[0] not in self._parameters]
        if not temporary:
            return written
        other = {b: np.uint64(1) if b in temporary else _PLAIN for b in written}
        kept = [b for b in written if b not in temporary]
        return kept if step.is_same(self._iteration(loop, other), kept) else written

    def _write_summary(
        self, loop: TermLoop, buffer: Buffer, effect: object, before: Terms, after: Terms
    ) -> None:
        """Set what the loop leaves in a buffer; elements that no iteration changes stay."""
        self.memory.touch(buffer)
        self._spend(4 * buffer.size)
        unchanged = after == loop.unknown_contents(buffer, _PLAIN)
        own = tag(effect, digest(after)[()], digest(before)[()])
        made = combine(own, before, grid((buffer.size,)))
        buffer.data, buffer.last = np.where(unchanged, before, made), None

    @property
    def _parameters(self) -> set[str]:
        return {p.name for p in self.program.main.params}

    def _unknown(self, value: object, depth: int, k: str, vague: bool) -> Any:
        """Return a loop-carried value in an unknown iteration.

        vague  a tile's valid region is unknown, too; a window refers to different memory in every
               iteration, of which only the contents are known, and which must not be written
        """
        if isinstance(value, View):
            if not vague:
                return value
            view = self._fresh(f"carried {depth} {k}", value.shape, ZERO)
            view.buffer.data = combine(tag("carried", depth, k), grid((view.buffer.size,)))
            view.buffer.is_frozen = True
            return view
        if isinstance(value, TermTile):
            extents = tuple(symbol("extent", depth, k, axis) for axis in range(value.terms.ndim))
            terms = combine(tag("carried", depth, k), grid(value.terms.shape))
            return TermTile(terms, extents if vague else value.valid)
        if isinstance(value, tuple):
            raise UnprovableError("a loop that data bounds carries an array of scalars")
        return symbol("carried", depth, k)

    def _handed_on(self, vague: bool, value: object) -> Any:
        """Return the value passed to the next iteration; for changing memory, its contents."""
        if isinstance(value, View) and vague:
            if value.valid is not None:
                raise UnprovableError("a loop that data bounds carries a window valid in part")
            return TermTile(self.memory.load(value), value.shape)
        return value

    def _carried_out(self, effect: np.uint64, first: object, value: object, vague: bool) -> Any:
        """Return a carried value after a loop with an unknown trip count.

        value  the initial value
        """
        if isinstance(value, View):
            return value
        if not isinstance(value, TermTile):
            return symbol(effect, "carried out")
        terms = combine(tag(effect, "carried out"), value.terms, grid(value.terms.shape))
        if isinstance(first, View):
            view = self._fresh("carried out", value.terms.shape, ZERO)
            view.buffer.data, view.buffer.is_frozen = terms.reshape(-1), True
            return view
        if not vague:
            return TermTile(terms, value.valid)
        return TermTile(terms, tuple(symbol(effect, "extent", axis) for axis in range(terms.ndim)))


_PLAIN = np.uint64(0)


def _widen(arg: Arg, value: object, dtype: DType) -> Any:
    """Return an operand of integer arithmetic in `dtype`; polynomials have one type."""
    own = scalar_dtype(arg) if isinstance(value, Symbol) else None
    if own is None or (own.bits, own.is_signed) == (dtype.bits, dtype.is_signed):
        return value
    return symbol("widened", own, dtype, value)


def _element_type(arg: Arg) -> DType | None:
    if isinstance(arg, Value) and isinstance(arg.type, TensorType):
        return arg.type.dtype
    return scalar_dtype(arg)


def _extents(param: Value) -> tuple[object, ...]:
    return param.type.shape if isinstance(param.type, TensorType) else ()


def _scalars(values: Sequence[Value]) -> list[Value]:
    return [v for v in values if isinstance(v.type, ScalarType)]


def _as_tuple(arg: Arg) -> tuple[Arg, ...]:
    return arg if isinstance(arg, tuple) else (arg,)
