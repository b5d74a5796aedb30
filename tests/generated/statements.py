"""Random statements inside a scope: bindings, stores, loops, branches, carried names, helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.generated import oracle
from tests.generated.core import (
    Expr,
    GmT,
    Jump,
    Run,
    ScalarT,
    Step,
    TileT,
    Type,
    run_body,
    run_steps,
)
from tests.generated.expressions import DIMS, FLOAT_MATH, INTEGER_MATH, Expressions
from tests.generated.oracle import Tile
from tests.generated.scalars import TRUNCATED, number_text

COMMON_DTYPES = (*FLOAT_MATH, "FP32", *INTEGER_MATH)


@dataclass(frozen=True)
class Helper:
    """An inline function of tiles; `fixed` is the only type it accepts, if there is one."""

    name: str
    params: tuple[str, ...]
    steps: tuple[Step, ...]
    result: Expr
    fixed: TileT

    def accepts(self, shape: tuple[int, int], dtype: str) -> bool:
        return (self.fixed.shape, self.fixed.dtype) == (shape, dtype)

    def call(self, run: Run, arguments: Sequence[Tile]) -> Tile:
        inner = run.inner(dict(zip(self.params, arguments)))
        run_steps(self.steps, inner)
        return self.result.value(inner)


class Statements(Expressions):
    """Statements of a scope; `self.env` tracks the bound names."""

    def body(self, count: int, nesting: int) -> None:
        for _ in range(count):
            self.statement(nesting)

    def statement(self, nesting: int) -> None:
        if nesting > 0 and self.choices.chance(35):
            self.choices.pick(self.nested())(nesting - 1)
        else:
            self.choices.pick(self.simple())()

    def simple(self) -> list[Callable[[], Any]]:
        """Statements without nested ones."""
        return [
            self.bind, self.bind, self.rebind, self.rebind, self.bind_scalar, self.rebind_scalar,
            self.store, self.insert, self.mark_valid, self.write_element, self.bind_part,
            self.unused_read, self.bind_deep, self.bind_turned,
        ]  # fmt: skip

    def nested(self) -> list[Callable[[int], None]]:
        """Statements with nested ones."""
        return [
            self.for_loop, self.branch, self.explicit_loop, self.while_loop, self.explicit_branch,
            self.explicit_while,
        ]  # fmt: skip

    # --- bindings --------------------------------------------------------------------------------

    def assign(self, name: str, value: Expr, t: Type) -> None:
        self.emit(f"{name} = {value.text}", lambda r: r.env.update({name: value.value(r)}))
        self.env[name] = t

    def on_chip(self, value: Expr) -> Expr:
        """A tile, but not the bare name of a tensor, which would denote the tensor itself."""
        return negated(value) if isinstance(self.env.get(value.text), GmT) else value

    def computed(self, value: Expr) -> Expr:
        """A new tile, not a bare name, which would alias the same value."""
        return negated(value) if value.text in self.env else value

    def bind(self) -> None:
        shape, dtype = self.choices.pick(self.shapes()), self.choices.pick(COMMON_DTYPES)
        value = self.tile(shape, dtype, self.choices.number(1, 2))
        value = self.computed(value)
        self.assign(self.fresh("t"), value, value.type)

    def shapes(self) -> list[tuple[int, int]]:
        """Shapes in use, and a new one."""
        known = [t.shape for t in self.env.values() if isinstance(t, TileT)]
        return [*dict.fromkeys(known), (self.choices.pick(DIMS), self.choices.pick(DIMS))]

    def bind_part(self) -> None:
        shape, dtype = self.choices.pick(self.shapes()), self.choices.pick(("FP32", "INT32"))
        value = self.load_part(shape, dtype)
        if value is not None:
            self.assign(self.fresh("p"), value, value.type)

    def bind_turned(self) -> None:
        """A tensor with its axes swapped; parts of it may be stored in it."""
        names = self.names(
            lambda t: isinstance(t, GmT) and len(t.shape) == 2 and t.dtype in COMMON_DTYPES
        )
        writable = [n for n in names if self.env[n].writable]  # type: ignore[union-attr]
        names = writable if writable and self.choices.chance(60) else names
        if not names:
            return
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, GmT)
        turned = TileT(t.shape[::-1], t.dtype)  # type: ignore[arg-type]

        def value(r: Run) -> Tile:
            return oracle.whole(r.env[name].T.copy())

        new = self.fresh("t")
        self.assign(new, Expr(f"pl.transpose({name}, 0, 1)", value, turned), turned)
        if not t.writable or self.choices.chance(40):
            return
        index, count = self.fresh("i"), self.choices.number(1, 2)
        with self.block(f"for {index} in pl.range({count}):") as steps:
            self.env[index] = ScalarT("INDEX", 0, count - 1)
            self._store_turned(name, new)
        self.steps.append(looping(index, lambda _: range(count), steps))
        del self.env[index]

    def _store_turned(self, name: str, turned: str) -> None:
        """Part of one tensor, stored in the other."""
        target = self.env[name]
        assert isinstance(target, GmT)
        least = min(target.shape)
        shape = min(least, self.choices.pick(DIMS)), min(least, self.choices.pick(DIMS))
        offsets = [self.offset(d - s) for d, s in zip(target.shape[::-1], shape)]
        window = f"[{shape[0]}, {shape[1]}], [{', '.join(o.text for o in offsets)}]"

        def value(r: Run) -> Tile:
            i, j = (o.value(r) for o in offsets)
            return oracle.whole(r.env[turned].data[i : i + shape[0], j : j + shape[1]].copy())

        part = Expr(f"pl.slice({turned}, {window})", value, TileT(shape, target.dtype))
        self.store_window(name, part, self.window_of(target, shape))

    def tiles(self, wanted: Callable[[TileT], bool] = lambda t: True) -> list[str]:
        return self.names(lambda t: isinstance(t, TileT) and wanted(t))

    def rebind(self) -> None:
        names = self.tiles()
        if not names:
            return self.bind()
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, TileT)
        value = self.tile(t.shape, t.dtype, 2, t.full)
        value = self.computed(value)
        if self.choices.chance(20):
            symbol, op = self.choices.pick((("+", "add"), ("*", "mul"), ("-", "sub")))

            def step(r: Run) -> None:
                both = (r.env[name], value.value(r))
                r.env[name] = oracle.zipped(lambda p, q: oracle.binary(op, p, q), *both)

            self.emit(f"{name} {symbol}= {value.text}", step)
        else:
            self.assign(name, value, t)
        return None

    def bind_scalar(self) -> None:
        low = self.choices.pick((0, 0, 1, -5))
        high = low + self.choices.number(1, 12)
        form = self.choices.number(0, 3)
        name = self.fresh("s")
        if form == 0:  # a kernel variable that is known at compile time
            number = self.choices.number(low, high)
            value = Expr(str(number), lambda _: number, ScalarT("INDEX"))
            self.assign(name, value, ScalarT("INDEX", low, high, is_constant=True))
            return
        self.assign(name, self.clamped_index(low, high), ScalarT("INDEX", low, high))

    def clamped_index(self, low: int, high: int) -> Expr:
        value = self.clamped(low, high)
        if value.type.dtype == "INDEX":
            return value
        return Expr(f"pl.cast({value.text}, pl.INDEX)", value.value, ScalarT("INDEX"))

    def unused_read(self) -> None:
        """Read an element without using it."""
        names = self.readable(self.choices.pick(("INT32", "FP32")))
        if names:
            text, _ = self._element(self.choices.pick(names))
            self.emit(f"{self.fresh('u')} = {text}", lambda r: None)

    def bind_deep(self) -> None:
        """A deeply nested expression."""
        depth = self.choices.pick((8, 20, 40))
        if self.choices.chance(50):
            inner = self.long_sum(depth)
            if inner.type.dtype == "INDEX":
                text = f"pl.min(pl.max({inner.text}, 0), 4)"
                value = Expr(text, lambda r: min(max(inner.value(r), 0), 4), ScalarT("INDEX"))
                self.assign(self.fresh("s"), value, ScalarT("INDEX", 0, 4))
            return
        value = self.tile(self.choices.pick(self.shapes()), "FP32", 0)
        for _ in range(depth):
            value = applied(self.choices.pick(("neg", "abs", "relu")), value)
        self.assign(self.fresh("t"), value, value.type)

    def rebindable_scalars(self) -> list[str]:
        return [n for n in self.names(_is_index) if n.startswith("s")]

    def rebind_scalar(self) -> None:
        names = self.rebindable_scalars()
        if not names:
            return self.bind_scalar()
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, ScalarT)
        self.assign(name, self.clamped_index(t.low, t.high), t)
        return None

    def mark_valid(self) -> None:
        names = self.tiles(lambda t: t.full)
        if not names:
            return
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, TileT)
        rows, columns = (self.clamped(1, d, 1) for d in t.shape)

        def value(r: Run) -> Tile:
            inside = r.env[name].data[: rows.value(r), : columns.value(r)]
            return oracle.padded(inside.copy(), t.shape)

        text = f"pl.set_validshape({name}, {rows.text}, {columns.text})"
        self.assign(self.fresh("p"), Expr(text, value, t), replace(t, full=False))

    # --- memory ----------------------------------------------------------------------------------

    def store(self) -> None:
        """Write a tile into a window of a tensor."""
        targets = self.names(lambda t: isinstance(t, GmT) and t.writable)
        if not targets:
            return
        name = self.choices.pick(targets)
        target = self.env[name]
        assert isinstance(target, GmT)
        shape = tuple(min(d, self.choices.pick(DIMS)) for d in target.shape[-2:])
        source = self.tile(shape, target.dtype, self.choices.number(0, 2))
        self.store_window(name, source, self.window_of(target, shape))

    def window_of(self, target: GmT, shape: tuple[int, ...]) -> list[Expr]:
        sizes = (1,) * (len(target.shape) - 2) + shape
        return [self.offset(d - s) for d, s in zip(target.shape, sizes)]

    def store_window(self, name: str, source: Expr, offsets: list[Expr]) -> None:
        target = self.env[name]
        assert isinstance(target, GmT)
        assert isinstance(source.type, TileT)
        shape = source.type.shape
        places = ", ".join(o.text for o in offsets)
        form = self.choices.number(0, 2)
        if form == 0:
            text = f"{name} = pl.assemble({name}, {source.text}, [{places}])"
        elif form == 1 and len(offsets) == 2:
            text = f"{name} = pl.store({self._stored(source)}, [{places}], {name})"
        else:
            leading = "".join(f"{o.text}, " for o in offsets[:-2])
            window = self.window_text(offsets[-2:], shape, target.shape[-2:])
            if ":" not in window.split(",")[0] or leading:
                window = ", ".join(
                    f"{o.text} : {o.text} + {s}" for o, s in zip(offsets[-2:], shape)
                )
            text = f"{name}[{leading}{window}] = {source.text}"
        self.emit(text, _storing(name, source, offsets))

    def _stored(self, source: Expr) -> str:
        """`pl.store` takes tiles only: a tensor's name does not denote its elements."""
        if isinstance(self.env.get(source.text), GmT):
            return f"{source.text}[:, :]"
        return source.text

    def insert(self) -> None:
        """Write into a window of a tile, which makes a new value."""
        names = [n for n in self.tiles(lambda t: t.full) if n not in self.shared]
        if not names:
            return
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, TileT)
        shape = tuple(min(d, self.choices.pick(DIMS)) for d in t.shape)
        source = self.tile(shape, t.dtype, 1, full=True)
        offsets = [self.offset(d - s) for d, s in zip(t.shape, shape)]
        if self.choices.chance(50):
            places = ", ".join(o.text for o in offsets)
            text = f"{name} = pl.assemble({name}, {source.text}, [{places}])"
        else:
            window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, shape))
            text = f"{name}[{window}] = {source.text}"

        def step(r: Run) -> None:
            i, j = (o.value(r) for o in offsets)
            data = r.env[name].data.copy()
            data[i : i + shape[0], j : j + shape[1]] = source.value(r).data
            r.env[name] = oracle.whole(data)

        self.emit(text, step)

    def write_element(self) -> None:
        names = self.names(
            lambda t: (
                (isinstance(t, GmT) and t.writable and len(t.shape) == 2)
                or (isinstance(t, TileT) and t.full)
            )
        )
        names = [n for n in names if n not in self.shared]
        if not names:
            return
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, (GmT, TileT))
        at = [self.offset(d - 1) for d in t.shape]
        same = [n for n in self.readable(t.dtype) if n != name]
        places = ", ".join(o.text for o in at)
        if same and self.choices.chance(50):
            source = self.choices.pick(same)
            text, where = self._element(source)

            def value(r: Run) -> Any:
                found = r.env[source]
                return (found.data if isinstance(found, Tile) else found)[where(r)]
        else:
            text, constant = self.constant_for(t.dtype)

            def value(r: Run) -> Any:
                return constant

        def step(r: Run) -> None:
            index = tuple(o.value(r) for o in at)
            element = value(r)
            if isinstance(r.env[name], Tile):
                data = r.env[name].data.copy()
                data[index] = element
                r.env[name] = oracle.whole(data)
            else:
                r.env[name][index] = element

        self.emit(f"pl.write({name}, [{places}], {text})", step)

    # --- loops -----------------------------------------------------------------------------------

    def bounds(self, at_least: int = 1) -> tuple[str, Callable[[Run], range], tuple[int, int]]:
        """Return bounds of at least this many iterations, their meaning, and the index range."""
        names = self.names(lambda t: _is_index(t) and t.low >= 1 and t.high <= 6)  # type: ignore[union-attr]
        if names and self.choices.chance(40):
            name = self.choices.pick(names)
            high = self.env[name].high  # type: ignore[union-attr]
            return name, lambda r: range(r.env[name]), (0, high - 1)
        start, step = self.choices.pick((0, 0, 1, 3)), self.choices.pick((1, 2, 3))
        trips = self.choices.number(at_least, 3)
        stop = start + trips * step - (self.choices.number(0, step - 1) if trips else 0)
        found = range(start, stop, step)
        last = found[-1] if found else start
        text = f"{start}, {stop}, {step}"
        if start == 0 and step == 1 and self.choices.chance(50):
            text = str(stop)
        return text, lambda _: found, (start, max(last, start))

    def late_bounds(self) -> tuple[str, Callable[[Run], range], tuple[int, int]]:
        """Draw `bounds` with quotients and remainders of negative numbers, perhaps without
        iterations.
        """
        names = self.names(lambda t: _is_index(t) and t.low >= -20 and t.high <= 20)  # type: ignore[union-attr]
        if not names:
            return self.bounds(at_least=0)
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, ScalarT)
        ends: list[tuple[str, Callable[[int], int]]] = []
        for _ in range(2):
            less, symbol = self.choices.number(0, 20), self.choices.pick(("//", "%"))
            by = self.choices.pick((2, 3, -2, -4, 5))

            def end(v: int, less: int = less, symbol: str = symbol, by: int = by) -> int:
                return TRUNCATED[symbol](v - less, by)

            ends.append((f"({name} - {less}) {symbol} {number_text(by)}", end))
        (start_text, start), (stop_text, stop) = ends
        step = self.choices.pick((1, 2, -1, -3))
        all_of_them = [range(start(v), stop(v), step) for v in range(t.low, t.high + 1)]
        if any(len(one) > 5 for one in all_of_them):
            return self.bounds(at_least=0)
        seen = [i for one in all_of_them for i in one] or [0]
        text = f"{start_text}, {stop_text}, {step}"
        return (
            text,
            lambda r: range(start(r.env[name]), stop(r.env[name]), step),
            (min(seen), max(seen)),
        )

    def for_loop(self, nesting: int) -> None:
        kind = self.choices.pick(("range", "range", "parallel", "pipeline", "unroll"))
        may_skip = kind == "range" and self.choices.chance(30)
        text, indices, (low, high) = self.late_bounds() if may_skip else self.bounds()
        if kind == "unroll" and not text[0].isdigit():
            kind = "range"
        text += f", stage={self.choices.number(1, 3)}" if kind == "pipeline" else ""
        index = self.fresh("i")
        before = dict(self.env)
        jumps = kind == "range" and self.choices.chance(30)
        with self.block(f"for {index} in pl.{kind}({text}):") as steps:
            self.env[index] = ScalarT("INDEX", low, high, kind == "unroll")
            self.body(self.choices.number(1, 3), nesting)
            if jumps:
                self.jump()
                self.body(self.choices.number(1, 2), nesting)
        self.steps.append(looping(index, indices, steps))
        del self.env[index]
        if jumps or may_skip:
            self.env = {n: t for n, t in self.env.items() if n in before}

    def jump(self) -> None:
        condition = self.condition()
        word = self.choices.pick(("continue", "break"))

        def step(r: Run) -> None:
            if condition.value(r):
                raise Jump(ends=word == "break")

        with self.block(f"if {condition.text}:"):
            self.line(word)
        self.steps.append(step)

    def while_loop(self, nesting: int) -> None:
        counter, limit = self.fresh("w"), self.choices.number(0, 3)
        condition = Expr(f"{counter} < {limit}", lambda r: r.env[counter] < limit, ScalarT("BOOL"))
        self.emit(f"{counter} = 0", lambda r: r.env.update({counter: 0}))
        self.env[counter] = ScalarT("INDEX", 0, limit)
        if self.choices.chance(30):
            first, more = condition, self.condition()
            condition = Expr(
                f"{first.text} and ({more.text})",
                lambda r: first.value(r) and more.value(r),
                ScalarT("BOOL"),
            )
        before = dict(self.env)
        with self.block(f"while {condition.text}:") as steps:
            self.emit(
                f"{counter} = {counter} + 1", lambda r: r.env.update({counter: r.env[counter] + 1})
            )
            self.body(self.choices.number(1, 2), nesting)
            if self.choices.chance(40):
                self.jump()
                self.body(1, nesting)

        def step(r: Run) -> None:
            while condition.value(r) and run_body(steps, r):
                pass

        self.steps.append(step)
        self.env = {n: t for n, t in self.env.items() if n in before}

    def _carry(self) -> tuple[list[str], list[TileT], list[Expr]]:
        count = self.choices.number(1, 2)
        types = [TileT(self.choices.pick(self.shapes()), "FP32") for _ in range(count)]
        inits = [self.on_chip(self.tile(t.shape, t.dtype, 1, full=True)) for t in types]
        return [self.fresh("c") for _ in types], types, inits

    def explicit_loop(self, nesting: int) -> None:
        """`for i, (a, b) in pl.range(n, init_values=(x, y)): ... c, d = pl.yield_(...)`."""
        kind = self.choices.pick(("range", "parallel", "pipeline"))
        carried, types, inits = self._carry()
        text, indices, (low, high) = self.bounds(at_least=0)
        index = self.fresh("i")
        out = [self.fresh("y") for _ in carried]
        names, given = ", ".join(carried), ", ".join(i.text for i in inits)
        target = f"({names},)" if len(carried) == 1 else f"({names})"
        header = f"for {index}, {target} in pl.{kind}({text}, init_values=({given},)):"
        before = dict(self.env)
        with self.block(header) as steps:
            self.env[index] = ScalarT("INDEX", low, high)
            self.env.update(zip(carried, types))
            self.body(self.choices.number(0, 2), nesting)
            self._yield(out, types)

        def step(r: Run) -> None:
            values = [i.value(r) for i in inits]
            for i in indices(r):
                r.env.update({index: i, **dict(zip(carried, values))})
                run_steps(steps, r)
                values = [r.env[n] for n in out]
            r.env.update(zip(out, values))

        self.steps.append(step)
        self.env = {n: t for n, t in self.env.items() if n in before} | dict(zip(out, types))

    def _yield(self, out: list[str], types: list[TileT]) -> None:
        values = [self.on_chip(self.tile(t.shape, t.dtype, 1, full=True)) for t in types]
        given = ", ".join(v.text for v in values)

        def step(r: Run) -> None:
            r.env.update(dict(zip(out, [v.value(r) for v in values])))

        self.emit(f"{', '.join(out)} = pl.yield_({given})", step)

    def explicit_while(self, nesting: int) -> None:
        """`for (k, x) in pl.while_(init_values=(0, x0)):` with `pl.cond` first."""
        carried, types, inits = self._carry()
        counter, limit, ended = self.fresh("k"), self.choices.number(0, 3), self.fresh("n")
        out = [self.fresh("y") for _ in carried]
        given = ", ".join(["0", *(i.text for i in inits)])
        names = ", ".join([counter, *carried])
        before = dict(self.env)
        with self.block(f"for ({names}) in pl.while_(init_values=({given})):") as steps:
            self.line(f"pl.cond({counter} < {limit})")
            self.env[counter] = ScalarT("INDEX", 0, max(limit - 1, 0))
            self.env.update(zip(carried, types))
            self.body(self.choices.number(0, 1), nesting)
            values = [self.on_chip(self.tile(t.shape, t.dtype, 1, full=True)) for t in types]
            shown = ", ".join([f"{counter} + 1", *(v.text for v in values)])
            self.line(f"{', '.join([ended, *out])} = pl.yield_({shown})")

        def step(r: Run) -> None:
            count, current = 0, [i.value(r) for i in inits]
            while count < limit:
                r.env.update({counter: count, **dict(zip(carried, current))})
                run_steps(steps, r)
                current = [v.value(r) for v in values]
                count += 1
            r.env.update({ended: count, **dict(zip(out, current))})

        self.steps.append(step)
        self.env = {n: t for n, t in self.env.items() if n in before} | dict(zip(out, types))
        self.env[ended] = ScalarT("INDEX", 0, limit)

    # --- branches --------------------------------------------------------------------------------

    def branch(self, nesting: int) -> None:
        condition = self.condition()
        before = dict(self.env)
        with self.block(f"if {condition.text}:") as then:
            self.body(self.choices.number(1, 2), nesting)
        after_then, self.env = self.env, dict(before)
        other: list[Step] = []
        new: dict[str, Type] = {}
        if self.choices.chance(60):
            with self.block("else:") as other:
                self.body(self.choices.number(1, 2), nesting)
                # A name that both arms define can be used after the `if`.
                for name, t in after_then.items():
                    if name not in before and isinstance(t, TileT) and not new:
                        value = self.tile(t.shape, t.dtype, 1, t.full)
                        self.assign(name, self.on_chip(value), t)
                        new[name] = t
        self.env = {**before, **new}
        self.steps.append(lambda r: run_steps(then if condition.value(r) else other, r))

    def explicit_branch(self, nesting: int) -> None:
        condition = self.condition()
        name, t = self.fresh("y"), TileT(self.choices.pick(self.shapes()), "FP32")
        before = dict(self.env)
        arms: list[list[Step]] = []
        for header in (f"if {condition.text}:", "else:"):
            with self.block(header) as steps:
                self.body(self.choices.number(0, 1), nesting)
                self._yield([name], [t])
            arms.append(steps)
            self.env = dict(before)
        self.steps.append(lambda r: run_steps(arms[0] if condition.value(r) else arms[1], r))
        self.env[name] = t


def looping(index: str, indices: Callable[[Run], range], steps: list[Step]) -> Step:
    def step(r: Run) -> None:
        for i in indices(r):
            r.env[index] = i
            if not run_body(steps, r):
                break

    return step


def _storing(name: str, source: Expr, offsets: list[Expr]) -> Step:
    def step(r: Run) -> None:
        tile = source.value(r)
        *leading, i, j = (o.value(r) for o in offsets)
        rows, columns = tile.valid
        r.env[name][(*leading, slice(i, i + rows), slice(j, j + columns))] = tile.inside

    return step


def negated(value: Expr) -> Expr:
    return applied("neg", value)


def applied(name: str, value: Expr) -> Expr:
    """`pl.neg(value)`, `pl.abs(value)`."""
    return Expr(
        f"pl.{name}({value.text})",
        lambda r: oracle.zipped(lambda p: oracle.unary(name, p), value.value(r)),
        value.type,
    )


def _is_index(t: Type) -> bool:
    return isinstance(t, ScalarT) and t.dtype == "INDEX"
