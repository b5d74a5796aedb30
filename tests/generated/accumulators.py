"""Accumulators of products: every way to start, carry, interrupt and end a `matmul_acc` chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tests.generated import oracle
from tests.generated.core import Expr, GmT, Run, ScalarT, Step, TileT, run_body, run_steps
from tests.generated.oracle import NUMPY, Tile
from tests.generated.statements import applied, looping, negated
from tests.generated.unread import Unread

OPERANDS = ("BF16", "FP32", "FP16", "INT8")


@dataclass(frozen=True)
class Factor:
    """A matrix, a tensor or a tile, whose pieces along k are multiplied."""

    name: str
    is_tile: bool
    is_transposed: bool
    at: Expr  # first row (of the left matrix) or column (of the right one)
    extent: int


@dataclass(frozen=True)
class Chain:
    """One accumulator, and what is added to it."""

    acc: str
    shape: tuple[int, int]
    total: str  # dtype of the accumulator
    left: Factor
    right: Factor
    step: int
    trips: int
    is_cut: bool = False  # partially valid pieces may be added
    full: bool = True
    is_tensor: bool = False  # a tensor's name until the first product is added to it
    multiplied: frozenset[str] = frozenset()  # all matrices of the chains that are carried together

    @property
    def type(self) -> TileT:
        return TileT(self.shape, self.total, self.full)

    @property
    def depth(self) -> int:
        return self.step * self.trips


class Accumulators(Unread):
    """Statements that build products piece by piece."""

    def nested(self) -> list[Callable[[int], None]]:
        return [*super().nested(), self.accumulate, self.accumulate]

    def new_input(self, shape: tuple[int, int], dtype: str) -> str | None:
        """Return a new tensor to read from, if the context allows one."""
        return None

    # --- the whole -------------------------------------------------------------------------------

    def accumulate(self, nesting: int) -> None:
        """One to three accumulators, carried together."""
        if not self.choices.chance(90):
            return self._straight(nesting)
        beside = [self._beside() for _ in range(self.choices.pick((0, 0, 0, 1, 2)))]
        chains = self._chains(self.choices.pick((1, 1, 1, 2, 2, 3)), None)
        self._carry_all(chains, nesting)
        self._end_all([*beside, *chains])
        return None

    def _beside(self) -> Chain:
        """A product of its own before the products of the chains."""
        step = self.choices.pick((4, 8, 2))
        chain = replace(self._chain(None, step, 1), is_cut=False, full=True)
        return self._start_product(chain)

    def product(self, shape: tuple[int, int], dtype: str, start: Expr | None) -> Expr:
        """An accumulator of this type that a loop carries, starting from `start` if given."""
        (chain,) = self._chains(1, TileT(shape, dtype), start)
        self._carry_all([chain], 0)
        return Expr(chain.acc, lambda r: r.env[chain.acc], chain.type)

    def continued(self, name: str) -> None:
        """A tensor continues as an accumulator: it is loaded where the loop begins."""
        t = self.env.pop(name)
        assert isinstance(t, GmT)
        step, trips = self.choices.pick((4, 2, 3)), self.choices.number(1, 2)
        chain = self._chain(TileT((t.shape[0], t.shape[1]), t.dtype), step, trips)
        chain = replace(chain, acc=name, is_cut=False, is_tensor=True)
        self._carry_all([chain], 0)
        self._end_all([chain])

    def _straight(self, nesting: int) -> None:
        """Consecutive products without a loop."""
        (chain,) = self._chains(1, None)
        self._settle(chain)
        for i in range(chain.trips):
            at = _constant(i * chain.step)
            self._add(chain, at)
            if self.choices.chance(40):
                self._interrupt(chain, nesting)
        self._end_all([chain])

    def _chains(self, count: int, wanted: TileT | None, start: Expr | None = None) -> list[Chain]:
        step, trips = self.choices.pick((4, 2, 8, 3, 1)), self.choices.number(1, 3)
        chains = [self._chain(wanted, step, trips) for _ in range(count)]
        begun: list[Chain] = []
        multiplied = frozenset(f.name for c in chains for f in (c.left, c.right))
        for chain in (replace(c, multiplied=multiplied) for c in chains):
            if start is not None:
                self.assign(chain.acc, start, chain.type)
                begun.append(chain)
            else:
                begun.append(self._start(chain))
            self.env[begun[-1].acc] = begun[-1].type
        return begun

    def _chain(self, wanted: TileT | None, step: int, trips: int) -> Chain:
        if wanted is None:
            shape = (self.choices.pick((4, 8, 3, 1, 16)), self.choices.pick((8, 4, 5, 16, 1, 64)))
            dtype = self.choices.pick(OPERANDS)
            total = "INT32" if dtype == "INT8" else "FP32"
            known = self.names(
                lambda t: (
                    isinstance(t, (GmT, TileT))
                    and t.dtype == total
                    and len(t.shape) == 2
                    and max(t.shape) <= 17
                )
            )
            if known and self.choices.chance(40):
                rows, columns = self.env[self.choices.pick(known)].shape  # type: ignore[union-attr]
                shape = (rows, columns)
        else:
            shape, total = wanted.shape, wanted.dtype
            dtype = "INT8" if total == "INT32" else self.choices.pick(OPERANDS[:3])
        left = self._factor(shape[0], step * trips, dtype, is_left=True)
        right = self._factor(shape[1], step * trips, dtype, is_left=False)
        is_cut = self.choices.chance(20)
        acc = self.fresh("acc")
        return Chain(acc, shape, total, left, right, step, trips, is_cut, full=not is_cut)

    def _factor(self, extent: int, depth: int, dtype: str, is_left: bool) -> Factor:
        is_transposed = self.choices.chance(20)
        shape = (extent, depth) if is_left != is_transposed else (depth, extent)
        name, is_tile = self._matrix(shape, dtype)
        found = self.env[name]
        assert isinstance(found, (GmT, TileT))
        axis = 0 if is_left != is_transposed else 1
        at = _constant(0) if is_tile else self.offset(found.shape[axis] - extent)
        return Factor(name, is_tile, is_transposed, at, extent)

    def _matrix(self, shape: tuple[int, int], dtype: str) -> tuple[str, bool]:
        names = self.sources(shape, dtype)
        if names and self.choices.chance(60):
            return self.choices.pick(names), False
        tiles = self.tiles(lambda t: t.full and (t.shape, t.dtype) == (shape, dtype))
        if tiles and not self.loads_by_hand and self.choices.chance(50):
            return self.choices.pick(tiles), True
        if self.choices.chance(70):
            room = (shape[0] + self.choices.pick((0, 0, 3)), shape[1] + self.choices.pick((0, 2)))
            name = self.new_input(room, dtype)
            if name is not None:
                self.env[name] = GmT(room, dtype, constant=True)
                return name, False
        name = self.fresh("t")
        value = self.tile(shape, dtype, 1, full=True)
        # A window of a product is still in Acc, which no product can read.
        value = negated(value) if self.loads_by_hand else self.computed(value)
        self.assign(name, self.on_chip(value), value.type)
        return name, True

    # --- starts ----------------------------------------------------------------------------------

    def _start(self, chain: Chain) -> Chain:
        starts: list[Callable[[Chain], Chain | None]] = [
            self._start_loaded, self._start_loaded, self._start_loaded, self._start_full,
            self._start_product, self._start_product, self._start_computed, self._start_padded,
            self._start_marked, self._start_joined, self._start_filled, self._start_spilled,
            self._start_named, self._start_unset,
        ]  # fmt: skip
        for _ in range(3):
            found = self.choices.pick(starts)(chain)
            if found is not None:
                return found
        return self._start_full(chain)

    def _start_loaded(self, chain: Chain) -> Chain | None:
        """A window of a tensor, by a subscript, `pl.slice` or `pl.load`."""
        names = self.sources(chain.shape, chain.total)
        if not names and self.choices.chance(70):
            room = (chain.shape[0] + self.choices.pick((0, 1)), chain.shape[1])
            name = self.new_input(room, chain.total)
            if name is None:
                return None
            self.env[name] = GmT(room, chain.total, constant=True)
            names = [name]
        if not names:
            return None
        name = self.choices.pick(names)
        source = self.env[name]
        assert isinstance(source, GmT)
        offsets = [self.offset(d - s) for d, s in zip(source.shape, chain.shape)]
        text, shape = ", ".join(o.text for o in offsets), f"[{chain.shape[0]}, {chain.shape[1]}]"
        window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, chain.shape))
        by_hand = ("load", "load") if self.loads_by_hand else ()
        form = self.choices.pick(("subscript", "slice", *by_hand))
        shown = {
            "subscript": f"{name}[{window}]",
            "slice": f"pl.slice({name}, {shape}, [{text}])",
            "load": f"pl.load({name}, [{text}], {shape})",
        }[form]

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            return oracle.whole(r.env[name][i : i + chain.shape[0], j : j + chain.shape[1]].copy())

        self.assign(chain.acc, Expr(shown, value, chain.type), chain.type)
        return chain

    def _start_full(self, chain: Chain) -> Chain:
        self.assign(chain.acc, self.full(chain.shape, chain.total), chain.type)
        return chain

    def _start_product(self, chain: Chain) -> Chain:
        first = self._other_matrices(chain) if self.choices.chance(50) else None
        found = self._product_at(first or chain, _constant(0))
        self.assign(chain.acc, found, found.type)
        return chain

    def _other_matrices(self, chain: Chain) -> Chain | None:
        """The chain with matrices that may be stored otherwise, with rows of equal length."""
        dtype = "INT8" if chain.total == "INT32" else self.choices.pick(OPERANDS[:3])
        factors: list[Factor] = []
        for factor, is_left in ((chain.left, True), (chain.right, False)):
            known = self.env[factor.name]
            is_transposed = self.choices.chance(50)
            is_row_major = is_left != is_transposed
            rows, columns = (
                (factor.extent, chain.step) if is_row_major else (chain.step, factor.extent)
            )
            room = (rows, known.shape[1])  # type: ignore[union-attr]
            name = None if factor.is_tile or columns > room[1] else self.new_input(room, dtype)
            if name is None:
                return None
            self.env[name] = GmT(room, dtype, constant=True)
            factors.append(replace(factor, name=name, is_transposed=is_transposed, at=_constant(0)))
        return replace(chain, left=factors[0], right=factors[1])

    def _start_computed(self, chain: Chain) -> Chain:
        value = self.computed(self.tile(chain.shape, chain.total, 1, full=True))
        self.assign(chain.acc, value, chain.type)
        return chain

    def _start_padded(self, chain: Chain) -> Chain | None:
        """A partially valid window, as it is or filled."""
        part = self.load_part(chain.shape, chain.total)
        if part is None:
            return None
        if self.choices.chance(50):
            self.assign(chain.acc, part, part.type)
            return replace(chain, full=False)
        pad = self.choices.pick(("zero", "min", "max"))
        text = f"pl.fillpad({part.text}, pad_value=pl.PadValue.{pad})"
        filled = Expr(text, lambda r: oracle.filled(part.value(r), pad), chain.type)
        self.assign(chain.acc, filled, chain.type)
        return chain

    def _start_marked(self, chain: Chain) -> Chain:
        """A partially valid tile."""
        name = self.fresh("t")
        value = self.computed(self.tile(chain.shape, chain.total, 1, full=True))
        self.assign(name, self.on_chip(value), value.type)
        rows, columns = (self.clamped(1, d, 1) for d in chain.shape)

        def value(r: Run) -> Tile:
            inside = r.env[name].data[: rows.value(r), : columns.value(r)]
            return oracle.padded(inside.copy(), chain.shape)

        text = f"pl.set_validshape({name}, {rows.text}, {columns.text})"
        marked = replace(chain, full=False)
        self.assign(chain.acc, Expr(text, value, marked.type), marked.type)
        return marked

    def _start_joined(self, chain: Chain) -> Chain:
        """Either arm of a branch starts it, or one changes it."""
        if self.choices.chance(50):
            chain = self._start_loaded(chain) or self._start_full(chain)
        condition = self.condition()
        before = dict(self.env)
        arms: list[list[Step]] = [[], []]
        full = chain.full
        with self.block(f"if {condition.text}:") as arms[0]:
            full &= self._arm(chain).full
        self.env = dict(before)
        if chain.acc not in before or self.choices.chance(50):
            with self.block("else:") as arms[1]:
                full &= self._arm(chain).full
        self.env = before
        self.steps.append(lambda r: run_steps(arms[0] if condition.value(r) else arms[1], r))
        return replace(chain, full=full)

    def _arm(self, chain: Chain) -> Chain:
        arms = (self._start_loaded, self._start_full, self._start_product, self._start_computed)
        return self.choices.pick(arms)(chain) or self._start_full(chain)

    def _start_filled(self, chain: Chain) -> Chain:
        """`pl.create_tensor`, then written in one or two parts."""
        rows, columns = chain.shape
        self.emit(
            f"{chain.acc} = pl.create_tensor([{rows}, {columns}], pl.{chain.total})",
            lambda r: r.env.update(
                {chain.acc: oracle.whole(np.zeros(chain.shape, NUMPY[chain.total]))}
            ),
        )
        cut = self.choices.number(0, rows - 1)
        for low, high in ((0, cut), (cut, rows)) if cut else ((0, rows),):
            part = self.tile((high - low, columns), chain.total, 1, full=True)

            def step(r: Run, low: int = low, high: int = high, part: Expr = part) -> None:
                data = r.env[chain.acc].data.copy()
                data[low:high] = part.value(r).data
                r.env[chain.acc] = oracle.whole(data)

            self.emit(f"{chain.acc}[{low}:{high}, :] = {part.text}", step)
        return chain

    def _start_spilled(self, chain: Chain) -> Chain | None:
        """The name of a tensor itself, rebound to its tile from the first product on."""
        names = self.own_tensors(chain.shape, chain.total)
        names = [n for n in names if n not in chain.multiplied]
        if not names or chain.is_cut:
            return None
        return replace(chain, acc=self.choices.pick(names), is_tensor=True)

    def own_tensors(self, shape: tuple[int, int], dtype: str) -> list[str]:
        """Tensors whose names a scope may rebind to tiles."""
        return []

    def _start_named(self, chain: Chain) -> Chain | None:
        """A second name for a tile, which others may still read."""
        names = self.tiles(lambda t: (t.shape, t.dtype) == (chain.shape, chain.total))
        if not names:
            return None
        name = self.choices.pick(names)
        found = replace(chain, full=chain.full and self.env[name].full)  # type: ignore[union-attr]
        self.assign(chain.acc, Expr(name, lambda r: r.env[name], found.type), found.type)
        self.shared |= {chain.acc, name}
        return found

    def _start_unset(self, chain: Chain) -> Chain:
        """Undefined memory, and a first product that does not read it."""
        rows, columns = chain.shape
        self.line(f"{chain.acc} = pl.create_tensor([{rows}, {columns}], pl.{chain.total})")
        self._add(chain, _constant(0), restart="True")
        return chain

    # --- products --------------------------------------------------------------------------------

    def _piece(self, chain: Chain, factor: Factor, k: Expr) -> Expr:
        """Return the operand at `k` of one of the matrices."""
        is_row_major = (factor is chain.left) != factor.is_transposed
        shape = (factor.extent, chain.step) if is_row_major else (chain.step, factor.extent)
        offsets = (factor.at, k) if is_row_major else (k, factor.at)
        limits: list[Expr] = [_constant(d) for d in shape]
        form = self.choices.number(0, 9)
        places = ", ".join(o.text for o in offsets)
        sliced = f"pl.slice({factor.name}, [{shape[0]}, {shape[1]}], [{places}]"
        full = True
        if form <= 4:
            window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, shape))
            text = f"{factor.name}[{window}]"
        elif form <= 7 or factor.is_tile:
            text = f"{sliced})"
        elif form == 8 and self.loads_by_hand:
            text = f"pl.load({factor.name}, [{places}], [{shape[0]}, {shape[1]}])"
        elif not chain.is_cut:
            text = f"{sliced})"
        else:
            limits = [self._limit(d) for d in shape]
            text = f"{sliced}, valid_shape=[{', '.join(v.text for v in limits)}])"
            full = False

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            found = r.env[factor.name]
            data = found.data if isinstance(found, Tile) else found
            rows, columns = (v.value(r) for v in limits)
            return oracle.padded(data[i : i + rows, j : j + columns].copy(), shape)

        return Expr(text, value, TileT(shape, "", full))

    def _limit(self, size: int) -> Expr:
        return self.clamped(1, size, 1) if self.choices.chance(50) else _constant(size)

    def _pieces(self, chain: Chain, k: Expr) -> tuple[Expr, Expr, str]:
        left, right = (self._piece(chain, f, k) for f in (chain.left, chain.right))
        flags = ", a_trans=True" * chain.left.is_transposed
        flags += ", b_trans=True" * chain.right.is_transposed
        return left, right, flags

    def _multiplied(
        self, chain: Chain, left: Expr, right: Expr
    ) -> Callable[[Run, Tile | None], Tile]:
        transposed = chain.left.is_transposed, chain.right.is_transposed

        def value(r: Run, start: Tile | None) -> Tile:
            a, b = (x.value(r).inside for x in (left, right))
            a, b = (m.T if t else m for m, t in zip((a, b), transposed))
            return oracle.accumulated(a, b, start, chain.shape)

        return value

    def _product_at(self, chain: Chain, k: Expr) -> Expr:
        left, right, flags = self._pieces(chain, k)
        out = "" if chain.total == "INT32" else ", out_dtype=pl.FP32"
        multiplied = self._multiplied(chain, left, right)
        return Expr(
            f"pl.matmul({left.text}, {right.text}{out}{flags})",
            lambda r: multiplied(r, None),
            TileT(chain.shape, chain.total, left.full and right.full),
        )

    def _add(self, chain: Chain, k: Expr, may_restart: bool = True, restart: str = "") -> None:
        """`acc = pl.matmul_acc(acc, ...)`, sometimes with `init_cond`."""
        left, right, flags = self._pieces(chain, k)
        again: Expr | None = None
        if restart:
            again = Expr(restart, lambda _: True, ScalarT("BOOL"))
        elif may_restart and self.choices.chance(15):
            again = self._restart(k)
        shown = f", init_cond={again.text}" if again is not None else ""
        multiplied = self._multiplied(chain, left, right)
        acc = chain.acc

        def step(r: Run) -> None:
            fresh = again is not None and again.value(r)
            r.env[acc] = multiplied(r, None if fresh else r.env[acc])

        self.emit(f"{acc} = pl.matmul_acc({acc}, {left.text}, {right.text}{flags}{shown})", step)
        self.env[acc] = chain.type

    def _restart(self, k: Expr) -> Expr:
        if k.type.dtype and self.choices.chance(60):
            return Expr(f"{k.text} == 0", lambda r: k.value(r) == 0, ScalarT("BOOL"))
        return self.condition()

    # --- carrying --------------------------------------------------------------------------------

    def _carry_all(self, chains: list[Chain], nesting: int) -> None:
        carriers: list[Callable[[list[Chain], int], None]] = [
            self._loop, self._loop, self._loop, self._loop, self._nested_loops, self._while,
            self._yielding, self._two_loops,
        ]  # fmt: skip
        if any(chain.is_tensor for chain in chains):
            self._take_over(chains)
        else:
            self.choices.pick(carriers)(chains, nesting)

    def _settle(self, chain: Chain) -> None:
        """Rebind the name to a tile."""
        if not chain.is_tensor:
            return
        self.steps.append(
            lambda r: r.env.update({chain.acc: oracle.whole(r.env[chain.acc].copy())})
        )
        self.env[chain.acc] = chain.type

    def _take_over(self, chains: list[Chain]) -> None:
        """A loop that first uses a tensor's name as a tile."""
        for chain in chains:
            self._settle(chain)
        outside = set(self.env)
        hidden = {c.acc: self.env.pop(c.acc) for c in chains if c.is_tensor}
        step, depth, index = chains[0].step, chains[0].depth, self.fresh("i")
        kind = self.choices.pick(("range", "pipeline"))
        with self.block(f"for {index} in pl.{kind}(0, {depth}, {step}):") as steps:
            self.env[index] = ScalarT("INDEX", 0, depth - step)
            for chain in chains:
                self._add(chain, _named(index))
                if chain.is_tensor:
                    del self.env[chain.acc]
        self.steps.append(looping(index, lambda _: range(0, depth, step), steps))
        self.env = {n: t for n, t in {**self.env, **hidden}.items() if n in outside}

    def _iteration(self, chains: list[Chain], k: Expr, nesting: int) -> None:
        """One iteration."""
        for chain in chains:
            form = self.choices.number(0, 9)
            if form <= 6:
                self._add(chain, k)
            elif form == 7:
                self._maybe(chain, k)
            elif form == 8:
                self._first_or_more(chain, k)
            else:
                self._add(chain, k)
                self._add(chain, k)
            if self.choices.chance(25):
                self._interrupt(chain, nesting)
        if self.choices.chance(20):
            self.statement(nesting)

    def _maybe(self, chain: Chain, k: Expr) -> None:
        condition = self.condition()
        with self.block(f"if {condition.text}:") as steps:
            self._add(chain, k)
        self.steps.append(lambda r: run_steps(steps if condition.value(r) else [], r))

    def _first_or_more(self, chain: Chain, k: Expr) -> None:
        """`matmul` first, then `matmul_acc`, chosen by a branch."""
        first = self._restart(k)
        with self.block(f"if {first.text}:") as start:
            self.assign(chain.acc, self._product_at(chain, k), chain.type)
        with self.block("else:") as more:
            self._add(chain, k)
        self.steps.append(lambda r: run_steps(start if first.value(r) else more, r))

    def _loop(self, chains: list[Chain], nesting: int) -> None:
        """`for k in pl.range(0, depth, step)`; its end may be known only at run time, or be 0."""
        kind = self.choices.pick(("range", "range", "pipeline", "unroll"))
        step, depth = chains[0].step, chains[0].depth
        text, indices = f"0, {depth}, {step}", lambda _: range(0, depth, step)
        names = self.names(lambda t: isinstance(t, ScalarT) and t.low >= 0 and t.high <= 4)
        if self.choices.chance(10):
            text, indices = f"0, 0, {step}", lambda _: range(0)
        elif names and kind != "unroll" and self.choices.chance(30):
            name = self.choices.pick(names)
            text = f"0, pl.min({name} * {step}, {depth}), {step}"
            indices = lambda r: range(0, min(r.env[name] * step, depth), step)  # noqa: E731
        stage = f", stage={self.choices.number(1, 3)}" if kind == "pipeline" else ""
        index = self.fresh("i")
        outside = set(self.env)
        with self.block(f"for {index} in pl.{kind}({text}{stage}):") as steps:
            self.env[index] = ScalarT("INDEX", 0, depth - step, kind == "unroll")
            # An unrolled index is a constant, so its conditions have one arm only.
            at = replace(_named(index), type=ScalarT("")) if kind == "unroll" else _named(index)
            self._iteration(chains, at, nesting)
            if kind == "range" and self.choices.chance(15):
                self.jump()
                self._iteration(chains, _named(index), 0)
        self.steps.append(looping(index, indices, steps))
        self.env = {n: t for n, t in self.env.items() if n in outside}

    def _nested_loops(self, chains: list[Chain], nesting: int) -> None:
        """The same pieces repeatedly; other statements may run between the inner loops."""
        index, count = self.fresh("i"), self.choices.number(0, 2)
        outside = set(self.env)
        with self.block(f"for {index} in pl.range({count}):") as steps:
            self.env[index] = ScalarT("INDEX", 0, max(count - 1, 0))
            if self.choices.chance(30):
                self._interrupt(chains[0], 0)
            self._loop(chains, nesting)
            if self.choices.chance(30):
                self._interrupt(chains[-1], 0)
        self.steps.append(looping(index, lambda _: range(count), steps))
        self.env = {n: t for n, t in self.env.items() if n in outside}

    def _two_loops(self, chains: list[Chain], nesting: int) -> None:
        """Two loops add to the sum; between them it is stored, read or changed."""
        self._loop(chains, nesting)
        for chain in chains:
            if self.choices.chance(60):
                self._interrupt(chain, 0)
        self._loop(chains, nesting)

    def _while(self, chains: list[Chain], nesting: int) -> None:
        k, step, depth = self.fresh("w"), chains[0].step, chains[0].depth
        self.emit(f"{k} = 0", lambda r: r.env.update({k: 0}))
        self.env[k] = ScalarT("INDEX", 0, depth)
        outside = set(self.env)
        with self.block(f"while {k} < {depth}:") as steps:
            self.env[k] = ScalarT("INDEX", 0, depth - step)
            self._iteration(chains, _named(k), nesting)
            self.emit(f"{k} = {k} + {step}", lambda r: r.env.update({k: r.env[k] + step}))

        def whole(r: Run) -> None:
            while r.env[k] < depth and run_body(steps, r):
                pass

        self.steps.append(whole)
        self.env = {n: t for n, t in self.env.items() if n in outside}
        self.env[k] = ScalarT("INDEX", 0, depth)

    def _yielding(self, chains: list[Chain], nesting: int) -> None:
        """`for k, (c,) in pl.range(..., init_values=(acc,)): acc = pl.yield_(...)`."""
        kind = self.choices.pick(("range", "pipeline"))
        step, depth, index = chains[0].step, chains[0].depth, self.fresh("i")
        outside = set(self.env)
        inner = [replace(c, acc=self.fresh("c")) for c in chains]
        names, given = (", ".join(c.acc for c in several) for several in (inner, chains))
        head = f"0, {depth}, {step}, init_values=({given},)"
        with self.block(f"for {index}, ({names},) in pl.{kind}({head}):") as steps:
            self.env[index] = ScalarT("INDEX", 0, depth - step)
            for c, outer in zip(inner, chains):
                self.env[c.acc] = self.env.pop(outer.acc)
            self._iteration(inner, _named(index), nesting)
            self.line(f"{given} = pl.yield_({names})")

        def whole(r: Run) -> None:
            for i in range(0, depth, step):
                r.env[index] = i
                r.env.update({c.acc: r.env[outer.acc] for c, outer in zip(inner, chains)})
                run_steps(steps, r)
                r.env.update({outer.acc: r.env[c.acc] for c, outer in zip(inner, chains)})

        self.steps.append(whole)
        self.env = {n: t for n, t in self.env.items() if n in outside}
        self.env.update({c.acc: c.type for c in chains})

    # --- interruptions and ends ------------------------------------------------------------------

    def _interrupt(self, chain: Chain, nesting: int) -> None:
        """A statement that needs the current sum, or changes an operand."""
        forms: list[Callable[[Chain], None]] = [
            self._change, self._change, self._keep_result, self._keep_result, self._look_at,
            self._keep_in_source, self._copy_name, self._insert_into,
        ]  # fmt: skip
        if self.choices.chance(20):
            self.statement(max(nesting - 1, 0))
        else:
            self.choices.pick(forms)(chain)

    def _now(self, chain: Chain) -> Expr:
        known = self.env[chain.acc]
        assert isinstance(known, TileT)
        return Expr(chain.acc, lambda r: r.env[chain.acc], known)

    def _change(self, chain: Chain) -> None:
        now = self._now(chain)
        if self.choices.chance(50):
            value = self.choices.pick((negated(now), applied("abs", now)))
        else:
            other = self.tile(chain.shape, chain.total, 1, full=True)
            value = self.combined(self.choices.pick(("add", "sub", "maximum")), now, other)
        self.assign(chain.acc, value, now.type)

    def _keep_result(self, chain: Chain) -> None:
        """The current sum, stored in a window of a tensor."""
        targets = [n for n in self.sources(chain.shape, chain.total) if self.env[n].writable]  # type: ignore[union-attr]
        if not targets:
            return self._change(chain)
        name = self.choices.pick(targets)
        target = self.env[name]
        assert isinstance(target, GmT)
        self.store_window(name, self._now(chain), self.window_of(target, chain.shape))
        return None

    def _keep_in_source(self, chain: Chain) -> None:
        """A store into the tensor that is multiplied, if it may be written."""
        for factor in (chain.left, chain.right):
            t = self.env.get(factor.name)
            if isinstance(t, GmT) and t.writable:
                shape = tuple(min(d, self.choices.pick((4, 3, 1))) for d in t.shape)
                source = self.tile(shape, t.dtype, 1, full=True)
                self.store_window(factor.name, source, self.window_of(t, shape))
                return None
        return self._keep_result(chain)

    def _look_at(self, chain: Chain) -> None:
        """An element of the sum decides a branch."""
        at = [self.choices.number(0, d - 1) for d in chain.shape]
        acc, (i, j) = chain.acc, at
        now = self._now(chain)
        changed = negated(now)
        with self.block(f"if pl.read({acc}, [{i}, {j}]) > {self._zero(chain)}:") as steps:
            self.assign(acc, changed, now.type)

        def step(r: Run) -> None:
            run_steps(steps if r.env[acc].data[i, j] > 0 else [], r)

        self.steps.append(step)

    def _zero(self, chain: Chain) -> str:
        return "0" if chain.total == "INT32" else "0.0"

    def _copy_name(self, chain: Chain) -> None:
        """Another name for the current sum, which must not change with it."""
        now, name = self._now(chain), self.fresh("t")
        self.assign(name, now, now.type)
        self.shared |= {chain.acc, name}

    def _insert_into(self, chain: Chain) -> None:
        """Replace one element of the sum."""
        if not self._now(chain).full or chain.acc in self.shared:
            return self._change(chain)
        i, j = (self.choices.number(0, d - 1) for d in chain.shape)
        text, constant = self.constant_for(chain.total)

        def step(r: Run) -> None:
            data = r.env[chain.acc].data.copy()
            data[i, j] = constant
            r.env[chain.acc] = oracle.whole(data)

        self.emit(f"pl.write({chain.acc}, [{i}, {j}], {text})", step)
        return None

    def _end_all(self, chains: list[Chain]) -> None:
        for chain in chains:
            for _ in range(self.choices.number(0, 2)):
                ends = (self._keep_result, self._use_as_factor, self._fold, self._change)
                self.choices.pick(ends)(chain)

    def _use_as_factor(self, chain: Chain) -> None:
        """The sum, perhaps narrowed, multiplied by another tile."""
        now = self._now(chain)
        if chain.total == "INT32" or self.loads_by_hand:
            return self._change(chain)
        dtype = self.choices.pick(("FP32", "BF16"))
        left = now
        if dtype == "BF16":
            left = Expr(
                f"pl.cast({now.text}, pl.BF16)",
                lambda r: oracle.zipped(lambda p: oracle.cast(p, "BF16"), now.value(r)),
                replace(now.type, dtype="BF16"),
            )
        columns = self.choices.pick((4, 1, 8))
        right = self.tile((chain.shape[1], columns), dtype, 1, full=True)
        shape = (chain.shape[0], columns)

        def value(r: Run) -> Tile:
            return oracle.accumulated(left.value(r).inside, right.value(r).inside, None, shape)

        text = f"pl.matmul({left.text}, {right.text}, out_dtype=pl.FP32)"
        found = TileT(shape, "FP32", now.full)
        self.assign(self.fresh("t"), Expr(text, value, found), found)
        return None

    def _fold(self, chain: Chain) -> None:
        """A row sum of the accumulator."""
        now = self._now(chain)
        shape = (chain.shape[0], 1)

        def value(r: Run) -> Tile:
            return oracle.padded(oracle.reduce("row_sum", now.value(r).inside), shape)

        found = TileT(shape, chain.total, now.full)
        self.assign(self.fresh("t"), Expr(f"pl.row_sum({now.text})", value, found), found)


def _constant(number: int) -> Expr:
    return Expr(str(number), lambda _: number, ScalarT(""))


def _named(name: str) -> Expr:
    return Expr(name, lambda r: r.env[name], ScalarT("INDEX"))
