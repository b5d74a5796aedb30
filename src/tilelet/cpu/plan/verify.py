"""Verify a plan by executing the kernel symbolically, without using any planner code.

A state says which tile each slot holds. Every op is executed as planned: its reads must find its
operands, its writes replace the contents of all slots that share those bytes. A deferred product
owns its slot until it runs. Loops are executed until the state at their head is stable, which
detects slots and windows that the next iteration overwrites.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.cpu.plan.model import (
    MAX_PRODUCTS,
    Form,
    Inline,
    KernelPlan,
    PlanStep,
    ProductGroup,
    Stored,
    dense_form,
    leaves,
    one_row,
)
from tilelet.cpu.plan.text import plan_text
from tilelet.cpu.plan.verify_nests import problem_of
from tilelet.dataclasses import dataclass, field
from tilelet.diag.internal import InternalError
from tilelet.ir.core import Arg, Block, Op, Value, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import yielded_values

_VIEWS = (
    *("slice", "transpose", "transpose_view", "reshape", "reinterpret_view"),
    *("move", "fillpad", "fillpad_expand"),
)
"""Ops whose result may be the operand under another shape."""


class PlanError(InternalError):
    """The verifier rejects a plan, which is in `details`."""


@dataclass
class _State:
    """What is known at one point of the kernel.

    holds    tile in each slot
    forms    form of each live tile
    loaded   windows of tensors
    stale    windows that may have been overwritten since they were loaded
    waiting  slots of deferred products that have not run: their groups, and whether their operands
             may have been overwritten since
    """

    holds: dict[int, Value] = field(default_factory=dict[int, Value])
    forms: dict[Value, Form] = field(default_factory=dict[Value, Form])
    loaded: set[Stored] = field(default_factory=set[Stored])
    stale: set[Stored] = field(default_factory=set[Stored])
    waiting: dict[int, tuple[ProductGroup, bool]] = field(
        default_factory=dict[int, tuple[ProductGroup, bool]]
    )

    def copy(self) -> _State:
        return _State(
            dict(self.holds),
            dict(self.forms),
            set(self.loaded),
            set(self.stale),
            dict(self.waiting),
        )

    def meet(self, other: _State) -> _State:
        """Keep what holds on both of two paths; a product may be pending on only one of them."""
        holds = {s: v for s, v in self.holds.items() if other.holds.get(s) is v}
        waiting = {**other.waiting, **self.waiting}
        for slot in self.waiting.keys() & other.waiting.keys():
            waiting[slot] = (waiting[slot][0], self.waiting[slot][1] or other.waiting[slot][1])
        loaded, stale = self.loaded | other.loaded, self.stale | other.stale
        return _State(holds, dict(self.forms), loaded, stale, waiting)

    def is_fresh(self, window: Form) -> bool:
        return window in self.loaded and window not in self.stale

    def facts(self) -> tuple[object, ...]:
        return self.holds, self.stale, self.waiting


def verify(plan: KernelPlan) -> None:
    """Raise `PlanError` unless the plan implements the kernel."""
    run = _Run(plan)
    try:
        run.check_memory()
        run.check_groups()
        run.check_nests()
        state = run.block(plan.kernel.body, _State())
        for group, _ in state.waiting.values():
            raise run.error(group.ops[0], "a product is never run")
        run.check_handover()
    except PlanError as error:
        error.details = plan_text(plan)
        raise


class _Run:
    def __init__(self, plan: KernelPlan) -> None:
        self.plan = plan
        self.group_of = {op: g for g in plan.groups for op in g.ops}
        self.ranges = [(s.offset, s.offset + s.nbytes) for s in plan.slots]
        self._overlapping: dict[int, frozenset[int]] = {}
        self.taken: dict[int, Op] = {}  # first op that takes each slot
        self.one_row = {v for nest in plan.nests for v in nest.one_row}
        self.nest_ends = {nest.ops[-1]: nest for nest in plan.nests if nest.ops}

    def error(self, op: Op, problem: str) -> PlanError:
        return PlanError(f"plan refused: {problem}", self.plan.kernel.name, op.name, op.loc)

    # --- what holds for the whole plan ------------------------------------------------------------

    def check_memory(self) -> None:
        for slot in self.plan.slots:
            if slot.offset < 0 or slot.offset + slot.nbytes > self.plan.scratch:
                raise PlanError(
                    f"plan refused: no scratch memory for {slot}", self.plan.kernel.name
                )

    def check_groups(self) -> None:
        """Check that every product is deferred at most once, and runs in an enclosing block."""
        seen: set[Op] = set()
        around = set(walk(self.plan.kernel.body))
        for group in self.plan.groups:
            for op in group.ops:
                if op in seen or op not in around or group.run_after not in around:
                    raise self.error(op, "a product is deferred twice, or run outside the kernel")
                seen.add(op)

    def check_nests(self) -> None:
        """Check that nests may run row by row, and that rows leave each other's memory alone."""
        for nest in self.plan.nests:
            found = problem_of(nest, self.plan)
            if found is not None:
                raise self.error(found[0], f"a row nest {found[1]}")
            slots = {s for op in nest.ops for s in self._all_slots(op)}
            shared = next((s for s in slots if self.overlapping(s) & (slots - {s})), None)
            if shared is not None:
                raise self.error(nest.ops[0], f"a row nest shares the memory of slot {shared}")

    def _all_slots(self, op: Op) -> set[int]:
        """Return all slots that an op reads or writes."""
        step = self.plan.steps[op]
        forms = () if step.result is None else leaves(step.result)
        used = {leaf.slot for leaf in forms if leaf.slot is not None}
        return {*step.slots, *step.touched, *used, *(slot for _, slot in step.stored)}

    def overlapping(self, slot: int) -> frozenset[int]:
        """Return the slots that share bytes with a slot, including itself."""
        found = self._overlapping.get(slot)
        if found is None:
            low, high = self.ranges[slot]
            others = enumerate(self.ranges)
            found = frozenset(i for i, (start, end) in others if start < high and low < end)
            self._overlapping[slot] = found
        return found

    # --- memory -----------------------------------------------------------------------------------

    def read(self, op: Op, state: _State, form: Form) -> None:
        """Check that everything `form` is computed from is still in memory."""
        for leaf in leaves(form):
            if leaf.window is not None and not state.is_fresh(leaf):
                raise self.error(op, f"the window of `{leaf.value.name}` was written meanwhile")
            if leaf.slot is None:
                continue
            if leaf.slot in state.waiting:
                raise self.error(op, f"slot {leaf.slot} of a deferred product is read")
            if state.holds.get(leaf.slot) is not leaf.value:
                raise self.error(op, f"slot {leaf.slot} does not hold `{leaf.value.name}` any more")

    def write(self, op: Op, state: _State, slot: int, value: Value | None) -> None:
        """Replace the contents of a slot; None: with a value private to this op."""
        for other in self.overlapping(slot):
            if other in state.waiting:
                raise self.error(op, f"slot {other} of a deferred product is written")
            state.holds.pop(other, None)
        if value is not None:
            if self.plan.slots[slot].nbytes < self._nbytes(value):
                raise self.error(op, f"slot {slot} is too small for `{value.name}`")
            state.holds[slot] = value

    def evaluate(self, op: Op, state: _State, value: Value, form: Form, slot: int) -> None:
        """Write a tile to a slot, element by element."""
        self.read(op, state, form)
        shape = _shape(value)
        for leaf in leaves(form):
            if leaf.slot is None or leaf.slot not in self.overlapping(slot):
                continue
            if leaf.slot != slot or not (leaf.is_dense and leaf.shape == shape):
                raise self.error(op, f"slot {slot} is written while `{value.name}` is read from it")
        self.write(op, state, slot, value)
        state.forms[value] = (one_row if value in self.one_row else dense_form)(value, shape, slot)

    def _nbytes(self, value: Value) -> int:
        """Return the memory that a tile needs."""
        nbytes = _nbytes(value)
        return nbytes // _shape(value)[0] if value in self.one_row else nbytes

    def takes(self, op: Op, slot: int) -> bool:
        """Whether a slot is first taken here; otherwise it must be an operand's."""
        return self.taken.setdefault(slot, op) is op

    # --- ops --------------------------------------------------------------------------------------

    def block(self, block: Block, state: _State) -> _State:
        for op in block.ops[:-1]:
            state = self.op(op, state)
            self._run_products(op, state)
            if op in self.nest_ends:  # only the last row is left
                rows = {slot for slot, v in state.holds.items() if v in self.nest_ends[op].one_row}
                state.holds = {s: v for s, v in state.holds.items() if s not in rows}
        return state

    def op(self, op: Op, state: _State) -> _State:
        step = self.plan.steps.get(op)
        if step is None:
            raise self.error(op, "no step for this op")
        for value, slot in (*step.copies, *step.stored):
            self.takes(op, slot)
            self.evaluate(op, state, value, state.forms[value], slot)
        if op.blocks:
            state = (
                self._branch(op, step, state) if op.name == "if" else self._loop(op, step, state)
            )
        elif op in self.group_of:
            self._defer(op, step, state)
        else:
            self._execute(op, step, state)
        if _writes(op):
            state.stale |= state.loaded
            state.waiting = {slot: (group, True) for slot, (group, _) in state.waiting.items()}
        return state

    def _execute(self, op: Op, step: PlanStep, state: _State) -> None:
        tiles = _read_tiles(op)
        form = step.result
        results = [r for r in op.results if isinstance(r.type, TileType)]
        if len(results) > 1:
            self._compute(op, step, state, tiles, None)
            for value, slot in zip(results, step.slots):
                self.write(op, state, slot, value)
                state.forms[value] = dense_form(value, _shape(value), slot)
            return
        result = results[0] if results else None
        if result is not None and form is None and not step.slots:
            return  # unused
        if isinstance(form, Stored) and result is not None and form.window is not None:
            self._load(op, step, state, form)
        elif form is not None and op.name in _VIEWS and any(form is state.forms[v] for v in tiles):
            pass  # an alias
        elif isinstance(form, Inline) and not step.slots:
            self._check_inline(op, form, state)
        elif isinstance(form, Stored) and form.value is not result:
            if op.name not in _VIEWS or not any(_is_view(form, state.forms[v]) for v in tiles):
                raise self.error(op, "the result is taken for a view of something else")
        else:
            self._compute(op, step, state, tiles, result)
        if result is not None and form is not None:
            state.forms[result] = form

    def _load(self, op: Op, step: PlanStep, state: _State, form: Stored) -> None:
        if form.window not in op.operands:  # a view of a load
            sources = [state.forms[v] for v in op.operands if v in state.forms]
            if not any(_is_view(form, s) and state.is_fresh(s) for s in sources):
                raise self.error(op, "the result is taken for a view of another window")
        else:
            for slot in step.slots:
                self.takes(op, slot)
                self.write(op, state, slot, form.value if slot == form.slot else None)
        state.loaded.add(form)
        state.stale.discard(form)

    def _check_inline(self, op: Op, form: Inline, state: _State) -> None:
        """Check that an inline computation uses only this op's operands."""
        for operand in form.operands:
            if not any(_stands_for(operand, v, state) for v in op.operands):
                raise self.error(op, "the result is computed from something else")
        is_computed = Trait.ELEMENTWISE in op.spec.traits and Trait.ARITHMETIC in op.spec.traits
        if is_computed and len(form.operands) != len(_read_tiles(op)):
            raise self.error(op, "the result is computed from fewer operands")

    def _compute(
        self, op: Op, step: PlanStep, state: _State, tiles: Sequence[Value], result: Value | None
    ) -> None:
        """Execute the op."""
        new = [slot for slot in step.slots if self.takes(op, slot)]
        read = [state.forms[v] for v in tiles]
        used = {leaf.slot for form in read for leaf in leaves(form)} - {None}
        for form in read:
            self.read(op, state, form)
        for slot in step.slots:
            if slot in new and used & self.overlapping(slot):
                raise self.error(op, f"slot {slot} is written while an operand lies there")
            if slot not in new and not self._replaces(op, state, slot):
                raise self.error(op, f"slot {slot} does not hold the operand to be replaced")
            self.write(op, state, slot, None)
        form = step.result
        if form is None or result is None:
            return
        kept = form if isinstance(form, Stored) else next(iter(leaves(form)), None)
        if kept is not None and kept.slot is not None:
            if kept.slot not in step.slots:
                # Evaluated and written immediately, because it has several uses.
                self.takes(op, kept.slot)
                if used & self.overlapping(kept.slot):
                    raise self.error(op, f"slot {kept.slot} is written while an operand lies there")
            self.write(op, state, kept.slot, result)

    def _replaces(self, op: Op, state: _State, slot: int) -> bool:
        """Whether a slot holds the operand that the op's result replaces, and no other operand is
        read from it.
        """
        name = op.spec.replaces or ("x" if op.name == "write" else "")
        value = op.args.get(name)
        if not isinstance(value, Value) or value not in state.forms:
            return False
        form = state.forms[value]
        others = [v for v in op.operands if v is not value and v in state.forms]
        is_read = any(leaf.slot == slot for v in others for leaf in leaves(state.forms[v]))
        # The inserted tile may have been copied first.
        is_aside = op.name == "assemble" and len(self.plan.steps[op].slots) == 2
        return (
            isinstance(form, Stored)
            and form.slot == slot
            and form.is_dense
            and form.value is state.holds.get(slot)
            and (is_aside or not is_read)
        )

    # --- products that are deferred ---------------------------------------------------------------

    def _defer(self, op: Op, step: PlanStep, state: _State) -> None:
        group = self.group_of[op]
        slot = group.slot
        windows = step.operands
        if step.slots[:1] != (slot,) or any(w.window is None for w in windows):
            raise self.error(op, "a deferred product has another slot, or reads no window")
        for leaf in windows:
            if not state.is_fresh(leaf):
                raise self.error(op, f"the window of `{leaf.value.name}` was written meanwhile")
        is_new = self.takes(op, slot)
        accumulator = op.args.get("acc")
        waiting, others = state.waiting.get(slot), [s for s in self.overlapping(slot) if s != slot]
        if any(s in state.waiting for s in others):
            raise self.error(op, "a deferred product overlaps another one")
        if isinstance(accumulator, Value):
            form = state.forms[accumulator]
            is_there = isinstance(form, Stored) and form.slot == slot
            if op.args.get("init_cond") is not None or is_new or not is_there:
                raise self.error(op, "a deferred product adds to something else")
            assert isinstance(form, Stored)
            if state.holds.get(slot) is not form.value:
                raise self.error(op, f"slot {slot} does not hold the sum so far")
            if waiting is not None and waiting[0] is not group:
                raise self.error(op, "a deferred product goes on with another one")
        elif waiting is not None or group.ops[0] is not op or not group.starts_new:
            raise self.error(op, "a deferred product starts anew before it was run")
        for other in others:
            state.holds.pop(other, None)
        state.holds[slot] = op.result
        state.waiting[slot] = (group, waiting is not None and waiting[1])
        if step.result is not None:
            self._check_product(op, step.result, slot)
            state.forms[op.result] = step.result
            if isinstance(step.result, Stored) and step.result.slot != slot:
                # Rounded in place: the product runs first.
                self._run_products(op, state)
                self.takes(op, step.result.slot or 0)
                self.write(op, state, step.result.slot or 0, op.result)

    def _check_product(self, op: Op, form: Form, slot: int) -> None:
        own = {leaf.slot for leaf in leaves(form)}
        if own != {slot} and op not in {g.run_after for g in self.plan.groups}:
            raise self.error(op, "a deferred product is read before it is run")

    def _run_products(self, op: Op, state: _State) -> None:
        for group in self.plan.groups:
            if group.run_after is not op or group.slot not in state.waiting:
                continue
            waiting, is_stale = state.waiting.pop(group.slot)
            if waiting is not group:
                raise self.error(op, "another product waits in this slot")
            if is_stale:
                raise self.error(op, "operands of a deferred product were written before it is run")

    def check_handover(self) -> None:
        """Check that only repeatable ops precede the point where the kernel is left."""
        groups = [g for g in self.plan.groups if g.handover]
        if not groups:
            return
        end, body = groups[0].run_after, self.plan.kernel.body.ops
        others = [g for g in self.plan.groups if g.run_after is end and not g.handover]
        if end not in body or others or any(g.run_after is not end for g in groups):
            raise self.error(end, "the kernel is left at several places, or inside a block")
        if len(groups) > MAX_PRODUCTS or not all(g.starts_new for g in groups):
            raise self.error(end, "products are handed over that do not start there")
        products = {op for g in groups for op in g.ops}
        own = {s for g in groups for s in self.overlapping(g.slot)}
        for op in _ops_before(body, end):
            if op in products:
                if self.plan.regions.of[op.result] != _shape(op.result):
                    raise self.error(
                        op, "a cut product is handed over: its memory is cleared again"
                    )
            elif not self._may_repeat(op, products):
                raise self.error(op, "an op before a hand-over cannot be repeated")
            elif own & self._written(op):
                raise self.error(op, "an op before a hand-over writes the memory of its products")

    def _may_repeat(self, op: Op, products: set[Op]) -> bool:
        """Whether an op produces only scalars, windows, and the sums of the products."""
        if _writes(op) or (not op.blocks and op.name not in _VIEWS and not _is_pure(op)):
            return False
        result = self.plan.steps[op].result
        if op.blocks:
            sums = {p.result for p in products}
            tiles = [i for i, r in enumerate(op.results) if isinstance(r.type, TileType)]
            return all(yielded_values(op.blocks[-1])[i] in sums for i in tiles)
        is_tile = any(isinstance(r.type, TileType) for r in op.results)
        return (
            not is_tile
            or result is None
            or (isinstance(result, Stored) and result.window is not None)
        )

    def _written(self, op: Op) -> set[int]:
        """Return the slots that an op writes, except where it continues a product."""
        step = self.plan.steps[op]
        taken = [s for s in step.slots if self.taken.get(s) is op]
        moved = [slot for moves in step.moves for _, slot in moves]
        return {*taken, *moved, *(slot for _, slot in (*step.copies, *step.stored))}

    # --- loops and branches -----------------------------------------------------------------------

    def _loop(self, op: Op, step: PlanStep, state: _State) -> _State:
        body = op.blocks[-1]
        init = op.args["init"]
        assert isinstance(init, tuple)
        # A `for` has its index before its carried values.
        params = [block.params[len(block.params) - len(init) :] for block in op.blocks]
        places = _tile_places(op.results)
        slots = dict(zip(places, step.slots))
        for at, slot in slots.items():
            self._start_carrying(op, state, init[at], slot)
        entry = state
        for at, slot in slots.items():
            entry.holds[slot] = params[-1][at]
        while True:
            end = entry.copy()
            for names, block in zip(params, op.blocks):
                for at, slot in slots.items():
                    if names[at] is not params[-1][at] and end.holds.get(slot) is params[-1][at]:
                        end.holds[slot] = names[at]
                    end.forms[names[at]] = dense_form(names[at], _shape(names[at]), slot)
                end = self.block(block, end)
                for at, slot in slots.items():  # the parameters of the condition are the same tiles
                    if end.holds.get(slot) is names[at]:
                        end.holds[slot] = params[-1][at]
            self._finish_block(op, body, step.moves[0], slots, end)
            for at, slot in slots.items():
                end.holds[slot] = params[-1][at]
            head = entry.meet(end)
            if head.facts() == entry.facts():
                break
            entry = head
        after = entry.copy()
        for at, slot in slots.items():
            after.holds[slot] = op.results[at]
            after.forms[op.results[at]] = dense_form(op.results[at], _shape(op.results[at]), slot)
        return after

    def _start_carrying(self, op: Op, state: _State, first: Arg, slot: int) -> None:
        """Start a carried tile in the memory of its initial value, or in a copy."""
        assert isinstance(first, Value)
        form = state.forms[first]
        if self.takes(op, slot):
            kept = dict(state.forms)
            self.evaluate(op, state, first, form, slot)
            state.forms = kept
        elif not (isinstance(form, Stored) and form.slot == slot and form.is_dense) or (
            state.holds.get(slot) is not form.value
        ):
            raise self.error(
                op, f"slot {slot} does not hold `{first.name}`, which the loop carries"
            )

    def _branch(self, op: Op, step: PlanStep, state: _State) -> _State:
        slots = dict(zip(_tile_places(op.results), step.slots))
        for slot in slots.values():
            self.takes(op, slot)
        ends: list[_State] = []
        for block, moves in zip(op.blocks, step.moves):
            end = self.block(block, state.copy())
            self._finish_block(op, block, moves, slots, end)
            for at, slot in slots.items():
                end.holds[slot] = op.results[at]
            ends.append(end)
        after = ends[0].meet(ends[1])
        after.forms = dict(state.forms)
        for at, slot in slots.items():
            after.forms[op.results[at]] = dense_form(op.results[at], _shape(op.results[at]), slot)
        return after

    def _finish_block(
        self,
        op: Op,
        block: Block,
        moves: Iterable[tuple[int, int]],
        slots: dict[int, int],
        state: _State,
    ) -> None:
        """Check that every carried or joined tile is in its slot at the end of a block."""
        last = yielded_values(block)
        forms: dict[int, Form] = {}
        for at in slots:
            value = last[at]
            assert isinstance(value, Value)
            forms[at] = state.forms[value]
        for at, slot in moves:
            value = last[at]
            assert isinstance(value, Value)
            self.evaluate(op, state, value, forms[at], slot)
            forms[at] = state.forms[value]
        for at, slot in slots.items():
            form = forms[at]
            is_there = isinstance(form, Stored) and form.slot == slot and form.is_dense
            if not is_there or state.holds.get(slot) is not form.value:
                raise self.error(op, f"slot {slot} does not get what `{op.results[at].name}` is")


# --- the kernel's text ----------------------------------------------------------------------------


def _read_tiles(op: Op) -> list[Value]:
    """Return operands whose elements are read, not only their shape."""
    is_shape_only = op.name in ("col_expand", "expand_clone", "expands") or (
        op.name == "row_expand" and op.args["row_vec"] is not None
    )
    unread = ("tmp", "tmp_tile", *(("target",) if is_shape_only else ()))
    values = [v for name, arg in op.args.items() if name not in unread for v in _values(arg)]
    return [v for v in values if isinstance(v.type, TileType)]


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value.type, TileType)
    return value.type.shape


def _nbytes(value: Value) -> int:
    assert isinstance(value.type, TileType)
    n = value.type.dtype.itemsize
    for extent in value.type.shape:
        n *= extent
    return n


def _tile_places(values: Sequence[Value]) -> list[int]:
    return [i for i, v in enumerate(values) if isinstance(v.type, TileType)]


def _is_view(form: Stored, of: Form) -> bool:
    """Whether `form` is a view of another one's memory."""
    return isinstance(of, Stored) and (form.value, form.slot, form.window) == (
        of.value,
        of.slot,
        of.window,
    )


def _stands_for(form: Form, value: Value, state: _State) -> bool:
    """Whether `form` is the tile itself, perhaps converted to its user's element type."""
    planned = state.forms.get(value)
    if planned is None:
        return False
    if isinstance(form, Inline) and form is not planned:
        return form.value is value and any(_is_same(f, planned) for f in form.operands)
    return _is_same(form, planned)


def _is_same(a: Form, b: Form) -> bool:
    if not isinstance(a, Stored) or not isinstance(b, Stored) or a.window is not None:
        return a is b
    return _is_view(a, b) and (a.shape, a.strides) == (b.shape, b.strides)


def _writes(op: Op) -> bool:
    """Whether an op writes a tensor directly."""
    return any(isinstance(v.type, TensorType) for p in op.spec.writes for v in _values(op.args[p]))


def _values(arg: Arg) -> list[Value]:
    if isinstance(arg, tuple):
        return [v for a in arg for v in _values(a)]
    return [arg] if isinstance(arg, Value) else []


def _is_pure(op: Op) -> bool:
    """Whether an op only computes scalars, or loads."""
    traits = Trait.SCALAR | Trait.OF_BLOCK | Trait.SHAPE_ONLY | Trait.LOAD
    return bool(op.spec.traits & traits) or op.spec.is_window_load


def _ops_before(ops: Sequence[Op], end: Op) -> Iterable[Op]:
    """Yield all ops before one, outer before inner."""
    for op in ops:
        yield op
        for block in op.blocks:
            for inner in walk(block):
                if inner not in block.ops[-1:] and inner.name != "yield":
                    yield inner
        if op is end:
            return
