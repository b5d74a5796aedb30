"""Emit the control program as C: loops, scalars, windows, and task submission.

A tensor is a `tl_win`; its C text is an expression for a pointer to one. Fresh memory is
reference-counted: the variable that allocated it holds one reference, released after the last op
that can access the memory; so does every variable to which a loop or branch assigns windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilelet.cpu.emit import scalars
from tilelet.cpu.emit.elements import element, poison_pattern, repeat_bytes, scalar_type, word_field
from tilelet.cpu.emit.emitter import (
    Emitter,
    OpNumbers,
    emit_array_create,
    emit_array_get,
    emit_array_set,
    emit_division,
    emit_scalar,
    handed_scalar,
    loop_head,
)
from tilelet.cpu.emit.loop_carried import LoopCarried, emit_while_body, set_at_once
from tilelet.cpu.emit.ops_host import call_host, shaped_operands
from tilelet.cpu.emit.sites import Sites
from tilelet.cpu.emit.text import array_text, identifier
from tilelet.cpu.plan.uses import first_use
from tilelet.dataclasses import dataclass
from tilelet.diag.internal import InternalError
from tilelet.ir.core import (
    Arg,
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Value,
    walk,
)
from tilelet.ir.types import ArrayType, ScalarType, TensorType
from tilelet.ir.views import CallView, ForView, ScopeView, yielded_values
from tilelet.ops.reference import to_element

Emit = Callable[["ControlEmitter", Op], None]
EMITTERS: dict[str, Emit] = {}


def emits(*names: str) -> Callable[[Emit], Emit]:
    def add(function: Emit) -> Emit:
        for name in names:
            EMITTERS[name] = function
        return function

    return add


@dataclass(frozen=True)
class KernelEntry:
    """What a call needs to know about a kernel: its number, which arguments are windows, and of
    which of these it overwrites how many first rows before any other use.
    """

    number: int
    windows: tuple[int, ...]
    scalars: tuple[int, ...]
    fills: Mapping[int, int]


class ControlEmitter(Emitter):
    """Emit one function of the control program."""

    def __init__(
        self,
        function: Function,
        functions: Mapping[str, Function],
        sites: Sites,
        host: OpNumbers,
        kernels: Mapping[str, KernelEntry],
        calls: OpNumbers,
        rows_read: Mapping[Value, int],
    ) -> None:
        super().__init__(function, functions, sites, host)
        self.kernels = kernels
        self.calls = calls
        self.rows_read = rows_read  # of new tensors that are not read completely
        self._owned: dict[Value, str] = {}  # C names of memory allocated in the block, by root
        self._visible_until = _last_sights(self)

    def emit(self) -> list[str]:
        self._parameters()
        with self.out.indented():
            self.block(self.function.body)
            self._return(yielded_values(self.function.body))
            self.out.add("return TL_OK;")
        return [f"{signature(self.function)} {{", *self.out.lines, "}", ""]

    def _parameters(self) -> None:
        windows = numbers = 0
        with self.out.indented():
            self.out.add("(void)c, (void)w, (void)x, (void)rw, (void)rx;")
            for p in self.function.params:
                if isinstance(p.type, TensorType):
                    self.define(p, self.variable(p.name, f"&w[{windows}]", "tl_win *"))
                    windows += 1
                else:
                    assert isinstance(p.type, ScalarType)
                    field = word_field(p.type.dtype)
                    text = f"x[{numbers}].{field}"
                    self.define(p, self.variable(p.name, text, scalars.declared_type(p)))
                    numbers += 1
                self.out.add(f"(void){self.values[p]};")

    def _return(self, values: Sequence[Arg]) -> None:
        windows = numbers = 0
        for v in values:
            if isinstance(v, Value) and isinstance(v.type, TensorType):
                self.out.add(
                    f"if (rw) rw[{windows}] = *{self.window(v)}, tl_retain(&rw[{windows}]);"
                )
                windows += 1
            elif v is not None:
                dtype = (
                    v.type.dtype
                    if isinstance(v, Value) and isinstance(v.type, ScalarType)
                    else None
                )
                field = word_field(dtype) if dtype else ("f" if isinstance(v, float) else "i")
                self.out.add(f"if (rx) rx[{numbers}].{field} = {self.scalar(v)};")
                numbers += 1

    def window(self, arg: Arg) -> str:
        """Return the C expression for a pointer to a tensor's window."""
        assert isinstance(arg, Value)
        found = self.values[arg]
        assert isinstance(found, str)
        return found

    def new_window(self, op: Op, start: str) -> str:
        """Declare a window variable for the op's result, initialized to `start`."""
        name = self.name(op.result.name)
        self.out.add(f"tl_win {name} = {start};", op.loc)
        self.define(op.result, f"(&{name})")
        return name

    # --- blocks ----------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Emit all ops but the terminator; release memory after the last op that can access it."""
        for at, op in enumerate(block.ops[:-1]):
            emitter = EMITTERS.get(op.name)
            if emitter is None:
                raise InternalError("no C for this op", self.function.name, op.name, op.loc)
            emitter(self, op)
            self._release(block, at)

    def finish_block(self, block: Block) -> None:
        """Release the memory whose last use is the terminator."""
        self._release(block, len(block.ops) - 1)

    def own(self, value: Value, name: str) -> None:
        self._owned[value] = name

    def _release(self, block: Block, at: int) -> None:
        for value in self._visible_until.get((block, at), ()):
            name = self._owned.pop(value, None)
            if name is not None:
                self.out.add(f"tl_release(c, &{name});")


def _last_sights(e: Emitter) -> dict[tuple[Block, int], list[Value]]:
    """Map every root allocated in a block to the last op there that can access it."""
    last: dict[Value, tuple[Block, int]] = {}

    def sweep(block: Block) -> None:
        for at, op in enumerate(block.ops):
            for inner in (op, *(o for b in op.blocks for o in walk(b))):
                for v in (*inner.operands, *inner.results):
                    for root in e.aliases.roots(v) if isinstance(v.type, TensorType) else ():
                        if e.uses.home.get(root) is block:
                            last[root] = (block, at)
            for inner_block in op.blocks:
                sweep(inner_block)

    sweep(e.function.body)
    sights: dict[tuple[Block, int], list[Value]] = {}
    for value, place in last.items():
        sights.setdefault(place, []).append(value)
    return sights


def signature(fn: Function) -> str:
    name = f"f_{identifier(fn.name)}"
    return f"static int {name}(tl_ctx *c, tl_win *w, const tl_word *x, tl_win *rw, tl_word *rx)"


# --- values that loops and branches hand on -------------------------------------------------------


class _Carried(LoopCarried["ControlEmitter"]):
    """A carried value whose window holds a reference."""

    def window_form(self) -> str:
        return f"(&{self.variable})"

    def set_window(self, arg: Arg) -> None:
        e = self.emitter
        e.out.add(f"tl_assign(c, &{self.variable}, {e.window(arg)});")

    def read_window(self, arg: Arg) -> list[str]:
        e = self.emitter
        copy = e.name("next")
        e.out.add(f"tl_win {copy} = *{e.window(arg)};")
        e.out.add(f"tl_retain(&{copy});")
        return [f"tl_release(c, &{self.variable});", f"{self.variable} = {copy};"]


def _bind_results(e: ControlEmitter, carried: Sequence[_Carried], results: Sequence[Value]) -> None:
    for c, result in zip(carried, results):
        c.bind(result)
        if c.variable and isinstance(result.type, TensorType):
            e.own(result, c.variable)


@emits("for")
def emit_for(e: ControlEmitter, op: Op) -> None:
    view = ForView(op)
    carried = [_Carried(e, v, first) for v, first in zip(view.carried, view.init)]
    index = e.name(view.index.name)
    head = loop_head(e, op, view.bounds, index, view.trip_count)
    with e.out.block(head), e.inside():
        e.out.add("if (TL_CANCELLED(c)) return TL_STOPPED;")
        e.define(view.index, index)
        for c, param in zip(carried, view.carried):
            c.bind(param)
        e.block(view.body)
        set_at_once(e, carried, yielded_values(view.body))
        e.finish_block(view.body)
    _bind_results(e, carried, op.results)


@emits("while")
def emit_while(e: ControlEmitter, op: Op) -> None:
    body = op.blocks[1]
    init = op.args["init"]
    assert isinstance(init, tuple)
    carried = [_Carried(e, v, first) for v, first in zip(body.params, init)]
    with e.out.block("for (;;)", op.loc), e.inside():
        emit_while_body(e, carried, op, e.block)
        set_at_once(e, carried, yielded_values(body))
        e.finish_block(body)
    _bind_results(e, carried, op.results)


@emits("if")
def emit_if(e: ControlEmitter, op: Op) -> None:
    carried = [_Carried(e, v, None) for v in op.results]
    for block, head in zip(op.blocks, (f"if ({e.scalar(op.args['cond'])})", "else")):
        with e.out.block(head, op.loc), e.inside():
            e.block(block)
            set_at_once(e, carried, yielded_values(block))
            e.finish_block(block)
    _bind_results(e, carried, op.results)


@emits("scope")
def emit_scope(e: ControlEmitter, op: Op) -> None:
    """Emit the body: scopes that remain after outlining only group ops."""
    view = ScopeView(op)
    is_manual = view.kind == "manual"
    if is_manual:
        e.out.add("c->manual++;")
    e.block(view.body)
    if is_manual:
        e.out.add("c->manual--;")
    for result, value in zip(op.results, yielded_values(view.body)):
        e.define(result, e.values[value] if isinstance(value, Value) else handed_scalar(e, value))


@emits("undef")
def emit_undef(e: ControlEmitter, op: Op) -> None:
    t = op.result.type
    if isinstance(t, ScalarType):
        e.define(op.result, e.variable(op.result.name, "0", scalars.declared_type(op.result)))
    elif isinstance(t, ArrayType):
        name = e.name(op.result.name)
        e.out.add(f"const int64_t {name}[{t.length}] = {{0}};")
        e.define(op.result, name)
    else:
        assert isinstance(t, TensorType)
        # An unknown dimension occurs only in tensors that nothing reads.
        shape = [d if isinstance(d, int) else 1 for d in t.shape]
        _create(e, op, array_text(shape), len(shape), poison_pattern(t.dtype))


# --- scalars and arrays ---------------------------------------------------------------------------

emits(*scalars.BINARY, *scalars.UNARY, "scalar.cast")(emit_scalar)
emits(*scalars.DIVISIONS)(emit_division)


emits("array.create")(emit_array_create)
emits("array.get")(emit_array_get)
emits("array.set")(emit_array_set)


# --- memory and windows ---------------------------------------------------------------------------


def _create(e: ControlEmitter, op: Op, shape: str, rank: int, pattern: int) -> None:
    t = op.result.type
    assert isinstance(t, TensorType)
    name = e.new_window(op, "{0}")
    site = e.site(op, op.result.name)
    memory = f"c, {site}, &{name}, {shape}, {rank}, {t.dtype.itemsize}"
    if _is_filled_at_once(e, op):
        e.check(f"tl_allocate({memory})")
    else:
        rows = e.rows_read.get(op.result, "INT64_MAX")
        e.check(f"tl_create({memory}, {rows}, UINT64_C({pattern}))")
    e.own(op.result, name)


def _is_filled_at_once(e: ControlEmitter, op: Op) -> bool:
    """Whether the first use is a task that always runs and writes all rows that are read."""
    made = op.result
    assert isinstance(made.type, TensorType)
    use = first_use(e.uses.home[made], made)
    if use is None or use.name != "call":
        return False
    view = CallView(use)
    callee = e.functions[view.callee]
    if callee.kind is not FunctionKind.InCore or view.operands.count(made) != 1:
        return False
    at = view.operands.index(made)
    rows = made.type.shape[0] if made.type.shape else 1
    written = e.kernels[callee.name].fills.get(at, 0)
    return (
        isinstance(rows, int)
        and written >= min(rows, e.rows_read.get(made, rows))
        and callee.directions[at] is Direction.Out
        and callee.params[at].type == made.type
        and use.args["count"] is None
        and use.args["predicate"] is None
    )


@emits("create_tensor")
def emit_create(e: ControlEmitter, op: Op) -> None:
    t = op.result.type
    assert isinstance(t, TensorType)
    value = scalars.constant_of(op.args["init_value"])
    pattern = poison_pattern(t.dtype)
    if value is not None:
        pattern = repeat_bytes(np.asarray(to_element(value, t.dtype), t.dtype.numpy).tobytes())
    _create(e, op, array_text(e.dims(op.args["shape"])), len(t.shape), pattern)


@emits("slice")
def emit_slice(e: ControlEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    name = e.new_window(op, "{0}")
    limits = op.args["valid_shape"]
    cut = "NULL" if limits is None else array_text(e.dims(limits))
    edge = "TL_CLAMP" if op.args["clamp"] else "TL_VIEW" if limits is None else "TL_INSIDE"
    e.check(
        f"tl_slice(c, {e.site(op, x.name)}, &{name}, {e.window(x)}, "
        f"{array_text(e.dims(op.args['offset']))}, "
        f"{array_text(e.dims(op.args['shape']))}, {cut}, {edge})"
    )
    drop = op.args["drop_dims"]
    if drop is not None:
        assert isinstance(x.type, TensorType)
        axes = drop if isinstance(drop, tuple) else (drop,)
        mask = sum(1 << (a % len(x.type.shape)) for a in axes if isinstance(a, int))
        e.out.add(f"tl_drop_axes(&{name}, {mask});")


@emits("reshape")
def emit_reshape(e: ControlEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    name = e.new_window(op, f"*{e.window(x)}")
    shape = e.dims(op.args["shape"])
    e.check(f"tl_reshape(c, {e.site(op, 'reshape')}, &{name}, {array_text(shape)}, {len(shape)})")


@emits("reinterpret_view")
def emit_reinterpret(e: ControlEmitter, op: Op) -> None:
    x, t = op.args["x"], op.result.type
    assert isinstance(x, Value)
    assert isinstance(t, TensorType)
    name = e.new_window(op, f"*{e.window(x)}")
    shape = [] if op.args["shape"] is None else e.dims(op.args["shape"])
    given = array_text(shape) if shape else "NULL"
    site = e.site(op, "reinterpret_view")
    e.check(f"tl_reinterpret(c, {site}, &{name}, {t.dtype.itemsize}, {given}, {len(shape)})")


@emits("transpose")
def emit_transpose(e: ControlEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    assert isinstance(x.type, TensorType)
    rank = len(x.type.shape)
    name = e.new_window(op, f"*{e.window(x)}")
    a, b = op.args["axis1"], op.args["axis2"]
    assert isinstance(a, int)
    assert isinstance(b, int)
    e.out.add(f"tl_swap_axes(&{name}, {a % rank}, {b % rank});")


@emits("set_validshape")
def emit_set_validshape(e: ControlEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    name = e.new_window(op, f"*{e.window(x)}")
    rows, columns = e.scalar(op.args["rows"]), e.scalar(op.args["cols"])
    e.check(f"tl_mark_valid(c, {e.site(op, x.name)}, &{name}, {rows}, {columns})")


@emits("tensor.dim")
def emit_dim(e: ControlEmitter, op: Op) -> None:
    x, axis = op.args["tensor"], op.args["axis"]
    assert isinstance(x, Value)
    assert isinstance(axis, int)
    assert isinstance(x.type, TensorType)
    text = f"{e.window(x)}->shape[{axis % len(x.type.shape)}]"
    e.define(op.result, e.variable(op.result.name, text, loc=op.loc))


# --- single elements ------------------------------------------------------------------------------


def _address(e: ControlEmitter, op: Op, x: Value, indices: Arg, *, writing: bool) -> str:
    """Return the address of an element, after waiting for all tasks that use it."""
    address = e.name("address")
    at = e.dims(indices)
    e.out.add(f"char *{address};")
    e.check(f"tl_element(c, {e.site(op, x.name)}, {e.window(x)}, {array_text(at)}, &{address})")
    e.out.add(f"if (tl_wait(c, {e.window(x)}, {int(writing)})) return TL_STOPPED;")
    return address


def _read(e: ControlEmitter, op: Op, x: Value, indices: Arg, hint: str) -> str:
    assert isinstance(x.type, TensorType)
    kind = element(x.type.dtype)
    address = _address(e, op, x, indices, writing=False)
    c_type = scalar_type(x.type.dtype)
    number = kind.load(f"*(const {kind.memory} *){address}")
    return e.variable(hint, f"({c_type})({number})", c_type, op.loc)


@emits("read")
def emit_read(e: ControlEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    e.define(op.result, _read(e, op, x, op.args["indices"], op.result.name))


@emits("write")
def emit_write(e: ControlEmitter, op: Op) -> None:
    x = op.args["x"]
    assert isinstance(x, Value)
    assert isinstance(x.type, TensorType)
    kind = element(x.type.dtype)
    address = _address(e, op, x, op.args["indices"], writing=True)
    number = kind.store(kind.from_scalar(e.scalar(op.args["value"])))
    e.out.add(f"*({kind.memory} *){address} = {number};", op.loc)
    e.define(op.result, e.window(x))


@emits("scatter_update", "dump")
def emit_in_python(e: ControlEmitter, op: Op) -> None:
    """Emit an op on whole tensors, which its reference computes once all of them are ready."""
    windows = shaped_operands(op)
    written = [op.args[p] for p in op.spec.writes]
    for v in windows:
        e.out.add(f"if (tl_wait(c, {e.window(v)}, {int(v in written)})) return TL_STOPPED;")
    call_host(e, op, [f"*{e.window(v)}" for v in windows])
    if written:
        e.define(op.result, e.window(written[0]))


# --- tasks ----------------------------------------------------------------------------------------


def _dependencies(e: ControlEmitter, deps: Arg) -> tuple[str, str]:
    """Return C texts of an array of task ids and of its length; negative ids mean no task."""
    entries: list[str] = []
    for dep in deps if isinstance(deps, tuple) else (deps,):
        if isinstance(dep, Value) and isinstance(dep.type, ArrayType):
            entries += [f"{e.values[dep]}[{i}]" for i in range(dep.type.length)]
        elif isinstance(dep, tuple):
            raise InternalError("nested dependencies", e.function.name)
        elif dep is not None:
            entries.append(e.scalar(dep))
    if not entries:
        return "NULL", "0"
    return array_text(entries), str(len(entries))


@emits("system.task_dummy")
def emit_join(e: ControlEmitter, op: Op) -> None:
    ids, count = _dependencies(e, op.args["deps"])
    call = e.calls.number(op)
    name = e.variable(op.result.name, f"tl_join(c, {call}, {ids}, {count})", loc=op.loc)
    e.out.add(f"if ({name} < 0) return TL_STOPPED;")
    e.define(op.result, name)


@emits("system.task_invalid")
def emit_no_task(e: ControlEmitter, op: Op) -> None:
    e.define(op.result, e.variable(op.result.name, "-1"))


_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


@emits("call")
def emit_call(e: ControlEmitter, op: Op) -> None:
    view = CallView(op)
    callee = e.functions[view.callee]
    if callee.kind is not FunctionKind.InCore:
        _call_function(e, op, callee)
        return
    entry = e.kernels[callee.name]
    count = op.args["count"]
    blocks = "0" if count is None else e.scalar(count)
    if count is not None:
        e.out.add(
            f"if ({blocks} < 1) return tl_fail(c, TL_BLOCKS, {e.site(op)}, {blocks}, 0, 0, 0);"
        )
    task = e.name("task")
    e.out.add(f"int64_t {task};", op.loc)
    ids, number = _dependencies(e, op.args["deps"] or ())
    predicate = op.args["predicate"]
    submit = "tl_submit"
    if predicate is not None:
        submit = f"({_holds(e, op, predicate)} ? tl_submit : tl_skip)"
    with e.out.block():
        _fill_in(e, op, entry, view.operands)
        e.out.add(f"{task} = {submit}(c, t, {blocks}, {ids}, {number});")
    outputs = [o for o, d in zip(view.operands, callee.directions) if d is not Direction.In]
    for result, operand in zip(view.data_results, outputs):
        e.define(result, e.window(operand))
    if op.args["task_id"]:
        e.define(op.results[-1], task)


def _holds(e: ControlEmitter, op: Op, predicate: Arg) -> str:
    assert isinstance(predicate, tuple)
    tensor, indices, comparison, literal = predicate
    assert isinstance(tensor, Value)
    assert isinstance(comparison, str)
    assert comparison in _COMPARISONS
    return f"{_read(e, op, tensor, indices, 'predicate')} {comparison} {e.scalar(literal)}"


def _fill_in(e: ControlEmitter, op: Op, entry: KernelEntry, operands: Sequence[Arg]) -> None:
    """Declare `t`, the task, with its arguments."""
    e.out.add(f"tl_task *t = tl_begin(c, {entry.number}, {e.calls.number(op)});")
    e.out.add("if (!t) return TL_STOPPED;")
    if entry.windows:
        e.out.add("tl_win *a = tl_task_windows(t);")
    for i, at in enumerate(entry.windows):
        e.out.add(f"a[{i}] = *{e.window(operands[at])};")
    if entry.scalars:
        e.out.add("tl_word *s = tl_task_scalars(t);")
    for i, at in enumerate(entry.scalars):
        e.out.add(f"s[{i}].{_field(operands[at])} = {e.scalar(operands[at])};")


def _field(arg: Arg) -> str:
    if isinstance(arg, Value):
        assert isinstance(arg.type, ScalarType)
        return word_field(arg.type.dtype)
    return "f" if isinstance(scalars.constant_of(arg), float) else "i"


def _call_function(e: ControlEmitter, op: Op, callee: Function) -> None:
    """Emit a call of another control function, which runs synchronously."""
    operands = CallView(op).operands
    tensors = [o for o, p in zip(operands, callee.params) if isinstance(p.type, TensorType)]
    numbers = [o for o, p in zip(operands, callee.params) if not isinstance(p.type, TensorType)]
    made = [r for r in op.results if isinstance(r.type, TensorType)]
    given, words, windows, results = (e.name(n) for n in ("given", "words", "windows", "results"))
    e.out.add(
        f"tl_win {given}[] = {{{', '.join('*' + e.window(t) for t in tensors) or '{0}'}}};", op.loc
    )
    fields = [f"{{.{_field(n)} = {e.scalar(n)}}}" for n in numbers]
    e.out.add(f"const tl_word {words}[] = {{{', '.join(fields) or '{0}'}}};")
    e.out.add(f"tl_win {windows}[{len(made) + 1}];")
    e.out.add(f"tl_word {results}[{len(op.results) + 1}];")
    kind = e.name("kind")
    e.out.add(
        f"const int {kind} = f_{identifier(callee.name)}"
        f"(c, {given}, {words}, {windows}, {results});"
    )
    e.out.add(f"if ({kind}) return {kind};")
    number = 0
    for r in op.results:
        if isinstance(r.type, TensorType):
            at = made.index(r)
            name = e.name(r.name)
            e.out.add(f"tl_win {name} = {windows}[{at}];")
            e.define(r, f"(&{name})")
            e.own(r, name)
        else:
            assert isinstance(r.type, ScalarType)
            text = f"{results}[{number}].{word_field(r.type.dtype)}"
            e.define(r, e.variable(r.name, text, scalars.declared_type(r)))
            number += 1


def has_partial_windows(functions: Sequence[Function]) -> bool:
    """Whether the control program creates a partially valid window."""
    for fn in functions:
        for op in walk(fn.body):
            t = op.results[0].type if op.name == "set_validshape" else None
            marked = (op.args["rows"], op.args["cols"]) if t is not None else ()
            if isinstance(t, TensorType) and marked != t.shape[-2:]:
                return True
            is_view = op.name == "slice" and isinstance(op.result.type, TensorType)
            limits = (None, op.args["shape"]) if is_view else ()
            if is_view and (op.args["valid_shape"] not in limits or op.args["clamp"]):
                return True
    return False
