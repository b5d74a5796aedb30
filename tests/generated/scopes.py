"""Scopes: the statements of a task, and the values that leave it."""

from __future__ import annotations

from typing import Any

from tests.generated import oracle
from tests.generated.core import (
    Choices,
    Expr,
    GmT,
    Param,
    Run,
    ScalarT,
    Step,
    TileT,
    Type,
    run_steps,
)
from tests.generated.oracle import Tile
from tests.generated.scalars import COMPARISONS
from tests.generated.statements import applied, looping
from tests.generated.views import Views

INPUT_DTYPES = ("FP32", "INT32", "BF16", "INT8", "FP16", "INT16", "UINT8")
INCORE = (
    "with pl.incore():",
    "with pl.at(level=pl.Level.CORE_GROUP):",
    "with pl.auto_incore():",
    'with pl.at(level=pl.Level.CORE_GROUP, name_hint="{name}"):',
    "with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):",
)


class Scopes(Views):
    """Names in `self.env` are tensors and scalars, except inside a scope."""

    def __init__(self, choices: Choices, style: str, nasty: bool) -> None:
        super().__init__(choices, style)
        self.depth = 2 if style == "program" else 1
        self.nasty = nasty
        self.params: list[Param] = []
        self.in_scope = False
        self.scope_depth = 0
        self.is_one_block = False  # no other task runs the same statements at the same time
        self.spilled: set[str] = set()
        self._scalars_outside: set[str] = set()
        self._hidden: dict[str, GmT] = {}
        self.known_late = self.fresh("n")

    def readable(self, dtype: str) -> list[str]:
        found = super().readable(dtype)
        if self.in_scope:
            return found
        return [n for n in found if getattr(self.env[n], "constant", False)]

    def rebindable_scalars(self) -> list[str]:
        return [n for n in super().rebindable_scalars() if n not in self._scalars_outside]

    def parameter(self, stem: str, shape: tuple[int, ...], dtype: str, direction: str) -> str:
        name = self.fresh(stem)
        if self.style == "program" and direction in ("Out", "InOut") and self.choices.chance(50):
            direction = ""
        seed = self.choices.number(0, 9999)
        self.params.append(Param(name, shape, dtype, direction, seed, self.nasty))
        return name

    def inputs(self) -> None:
        dtypes = ["INT32", "FP32", self.choices.pick(INPUT_DTYPES)]
        for dtype in dtypes[: self.choices.number(2, 3)]:
            shape = (self.choices.pick((16, 9, 17)), self.choices.pick((16, 8, 17)))
            name = self.parameter("x", shape, dtype, "In")
            self.env[name] = GmT(shape, dtype, constant=True)
        if self.choices.chance(30):
            name = self.parameter("x", (3, 8, 9), "FP32", "In")
            self.env[name] = GmT((3, 8, 9), "FP32", constant=True)
        for _ in range(self.choices.number(0, 2)):
            shape = self.choices.pick(((16, 16), (9, 17), (2, 8, 9)))
            dtype = self.choices.pick(("FP32", "FP32", "INT32", "BF16"))
            name = self.parameter("o", shape, dtype, "InOut")
            self.env[name] = GmT(shape, dtype, writable=True)
        self._first_scalar()

    def _first_scalar(self) -> None:
        """A number that is unknown when the kernel is compiled."""
        source, name = self.readable("INT32")[0], self.known_late
        self.emit(
            f"{name} = pl.min(pl.max(pl.cast(pl.read({source}, [0, 0]), pl.INDEX), 1), 4)",
            lambda r: r.env.update({name: min(max(int(r.env[source][0, 0]), 1), 4)}),
        )
        self.env[name] = ScalarT("INDEX", 1, 4)

    def late_condition(self) -> Expr:
        """A condition that is unknown at compile time: both arms are built."""
        symbol, limit = self.choices.pick((">", "<=", "==")), self.choices.number(1, 4)
        name = self.known_late
        compare = COMPARISONS[symbol]
        return Expr(
            f"{name} {symbol} {limit}", lambda r: compare(r.env[name], limit), ScalarT("BOOL")
        )

    def new_input(self, shape: tuple[int, int], dtype: str) -> str | None:
        return self.parameter("x", shape, dtype, "In")

    def own_tensors(self, shape: tuple[int, int], dtype: str) -> list[str]:
        if self.depth != self.scope_depth:  # in a loop, a tile from the second iteration on
            return []
        same = GmT(shape, dtype, writable=True)
        return [n for n in self.sources(shape, dtype) if n in self.spilled and self.env[n] == same]

    def sink(self, shape: tuple[int, ...], dtype: str) -> str:
        """A parameter of its own for one result."""
        return self.parameter("r", shape, dtype, "Out")

    def new_output(self, shape: tuple[int, ...], dtype: str) -> str | None:
        return self.sink(shape, dtype) if self.is_one_block else None

    def scope(self) -> None:
        header = self.choices.pick(INCORE).format(name=self.fresh("scope_"))
        before = dict(self.env)
        with self.block(header) as steps, self.inside():
            self.is_one_block = True
            self.update_spilled()
            self.update_in_block()
            self.body(self.choices.number(1, 4), 2)
            self.is_one_block = False
            self.observe(before)
        self.steps.append(as_task(steps, several="auto_incore" in header))
        self.leave(before)

    def inside(self) -> Any:
        return _Inside(self)

    def update_spilled(self) -> None:
        """`y = pl.add(y, ...)` of a value that an earlier scope computed."""
        names = [n for n in self.env if n in self.spilled]
        if not names or self.choices.chance(60):
            return
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, GmT)
        shape = (t.shape[0], t.shape[1])
        other = self.tile(shape, t.dtype, 1, full=True)
        op = self.choices.pick(("add", "maximum", "sub"))

        def value(r: Run) -> Tile:
            return oracle.zipped(
                lambda p, q: oracle.binary(op, p, q),
                oracle.whole(r.env[name].copy()),
                other.value(r),
            )

        self.assign(
            name, Expr(f"pl.{op}({name}, {other.text})", value, TileT(shape, t.dtype)),
            TileT(shape, t.dtype),
        )  # fmt: skip

    def update_in_block(self) -> None:
        """A tensor's name rebound to a tile in a loop or branch: loaded before, where needed."""
        names = [n for n, t in self.env.items() if n in self.spilled and isinstance(t, GmT)]
        if not names or self.choices.chance(75):
            return
        name = self.choices.pick(names)
        t = self.env.pop(name)
        assert isinstance(t, GmT)
        shape = (t.shape[0], t.shape[1])
        other = self.tile(shape, t.dtype, 1, full=True)

        def value(r: Run) -> Tile:
            now = r.env[name]
            tile = now if isinstance(now, Tile) else oracle.whole(now.copy())
            return oracle.zipped(lambda p, q: oracle.binary("sub", p, q), tile, other.value(r))

        index = self.fresh("i")
        form = self.choices.number(0, 2)
        condition = self.condition()
        count = self.choices.number(1, 2)
        header = f"if {condition.text}:" if form == 0 else f"for {index} in pl.range({count}):"
        with self.block(header) as steps:
            self.emit(
                f"{name} = pl.sub({name}, {other.text})",
                lambda r: r.env.update({name: value(r)}),
            )
        if form == 0:
            self.steps.append(lambda r: run_steps(steps if condition.value(r) else [], r))
        else:
            self.steps.append(looping(index, lambda _: range(count), steps))
        # In a loop, and after it, the name is a tile; after a branch it may be either.
        if form:
            self.env[name] = TileT(shape, t.dtype)
        else:
            again = self.fresh("t")
            both = applied("abs", _now(name, TileT(shape, t.dtype)))
            self.assign(again, both, TileT(shape, t.dtype))
            self._hidden = {**self._hidden, name: t}

    def observe(self, before: dict[str, Type]) -> None:
        """Store some of the scope's tiles, so that they are compared."""
        made = [n for n in self.tiles() if self.env[n] is not before.get(n)]
        for name in made[-3:]:
            t = self.env[name]
            assert isinstance(t, TileT)
            out = self.sink(t.shape, t.dtype)
            form = self.choices.pick(
                ("{out}[:] = {name}", "{out} = pl.assemble({out}, {name}, [0, 0])")
            )
            self.emit(form.format(out=out, name=name), _copy_valid(out, name))

    def leave(self, before: dict[str, Type]) -> None:
        """A computed value is a tensor after its scope."""
        after: dict[str, Type] = dict(self._hidden)
        self._hidden = {}
        for name, t in self.env.items():
            if isinstance(t, TileT):
                if t.full:
                    after[name] = GmT(t.shape, t.dtype, writable=True)
                    self.spilled.add(name)
            elif name in before:
                after[name] = t
        self.env = after

    def fresh_tile(self, shape: tuple[int, int], dtype: str) -> Expr:
        """A computed tile, valid everywhere."""
        return self.computed(self.tile(shape, dtype, 2, full=True))

    def sum_of(self, out: str, at: list[Expr], shape: tuple[int, int], dtype: str) -> Expr:
        """Products added up; the sum may start from the window that it is stored in."""
        start = None
        if self.choices.chance(60):
            window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(at, shape))

            def value(r: Run) -> Tile:
                i, j = (o.value(r) for o in at)
                return oracle.whole(r.env[out][i : i + shape[0], j : j + shape[1]].copy())

            start = Expr(f"{out}[{window}]", value, TileT(shape, dtype))
        return self.product(shape, dtype, start)

    def at_name(self, name: str) -> Expr:
        return Expr(name, lambda r: r.env[name], ScalarT("INDEX"))

    def zero(self) -> Expr:
        return Expr("0", lambda _: 0, ScalarT(""))


class _Inside:
    """Return a context in which the statements of a scope are made."""

    def __init__(self, control: Scopes) -> None:
        self.control = control

    def __enter__(self) -> None:
        self.control.in_scope = True
        self.control.scope_depth = self.control.depth
        self.control._scalars_outside = {
            n for n, t in self.control.env.items() if isinstance(t, ScalarT)
        }

    def __exit__(self, *_: object) -> None:
        self.control.in_scope = False
        self.control._scalars_outside = set()


def as_task(steps: list[Step], *, several: bool = False) -> Step:
    """One task; its results are in memory afterwards.

    `several`: each of the statements may be a task, and a copy.
    """

    def step(r: Run) -> None:
        r.task()
        for _ in range(2 * len(steps) if several else 0):
            r.may_copy()
        run_steps(steps, r)
        for name, value in r.env.items():
            if isinstance(value, Tile):
                r.env[name] = value.data.copy()

    return step


def _copy_valid(out: str, name: str) -> Step:
    def step(r: Run) -> None:
        tile = r.env[name]
        r.env[out][tuple(slice(0, v) for v in tile.valid)] = tile.inside

    return step


def _now(name: str, t: TileT) -> Expr:
    """A name that is a tensor or a tile at this point."""

    def value(r: Run) -> Tile:
        found = r.env[name]
        return found if isinstance(found, Tile) else oracle.whole(found.copy())

    return Expr(name, value, t)
