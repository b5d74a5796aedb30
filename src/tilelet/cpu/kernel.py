"""One kernel as a C function: values, scratch memory, control flow. Ops are in `ops_*.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilelet.cpu import scalars
from tilelet.cpu.elements import element, word_field
from tilelet.cpu.emitter import Emitter, OpNumbers, first_use
from tilelet.cpu.plan.regions import find_regions
from tilelet.cpu.scratch import pack
from tilelet.cpu.sites import Sites
from tilelet.cpu.text import Dim, Text, array_text, identifier, product, total
from tilelet.cpu.tiles import (
    Axis,
    Leaf,
    Slot,
    Tile,
    count,
    leaves,
    merged_axes,
    strides_in,
    uses_index,
)
from tilelet.diag.internal import InternalError
from tilelet.dtypes import FP32, DType
from tilelet.ir.core import Arg, Block, Function, Op, Value, values_in, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import yielded
from tilelet.tasks.window import row_major

RECOMPUTABLE = Trait.SCALAR | Trait.OF_BLOCK | Trait.SHAPE_ONLY
"""Ops that leave no trace but their value: they may as well run twice."""

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


PIECE = 256  # elements of a long row that are worked on before the next ones
LINE_BYTES = 64  # of a cache line: TL_LINE
DEEPEST = 100  # ops in a row that become one expression
PRODUCTS = ("matmul", "gemv", "batch_matmul")
MOST_STREAM_BYTES = 64 << 20  # scratch of tasks that one thread runs for the streams' sake
MOST_PRODUCTS = 4  # that a kernel can hand over at once: TL_PRODUCTS


def _is_recomputable(op: Op, products: set[Op]) -> bool:
    """Whether `op` may as well run twice: scalars, views, loads; or is one of `products`."""
    if op in products or op.spec.traits & RECOMPUTABLE:
        return True
    if op.spec.is_window_load:
        return op.args.get("pad_value") is None and _is_view_of_tensor(op)
    if op.name in ("for", "while", "if"):
        tiles = [i for i, r in enumerate(op.results) if isinstance(r.type, TileType)]
        made = {r for p in products for r in p.results}
        carried = all(yielded(b)[i] in made for b in op.blocks[-1:] for i in tiles)
        inner = all(_is_recomputable(o, products) for b in op.blocks for o in b.ops[:-1])
        return inner and (not tiles or (op.name == "for" and carried))
    return bool(op.spec.view) and _is_view_of_tensor(op)


def _is_view_of_tensor(op: Op) -> bool:
    source = op.operands[0]
    return isinstance(source.type, TensorType)


def _c_list(products: Sequence[str]) -> str:
    return f"(tl_product *const[]){{{', '.join(products)}}}, {len(products)}"


@dataclass(frozen=True)
class TensorRef:
    """A window of global memory: C expression of a pointer to it.

    extents  those known now; None where only the run knows
    is_full  the valid region is certainly all of it
    exists   memory is certainly there for all of it
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
    """What is certain of all windows that the control program makes: as in `TensorRef`."""

    are_full: bool = True
    exist: bool = True

    def ref(self, pointer: str, extents: tuple[int | None, ...]) -> TensorRef:
        return TensorRef(pointer, extents, self.are_full, self.exist)


@dataclass
class Loop:
    """A loop being written: slots from outside that it uses stay in use until its end.

    body      its block, if that may defer matrix products until the loop ends
    products  those it has deferred
    started   those begun before it, of what it carries, that it has not continued so far
    """

    body: Block | None = None
    used: set[Slot] = field(default_factory=set[Slot])
    products: list[Product] = field(default_factory=list["Product"])
    started: dict[Slot, Product] = field(default_factory=dict[Slot, "Product"])


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


@dataclass(eq=False)
class Product:
    """A matrix product that is deferred.

    name    its C variable
    slot    its result's memory, a tile of `shape`
    is_new  it begins with a `matmul`: what its memory held before does not count
    ops     what it is a product of
    region  C variables that will hold the region of the result, if that is not all of it
    """

    name: str
    slot: Slot
    shape: tuple[int, ...]
    batch_hint: BatchHint
    is_new: bool
    ops: list[Op] = field(default_factory=list[Op])
    region: tuple[str, ...] = ()

    def note_region(self, k: KernelEmitter, region: tuple[Dim, ...]) -> None:
        """From here on the result has this region."""
        if region == self.shape:
            return
        if not self.region:
            self.region = tuple(k.name("part") for _ in region)
            for name, extent in zip(self.region, self.shape):
                k.declarations.append(f"int64_t {name} = {extent};")
        for name, extent in zip(self.region, region):
            k.out.add(f"{name} = {extent};")

    def finish(self, k: KernelEmitter) -> None:
        """It has been run; the next time, the loop may make no iteration that says its region."""
        if self.region:
            k.zero_outside(self.shape, self.region, self.slot, FP32)  # or INT32: as large
            for name, extent in zip(self.region, self.shape):
                k.out.add(f"{name} = {extent};")


@dataclass(frozen=True)
class KernelCode:
    """A finished kernel."""

    name: str  # of the C function
    lines: list[str]
    scratch: int
    windows: tuple[int, ...]  # positions of its tensor parameters
    scalars: tuple[int, ...]  # positions of its scalar parameters
    batch_hint: BatchHint
    fills: frozenset[int]  # positions of tensors whose first use here writes every element
    has_products: bool
    iterations: int = 1  # calls that make a task


class KernelEmitter(Emitter):
    """Writes one kernel."""

    def __init__(
        self,
        kernel: Function,
        functions: Mapping[str, Function],
        sites: Sites,
        host: OpNumbers,
        *,
        windows: Windows,
    ) -> None:
        super().__init__(kernel, functions, sites, host)
        self.windows = windows
        self.regions = find_regions(kernel, self.aliases, windows_are_full=windows.are_full)
        self.slots: list[Slot] = []
        self.declarations: list[str] = []
        self.loops: list[Loop] = []
        self.remaining = Counter(self.uses)
        self.carried: dict[Value, Slot] = {}  # memory of a tile that a loop carries
        self.destinations: dict[Value, Slot] = {}  # memory that a yielded value is meant for
        self.pending: dict[Slot, Product] = {}  # products that the next loop may continue
        self.due: list[Product] = []  # those that nothing continues: run with what comes next
        self.batch_hint: BatchHint | None = None  # what the kernel's first products allow
        self._innermost: Text | None = None  # before the loop over elements being written
        self.window_numbers: dict[str, int] = {}  # of the parameters, by C name
        self._fills: set[int] = set()
        self.has_products = False
        self.touched: set[Slot] = set()  # but for descriptions of deferred products
        self.deferred: list[Product] = []  # all that were ever deferred
        self._clock = 0

    def emit(self) -> KernelCode:
        """Write the kernel."""
        windows, numbers = self._parameters()
        name = f"k_{identifier(self.function.name)}"
        with self.out.indented():
            self.block(self.function.body)
            self.out.add("return TL_OK;")
        nbytes = pack(self.slots)
        head = [
            f"// kernel `{self.function.name}`",
            f"int {name}(tl_ctx *c, const tl_win *w, const tl_word *x) {{",
            "    (void)c, (void)w, (void)x;",
        ]
        for s in self.slots:
            head.append(
                f"    {s.c_type} *const {s.name} = ({s.c_type} *)(c->scratch + {s.offset});"
            )
            head.append(f"    (void){s.name};")
        head += [f"    {line}" for line in self.declarations]
        lines = [*head, *self.out.lines, "}", ""]
        batch_hint = self.batch_hint or BatchHint()
        if nbytes * max(batch_hint.streams, batch_hint.same_a) > MOST_STREAM_BYTES:
            batch_hint = replace(batch_hint, streams=1, same_a=1)
        fills = frozenset(self._fills)
        return KernelCode(
            name, lines, nbytes, windows, numbers, batch_hint, fills, self.has_products
        )

    def _parameters(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        windows: list[int] = []
        numbers: list[int] = []
        for at, p in enumerate(self.function.params):
            if isinstance(p.type, TensorType):
                extents = tuple(d if isinstance(d, int) else None for d in p.type.shape)
                pointer = f"w_{identifier(p.name)}_{len(windows)}"
                self.window_numbers[pointer] = len(windows)
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
                        f"const {scalars.declared(p)} {name} = x[{len(numbers)}].{field_name};"
                    )
                    self.out.add(f"(void){name};")
                self.values[p] = name
                numbers.append(at)
        return tuple(windows), tuple(numbers)

    def note_whole_store(self, op: Op, tensor: Value) -> None:
        """The op writes every element of a tensor; of a parameter, perhaps as its first use."""
        if tensor in self.function.params and first_use(self.function.body, tensor) is op:
            self._fills.add(self.function.params.index(tensor))

    # --- tiles and tensors -----------------------------------------------------------------------

    def tile(self, arg: Arg) -> Tile:
        assert isinstance(arg, Value)
        found = self.values[arg]
        assert isinstance(found, Tile)
        return found

    def tensor(self, arg: Arg) -> TensorRef:
        assert isinstance(arg, Value)
        found = self.values[arg]
        assert isinstance(found, TensorRef)
        return found

    def new_slot(self, hint: str, dtype: DType, elements: int, c_type: str | None = None) -> Slot:
        e = element(dtype)
        nbytes = max(elements, 1) * (dtype.itemsize if c_type is None else 8)
        slot = Slot(
            self.name(f"t_{hint}"),
            c_type or e.memory,
            nbytes,
            self._clock,
            self._clock,
            len(self.loops),
        )
        self.slots.append(slot)
        return slot

    def touch(self, slot: Slot) -> None:
        """The C that is written next reads or writes the slot."""
        self.touched.add(slot)
        self.hold(slot)

    def hold(self, slot: Slot) -> None:
        """Keep the slot's memory until here."""
        slot.last = max(slot.last, self._clock)
        for loop in self.loops[slot.depth :]:
            loop.used.add(slot)

    @contextmanager
    def loop(self, op: Op, body: Block | None) -> Generator[Loop]:
        """A loop of the kernel (not one over the elements of a tile). `body`: as in `Loop`, as far
        as the caller can say.
        """
        loop = Loop(None if self._writes_memory(op) else body)
        self.loops.append(loop)
        yield loop
        self.loops.pop()
        if loop.products:
            self.flush_products(loop.products, op)
        self._clock += 1
        for slot in loop.used:
            slot.last = max(slot.last, self._clock)

    # --- products that were deferred --------------------------------------------------------------

    def flush_products(self, products: Sequence[Product], at: Op) -> None:
        """Run products; here the kernel may be left and entered again if it has done nothing else.

        `at` is the op that ends with them: a loop, or a product of its own.
        """
        names = [f"&{p.name}" for p in products]
        for p in products:
            self.hold(p.slot)  # until now nothing else may lie there, even if nobody looks at it
        if self._has_only(products, at):
            self._check_untouched(products)
            first = products[0].batch_hint
            self.batch_hint = replace(
                first,
                streams=max(1, first.streams // len(products)),
                same_a=max(1, first.same_a // len(products)),
            )
            for p in products:
                p.slot.first = 0  # what is repeated on the way back here must not touch it
            self.out.add(f"if (tl_flush_products(c, {_c_list(names)})) return TL_OK;")
        else:
            for i in range(0, len(names), MOST_PRODUCTS):
                some = names[i : i + MOST_PRODUCTS]
                self.out.add(f"tl_run_products(c, {_c_list(some)}, NULL);")
        for p in products:
            self.touch(p.slot)
            p.finish(self)

    def _check_untouched(self, products: Sequence[Product]) -> None:
        """What is repeated when the kernel is entered again must not touch the products' memory,
        where by then the results are: only their descriptions may name it. Nor may there be other
        products: all are left out then.
        """
        others = [p.name for p in self.deferred if p not in products]
        if others:
            problem = f"a kernel that is entered again leaves out a product: {', '.join(others)}"
            raise InternalError(problem, self.function.name, loc=products[0].ops[0].loc)
        for p in products:
            if p.slot in self.touched:
                problem = f"a kernel that is entered again touches its product {p.name}"
                raise InternalError(problem, self.function.name, loc=p.ops[0].loc)

    def run_with_next(self, product_: Product) -> None:
        """Run a product that nothing continues; with those after it that do not need it, if it is
        one of the kernel's own ops.
        """
        self.due.append(product_)
        is_nested = product_.ops[0] not in self.function.body.ops
        if is_nested or len(self.due) == MOST_PRODUCTS:
            self.flush_due()

    def flush_due(self) -> None:
        if self.due:
            products, self.due = self.due, []
            self.flush_products(products, products[-1].ops[-1])

    def _needs_due(self, op: Op) -> bool:
        """Whether the products that are due have to be run before `op`."""
        made = {r for p in self.due for o in p.ops for r in o.results}
        if made.intersection(op.operands):
            return True
        return bool(op.blocks) or (op.name not in PRODUCTS and not _is_recomputable(op, set()))

    def flush_pending(self, slot: Slot | None) -> None:
        """A product that a loop was to continue is needed now, or what it reads will change."""
        product_ = self.pending.pop(slot, None) if slot is not None else None
        if product_ is not None:
            self.out.add(f"tl_run_product(&{product_.name}, c);")

    def _has_only(self, products: Sequence[Product], at: Op) -> bool:
        """Whether all that the kernel does up to and including `at` is these products.

        A product of cut windows is not all: what lies outside is cleared before it. Nor is one that
        goes on from a tile: filling its memory with that tile is no op, but is repeated like one.
        """
        body = self.function.body.ops
        if self.batch_hint is not None or self.loops or len(products) > MOST_PRODUCTS:
            return False
        if any(p.region or not p.is_new for p in products):
            return False
        if at not in body:
            return False
        ops = {op for p in products for op in p.ops}
        before = body[: body.index(at) + 1]
        return all(_is_recomputable(o, ops) for o in before)

    def slot_tile(
        self, slot: Slot, shape: tuple[int, ...], dtype: DType, valid: tuple[Dim, ...]
    ) -> Tile:
        return Tile(shape, dtype, valid, Leaf(slot.name, row_major(shape), slot, is_zeroed=True))

    # --- evaluation ------------------------------------------------------------------------------

    def element_text(
        self, tile: Tile, root: Sequence[int], axes: Sequence[Axis], index: Sequence[str]
    ) -> str:
        """C text of one element, as a number; nodes get a line each."""
        e = element(tile.dtype)
        form = tile.form
        if isinstance(form, Leaf):
            if form.slot is not None:
                self.touch(form.slot)
            strides = strides_in(tile.shape, form.strides, root)
            place = total([product(i, strides[a.last]) for a, i in zip(axes, index)])
            number = e.load(f"{form.pointer}[{place}]")
            if self._innermost is not None and strides[axes[-1].last] == 0:
                # The same for the whole loop; compilers are not sure of that.
                name = self.name("same")
                self._innermost.add(f"const {e.number} {name} = {number};")
                return name
            return number
        operands = [self.element_text(o, root, axes, index) for o in form.operands]
        last = index[-1] if axes and axes[-1].last == len(root) - 1 else "0"
        return self.variable("e", form.make(operands, last), e.number, form.loc)

    @contextmanager
    def nest(self, axes: Sequence[Axis], *, vector: bool = True) -> Generator[list[str]]:
        """Loops over `axes`; gives the names of the indices."""
        names = [self.name("i") for _ in axes]
        depth = 0
        with self._nest(axes, names, depth, vector):
            yield names

    @contextmanager
    def _nest(
        self, axes: Sequence[Axis], names: list[str], depth: int, vector: bool
    ) -> Generator[None]:
        if depth == len(axes):
            yield
            return
        n = names[depth]
        outside = self._innermost
        self._innermost = self.out.reserve()
        if vector and depth == len(axes) - 1:
            self.out.add("TL_IVDEP")
        with (
            self.out.block(f"for (int64_t {n} = 0; {n} < {axes[depth].extent}; {n}++)"),
            self._nest(axes, names, depth + 1, vector),
        ):
            yield
        self._innermost = outside

    def axes_of(self, tile: Tile, *others: Sequence[Dim], merge: bool = True) -> list[Axis]:
        """The loops that evaluate the valid part of `tile`; `others`: strides of memory written."""
        strides = [strides_in(t.shape, leaf.strides, tile.shape) for t, leaf in leaves(tile)]
        merge = merge and not uses_index(tile)
        return merged_axes(tile.shape, tile.valid, [*others, *strides], merge=merge)

    @contextmanager
    def pieces(self, axis: Axis, length: int) -> Generator[tuple[str, str]]:
        """A loop over an axis, `length` elements at a time: the start of each piece, its size."""
        start = self.name("piece")
        with self.out.block(
            f"for (int64_t {start} = 0; {start} < {axis.extent}; {start} += {length})"
        ):
            yield start, self.variable("count", f"tl_least({length}, {axis.extent} - {start})")

    def evaluate_bypassing_cache(
        self, tile: Tile, pointer: str, strides: Sequence[Dim], condition: str
    ) -> None:
        """As `evaluate`; where `condition` holds, results go to memory without passing the caches.

        That is for tensors that no cache could hold until they are read.
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
            with self.nest([axis]) as column:
                position = self.variable("at", f"{start} + {column[0]}")
                number = self.element_text(tile, tile.shape, axes, [*index, position])
                self.out.add(f"{to}[{column[0]}] = {e.store(number)};")

        with self.out.block(), self.nest(outer, vector=False) as index:
            at = total([product(i, into[a.last]) for a, i in zip(outer, index)])
            self.out.add(f"{e.memory} *const there = {pointer} + ({at});")
            before = f"{condition} ? tl_before_line(there, {size}, {last.extent}) : {last.extent}"
            head = self.variable("head", before)
            tail = self.variable("tail", f"{head} + ({last.extent} - {head}) / {line} * {line}")
            # All of it, or what is no whole line: at the start, then at the end.
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
        self, tile: Tile, pointer: str, strides: Sequence[Dim], combine: str = "{}"
    ) -> None:
        """Write the valid part of `tile` to memory. `combine` is what is stored for an element."""
        e = element(tile.dtype)
        into = strides_in(tile.shape, strides, tile.shape)
        axes = self.axes_of(tile, into)
        with self.out.block(), self.nest(axes) as index:
            number = self.element_text(tile, tile.shape, axes, index)
            place = f"{pointer}[{total([product(i, into[a.last]) for a, i in zip(axes, index)])}]"
            self.out.add(f"{place} = {e.store(combine.format(number, place=e.load(place)))};")

    def clear_outside(
        self,
        tile_shape: tuple[int, ...],
        valid: tuple[Dim, ...],
        slot: Slot,
        dtype: DType,
        pattern: int = 0,
    ) -> None:
        """Before a slot is filled: its elements, if not all of them will be."""
        if valid == tile_shape:
            return
        self.touch(slot)
        partial = " || ".join(f"{v} != {n}" for v, n in zip(valid, tile_shape) if v != n)
        nbytes = count(tile_shape) * dtype.itemsize
        self.out.add(f"if ({partial}) tl_fill({slot.name}, {nbytes}, UINT64_C({pattern}));")

    def zero_outside(
        self, shape: tuple[int, ...], valid: tuple[Dim, ...], slot: Slot, dtype: DType
    ) -> None:
        """After a slot was filled: what lies outside the valid region, if anything does."""
        if valid != shape:
            self.out.add(
                f"tl_zero_outside({slot.name}, {array_text(shape)}, {array_text(valid)}, "
                f"{len(shape)}, {dtype.itemsize});"
            )

    def materialize_tile(self, tile: Tile, hint: str = "tile", slot: Slot | None = None) -> Tile:
        """The tile in scratch memory, dense, with zeros outside its valid region."""
        form = tile.form
        if (
            slot is None
            and isinstance(form, Leaf)
            and tile.is_dense
            and form.slot is not None
            and (form.is_zeroed or tile.is_full)
        ):
            return tile
        slot = slot or self.new_slot(hint, tile.dtype, count(tile.shape))
        self.touch(slot)
        self.evaluate(tile, slot.name, row_major(tile.shape))
        return self.written(tile, slot)

    def written(self, tile: Tile, slot: Slot) -> Tile:
        """The tile whose valid part has just been written to a slot."""
        # Not before: the slot may be what the tile is computed from.
        self.zero_outside(tile.shape, tile.valid, slot, tile.dtype)
        return self.slot_tile(slot, tile.shape, tile.dtype, tile.valid)

    def materialize(self, arg: Arg) -> Tile:
        """The tile of a value, in scratch memory from now on."""
        assert isinstance(arg, Value)
        tile = self.materialize_tile(self.tile(arg), arg.name)
        self.values[arg] = tile
        return tile

    def in_memory(self, arg: Arg) -> Tile:
        """The tile of a value in some memory, strided or not: a computation is carried out."""
        tile = self.tile(arg)
        return tile if isinstance(tile.form, Leaf) else self.materialize(arg)

    def result(self, op: Op, tile: Tile, *, lazy: bool = True) -> None:
        """Bind the op's result; a computation is deferred if its one user is in the same block, or
        if the first one can carry it out.
        """
        value = op.result
        if not self.uses[value]:
            return
        self.check_region(value, tile)
        once = self.uses[value] == 1 and self.user[value] is self.home[value]
        waits = lazy and (once or self._is_reduced_first(value))
        if isinstance(tile.form, Leaf) or (waits and tile.form.depth < DEEPEST):
            self.values[value] = tile
        else:
            self.values[value] = self.materialize_tile(tile, value.name)

    def check_region(self, value: Value, tile: Tile) -> None:
        """Check that a tile has the region that was planned for it."""
        found = tuple(v if isinstance(v, int) else None for v in tile.valid)
        if found != self.regions.of[value]:
            problem = f"valid region {tile.valid}, planned as {self.regions.of[value]}"
            raise InternalError(problem, self.function.name, value.name, value.loc)

    def _is_reduced_first(self, value: Value) -> bool:
        """Whether the first use is a reduction of rows, which are best reduced as they are made."""
        use = first_use(self.home[value], value)
        return (
            use is not None
            and use.spec.reduces == -1
            and Trait.FOLD in use.spec.traits
            and use.args["x"] is value
            and self.tile_type(value).dtype is FP32
        )

    def reuse_buffer(self, arg: Arg, result: Value) -> Slot | None:
        """The memory of an operand that nobody looks at again, for `result` to replace it there.

        What a loop carries may be replaced only by what it carries on in the same place.
        """
        if (
            not isinstance(arg, Value)
            or self.uses[arg] != 1
            or self.user[arg] is not self.home[arg]
        ):
            return None
        tile = self.tile(arg)
        slot = tile.form.slot if isinstance(tile.form, Leaf) else None
        if slot is None or slot.is_shared or not tile.is_dense or not tile.leaf.is_zeroed:
            return None
        if arg in self.carried and self.destinations.get(result) is not slot:
            return None
        return slot

    # --- blocks ----------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """All ops but the terminator."""
        for op in block.ops[:-1]:
            self.op(op)
        self.flush_due()

    def op(self, op: Op) -> None:
        self._clock += 1
        if self.due and self._needs_due(op):
            self.flush_due()
        if self._writes_memory(op):
            self._materialize_loads(op)
            for slot in list(self.pending):
                self.flush_pending(slot)
        emitter = EMITTERS.get(op.name) or EMITTERS.get(BY_REFERENCE if op.spec.reference else "")
        if emitter is None:
            raise InternalError("no C for this op", self.function.name, op.name, op.loc)
        emitter(self, op)
        for v in op.operands:
            self.remaining[v] -= 1

    def _writes_memory(self, op: Op) -> bool:
        nested = (o for b in op.blocks for o in walk(b))
        return any(
            isinstance(v.type, TensorType)
            for o in (op, *nested)
            for v in values_in(o.args[p] for p in o.spec.writes)
        )

    def _materialize_loads(self, op: Op) -> None:
        """Loads see memory as it was where they stand: copy what is needed after this op."""
        own = Counter(op.operands if not op.blocks else ())
        for value, tile in list(self.values.items()):
            if not isinstance(tile, Tile) or self.remaining[value] <= own[value]:
                continue
            if any(leaf.window is not None for _, leaf in leaves(tile)):
                self.values[value] = self.materialize_tile(tile, value.name)

    def tile_type(self, value: Value) -> TileType:
        assert isinstance(value.type, TileType)
        return value.type
