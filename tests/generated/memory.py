"""Tensors in the control program: new ones, views, assembled windows and copies."""

from __future__ import annotations

import numpy as np
from tests.generated import oracle
from tests.generated.core import Expr, GmT, Run, ScalarT, Step, TileT, run_steps
from tests.generated.expressions import DIMS
from tests.generated.oracle import NUMPY
from tests.generated.scopes import INCORE, Scopes, as_task
from tests.generated.statements import looping


class Memory(Scopes):
    """Statements of the control program about tensors."""

    def create(self) -> None:
        """A new tensor, filled block by block."""
        step, count = self.choices.pick((4, 8, 3)), self.choices.number(1, 3)
        shape = (step * count, self.choices.pick((8, 16, 5)))
        dtype = self.choices.pick(("FP32", "INT32", "BF16"))
        name, index = self.fresh("g"), self.fresh("i")
        self.emit(
            f"{name} = pl.create_tensor([{shape[0]}, {shape[1]}], dtype=pl.{dtype})",
            lambda r: r.env.update({name: np.zeros(shape, NUMPY[dtype])}),
        )
        kind = self.choices.pick(("parallel", "range"))
        header = f"for {index} in pl.{kind}(0, {shape[0]}, {step}):"
        before = dict(self.env)
        with self.block(header) as outer:
            self.env[index] = ScalarT("INDEX", 0, shape[0] - step)
            with self.block("with pl.at(level=pl.Level.CORE_GROUP):") as steps, self.inside():
                source = self.tile((step, shape[1]), dtype, 2, full=True)
                self.env[name] = GmT(shape, dtype, writable=True)
                self.store_window(name, source, [self.at_name(index), self.zero()])
            self.steps.append(as_task(steps))
        self.steps.append(looping(index, lambda _: range(0, shape[0], step), outer))
        self.env = {**before, name: GmT(shape, dtype, writable=True)}

    def tail_loop(self) -> None:
        """Blocks of rows, the last one partly valid: `valid_shape` from `pl.min`."""
        names = self.names(lambda t: isinstance(t, GmT) and len(t.shape) == 2)
        source = self.choices.pick(names)
        t = self.env[source]
        assert isinstance(t, GmT)
        step, columns = self.choices.pick((4, 8, 5, 3)), t.shape[1]
        out, index, rows = self.sink(t.shape, t.dtype), self.fresh("i"), self.fresh("s")
        before = dict(self.env)
        with self.block(f"for {index} in pl.range(0, {t.shape[0]}, {step}):") as outer:
            with self.block(self.choices.pick(INCORE[:2])) as steps, self.inside():
                self.line(f"{rows} = pl.min({step}, {t.shape[0]} - {index})")
                tile = self.fresh("p")
                shape = (step, columns)
                valid = self.choices.pick((columns, max(1, columns - 3)))

                def load(r: Run) -> None:
                    i = r.env[index]
                    r.env[rows] = min(step, t.shape[0] - i)
                    window = r.env[source][i : i + r.env[rows], :valid].copy()
                    r.env[tile] = oracle.padded(window, shape)

                self.emit(
                    f"{tile} = pl.slice({source}, [{step}, {columns}], [{index}, 0], "
                    f"valid_shape=[{rows}, {valid}])",
                    load,
                )
                self.env[tile] = TileT(shape, t.dtype, full=False)
                value = Expr(tile, lambda r: r.env[tile], TileT(shape, t.dtype, full=False))
                other = self.tile(shape, t.dtype, 1)
                changed = self.combined("maximum", value, other)
                self.assign(tile, changed, TileT(shape, t.dtype, full=False))
                self.env[out] = GmT(t.shape, t.dtype, writable=True)
                text = f"{out} = pl.assemble({out}, {tile}, [{index}, 0])"
                self.emit(text, _store_rows(out, value, index))
            self.steps.append(as_task(steps))
        self.steps.append(looping(index, lambda _: range(0, t.shape[0], step), outer))
        self.env = before

    def view(self) -> None:
        """A window, a reshape or a transpose of a tensor: the same memory."""
        names = self.names(lambda t: isinstance(t, GmT) and len(t.shape) == 2)
        name, v = self.choices.pick(names), self.fresh("v")
        t = self.env[name]
        assert isinstance(t, GmT)
        form = self.choices.number(0, 3)
        if form == 3 and not name.startswith("v"):
            count = t.shape[0] * t.shape[1]
            rows = self.choices.pick([d for d in range(1, 18) if count % d == 0])
            shape = (rows, count // rows)
            text = f"pl.reshape({name}, [{rows}, {count // rows}])"
            self.emit(f"{v} = {text}", lambda r: r.env.update({v: r.env[name].reshape(shape)}))
        elif form == 2:
            shape = (t.shape[1], t.shape[0])
            self.emit(
                f"{v} = pl.transpose({name}, 0, 1)", lambda r: r.env.update({v: r.env[name].T})
            )
        else:
            shape = tuple(min(d, self.choices.pick(DIMS)) for d in t.shape)
            offsets = [self.offset(d - s) for d, s in zip(t.shape, shape)]
            places = ", ".join(o.text for o in offsets)
            window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, shape))
            slice_text = f"pl.slice({name}, [{shape[0]}, {shape[1]}], [{places}])"
            text = f"{name}[{window}]" if form else slice_text

            def step(r: Run) -> None:
                i, j = (o.value(r) for o in offsets)
                r.env[v] = r.env[name][i : i + shape[0], j : j + shape[1]]

            self.emit(f"{v} = {text}", step)
        self.env[v] = GmT(shape, t.dtype, t.writable, t.constant)

    def overhanging_view(self) -> None:
        """A view that may reach past the end, or start there; a scope loads the existing part."""
        names = self.names(lambda t: isinstance(t, GmT) and len(t.shape) == 2)
        source, v, i = self.choices.pick(names), self.fresh("h"), self.fresh("i")
        t = self.env[source]
        assert isinstance(t, GmT)
        rows, columns = t.shape
        height = self.choices.pick((4, rows, rows + 3))
        first = self.choices.number(max(0, rows - 4), rows - 1)
        start, left, late = self.fresh("s"), self.fresh("s"), self.known_late
        out = self.sink((height, columns), t.dtype)
        self.line(f"{start} = {late} + {first}")
        self.line(f"{left} = pl.max(pl.min({height}, {rows} - {start}), 0)")
        self.line(f"{v} = pl.slice({source}, [{height}, {columns}], [{start}, 0])")
        with self.block(self.choices.pick(INCORE[:2])) as steps:
            if self.choices.chance(50):
                self.line(f"for {i} in pl.range({left}):")
                row = f"{i} : {i} + 1, 0:{columns}"
                self.line(f"    {out}[{row}] = {v}[{row}]")
            else:
                window = f"[{height}, {columns}], [0, 0], valid_shape=[{left}, {columns}]"
                self.line(f"{out} = pl.assemble({out}, pl.slice({v}, {window}), [0, 0])")

        def store(r: Run) -> None:
            at = r.env[late] + first
            there = r.env[source][at : at + height]
            r.env[out][: len(there), :columns] = there

        steps.append(store)
        self.steps.append(as_task(steps))

    def window(self) -> None:
        """A scope's result assembled at once: it becomes a window of the target, without a copy."""
        step, count = self.choices.pick((4, 3, 8)), self.choices.number(1, 3)
        shape = (step, self.choices.pick((8, 5, 16)))
        dtype = self.choices.pick(("FP32", "BF16", "INT32"))
        out, y, index = self.sink((step * count, shape[1]), dtype), self.fresh("y"), self.fresh("i")
        before = dict(self.env)
        with self.block(f"for {index} in pl.range(0, {step * count}, {step}):") as outer:
            self.env[index] = ScalarT("INDEX", 0, step * (count - 1))
            with self.block(self.choices.pick(INCORE[:2])) as steps, self.inside():
                value = self.fresh_tile(shape, dtype)
                self.assign(y, value, TileT(shape, dtype))
            self.steps.append(as_task(steps))
            self.emit(
                f"{out} = pl.assemble({out}, {y}, [{index}, 0])", _assemble(out, y, index, step)
            )
        self.steps.append(looping(index, lambda _: range(0, step * count, step), outer))
        self.env = before

    def copy(self) -> None:
        """A parameter assembled into another: a real copy, which is one task."""
        names = self.names(lambda t: isinstance(t, GmT) and t.constant and len(t.shape) == 2)
        names = [n for n in names if n.startswith("x")]
        if not names:
            return
        source = self.choices.pick(names)
        t = self.env[source]
        assert isinstance(t, GmT)
        out = self.sink((t.shape[0] + 2, t.shape[1] + 1), t.dtype)
        row, column = self.choices.number(0, 2), self.choices.number(0, 1)

        def step(r: Run) -> None:
            r.task()
            box = (slice(row, row + t.shape[0]), slice(column, column + t.shape[1]))
            r.env[out][box] = r.env[source]

        self.emit(f"{out} = pl.assemble({out}, {source}, [{row}, {column}])", step)

    def assemble_any(self) -> None:
        """Any tensor assembled into any other: window and copy must be indistinguishable."""
        sources = self.names(lambda t: isinstance(t, GmT) and len(t.shape) == 2)
        self.assemble_whole(self.choices.pick(sources))

    def assemble_whole(self, source: str) -> None:
        """`source` assembled into a tensor that has room for it, if there is one."""
        t = self.env[source]
        assert isinstance(t, GmT)
        targets = [
            n
            for n in self.sources(t.shape, t.dtype)
            if n != source and self.env[n].writable and not n.startswith("v")  # type: ignore[union-attr]
        ]
        if not targets or source.startswith("v"):
            return
        name = self.choices.pick(targets)
        offsets = self.window_of(self.env[name], t.shape)  # type: ignore[arg-type]
        places = ", ".join(o.text for o in offsets)
        window = ", ".join(f"{o.text} : {o.text} + {d}" for o, d in zip(offsets, t.shape))
        text = f"{name} = pl.assemble({name}, {source}, [{places}])"
        if self.choices.chance(40):
            text = f"{name}[{window}] = {source}"

        def step(r: Run) -> None:
            i, j = (o.value(r) for o in offsets)
            r.may_copy()
            r.env[name][i : i + t.shape[0], j : j + t.shape[1]] = r.env[source].copy()

        self.emit(text, step)

    def gathered_row(self) -> None:
        """A local tensor that several scopes fill, assembled when it is complete."""
        width, parts = self.choices.pick((4, 3, 8)), self.choices.number(1, 3)
        rows, columns = self.choices.pick((1, 2, 4)), width * parts
        dtype = self.choices.pick(("FP32", "INT32"))
        count = self.choices.number(1, 3)
        out, row = self.sink((rows * count, columns), dtype), self.fresh("g")
        index, part = self.fresh("i"), self.fresh("i")
        before = dict(self.env)
        kind = self.choices.pick(("range", "parallel"))
        with self.block(f"for {index} in pl.{kind}(0, {rows * count}, {rows}):") as outer:
            self.env[index] = ScalarT("INDEX", 0, rows * (count - 1))
            self.emit(
                f"{row} = pl.create_tensor([{rows}, {columns}], dtype=pl.{dtype})",
                lambda r: r.env.update({row: np.zeros((rows, columns), NUMPY[dtype])}),
            )
            with self.block(f"for {part} in pl.{kind}(0, {columns}, {width}):") as inner:
                self.env[part] = ScalarT("INDEX", 0, columns - width)
                with self.block(self.choices.pick(INCORE[:2])) as steps, self.inside():
                    source = self.tile((rows, width), dtype, 1, full=True)
                    self.env[row] = GmT((rows, columns), dtype, writable=True)
                    self.store_window(row, source, [self.zero(), self.at_name(part)])
                self.steps.append(as_task(steps))
            self.steps.append(looping(part, lambda _: range(0, columns, width), inner))
            self.emit(
                f"{out} = pl.assemble({out}, {row}, [{index}, 0])", _assemble(out, row, index, rows)
            )
        self.steps.append(looping(index, lambda _: range(0, rows * count, rows), outer))
        self.env = before

    def carry_tensor(self) -> None:
        """`for i, (a,) in pl.range(n, init_values=(y,))` around scopes."""
        names = [n for n in self.env if n in self.spilled]
        if not names:
            return
        first = self.choices.pick(names)
        t = self.env[first]
        assert isinstance(t, GmT)
        shape = (t.shape[0], t.shape[1])
        carried, made, index, out = (self.fresh(s) for s in ("c", "t", "i", "y"))
        text, indices, (low, high) = self.bounds(at_least=0)
        before = dict(self.env)
        header = f"for {index}, ({carried},) in pl.range({text}, init_values=({first},)):"
        with self.block(header) as steps:
            self.env[index] = ScalarT("INDEX", low, high)
            self.env[carried] = GmT(t.shape, t.dtype)
            with self.block(self.choices.pick(INCORE[:2])) as inner, self.inside():
                whole = Expr(
                    carried, lambda r: oracle.whole(r.env[carried].copy()), TileT(shape, t.dtype)
                )
                other = self.tile(shape, t.dtype, 1, full=True)
                value = self.combined("add", whole, other)
                self.assign(made, value, TileT(shape, t.dtype))
            self.steps.append(as_task(inner))
            self.line(f"{out} = pl.yield_({made})")

        def step(r: Run) -> None:
            current = r.env[first]
            for i in indices(r):
                r.env.update({index: i, carried: current})
                run_steps(steps, r)
                current = r.env[made]
            r.env[out] = current

        self.steps.append(step)
        self.env = {**before, out: GmT(t.shape, t.dtype)}


def _store_rows(out: str, value: Expr, index: str) -> Step:
    def step(r: Run) -> None:
        tile, i = value.value(r), r.env[index]
        r.env[out][i : i + tile.valid[0], : tile.valid[1]] = tile.inside

    return step


def _assemble(out: str, name: str, index: str, rows: int) -> Step:
    def step(r: Run) -> None:
        i = r.env[index]
        r.env[out][i : i + rows] = r.env[name]

    return step
