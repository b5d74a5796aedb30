"""Emit values that a loop carries or an `if` joins as C variables."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tilelet.cpu.emit import scalars
from tilelet.cpu.emit.emitter import Emitter, declare_array, handed_scalar
from tilelet.ir.core import Arg, Block, Op, Value
from tilelet.ir.types import ArrayType, TensorType
from tilelet.ir.views import yielded_values

E = TypeVar("E", bound=Emitter)


class LoopCarried(abc.ABC, Generic[E]):
    """One carried value: a scalar or window variable, or an array.

    A tensor that is the same window in every iteration needs no variable.

    first     initial value; None for the result of a branch
    variable  its C name; empty if it needs no variable
    form      C form of the IR value
    """

    def __init__(self, emitter: E, value: Value, first: Arg | None) -> None:
        self.emitter, self.value = emitter, value
        self.variable = ""
        self.form: object = self.declare(first)

    def declare(self, first: Arg | None) -> Any:
        """Declare the variable; return its form."""
        e, type_ = self.emitter, self.value.type
        if isinstance(type_, TensorType):
            return self._declare_window(first)
        name = self.variable = e.name(self.value.name)
        if isinstance(type_, ArrayType):
            declare_array(e, name, type_, first)
        else:
            start = "0" if first is None else handed_scalar(e, first)
            e.out.add(f"{scalars.declared_type(self.value)} {name} = {start};")
        return name

    def _declare_window(self, first: Arg | None) -> Any:
        e = self.emitter
        end = e.aliases.end(self.value)
        if end is not None and end in e.values:
            return e.values[end]
        self.variable = e.name(self.value.name)
        e.out.add(f"tl_win {self.variable} = {{0}};")
        if first is not None:
            self.set_window(first)
        return self.window_form()

    @abc.abstractmethod
    def window_form(self) -> Any:
        """Return the form of a tensor whose window is in the variable."""

    @abc.abstractmethod
    def set_window(self, arg: Arg) -> None:
        """Assign a window to the variable."""

    @abc.abstractmethod
    def read_window(self, arg: Arg) -> list[str]:
        """Copy a window; return the lines that assign the copy to the variable."""

    def bind(self, value: Value) -> None:
        """Bind `value` to this form."""
        self.emitter.define(value, self.form)

    def set(self, arg: Arg) -> None:
        """Assign a value to the variable, if there is one."""
        e, type_ = self.emitter, self.value.type
        if not self.variable:
            return
        if isinstance(type_, TensorType):
            self.set_window(arg)
        elif isinstance(type_, ArrayType):
            assert isinstance(arg, Value)
            e.out.add(f"memcpy({self.variable}, {e.values[arg]}, sizeof {self.variable});")
        else:
            e.out.add(f"{self.variable} = {handed_scalar(e, arg)};")

    def read(self, arg: Arg) -> list[str]:
        """Copy a value; return the lines that assign the copy to the variable."""
        e, type_ = self.emitter, self.value.type
        if not self.variable:
            return []
        if isinstance(type_, TensorType):
            return self.read_window(arg)
        if isinstance(type_, ArrayType):
            copy = e.name("next")
            declare_array(e, copy, type_, arg)
            return [f"memcpy({self.variable}, {copy}, sizeof {copy});"]
        copy = e.variable("next", handed_scalar(e, arg), scalars.declared_type(self.value))
        return [f"{self.variable} = {copy};"]


def set_at_once(e: Emitter, targets: Sequence[LoopCarried[Any]], args: Sequence[Arg]) -> None:
    """Assign all new values simultaneously: read all before writing any, since they may depend on
    each other.
    """
    for line in [line for t, arg in zip(targets, args) for line in t.read(arg)]:
        e.out.add(line)


def emit_while_body(
    e: Emitter, carried: Sequence[LoopCarried[Any]], op: Op, write: Callable[[Block], None]
) -> None:
    """Emit one iteration of a `while` up to the assignment of its carried values; `write` emits a
    block.
    """
    cond, body = op.blocks
    e.out.add("if (TL_CANCELLED(c)) return TL_STOPPED;")
    for c, tested in zip(carried, cond.params):
        c.bind(tested)
    write(cond)
    (holds,) = yielded_values(cond)
    e.out.add(f"if (!{e.scalar(holds)}) break;")
    for c, param in zip(carried, body.params):
        c.bind(param)
    write(body)
