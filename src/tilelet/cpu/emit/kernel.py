"""Emit one kernel as a C function: values, scratch memory, control flow. Ops are in `ops_*.py`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tilelet.cpu.emit import scalars
from tilelet.cpu.emit.elements import element, word_field
from tilelet.cpu.emit.emitter import Emitter, OpNumbers
from tilelet.cpu.emit.sites import Sites
from tilelet.cpu.emit.text import Dim, Text, array_text, identifier, product, total
from tilelet.cpu.emit.tiles import (
    Axis,
    EmittedTile,
    Leaf,
    Node,
    TileSlot,
    count,
    leaves,
    merged_axes,
    strides_in,
    uses_index,
)
from tilelet.cpu.plan.forms import PIECE
from tilelet.cpu.plan.model import (
    MAX_PRODUCTS,
    BatchHint,
    KernelPlan,
    PlanStep,
    ProductGroup,
    RowNest,
    Stored,
)
from tilelet.cpu.plan.nests import row_axis
from tilelet.cpu.plan.uses import first_use
from tilelet.dataclasses import dataclass
from tilelet.diag.internal import InternalError
from tilelet.dtypes import FP32, DType
from tilelet.ir.core import Arg, Block, Function, Op, Value
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.tasks.window import row_major

Emit = Callable[["KernelEmitter", Op], None]
EMITTERS: dict[str, Emit] = {}
"""What each op of a kernel becomes, by op name; filled by the modules `ops_*` and `flow`."""

BY_REFERENCE = "<reference>"
"""The entry for ops that have none of their own: the host applies their reference."""


def emits(*names: str) -> Callable[[Emit], Emit]:
    def add(function: Emit) -> Emit:
        for name in names:
            EMITTERS[name] = function
        return function

    return add


LINE_BYTES = 64  # bytes of a cache line: TL_LINE


def _c_list(products: Sequence[Product]) -> str:
    return f"(tl_product *const[]){{{', '.join(f'&{p.name}' for p in products)}}}, {len(products)}"


@dataclass(frozen=True)
class TensorRef:
    """A window of global memory: the C expression for a pointer to it.

    extents  constant extents; None where known only at run time
    is_full  the valid region is certainly the whole window
    exists   the whole window certainly lies in allocated memory
    """

    pointer: str
    extents: tuple[int | None, ...]
    is_full: bool
    exists: bool

    def extent(self, axis: int) -> Dim:
        known = self.extents[axis]
        return known if known is not None else f"{self.pointer}->shape[{axis}]"

    def stride(self, axis: int) -> str:
        return f"{self.pointer}->stride[{axis}]"


@dataclass(frozen=True)
class Windows:
    """Properties of all windows that the control program creates: fields as in `TensorRef`."""

    are_full: bool = True
    exist: bool = True

    def ref(self, pointer: str, extents: tuple[int | None, ...]) -> TensorRef:
        return TensorRef(pointer, extents, self.are_full, self.exist)


@dataclass(eq=False)
class Product:
    """C variables of a deferred product: its description, and the valid region of its result if it
    is partial.
    """

    name: str
    slot: TileSlot
    shape: tuple[int, ...]
    region: tuple[str, ...] = ()

    def note_region(self, k: KernelEmitter, region: tuple[Dim, ...]) -> None:
        """Set the valid region of the result from here on."""
        if region == self.shape:
            return
        if not self.region:
            self.region = tuple(k.name("part") for _ in region)
            for name, extent in zip(self.region, self.shape):
                k.declarations.append(f"int64_t {name} = {extent};")
        for name, extent in zip(self.region, region):
            k.out.add(f"{name} = {extent};")

    def finish(self, k: KernelEmitter) -> None:
        """Reset the region after the product has run: the next loop may have no iteration."""
        if self.region:
            # Or INT32, which has the same size.
            k.zero_outside(self.shape, self.region, self.slot, FP32)
            for name, extent in zip(self.region, self.shape):
                k.out.add(f"{name} = {extent};")


@dataclass(frozen=True)
class KernelCode:
    """An emitted kernel."""

    name: str  # name of the C function
    lines: list[str]
    scratch: int
    windows: tuple[int, ...]  # positions of its tensor parameters
    scalars: tuple[int, ...]  # positions of its scalar parameters
    batch_hint: BatchHint
    fills: Mapping[int, int]  # tensors whose first use writes whole leading rows, and their number
    has_products: bool
    iterations: int = 1  # calls per task


class KernelEmitter(Emitter):
    """Emit one kernel according to its plan."""

    def __init__(
        self,
        plan: KernelPlan,
        functions: Mapping[str, Function],
        sites: Sites,
        host: OpNumbers,
        *,
        windows: Windows,
    ) -> None:
        super().__init__(plan.kernel, functions, sites, host, (plan.aliases, plan.uses))
        self.plan = plan
        self.windows = windows
        self.slots: dict[int, TileSlot] = {}
        self.products: dict[Op, Product] = {}  # deferred products, by their first op
        self.declarations: list[str] = []
        self.step = PlanStep()
        self._own: Iterator[int] = iter(())
        self._to_store: dict[Value, int] = {}
        self._ran: set[Op] = set()  # ops after which deferred products have run
        self.nest: RowNest | None = None  # the row nest being emitted
        self.row = ""  # its current row
        self.nest_operands: list[EmittedTile] = []  # tiles that it reads from outside
        self._nest_starts = {nest.ops[0]: nest for nest in plan.nests}
        self._innermost: Text | None = None  # insertion point before the element loop being emitted
        self._fills: dict[int, int] = {}
        self.has_products = False

    def emit(self) -> KernelCode:
        """Emit the kernel."""
        windows, numbers = self._parameters()
        name = f"k_{identifier(self.function.name)}"
        with self.out.indented():
            self.block(self.function.body)
            self.out.add("return TL_OK;")
        head = [
            f"// kernel `{self.function.name}`",
            f"int {name}(tl_ctx *c, const tl_win *w, const tl_word *x) {{",
            "    (void)c, (void)w, (void)x;",
        ]
        for number, planned in enumerate(self.plan.slots):
            c_type, slot = element(planned.dtype).memory, self.slots[number].name
            head.append(
                f"    {c_type} *const {slot} = ({c_type} *)(c->scratch + {planned.offset});"
            )
            head.append(f"    (void){slot};")
        head += [f"    {line}" for line in self.declarations]
        lines = [*head, *self.out.lines, "}", ""]
        plan, fills = self.plan, self._fills
        return KernelCode(
            name, lines, plan.scratch, windows, numbers, plan.batch_hint, fills, self.has_products
        )

    def _parameters(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        windows: list[int] = []
        numbers: list[int] = []
        for at, p in enumerate(self.function.params):
            if isinstance(p.type, TensorType):
                extents = tuple(d if isinstance(d, int) else None for d in p.type.shape)
                pointer = f"w_{identifier(p.name)}_{len(windows)}"
                self.values[p] = self.windows.ref(pointer, extents)
                with self.out.indented():
                    self.out.add(f"const tl_win *const {pointer} = &w[{len(windows)}];")
                    self.out.add(f"(void){pointer};")
                windows.append(at)
            else:
                assert isinstance(p.type, ScalarType)
                field_name = word_field(p.type.dtype)
                name = self.name(p.name)
                with self.out.indented():
                    self.out.add(
                        f"const {scalars.declared_type(p)} {name} = x[{len(numbers)}].{field_name};"
                    )
                    self.out.add(f"(void){name};")
                self.values[p] = name
                numbers.append(at)
        return tuple(windows), tuple(numbers)

    def note_store_of_rows(self, op: Op, tensor: Value, rows: int) -> None:
        """Note that the op writes the first rows of a tensor, perhaps as the first use of a
        parameter.
        """
        if tensor in self.function.params and first_use(self.function.body, tensor) is op:
            self._fills[self.function.params.index(tensor)] = rows

    # --- tiles and tensors -----------------------------------------------------------------------

    def tile(self, arg: Arg) -> EmittedTile:
        assert isinstance(arg, Value)
        found = self.values[arg]
        assert isinstance(found, EmittedTile)
        return found

    def tensor(self, arg: Arg) -> TensorRef:
        assert isinstance(arg, Value)
        found = self.values[arg]
        assert isinstance(found, TensorRef)
        return found

    def slot(self, number: int) -> TileSlot:
        """Return a slot of the plan, named on first use."""
        if number not in self.slots:
            self.slots[number] = TileSlot(self.name(f"t_{self.plan.slots[number].hint}"), number)
        return self.slots[number]

    def take_slot(self) -> TileSlot:
        """Return the next slot that the plan gives to the op."""
        return self.slot(next(self._own))

    def take_replaced(self, arg: Arg) -> TileSlot:
        """Return memory that holds the tile `arg` and may be overwritten: its own, or a copy."""
        number = next(self._own)
        if number not in self.slots:
            self.materialize_tile(self.tile(arg), self.slot(number))
        return self.slots[number]

    # --- deferred products ------------------------------------------------------------------------

    def product(self, group: ProductGroup) -> Product:
        """Return the C variables of a product."""
        first = group.ops[0]
        if first not in self.products:
            name = self.name("product")
            self.declarations.append(f"tl_product {name} = {{0}};")
            shape = self.tile_type(first.result).shape
            self.products[first] = Product(name, self.slot(group.slot), shape)
        return self.products[first]

    def run_products(self, op: Op) -> None:
        """Run the products that the plan places after `op`."""
        groups = () if op in self._ran else self.plan.run_after(op)
        self._ran.add(op)
        products = [self.product(g) for g in groups]
        if groups and groups[0].handover:
            self.out.add(f"if (tl_flush_products(c, {_c_list(products)})) return TL_OK;")
        else:
            for i in range(0, len(products), MAX_PRODUCTS):
                self.out.add(
                    f"tl_run_products(c, {_c_list(products[i : i + MAX_PRODUCTS])}, NULL);"
                )
        for p in products:
            p.finish(self)

    def slot_tile(
        self, slot: TileSlot, shape: tuple[int, ...], dtype: DType, valid: tuple[Dim, ...]
    ) -> EmittedTile:
        return EmittedTile(
            shape,
            dtype,
            valid,
            Leaf(slot.name, self.slot_strides(slot, shape), slot, is_zeroed=True),
        )

    # --- evaluation ------------------------------------------------------------------------------

    def element_text(
        self, tile: EmittedTile, root: Sequence[int], axes: Sequence[Axis], index: Sequence[str]
    ) -> str:
        """Return the C text of one element as a number; each node gets its own line."""
        e = element(tile.dtype)
        form = tile.form
        if isinstance(form, Leaf):
            strides = strides_in(tile.shape, form.strides, root)
            place = total([product(i, strides[a.last]) for a, i in zip(axes, index)])
            number = e.load(f"{form.pointer}[{place}]")
            if self._innermost is not None and strides[axes[-1].last] == 0:
                # Loop-invariant, which compilers cannot always prove.
                name = self.name("same")
                self._innermost.add(f"const {e.number} {name} = {number};")
                return name
            return number
        operands = [self.element_text(o, root, axes, index) for o in form.operands]
        last = index[-1] if axes and axes[-1].last == len(root) - 1 else "0"
        return self.variable("e", form.make(operands, last), e.number, form.loc)

    @contextmanager
    def loops(self, axes: Sequence[Axis], *, vector: bool = True) -> Generator[list[str]]:
        """Open loops over `axes`; yield the index names."""
        names = [axis.index or self.name("i") for axis in axes]
        depth = 0
        with self._loops(axes, names, depth, vector):
            yield names

    @contextmanager
    def _loops(
        self, axes: Sequence[Axis], names: list[str], depth: int, vector: bool
    ) -> Generator[None]:
        if depth == len(axes):
            yield
            return
        if axes[depth].index:
            with self._loops(axes, names, depth + 1, vector):
                yield
            return
        n = names[depth]
        outside = self._innermost
        self._innermost = self.out.reserve()
        if vector and depth == len(axes) - 1:
            self.out.add("TL_IVDEP")
        with (
            self.out.block(f"for (int64_t {n} = 0; {n} < {axes[depth].extent}; {n}++)"),
            self._loops(axes, names, depth + 1, vector),
        ):
            yield
        self._innermost = outside

    def axes_of(self, tile: EmittedTile, *others: Sequence[Dim], merge: bool = True) -> list[Axis]:
        """Return the loops over the valid part of `tile`; `others`: strides of the destination."""
        strides = [strides_in(t.shape, leaf.strides, tile.shape) for t, leaf in leaves(tile)]
        merge = merge and not uses_index(tile)
        return self.box_axes(tile.shape, tile.valid, [*others, *strides], merge=merge)

    def box_axes(
        self,
        shape: Sequence[int],
        extents: Sequence[Dim],
        operands: Sequence[Sequence[Dim]] = (),
        *,
        merge: bool = False,
    ) -> list[Axis]:
        """Return the loops over a box; in a row nest, over the current row."""
        fixed = (row_axis(shape, self.nest.rows), self.row) if self.nest else None
        return merged_axes(shape, extents, operands, merge=merge, fixed=fixed)

    @contextmanager
    def pieces(self, axis: Axis, length: int) -> Generator[tuple[str, str]]:
        """Open a loop over an axis in steps of `length`; yield the start and size of each piece."""
        start = self.name("piece")
        with self.out.block(
            f"for (int64_t {start} = 0; {start} < {axis.extent}; {start} += {length})"
        ):
            yield start, self.variable("count", f"tl_least({length}, {axis.extent} - {start})")

    def evaluate_bypassing_cache(
        self, tile: EmittedTile, pointer: str, strides: Sequence[Dim], condition: str
    ) -> None:
        """As `evaluate`; where `condition` holds, with non-temporal stores.

        These are for tensors too large to stay in a cache until they are read.
        """
        e = element(tile.dtype)
        into = strides_in(tile.shape, strides, tile.shape)
        axes = self.axes_of(tile, into)
        if not axes or axes[-1].length < 2 * PIECE or into[axes[-1].last] != 1:
            self.evaluate(tile, pointer, strides)
            return
        outer, last = axes[:-1], axes[-1]
        size, line = tile.dtype.itemsize, LINE_BYTES // tile.dtype.itemsize

        def write(to: str, start: str, axis: Axis) -> None:
            with self.loops([axis]) as column:
                position = self.variable("at", f"{start} + {column[0]}")
                number = self.element_text(tile, tile.shape, axes, [*index, position])
                self.out.add(f"{to}[{column[0]}] = {e.store(number)};")

        with self.out.block(), self.loops(outer, vector=False) as index:
            at = total([product(i, into[a.last]) for a, i in zip(outer, index)])
            self.out.add(f"{e.memory} *const there = {pointer} + ({at});")
            before = f"{condition} ? tl_before_line(there, {size}, {last.extent}) : {last.extent}"
            head = self.variable("head", before)
            tail = self.variable("tail", f"{head} + ({last.extent} - {head}) / {line} * {line}")
            # The whole row, or the partial cache lines at its start and end.
            with self.out.block("for (int is_end = 0; is_end < 2; is_end++)"):
                start = self.variable("start", f"is_end ? {tail} : 0")
                count_ = self.variable("count", f"is_end ? {last.extent} - {tail} : {head}")
                self.out.add(f"{e.memory} *const here = there + {start};")
                write("here", start, Axis(last.last, count_, last.length))
            start = self.name("line")
            with self.out.block(
                f"for (int64_t {start} = {head}; {start} < {tail}; {start} += {line})"
            ):
                self.out.add(f"_Alignas(TL_LINE) {e.memory} line[{line}];")
                write("line", start, Axis(last.last, line, line))
                self.out.add(f"tl_stream_line(there + {start}, line);")
        self.out.add(f"if ({condition}) tl_streamed();")

    def evaluate(
        self, tile: EmittedTile, pointer: str, strides: Sequence[Dim], combine: str = "{}"
    ) -> None:
        """Write the valid part of `tile` to memory; `combine` maps elements to stored values."""
        e = element(tile.dtype)
        into = strides_in(tile.shape, strides, tile.shape)
        axes = self.axes_of(tile, into)
        with self.out.block(), self.loops(axes) as index:
            number = self.element_text(tile, tile.shape, axes, index)
            place = f"{pointer}[{total([product(i, into[a.last]) for a, i in zip(axes, index)])}]"
            self.out.add(f"{place} = {e.store(combine.format(number, place=e.load(place)))};")

    def clear_outside(
        self,
        tile_shape: tuple[int, ...],
        valid: tuple[Dim, ...],
        slot: TileSlot,
        dtype: DType,
        pattern: int = 0,
    ) -> None:
        """Zero a slot before it is filled, if it will be filled only partially."""
        if valid == tile_shape:
            return
        partial = " || ".join(f"{v} != {n}" for v, n in zip(valid, tile_shape) if v != n)
        nbytes = count(tile_shape) * dtype.itemsize
        self.out.add(f"if ({partial}) tl_fill({slot.name}, {nbytes}, UINT64_C({pattern}));")

    def zero_outside(
        self, shape: tuple[int, ...], valid: tuple[Dim, ...], slot: TileSlot, dtype: DType
    ) -> None:
        """Zero what lies outside the valid region of a slot that has been filled."""
        if valid != shape:
            self.out.add(
                f"tl_zero_outside({slot.name}, {array_text(shape)}, {array_text(valid)}, "
                f"{len(shape)}, {dtype.itemsize});"
            )

    def materialize_tile(self, tile: EmittedTile, slot: TileSlot) -> EmittedTile:
        """Write a tile densely to scratch memory, with zeros outside its valid region."""
        self.evaluate(tile, slot.name, self.slot_strides(slot, tile.shape))
        return self.written(tile, slot)

    def written(self, tile: EmittedTile, slot: TileSlot) -> EmittedTile:
        """Return the tile whose valid part has just been written to a slot."""
        # Only now: the tile may be computed from the slot's old contents.
        self.zero_outside(tile.shape, tile.valid, slot, tile.dtype)
        return self.slot_tile(slot, tile.shape, tile.dtype, tile.valid)

    def slot_strides(self, slot: TileSlot, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides of a tile in a slot, which may hold one row at a time."""
        is_whole = self.plan.slots[slot.number].elements >= count(shape)
        return row_major(shape) if is_whole else (0, 1)

    def planned_slot(self, arg: Arg) -> TileSlot | None:
        """Return the slot that this op writes an operand to, unless it is already there."""
        assert isinstance(arg, Value)
        number = self._to_store.pop(arg, None)
        return None if number is None else self.slot(number)

    def stored(self, arg: Arg) -> EmittedTile:
        """Return the tile of a value, writing it to memory first if the plan says so."""
        assert isinstance(arg, Value)
        slot = self.planned_slot(arg)
        if slot is not None:
            self.values[arg] = self.materialize_tile(self.tile(arg), slot)
        return self.tile(arg)

    def result(self, op: Op, tile: EmittedTile) -> None:
        """Bind the op's result in its planned form."""
        value = op.result
        if not self.uses.count[value]:
            return
        self.check_region(value, tile)
        form = self.step.result
        if isinstance(form, Stored) and isinstance(tile.form, Node):
            assert form.slot is not None
            tile = self.materialize_tile(tile, self.slot(form.slot))
        found = tile.form.slot.number if isinstance(tile.form, Leaf) and tile.form.slot else None
        if found != (form.slot if isinstance(form, Stored) else None):
            problem = f"result in slot {found}, planned as {form}"
            raise InternalError(problem, self.function.name, value.name, value.loc)
        self.values[value] = tile

    def check_region(self, value: Value, tile: EmittedTile) -> None:
        """Check that a tile has its planned region."""
        found = tuple(v if isinstance(v, int) else None for v in tile.valid)
        if found != self.plan.regions.of[value]:
            problem = f"valid region {tile.valid}, planned as {self.plan.regions.of[value]}"
            raise InternalError(problem, self.function.name, value.name, value.loc)

    # --- blocks ----------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Emit all ops but the terminator."""
        nested: set[Op] = set()
        for op in block.ops[:-1]:
            if op in self._nest_starts:
                nested.update(self._nest_starts[op].ops)
                self._row_nest(self._nest_starts[op])
            elif op not in nested:
                self.op(op)

    def _row_nest(self, nest: RowNest) -> None:
        """Emit the ops of a nest in a loop over rows."""
        operands = dict.fromkeys(v for op in nest.ops for v in op.operands)
        given = [self.values.get(v) for v in operands]
        self.nest_operands = [tile for tile in given if isinstance(tile, EmittedTile)]
        self.row = self.name("row")
        row = self.row
        with self.out.block(f"for (int64_t {row} = 0; {row} < {nest.rows}; {row}++)"):
            self.nest = nest
            for op in nest.ops:
                self.op(op)
        self.nest, self.nest_operands = None, []

    def op(self, op: Op) -> None:
        step = self.step = self.plan.steps[op]
        for value, number in step.copies:
            self.values[value] = self.materialize_tile(self.tile(value), self.slot(number))
        self._own, self._to_store = iter(step.slots), dict(step.stored)
        emitter = EMITTERS.get(op.name) or EMITTERS.get(BY_REFERENCE if op.spec.reference else "")
        if emitter is None:
            raise InternalError("no C for this op", self.function.name, op.name, op.loc)
        emitter(self, op)
        self.run_products(op)

    def tile_type(self, value: Value) -> TileType:
        assert isinstance(value.type, TileType)
        return value.type
