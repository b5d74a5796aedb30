"""Data model of a kernel's plan: what the planner decides, the verifier checks and the emitter
prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.plan.regions import TileRegions
from tilelet.cpu.plan.uses import Uses
from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import DType
from tilelet.ir.core import Function, Op, Value
from tilelet.tasks.window import row_major

MAX_PRODUCTS = 4  # limit of products handed over at once: TL_PRODUCTS


@dataclass(frozen=True)
class Slot:
    """Scratch memory of one tile, live from `first` to `last`."""

    hint: str
    dtype: DType
    elements: int
    first: int = 0
    last: int = 0
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return max(self.elements, 1) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Stored:
    """Elements in memory.

    value      the tile written there; this form is that tile or a view of it
    strides    None where known only at run time
    slot       number of the scratch memory; of a window, that of its copy, if it may need one
    window     the tensor, if they are read from global memory
    is_zeroed  memory outside the valid region is zero
    """

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int | None, ...]
    slot: int | None
    window: Value | None = None
    is_zeroed: bool = False

    @property
    def is_dense(self) -> bool:
        """Whether they lie densely in scratch memory."""
        dense = row_major(self.shape)
        return self.window is None and all(
            n == 1 or s == d for n, s, d in zip(self.shape, self.strides, dense)
        )


@dataclass(frozen=True, eq=False)
class Inline:
    """An elementwise computation that its user evaluates; `depth` is the length of the chain."""

    value: Value
    operands: tuple[Form, ...]
    depth: int


Form = Stored | Inline


def leaves(form: Form) -> Iterator[Stored]:
    """Yield every memory operand that evaluating `form` reads."""
    if isinstance(form, Stored):
        yield form
    else:
        for operand in form.operands:
            yield from leaves(operand)


Copy = tuple[Value, int]
"""A tile, and the slot that it is written to; it is read from there afterwards."""
Move = tuple[int, int]
"""The position of a carried or joined value, and the slot that it is written to."""


@dataclass(frozen=True)
class PlanStep:
    """Memory use of one op.

    copies    loads that are copied before the op writes memory
    stored    operands that are written to memory before they are used
    slots     slots that the op takes for itself, in order of use; one that is already live belongs
    to
              the operand that the result replaces
    touched   slots that it reads or writes, except as the result of a deferred product
    operands  forms of the operands of a matrix product
    result    form of its tile, if that is used
    moves     of a loop or branch: what is written where at the end of each block
    """

    copies: tuple[Copy, ...] = ()
    stored: tuple[Copy, ...] = ()
    slots: tuple[int, ...] = ()
    touched: frozenset[int] = frozenset()
    operands: tuple[Stored, ...] = ()
    result: Form | None = None
    moves: tuple[tuple[Move, ...], ...] = ()
    moved: tuple[frozenset[int], ...] = ()


@dataclass(frozen=True)
class BatchHint:
    """Which tasks of a kernel should run as one batch: up to `batch_max` tasks whose products share
    A (their footprint in window `a`) and whose B (in window `b`) lies `b_stride` bytes apart. If
    the rows of each B are contiguous: up to `streams` tasks at any addresses, or `same_a`
    consecutive ones for which A is packed once.
    """

    batch_max: int = 1
    a: int = 0
    b: int = 0
    b_stride: int = 0
    streams: int = 1
    same_a: int = 1

    @property
    def most(self) -> int:
        return max(self.batch_max, self.streams, self.same_a)


@dataclass(frozen=True)
class ProductGroup:
    """Deferred matrix products with one result, which run as one.

    ops         the products, in order
    slot        memory of the result
    starts_new  the first one is a `matmul`, which ignores the old contents
    run_after   the op after which it runs, in parallel with all others of that op
    handover    the kernel may be left there, and re-entered when the products have run
    """

    ops: tuple[Op, ...]
    slot: int
    starts_new: bool
    run_after: Op
    handover: bool = False


@dataclass(frozen=True)
class RowNest:
    """Ops that run together, row by row.

    ops       consecutive ops of the outermost block; only the last one may write a tensor
    rows      number of rows of its tiles: a tile of shape [rows, n], or one element of a row in a
              column [rows, 1] or [1, rows]
    one_row   tiles of which memory holds one row at a time
    crossing  tiles that are made outside the nest and read inside, or the other way round
    ahead     the reduction during which the next row of every window is prefetched
    """

    ops: tuple[Op, ...]
    rows: int
    one_row: frozenset[Value]
    crossing: frozenset[Value] = frozenset()
    ahead: Op | None = None


@dataclass(frozen=True)
class KernelPlan:
    """All decisions about a kernel.

    aliases     buffers that its tensors refer to
    steps       by op
    groups      deferred products, in execution order
    nests       ops that run row by row
    slots       scratch memory, by number
    scratch     bytes of all slots
    batch_hint  which tasks should run together
    """

    kernel: Function
    aliases: Aliases
    uses: Uses
    regions: TileRegions
    steps: Mapping[Op, PlanStep]
    groups: tuple[ProductGroup, ...] = ()
    nests: tuple[RowNest, ...] = ()
    slots: tuple[Slot, ...] = ()
    scratch: int = 0
    batch_hint: BatchHint = field(default_factory=BatchHint)

    def group_of(self, op: Op) -> ProductGroup | None:
        return next((g for g in self.groups if op in g.ops), None)

    def run_after(self, op: Op) -> tuple[ProductGroup, ...]:
        """Return the products that run in parallel after `op`."""
        return tuple(g for g in self.groups if g.run_after is op)


def one_row(value: Value, shape: Sequence[int], slot: int) -> Stored:
    """Return the form of a tile of which a slot holds one row at a time."""
    return Stored(value, tuple(shape), (0, 1), slot, is_zeroed=True)


def dense_form(value: Value, shape: Sequence[int], slot: int) -> Stored:
    """Return the form of a tile written to a slot, with zeros outside its valid region."""
    return Stored(value, tuple(shape), row_major(shape), slot, is_zeroed=True)
