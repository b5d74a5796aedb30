"""What a name in a kernel can stand for while its text is lowered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from tilelet.analysis.affine import Affine, combined
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


@dataclass
class ValueFacts:
    """What the lowering knows of the values of one function, beyond their types."""

    affine: dict[Value, Affine[Value]] = field(default_factory=dict[Value, "Affine[Value]"])
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

    def note_renamed(self, new: Value, old: Value) -> None:
        """`new` stands where `old` stood."""
        self.note_same(new, old)
        if old in self.affine:
            self.affine[new] = self.affine[old]

    def note_view(self, view: Value, base: object) -> None:
        """`view` is a window of `base`."""
        if isinstance(base, Value) and isinstance(view.type, TensorType) and base in self.storage:
            self.storage[view] = self.storage[base]

    def note_written(self, target: object) -> None:
        if isinstance(target, Value) and target in self.storage:
            self.written.add(self.storage[target])

    def affine_of(self, x: object) -> Affine[Value] | None:
        if isinstance(x, Const):
            x = x.value
        if isinstance(x, bool):
            return None
        if isinstance(x, int):
            return Affine(x)
        if isinstance(x, Value):
            return self.affine.get(x, Affine(0, ((x, 1),)))
        return None

    def root_of(self, x: object) -> Value | None:
        return self.root.get(x) if isinstance(x, Value) else None

    def note_affine(self, result: Value, operation: str, left: object, right: object) -> None:
        """Remember the affine form of `result = left operation right`, if it has one."""
        found = combined(operation, self.affine_of(left), self.affine_of(right))
        if found is not None:
            self.affine[result] = found

    def difference(self, high: object, low: object) -> int | None:
        """`high - low` when it is a constant whatever the values are: `k0 + 128 - k0` is 128."""
        d = combined("sub", self.affine_of(high), self.affine_of(low))
        return None if d is None or d.terms else d.constant
