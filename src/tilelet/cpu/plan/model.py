"""The plan of a kernel: what the planner decides, the verifier checks and the printer prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.plan.regions import Regions
from tilelet.cpu.plan.uses import Uses
from tilelet.dtypes import DType
from tilelet.ir.core import Function, Op, Value
from tilelet.tasks.window import row_major

MAX_PRODUCTS = 4  # that a kernel can hand over at once: TL_PRODUCTS


@dataclass(frozen=True)
class Slot:
    """Scratch memory of one tile, in use at the times from `first` to `last`."""

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

    value      what was written there; this is that tile or a view of it
    strides    None where only the run knows
    slot       number of the scratch memory; of a window, that of its copy, if it may need one
    window     the tensor, if they are read from global memory
    is_zeroed  what lies outside the valid region is zero in memory, too
    """

    value: Value
    shape: tuple[int, ...]
    strides: tuple[int | None, ...]
    slot: int | None
    window: Value | None = None
    is_zeroed: bool = False

    @property
    def is_dense(self) -> bool:
        """Whether they lie in scratch memory, row by row without gaps."""
        dense = row_major(self.shape)
        return self.window is None and all(
            n == 1 or s == d for n, s, d in zip(self.shape, self.strides, dense)
        )


@dataclass(frozen=True, eq=False)
class Inline:
    """An elementwise computation that its user carries out. `depth`: computations in a row."""

    value: Value
    operands: tuple[Form, ...]
    depth: int


Form = Stored | Inline


def leaves(form: Form) -> Iterator[Stored]:
    """Yield every piece of memory that evaluating `form` reads."""
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
class Step:
    """What one op does with memory.

    copies    loads that are copied before the op writes memory
    stored    operands that are written to memory before they are used
    slots     memory that the op takes for itself, in the order of need; what is in use already is
              the memory of an operand that the result replaces
    touched   slots that it reads or writes, except as the result of a product that is deferred
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
    """Which tasks of a kernel are better run in one batch: up to `batch_max`, if A of their
    products (what they touch of window `a`) is the same, and B (of window `b`) lies `b_stride`
    bytes further on. If each B has its rows in order: up to `streams`, wherever they lie, or
    `same_a` one after the other, for which A is prepared once.
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
    """Matrix products with one result that are deferred and run as one.

    ops         the products, in order
    slot        memory of the result
    starts_new  the first one is a `matmul`: what the memory held before does not count
    run_after   the op after which it is run, side by side with all others of that op
    handover    the kernel may be left there, and entered again when the products have been run
    """

    ops: tuple[Op, ...]
    slot: int
    starts_new: bool
    run_after: Op
    handover: bool = False


@dataclass(frozen=True)
class KernelPlan:
    """Everything that is decided about a kernel before it is printed.

    aliases     which buffers its tensors refer to
    steps       by op
    groups      products that are deferred, in the order in which they are run
    slots       scratch memory, by number
    scratch     bytes of all slots
    batch_hint  which tasks are better run together
    """

    kernel: Function
    aliases: Aliases
    uses: Uses
    regions: Regions
    steps: Mapping[Op, Step]
    groups: tuple[ProductGroup, ...] = ()
    slots: tuple[Slot, ...] = ()
    scratch: int = 0
    batch_hint: BatchHint = field(default_factory=BatchHint)

    def group_of(self, op: Op) -> ProductGroup | None:
        return next((g for g in self.groups if op in g.ops), None)

    def run_after(self, op: Op) -> tuple[ProductGroup, ...]:
        """Return the products that are run side by side after `op`."""
        return tuple(g for g in self.groups if g.run_after is op)


def dense(value: Value, shape: Sequence[int], slot: int) -> Stored:
    """Return the form of a tile that has been written to a slot, zeros around its valid region."""
    return Stored(value, tuple(shape), row_major(shape), slot, is_zeroed=True)
