"""Bindings: what the names of a kernel stand for while its text is lowered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, cast

from tilelet.analysis.affine import Affine, product
from tilelet.analysis.bounds import UNKNOWN, Bounds, BoundsArithmetic
from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc, UserError
from tilelet.diag.text import near
from tilelet.ir.core import Const, Value, scalar_dtype
from tilelet.ir.types import SymDim, TensorType, TileType

# A Value, a Const, a compile-time Python object, a tuple of bindings, or Poison.
Binding: TypeAlias = Any


class ReportedError(Exception):
    """The expression depends on something whose mistake has already been reported."""


@dataclass(frozen=True)
class Poison:
    """A name that must not be read.

    `error` builds the message for the place that reads it; None if the cause has been reported.
    """

    error: Callable[[Loc], UserError] | None = None

    def raise_at(self, loc: Loc) -> None:
        if self.error is None:
            raise ReportedError
        raise self.error(loc)


def items_of(x: Binding) -> tuple[Binding, ...] | None:
    """Return the items of a tuple or list; None for anything else."""
    return tuple(cast("Sequence[Binding]", x)) if isinstance(x, (tuple, list)) else None


def as_items(x: Binding) -> tuple[Binding, ...]:
    """Return the items of a tuple or list; anything else as the only item."""
    found = items_of(x)
    return (x,) if found is None else found


def unpack_results(results: Sequence[Binding]) -> Binding:
    """Return what a call with these results stands for: none, the only one, or all of them."""
    return results[0] if len(results) == 1 else tuple(results) or None


def is_kernel_value(x: Binding) -> bool:
    """Return whether `x` is or contains a value that exists only when the kernel runs."""
    items = items_of(x)
    if items is not None:
        return any(is_kernel_value(i) for i in items)
    return isinstance(x, (Value, Const))


def describe(x: Binding) -> str:
    """Describe a binding in words, for messages."""
    if isinstance(x, Value):
        return str(x.type)
    if isinstance(x, Const):
        return str(x.dtype)
    if isinstance(x, tuple):
        return "a tuple"
    return f"a Python {type(x).__name__}"


def tensor_type(x: Binding) -> TensorType | None:
    """Return the type of a tensor in global memory; None for anything else."""
    return x.type if isinstance(x, Value) and isinstance(x.type, TensorType) else None


def tile_type(x: Binding) -> TileType | None:
    """Return the type of a tile; None for anything else."""
    return x.type if isinstance(x, Value) and isinstance(x.type, TileType) else None


def shaped_type(x: Binding) -> TensorType | TileType | None:
    """Return the type of a tensor or tile; None for anything else."""
    return x.type if isinstance(x, Value) and isinstance(x.type, (TensorType, TileType)) else None


def is_shaped(x: Binding) -> bool:
    return shaped_type(x) is not None


def is_scalar(x: Binding) -> bool:
    return scalar_dtype(x) is not None


def close_names(name: str, candidates: Iterable[str]) -> list[str]:
    """Return names spelled like `name`, for "did you mean"."""
    return near(name, [c for c in candidates if not c.startswith("__")])


Form = Affine[tuple[Value, ...]]
"""A scalar in terms of products of values, each of them in a fixed order."""

_MAX_FORM_TERMS = 16  # longer forms are not kept
_BOUNDS = BoundsArithmetic()


def _keeps_integers(x: object, cast: Value) -> bool:
    """Return whether the cast preserves every value of `x`'s type."""
    source, target = scalar_dtype(x), scalar_dtype(cast)
    if source is None or target is None or source.is_float or target.is_float:
        return False
    return target.is_signed and target.bits >= source.bits + (not source.is_signed)


@dataclass(frozen=True, eq=False)
class Swapped:
    """A tensor with two axes swapped, taken after `writes` writes to its memory."""

    tensor: Value
    axes: tuple[int, int]
    writes: int


@dataclass
class ValueFacts:
    """Facts about the values of one function that their types do not show."""

    forms: dict[Value, Form] = field(default_factory=dict[Value, "Form"])
    # The first result of each scalar op on given operands: equal ops have equal results.
    _known: dict[object, Value] = field(default_factory=dict[object, Value])
    # The parameter whose memory a value is, through assembles, loops, scopes and calls.
    root: dict[Value, Value] = field(default_factory=dict[Value, Value])
    # The parameter in whose memory a value lies: as `root`, also through windows.
    storage: dict[Value, Value] = field(default_factory=dict[Value, Value])
    # Parameters that the signature declares to be written.
    outputs: set[Value] = field(default_factory=set[Value])
    # Parameters that an op or kernel call writes, fully or partly.
    written: set[Value] = field(default_factory=set[Value])
    # Number of writes so far to each parameter's memory; None stands for all other memory.
    _writes: Counter[Value | None] = field(default_factory=Counter["Value | None"])
    # Valid regions that the text states; the tiles may be larger.
    regions: dict[Value, tuple[object, ...]] = field(
        default_factory=dict[Value, "tuple[object, ...]"]
    )
    # Layouts of tensors with packed scales.
    layouts: dict[Value, str] = field(default_factory=dict[Value, str])
    # Packed scales that no load has unpacked yet.
    packed: set[object] = field(default_factory=set[object])
    # Bounds of scalars and of window extents.
    bounds: dict[Value | SymDim, Bounds] = field(default_factory=dict["Value | SymDim", Bounds])
    # Tensors with two axes swapped inside a scope; then those of which windows were taken, in the
    # order of the windows.
    swapped: dict[Value, Swapped] = field(default_factory=dict[Value, Swapped])
    windowed: list[Swapped] = field(default_factory=list[Swapped])
    # New memory that has not been written yet, and windows and loads of it.
    undefined: set[Value] = field(default_factory=set[Value])

    def add_parameter(self, value: Value) -> None:
        self.root[value] = self.storage[value] = value

    def note_same(self, new: Value, old: object) -> None:
        """Note that `new` is the memory of `old` under another name."""
        if isinstance(old, Value):
            for known in (self.root, self.storage):
                if old in known:
                    known[new] = known[old]

    def note_renamed(self, new: Value, old: Value) -> None:
        """Note that `new` replaces `old`, which has no uses."""
        self.note_same(new, old)
        tables: list[dict[Any, Any]]
        tables = [self.forms, self.regions, self.bounds, self.swapped, self.layouts]
        for table in tables:
            if old in table:
                table[new] = table[old]
        for members in (self.undefined, self.packed):
            if old in members:
                members.add(new)

    def note_view(self, view: Value, base: object) -> None:
        """Note that `view` is a window of `base`."""
        storage = self.storage_of(base)
        if storage is not None and isinstance(view.type, TensorType):
            self.storage[view] = storage

    def note_undefined(self, new: Value, old: object) -> None:
        """Note that `new` is unwritten memory if `old` is."""
        if isinstance(old, Value) and old in self.undefined:
            self.undefined.add(new)

    def region_is(self, x: Value, sizes: Sequence[object]) -> bool:
        """Return whether the text states that the valid region of `x` has these extents."""
        region = self.regions.get(x)
        if region is None or len(region) != len(sizes):
            return False
        return all(self.difference(v, s) == 0 for v, s in zip(region, sizes, strict=True))

    def note_written(self, target: object) -> None:
        if not isinstance(target, Value) or not isinstance(target.type, TensorType):
            return
        storage = self.storage.get(target)
        self._writes[storage] += 1
        if storage is not None:
            self.written.add(storage)

    def writes_to(self, tensor: Value) -> int:
        """Return how often the memory of `tensor` may have been written so far."""
        return sum(self._writes[s] for s in {self.storage.get(tensor), None})

    def is_written_since(self, swapped: Swapped) -> bool:
        return self.writes_to(swapped.tensor) != swapped.writes

    def form_of(self, x: object) -> Form | None:
        if isinstance(x, Const):
            x = x.value
        if isinstance(x, bool):
            return None
        if isinstance(x, int):
            return Affine(x)
        if isinstance(x, Value):
            return self.forms.get(x) or Affine(0, (((x,), 1),))
        return None

    def root_of(self, x: object) -> Value | None:
        return self.root.get(x) if isinstance(x, Value) else None

    def storage_of(self, x: object) -> Value | None:
        return self.storage.get(x) if isinstance(x, Value) else None

    def note_scalar(self, result: Value, operation: str, operands: Sequence[object]) -> None:
        """Note `result = operation(operands)` as an affine form, or as a value of its own."""
        known = [self.form_of(o) for o in operands]
        forms = [form for form in known if form is not None]
        if len(forms) < len(known):
            return
        made: Form | None = None
        if operation in ("add", "sub"):
            made = forms[0].plus(forms[1], 1 if operation == "add" else -1)
        elif operation == "mul":
            made = product(forms[0], forms[1])
        elif operation == "cast" and _keeps_integers(operands[0], result):
            made = forms[0]
        if made is not None and len(made.terms) <= _MAX_FORM_TERMS:
            self.forms[result] = made
            self._note_bounds(result, self._bounds_of_form(made))
        else:
            keys = [(form.constant, frozenset(form.terms)) for form in forms]
            self.note_constant(result, (operation, result.type, *keys))
            if len(operands) == 2:
                ends = (self.bounds_of(o) for o in operands)
                self._note_bounds(result, _BOUNDS.binary(operation, *ends))

    def _bounds_of_form(self, form: Form) -> Bounds:
        total = Bounds(form.constant, form.constant)
        for values, factor in form.terms:
            ends = self.bounds_of(values[0]) if len(values) == 1 else UNKNOWN
            total = _BOUNDS.add(total, _BOUNDS.scale(ends, factor))
        return total

    def _note_bounds(self, result: Value, found: Bounds | None) -> None:
        dtype = scalar_dtype(result)
        # A scalar that overflows wraps. Unknown operands are assumed not to overflow.
        if found is not None and dtype is not None and found.fits(*dtype.limits):
            self.bounds[result] = found

    def bounds_of(self, x: object) -> Bounds:
        if isinstance(x, Const):
            x = x.value
        if isinstance(x, int):
            return Bounds(x, x)
        return self.bounds.get(x, UNKNOWN) if isinstance(x, (Value, SymDim)) else UNKNOWN

    def note_extents(self, made: Value, sizes: object) -> None:
        """Note that `made` has the shape `sizes`."""
        shape = made.type.shape if isinstance(made.type, TensorType) else ()
        for dim, size in zip(shape, as_items(sizes), strict=False):
            if isinstance(dim, SymDim):
                self.bounds[dim] = self.bounds_of(size)

    def note_extent(self, result: Value, tensor: object, axis: object) -> None:
        """Note that `result` is the extent of `tensor` in `axis`."""
        t = tensor_type(tensor)
        if t is not None and isinstance(axis, int):
            self.bounds[result] = self.bounds_of(t.shape[axis])

    def note_constant(self, result: Value, key: object) -> None:
        """Note that `result` equals every other value with this key."""
        first = self._known.setdefault(key, result)
        self.forms[result] = Affine(0, (((first,), 1),))

    def difference(self, high: object, low: object) -> int | None:
        """Return `high - low` if it is the same constant for all values."""
        a, b = self.form_of(high), self.form_of(low)
        difference = None if a is None or b is None else a.plus(b, -1)
        return None if difference is None or difference.terms else difference.constant
