"""What a name in a kernel can stand for while its text is lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from tilelet.diag.core import Loc, UserError
from tilelet.ir.core import Const, Value, scalar_dtype
from tilelet.ir.types import TensorType, TileType

# A Value, a Const, a compile-time Python object, a tuple of bindings, or Poison.
Binding: TypeAlias = Any


class ReportedError(Exception):
    """The expression depends on something whose mistake has been reported already."""


@dataclass(frozen=True)
class Poison:
    """A name that must not be read; reading it raises its own error.

    `error` makes the message for a reading place; None when the cause was reported before.
    """

    error: Callable[[Loc], UserError] | None = None

    def raise_at(self, loc: Loc) -> None:
        if self.error is None:
            raise ReportedError
        raise self.error(loc)


def items_of(x: Binding) -> tuple[Binding, ...] | None:
    """The items of a tuple or list; None for anything else."""
    return tuple(cast("Sequence[Binding]", x)) if isinstance(x, (tuple, list)) else None


def as_items(x: Binding) -> tuple[Binding, ...]:
    """The items of a tuple or list; anything else as the only item."""
    found = items_of(x)
    return (x,) if found is None else found


def is_scalar_constant(x: Binding) -> bool:
    return isinstance(x, (bool, int, float, Const))


def is_kernel_value(x: Binding) -> bool:
    """Whether `x` is, or contains, something that exists only when the kernel runs."""
    items = items_of(x)
    if items is not None:
        return any(is_kernel_value(i) for i in items)
    return isinstance(x, (Value, Const))


def describe(x: Binding) -> str:
    """A binding in words, for messages."""
    if isinstance(x, Value):
        return str(x.type)
    if isinstance(x, Const):
        return str(x.dtype)
    if isinstance(x, tuple):
        return "a tuple"
    return f"a Python {type(x).__name__}"


def is_shaped(x: Binding) -> bool:
    return isinstance(x, Value) and isinstance(x.type, (TensorType, TileType))


def is_scalar(x: Binding) -> bool:
    return scalar_dtype(x) is not None


@dataclass(frozen=True)
class Linear:
    """A scalar as constant + sum of coefficient * value; lets `k0 + 128 - k0` be 128."""

    constant: int
    terms: tuple[tuple[Value, int], ...] = ()

    def combine(self, other: Linear, sign: int) -> Linear:
        terms = dict(self.terms)
        for value, coefficient in other.terms:
            terms[value] = terms.get(value, 0) + sign * coefficient
        kept = tuple((v, c) for v, c in terms.items() if c)
        return Linear(self.constant + sign * other.constant, kept)

    def scaled(self, factor: int) -> Linear:
        return Linear(
            self.constant * factor, tuple((v, c * factor) for v, c in self.terms if factor)
        )


@dataclass
class ValueFacts:
    """What the lowering knows of the values of one function, beyond their types."""

    linear: dict[Value, Linear] = field(default_factory=dict[Value, "Linear"])
    # The parameter whose memory a value is, through assembles, loops, scopes and calls.
    root: dict[Value, Value] = field(default_factory=dict[Value, Value])
    # The parameter in whose memory a value lies: as `root`, and through windows.
    storage: dict[Value, Value] = field(default_factory=dict[Value, Value])
    # Parameters that some op or kernel call writes, in whole or in part.
    written: set[Value] = field(default_factory=set[Value])

    def add_parameter(self, value: Value) -> None:
        self.root[value] = self.storage[value] = value

    def note_same(self, new: Value, old: object) -> None:
        """`new` is the memory of `old` under another name."""
        if isinstance(old, Value):
            for known in (self.root, self.storage):
                if old in known:
                    known[new] = known[old]

    def note_view(self, view: Value, base: object) -> None:
        """`view` is a window of `base`."""
        if isinstance(base, Value) and isinstance(view.type, TensorType) and base in self.storage:
            self.storage[view] = self.storage[base]

    def note_written(self, target: object) -> None:
        if isinstance(target, Value) and target in self.storage:
            self.written.add(self.storage[target])

    def linear_of(self, x: object) -> Linear | None:
        if isinstance(x, Const):
            x = x.value
        if isinstance(x, bool):
            return None
        if isinstance(x, int):
            return Linear(x)
        if isinstance(x, Value):
            return self.linear.get(x, Linear(0, ((x, 1),)))
        return None

    def root_of(self, x: object) -> Value | None:
        return self.root.get(x) if isinstance(x, Value) else None

    def note_linear(self, result: Value, operation: str, left: object, right: object) -> None:
        """Remember the linear form of `result = left operation right`, if it has one."""
        a, b = self.linear_of(left), self.linear_of(right)
        if a is None or b is None:
            return
        if operation in ("add", "sub"):
            self.linear[result] = a.combine(b, 1 if operation == "add" else -1)
        elif operation == "mul" and not a.terms:
            self.linear[result] = b.scaled(a.constant)
        elif operation == "mul" and not b.terms:
            self.linear[result] = a.scaled(b.constant)

    def difference(self, high: object, low: object) -> int | None:
        """`high - low` when it is a constant whatever the values are."""
        a, b = self.linear_of(high), self.linear_of(low)
        if a is None or b is None:
            return None
        d = a.combine(b, -1)
        return None if d.terms else d.constant
