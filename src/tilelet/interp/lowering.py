"""Lower IR to closures: each op becomes one Python function over a frame.

A frame is a list with one slot for every value of a function and for every constant in it, so an
argument is always `frame[slot]`. Ops are dispatched once, when a function is first needed; running
it only calls closures.

`LOWERINGS` maps op names to functions `(Lowering, Op) -> Step`; the modules `control`, `movement`
and `compute` fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from tilelet.ir.core import Arg, Block, Const, Function, FunctionKind, Op, Value, values_in
from tilelet.ir.types import TileType
from tilelet.ir.views import yielded_values
from tilelet.tasks.runtime_counts import allocations

if TYPE_CHECKING:
    from tilelet.interp.state import State

Frame = list[Any]
Step = Callable[[Frame], None]
Getter = Callable[[Frame], Any]
Lower = Callable[["Lowering", Op], Step]

LOWERINGS: dict[str, Lower] = {}

COMPUTE = "<compute>"
"""The entry for ops that have none of their own: they are defined by their reference."""


class Observer(Protocol):
    """Watches or changes a run, op by op, at no cost to runs without an observer."""

    def lower(self, low: Lowering, op: Op) -> Step:
        """Return the step of an op: `low.plain_op(op)`, possibly wrapped or replaced."""
        ...


def lowers(*names: str) -> Callable[[Lower], Lower]:
    """Register the lowering of the named ops."""

    def add(function: Lower) -> Lower:
        for name in names:
            LOWERINGS[name] = function
        return function

    return add


class BlockCode:
    """A lowered block: its steps, and the values of its terminator."""

    __slots__ = ("result", "steps")

    def __init__(self, steps: tuple[Step, ...], result: Getter) -> None:
        self.steps = steps
        self.result = result

    def run(self, frame: Frame) -> tuple[Any, ...]:
        for step in self.steps:
            step(frame)
        return self.result(frame)


class Lowering:
    """Lowers one function; assigns slots to its values and constants."""

    def __init__(self, state: State, function: Function) -> None:
        self.state = state
        self.function = function
        self.template: Frame = []
        self._slots: dict[Value, int] = {}
        self._constants: dict[object, int] = {}
        self._unnamed_scopes = 0
        self._wanted: dict[Value, Callable[[int], None]] = {}

    def _new_slot(self, content: object = None) -> int:
        self.template.append(content)
        return len(self.template) - 1

    def define(self, values: Sequence[Value]) -> slice:
        """Assign adjacent slots to `values`, so that `frame[these] = tuple` sets all."""
        start = len(self.template)
        for v in values:
            slot = self._slots[v] = self._new_slot()
            if v in self._wanted:
                self._wanted.pop(v)(slot)
        return slice(start, start + len(values))

    def on_define(self, value: Value, tell: Callable[[int], None]) -> None:
        """Call `tell` with the slot of `value` once it has one."""
        self._wanted[value] = tell

    @contextmanager
    def extended(self) -> Generator[None]:
        """Restore the slots and constants at the end of the block."""
        size, slots, constants = len(self.template), self._slots.copy(), self._constants.copy()
        try:
            yield
        finally:
            del self.template[size:]
            self._slots, self._constants = slots, constants

    def has(self, value: Value) -> bool:
        return value in self._slots

    def alias(self, value: Value, other: Value) -> None:
        """Let `value` share the slot of `other`."""
        self._slots[value] = self._slots[other]

    def kernel_name(self, hint: str | None) -> str:
        """Return the name that `passes/outline.py` will give the next scope's kernel."""
        base = hint
        if base is None:
            base = f"{self.function.name}_incore_{self._unnamed_scopes}"
            self._unnamed_scopes += 1
        return self.state.unique_kernel_name(base)

    def slot(self, arg: Arg) -> int:
        """Return the slot of `arg`, a value or a constant that contains no value."""
        if isinstance(arg, Value):
            return self._slots[arg]
        constant = plain_constant(arg)
        # 1, 1.0 and True are equal but not the same constant; nor are 0.0 and -0.0.
        key = f"{type(constant)} {constant!r}" if constant is not None else None
        if key not in self._constants:
            self._constants[key] = self._new_slot(constant)
        return self._constants[key]

    def get(self, arg: Arg) -> Getter:
        """Return a function from the frame to the run-time value of `arg`."""
        if not isinstance(arg, tuple) or not any(True for _ in values_in(arg)):
            return itemgetter(self.slot(arg))
        if any(isinstance(a, tuple) for a in arg):
            parts = tuple([self.get(a) for a in arg])
            return lambda frame: tuple([part(frame) for part in parts])
        slots = [self.slot(a) for a in arg]
        if len(slots) == 1:
            only = slots[0]
            return lambda frame: (frame[only],)
        return itemgetter(*slots)

    def result(self, op: Op) -> int:
        """Return the slot of the op's only result."""
        return self.define((op.result,)).start

    def block(self, block: Block) -> BlockCode:
        """Lower a block whose parameters are already defined."""
        steps = tuple([self.op(op) for op in block.ops[:-1]])
        calls = allocations(block) if self.function.kind is not FunctionKind.InCore else 0
        if calls:
            steps = (_note_allocations(self.state, calls), *steps)
        return BlockCode(steps, self.get(yielded_values(block)))

    def op(self, op: Op) -> Step:
        for value in op.results:
            if isinstance(value.type, TileType):
                self.state.check_tile(value)
        observer = self.state.observer
        return self.plain_op(op) if observer is None else observer.lower(self, op)

    def plain_op(self, op: Op) -> Step:
        """Lower the op as the language defines it, ignoring the observer."""
        return LOWERINGS.get(op.name, LOWERINGS[COMPUTE])(self, op)


def _note_allocations(state: State, calls: int) -> Step:
    def note(_: Frame) -> None:
        state.tasks.allocations += calls

    return note


class FunctionCode:
    """A lowered function."""

    def __init__(self, state: State, function: Function) -> None:
        self._lowering = Lowering(state, function)
        self._params = self._lowering.define(function.params)
        self._body = self._lowering.block(function.body)

    def run(self, arguments: Sequence[object]) -> tuple[Any, ...]:
        frame = self._lowering.template.copy()
        frame[self._params] = arguments
        return self._body.run(frame)


def plain_constant(arg: Arg) -> Any:
    """Return a constant without its pinned dtype."""
    if isinstance(arg, Const):
        return arg.value
    if isinstance(arg, tuple):
        return tuple([plain_constant(a) for a in arg])
    return arg
