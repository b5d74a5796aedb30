"""Base of the kernel and control program emitters."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from tilelet import dtypes
from tilelet.analysis.aliases import Aliases
from tilelet.cpu.emit import scalars
from tilelet.cpu.emit.sites import Sites
from tilelet.cpu.emit.text import Dim, Text, identifier
from tilelet.cpu.plan.uses import Uses
from tilelet.diag.core import Loc
from tilelet.ir.core import Arg, Function, Op, Value
from tilelet.ir.types import ArrayType


class OpNumbers:
    """Numbered ops: those left to Python, or those that submit tasks."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._numbers: dict[Op, int] = {}

    def number(self, op: Op) -> int:
        if op not in self._numbers:
            self._numbers[op] = len(self.ops)
            self.ops.append(op)
        return self._numbers[op]


class Emitter:
    """Emit one function as C. `values` maps IR values to their C form; scalars are texts."""

    def __init__(
        self,
        function: Function,
        functions: Mapping[str, Function],
        sites: Sites,
        host: OpNumbers,
        facts: tuple[Aliases, Uses] | None = None,
    ) -> None:
        self.function = function
        self.functions = functions
        self.sites = sites
        self.host = host
        facts = facts or (Aliases(function.body, functions), Uses(function))
        self.aliases, self.uses = facts
        self.out = Text()
        self.values: dict[Value, object] = {}
        self._names = 0

    def name(self, hint: str) -> str:
        self._names += 1
        return f"{identifier(hint)}_{self._names}"

    def define(self, value: Value, form: object) -> None:
        self.values[value] = form

    def scalar(self, arg: Arg) -> str:
        """Return the C text of a scalar argument."""
        if isinstance(arg, Value):
            found = self.values[arg]
            assert isinstance(found, str)
            return found
        number = scalars.constant_of(arg)
        assert number is not None
        return scalars.constant_text(number)

    def dim(self, arg: Arg) -> Dim:
        """Return an integer argument: a number if it is constant, else C text."""
        number = scalars.constant_of(arg)
        return number if isinstance(number, int) and abs(number) < 1 << 31 else self.scalar(arg)

    def dims(self, arg: Arg) -> list[Dim]:
        """Return a list of integers; a bare number is a list of one."""
        return [self.dim(a) for a in (arg if isinstance(arg, tuple) else (arg,))]

    def variable(
        self, hint: str, expression: Dim, c_type: str = "int64_t", loc: Loc | None = None
    ) -> str:
        """Declare a new C constant."""
        name = self.name(hint)
        self.out.add(f"const {c_type} {name} = {expression};", loc)
        return name

    def site(self, op: Op, name: str = "") -> int:
        return self.sites.number(op.loc, op.name, name)

    def check(self, call: str) -> None:
        """Emit a return from the function if `call` fails."""
        self.out.add(f"if ({call}) return c->fault.kind;")

    @contextmanager
    def inside(self) -> Generator[None]:
        """Enter a conditional block; restore the known facts after it."""
        before = dict(self.values)
        yield
        self.values = before


# --- scalars, which are the same everywhere -------------------------------------------------------


def emit_scalar(e: Emitter, op: Op) -> None:
    text = scalars.scalar_expression(op, e.scalar)
    e.define(op.result, e.variable(op.result.name, text, scalars.declared_type(op.result), op.loc))


def emit_division(e: Emitter, op: Op) -> None:
    symbol = "//" if op.name == "scalar.floordiv" else "%"
    if not scalars.constant_of(op.args["rhs"]):
        fail = f"tl_fail(c, TL_DIVISION, {e.site(op, symbol)}, 0, 0, 0, 0)"
        e.out.add(f"if ({e.scalar(op.args['rhs'])} == 0) return {fail};")
    text = scalars.division_expression(op, e.scalar)
    e.define(op.result, e.variable(op.result.name, text, scalars.declared_type(op.result), op.loc))


# --- small arrays ---------------------------------------------------------------------------------


def handed_scalar(e: Emitter, arg: Arg) -> str:
    """Return the text of a scalar, or the id that means no task."""
    return "-1" if arg is None else e.scalar(arg)


def declare_array(
    e: Emitter, name: str, type_: ArrayType, first: Arg, loc: Loc | None = None
) -> None:
    """Declare a C array initialized with a copy of `first`, or with zeros."""
    e.out.add(f"int64_t {name}[{type_.length}] = {{0}};", loc)
    if isinstance(first, Value):
        e.out.add(f"memcpy({name}, {e.values[first]}, sizeof {name});")


def emit_array_create(e: Emitter, op: Op) -> None:
    t = op.result.type
    assert isinstance(t, ArrayType)
    name = e.name(op.result.name)
    declare_array(e, name, t, None, op.loc)
    if t.dtype is dtypes.TASK_ID:
        e.out.add(f"for (int i = 0; i < {t.length}; i++) {name}[i] = -1;")
    e.define(op.result, name)


def _checked_position(e: Emitter, op: Op) -> str:
    array = op.args["array"]
    assert isinstance(array, Value)
    assert isinstance(array.type, ArrayType)
    at = e.scalar(op.args["index"])
    fail = f"tl_fail(c, TL_INDEX, {e.site(op, array.name)}, 0, {at}, {array.type.length}, 0)"
    e.out.add(f"if ({at} < 0 || {at} >= {array.type.length}) return {fail};")
    return at


def emit_array_get(e: Emitter, op: Op) -> None:
    at = _checked_position(e, op)
    text = f"{e.values[op.args['array']]}[{at}]"  # type: ignore[index]
    e.define(op.result, e.variable(op.result.name, text, scalars.declared_type(op.result), op.loc))


def emit_array_set(e: Emitter, op: Op) -> None:
    at = _checked_position(e, op)
    t = op.result.type
    assert isinstance(t, ArrayType)
    name = e.name(op.result.name)
    declare_array(e, name, t, op.args["array"], op.loc)
    e.out.add(f"{name}[{at}] = {handed_scalar(e, op.args['value'])};")
    e.define(op.result, name)


def loop_head(
    e: Emitter, op: Op, bounds: tuple[Arg, Arg, Arg], index: str, trips: int | None
) -> str:
    """Declare the index and return the head of the C loop; a zero step is an error."""
    start, stop, step = (e.dim(b) for b in bounds)
    if step == 0 or not isinstance(step, int):
        fail = f"tl_fail(c, TL_STEP, {e.site(op)}, 0, 0, 0, 0)"
        e.out.add(f"if ({step} == 0) return {fail};")
    i = e.name("iteration")
    iterations = str(trips) if trips is not None else f"tl_trips({start}, {stop}, {step})"
    e.out.add(f"int64_t {index} = {start};", op.loc)
    advance = f"{index} = (int64_t)((uint64_t){index} + (uint64_t){step})"
    return f"for (int64_t {i} = 0, {i}_end = {iterations}; {i} < {i}_end; {i}++, {advance})"
