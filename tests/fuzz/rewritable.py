"""Rewritable programs whose lengths, tables and branches depend on data, with inputs.

Every block of a program has the shape that some rule, `tune` or `export` looks for; offsets,
bounds, guards and operands are drawn, so that the condition of legality often holds nearly and not
quite.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilelet.diag.core import UserError, UserErrors
from tilelet.interp.control import for_step
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Lowering, Step
from tilelet.interp.state import State
from tilelet.ir.core import Op, Program
from tilelet.ir.views import ForView
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.arguments import bind_arguments

ROWS, WIDTH, TALL = 4, 8, 8
INPUTS = 8
"""Input sets on which a rewritten program is compared with the original."""

REJECTED = (UserError, UserErrors)
"""What the language does not take."""

SIZES = {"TILE": 2, "PART": 4}

ZEROS = f"pl.full([1, {WIDTH}], dtype=pl.FP32, value=0.0)"

HEAD = f"""\
@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[{TALL}, {WIDTH}], pl.FP32],
        y: pl.Tensor[[{WIDTH}, {WIDTH}], pl.FP32],
        n: pl.Tensor[[4], pl.INT32],
        table: pl.Tensor[[{TALL}], pl.INT32],
        limit: pl.Scalar[pl.INT32],
        z: pl.InOut[pl.Tensor[[{ROWS}, {WIDTH}], pl.FP32]],
        w: pl.InOut[pl.Tensor[[{ROWS}, {WIDTH}], pl.FP32]],
    ):
"""


class Text:
    """Draws the statements of a program."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._names = 0

    def program(self) -> str:
        count = f"count = pl.read(n, [{self.draw.randrange(4)}])\n"
        makers = [f"{t} = pl.create_tensor([{ROWS}, {WIDTH}], pl.FP32)\n" for t in ("s", "t")]
        blocks = [self.block() for _ in range(self.draw.choice((1, 1, 2, 3)))]
        body = "".join([count, *makers, *blocks]) + "return z, w\n"
        sizes = "".join(f"{n} = {v}\n" for n, v in SIZES.items() if n in body)
        return f"import tilelet.language as pl\n{sizes}\n\n" + HEAD + textwrap.indent(body, " " * 8)

    def block(self) -> str:
        kinds = [
            *(self.fill, self.fill_and_rows, self.fill_and_sum, self.rows, self.two_scopes),
            *(self.shared, self.twins, self.one_scope, self.launches, self.stored_and_loaded),
            *(self.products, self.sum_in_memory, self.read_modify_write, self.early_exit),
            *(self.tiled, self.tiled, self.parts, self.chunks, self.stages, self.atomic_sum),
            *(self.views, self.flat_view, self.spmd_rows, self.while_rows, self.own_table),
        ]
        return self.draw.choice(kinds)()

    # Parts

    def one(self, *choices: Any) -> Any:
        return self.draw.choice(choices)

    def tensor(self) -> str:
        return self.one("z", "z", "w", "s", "t")

    def bound(self, most: int = ROWS) -> str:
        fixed = str(most)
        return self.one(
            *(fixed, fixed, fixed, str(most - 1), "count", "count", f"pl.min(count, {most})"),
            *("limit", f"pl.max(count, {most})"),
        )

    def row(self, name: str = "r") -> str:
        return self.one(
            *(name, name, name, name, f"{name} % {ROWS}", f"{ROWS - 1} - {name}", f"{name} // 2"),
            *(f"pl.read(table, [{name}])", f"pl.min({name}, count)"),
        )

    def value(self, row: str, source: str = "") -> str:
        source = source or self.one("x", "x", "y", "z", "w", "s")
        tile = f"{source}[{row} : {row} + 1, :]"
        valid = f"valid_shape=[1, pl.min(pl.max(count, 0), {WIDTH})]"
        return self.one(
            *(tile, tile, f"pl.exp({tile})", f"pl.mul({tile}, 2.0)"),
            f"pl.add({tile}, x[{row} : {row} + 1, :])",
            f"pl.slice({source}, [1, {WIDTH}], [{row}, 0], {valid})",
            f"pl.sel(pl.cmps({tile}, 0.0, cmp_type=4), {tile}, y[0:1, :])",
        )

    def guard(self, text: str) -> str:
        condition = self.one(
            *("", "", "", "", "if count > 3:", "if r < count:", "if limit > r:"),
            *("if pl.read(table, [r]) > 2:", "if pl.read(n, [1]) == count:"),
        )
        return f"{condition}\n{textwrap.indent(text, '    ')}" if condition else text

    def scope(self, *lines: str) -> str:
        return "with pl.at(level=pl.Level.CORE_GROUP):\n" + "".join(f"    {s}\n" for s in lines)

    def loop(self, text: str, bound: str = "", name: str = "r", kind: str = "") -> str:
        header = f"for {name} in pl.{kind or self.one('range', 'range', 'parallel')}"
        return f"{header}({bound or self.bound()}):\n{textwrap.indent(text, '    ')}"

    def set_row(self, tensor: str, row: str, value: str) -> str:
        return self.one(
            f"{tensor}[{row} : {row} + 1, :] = {value}",
            f"{tensor} = pl.assemble({tensor}, {value}, [{row}, 0])",
        )

    def in_row(self, text: str, row: str) -> str:
        """Return the row, perhaps bound to a name first."""
        return f"row = {row}\n" + text.replace("ROW", "row")

    # Blocks, each with the shape that some rule looks for

    def fill(self, tensor: str = "") -> str:
        tensor = tensor or self.tensor()
        value = self.one("0.0", "0.0", "1.0")
        tile = f"pl.full([1, {WIDTH}], dtype=pl.FP32, value={value})"
        return self.loop(self.scope(f"{tensor} = pl.assemble({tensor}, {tile}, [r, 0])"), str(ROWS))

    def rows(self, tensor: str = "") -> str:
        tensor = tensor or self.tensor()
        text = self.guard(self.scope(self.set_row(tensor, "ROW", self.value("r"))))
        return self.loop(self.in_row(text, self.row()))

    def fill_and_rows(self) -> str:
        tensor = self.tensor()
        return self.fill(tensor) + self.rows(tensor)

    def fill_and_sum(self) -> str:
        tensor = self.tensor()
        so_far = f"{tensor}[ROW : ROW + 1, :]"
        added = self.one(
            f"pl.add({so_far}, {self.value('r', 'x')})", f"pl.maximum({so_far}, y[0:1, :])"
        )
        text = self.guard(self.scope(self.set_row(tensor, "ROW", added)))
        return self.fill(tensor) + self.loop(self.in_row(text, self.row()))

    def two_scopes(self) -> str:
        tensor, through = self.tensor(), self.one("a", "s", "t")
        if through == "a":
            first, second = f"a = {self.value('r', 'x')}", "a"
        else:
            first = self.set_row(through, "r", self.value("r", "x"))
            second = self.one(f"{through}[r : r + 1, :]", f"{through}[ROW : ROW + 1, :]")
        last = self.set_row(tensor, "ROW", f"pl.add({second}, x[r : r + 1, :])")
        text = self.scope(first) + self.one("", "", "", "# and on\n") + self.scope(last)
        return self.loop(self.in_row(text, self.row()))

    def shared(self) -> str:
        a, b = self.draw.sample(["z", "w", "s", "t"], 2)
        load = "tile = x[r : r + 1, :]"
        first = self.scope(load, self.set_row(a, "ROW", "pl.exp(tile)"))
        other = self.one("tile", f"pl.neg({a}[ROW : ROW + 1, :])", f"{a}[r : r + 1, :]")
        second = self.scope(load, self.set_row(b, "r", f"pl.maximum(tile, {other})"))
        return self.loop(self.in_row(first + second, self.row()))

    def twins(self) -> str:
        bound, kind = self.bound(), self.one("range", "parallel")
        a, b = self.draw.sample(["z", "w", "s", "t"], 2)
        first = self.scope(self.set_row(a, "r", self.value("r", "x")))
        row = self.one("r", "r", f"{ROWS - 1} - r", "ROW")
        read = f"pl.neg({a}[{row} : {row} + 1, :])".replace("ROW", f"({self.row()})")
        second = self.scope(self.set_row(b, "r", read))
        return self.loop(first, bound, kind=kind) + self.loop(second, bound, kind=kind)

    def one_scope(self) -> str:
        tensor, maker = self.tensor(), f"both = pl.create_tensor([2, {WIDTH}], pl.FP32)\n"
        lines = ["both = pl.assemble(both, pl.exp(x[r : r + 1, :]), [0, 0])"]
        if self.draw.random() < 0.8:
            lines.append("both = pl.assemble(both, x[r : r + 1, :], [1, 0])")
        at = self.one("0", "1", "count % 2", "limit % 2")
        lines.append(self.set_row(tensor, "ROW", f"pl.slice(both, [1, {WIDTH}], [{at}, 0])"))
        text = self.scope(*lines)
        inside = self.draw.random() < 0.6
        loop = self.loop(self.in_row((maker if inside else "") + text, self.row()))
        return loop if inside else maker + loop

    def launches(self) -> str:
        start = self.scope(f"so_far = {self.value('0', 'x')}")
        step = self.one("pl.maximum(so_far, x[r : r + 1, :])", "pl.add(so_far, x[r : r + 1, :])")
        loop = self.loop(self.scope(f"so_far = {step}"), self.bound(), kind="range")
        return start + loop + self.scope(self.set_row(self.tensor(), "0", "so_far"))

    def stored_and_loaded(self) -> str:
        a, b = self.draw.sample(["z", "w", "s", "t"], 2)
        lines = [self.set_row(a, "ROW", self.value("r", "x"))]
        if self.draw.random() < 0.4:
            lines.append(self.set_row(self.one(a, b), self.one("r", "0", "ROW"), "y[0:1, :]"))
        at = self.one("ROW", "ROW", "ROW", "r", "0")
        lines.append(self.set_row(b, "r", f"pl.neg({a}[{at} : {at} + 1, :])"))
        return self.loop(self.in_row(self.guard(self.scope(*lines)), self.row()))

    def atomic_sum(self) -> str:
        tensor, row = self.tensor(), self.one("r", "r // 2", "ROW")
        add = f"{tensor} = pl.assemble({tensor}, {self.value('r', 'x')}, [{row}, 0], "
        text = self.scope(add + "atomic=pl.AtomicType.Add)")
        return self.one("", self.fill(tensor)) + self.loop(self.in_row(text, self.row()))

    def early_exit(self) -> str:
        tensor, end = self.tensor(), self.one("r >= count", "pl.read(table, [r]) > limit")
        write = self.set_row(tensor, self.one("r", "r", "r // 2"), self.value("r", "x"))
        lines = [f"for r in pl.range({ROWS}):", f"    if {end}:", "        break", f"    {write}"]
        return self.one("", self.fill(tensor)) + self.scope(*lines)

    def products(self) -> str:
        first = self.one("0.0", "0.0", "1.0")
        filled = f"pl.full([{ROWS}, {WIDTH}], dtype=pl.FP32, value={first})"
        start = f"acc = {self.one(filled, 'pl.mul(z, 2.0)')}"
        bound = self.one("2", "2", "2", "count", "pl.min(count, 2)", "1, 2")
        part = WIDTH // 2
        rows = f"k * {part} : k * {part} + {part}"
        product = f"pl.matmul(x[0:{ROWS}, {rows}], y[{rows}, :])"
        lines = [start, f"for k in pl.range({bound}):"]
        lines.append(f"    acc = pl.add({self.one('acc, ' + product, product + ', acc')})")
        lines.append(f"{self.one('z', 'w')}[0:{ROWS}, :] = acc")
        return self.scope(*lines)

    def sum_in_memory(self) -> str:
        tensor = self.one("z", "w", "s")
        row = self.one("d", "d", f"(d + k) % {ROWS}", "pl.read(table, [d])")
        chunk = self.scope("chunk = pl.mul(x[k : k + 1, :], 2.0)")
        step = self.scope(
            f"so_far = pl.slice({tensor}, [1, {WIDTH}], [{row}, 0])",
            "added = pl.add(so_far, chunk)",
            f"{tensor} = pl.assemble({tensor}, added, [{row}, 0])",
        )
        inner = self.loop(step, self.one(str(ROWS), "count", "k + 1", "limit"), "d", "range")
        return self.loop(chunk + inner, self.one("3", "3", "count", "limit"), "k", "range")

    def read_modify_write(self) -> str:
        tensor = self.one("z", "w", "s")
        row = self.one("d", "d", "d", f"(d + k) % {ROWS}", "pl.read(table, [d])")
        window = f"{tensor}[ROW : ROW + 1, :]"
        step = self.one(
            f"pl.maximum({window}, x[k : k + 1, :])", f"pl.add({window}, x[k : k + 1, :])"
        )
        other = self.one("", "", "", f"w[0:1, :] = {tensor}[0:1, :]")
        lines = [s for s in (other, self.set_row(tensor, "ROW", step)) if s]
        body = self.in_row(self.scope(*lines), row)
        inner = self.loop(body, self.one(str(ROWS), "count", "k + 1"), "d", "range")
        return self.loop(inner, self.one("3", "3", "count", "limit"), "k", "range")

    # Blocks with views, blocks of one task, and tables that the program writes

    def views(self) -> str:
        """A view at an offset that may depend on data, used beside its tensor or another view."""
        tensor, at = self.one("z", "w"), self.one("0", "1", "2", "pl.min(pl.max(count, 0), 2)")
        part = f"{tensor} = pl.slice({tensor}, [2, {WIDTH}], [AT, 0])\n"
        views = f"first_{part}".replace("AT", at) + f"second_{part}".replace(
            "AT", self.one("0", at)
        )
        names = (f"first_{tensor}", f"second_{tensor}", tensor)
        first, second = self.one(*names), self.one(*names)
        read = self.one(f"pl.neg({second}[r : r + 1, :])", self.value("r", "x"))
        write = self.scope(self.set_row(first, "r", self.one("pl.exp(x[r : r + 1, :])", ZEROS)))
        last = self.scope(self.set_row(self.one("s", second), "r", read))
        return views + self.loop(write, "2") + self.loop(last, "2")

    def flat_view(self) -> str:
        """Rows of a tensor that is reshaped."""
        tensor = self.one("z", "w")
        flat = f"flat = pl.reshape({tensor}, [1, {ROWS * WIDTH}])\n"
        place = f"r * {WIDTH}"
        write = self.scope(f"flat = pl.assemble(flat, {ZEROS}, [0, {place}])")
        return flat + self.loop(write, self.one(str(ROWS), self.bound())) + self.rows(tensor)

    def spmd_rows(self) -> str:
        tensor = self.tensor()
        body = self.in_row(self.set_row(tensor, "ROW", self.value("r")), self.row())
        count = self.one(ROWS, ROWS, ROWS - 1)
        text = f"for r in pl.spmd({count}):\n{textwrap.indent(body, '    ')}\n"
        return self.one("", self.fill(tensor)) + text + self.one("", self.rows(tensor))

    def while_rows(self) -> str:
        tensor, step = self.tensor(), self.one("1", "1", "2", "pl.max(limit, 1)")
        body = self.scope(self.set_row(tensor, "r", self.value("r", "x"))) + f"r = r + {step}\n"
        text = f"r = 0\nwhile r < {self.bound()}:\n{textwrap.indent(body, '    ')}"
        return self.one("", self.fill(tensor)) + text

    def own_table(self) -> str:
        """A table that the control program writes, and rewrites between two loops."""
        tensor, entry = self.one("z", "w"), self.draw.randrange(TALL)
        copied = f"for e in pl.range({TALL}):\n    pl.write(own, [e], pl.read(table, [e]))\n"
        made = f"own = pl.create_tensor([{TALL}], pl.INT32)\n{copied}"
        row = f"pl.read(own, [{self.one('r', 'r', f'{TALL - 1} - r')}])"
        loops = [
            self.loop(self.in_row(self.scope(self.set_row(tensor, "ROW", value)), row), str(ROWS))
            for value in ("pl.exp(x[r : r + 1, :])", f"pl.neg({tensor}[ROW : ROW + 1, :])")
        ]
        changed = f"pl.write(own, [{entry}], pl.read(table, [{self.draw.randrange(TALL)}]))\n"
        return made + loops[0] + self.one("", changed) + loops[1]

    # Blocks whose sizes the constants `TILE` and `PART` and options of loops decide

    def tiled(self) -> str:
        """Rows in tiles, whose remainder is masked, omitted, or assumed to be none."""
        tensor, source = self.tensor(), self.one("x", "x", "z")
        bound = self.bound()
        steps, row = self.one(
            *(((f"0, {bound}, TILE", "r"),) * 3),
            (f"{ROWS} // TILE", "r * TILE"),
            (f"({bound} + TILE - 1) // TILE", "r * TILE"),
        )
        at = self.one("ROW", "ROW", "ROW", f"pl.min(ROW, {ROWS} - TILE)", "pl.read(table, [r])")
        tile = f"{source}[{at} : {at} + TILE, :]"
        if self.draw.random() < 0.5:
            valid = self.one(f"pl.min({bound} - ROW, TILE)", f"pl.min({ROWS} - ROW, TILE)", "TILE")
            valid = f"valid_shape=[{valid}, {WIDTH}]"
            tile = f"pl.slice({source}, [TILE, {WIDTH}], [{at}, 0], {valid})"
        value = self.one(
            *(tile, f"pl.exp({tile})", f"pl.row_expand_mul({tile}, pl.row_sum({tile}))"),
            *(f"pl.col_expand_mul({tile}, pl.col_max({tile}))", f"pl.mul({tile}, 1.0 * TILE)"),
            f"pl.add({tile}, {tensor}[ROW : ROW + TILE, :])",
        )
        scope = self.scope(f"{tensor} = pl.assemble({tensor}, {value}, [ROW, 0])")
        loop = self.loop(self.in_row(self.guard(scope), row), steps)
        return self.one("", self.fill(tensor)) + loop

    def parts(self) -> str:
        """A product whose inner dimension is split."""
        bound = self.one(*(str(WIDTH),) * 3, str(WIDTH - 1), "count", f"pl.min(count, {WIDTH})")
        steps, k = self.one((f"0, {bound}, PART", "k"), (f"{WIDTH} // PART", "k * PART"))
        product = f"pl.matmul(x[0:{ROWS}, {k} : {k} + PART], y[{k} : {k} + PART, :])"
        lines = [f"acc = pl.full([{ROWS}, {WIDTH}], dtype=pl.FP32, value=0.0)"]
        lines += [f"for k in pl.range({steps}):", f"    acc = pl.add(acc, {product})"]
        return self.scope(*lines, f"{self.one('z', 'w')}[0:{ROWS}, :] = acc")

    def chunks(self) -> str:
        """Rows that one task processes together."""
        tensor, count = self.tensor(), self.one(str(ROWS), str(ROWS), str(ROWS - 1), "count")
        row = self.one("r", "r", f"{ROWS - 1} - r", "r // 2")
        value = self.one(self.value("r", "x"), f"pl.exp({tensor}[{row} : {row} + 1, :])")
        header = "with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):\n"
        loop = f"    for r in pl.parallel(0, {count}, chunk={self.one('1', '2', '3')}):\n"
        return f"{header}{loop}        {self.set_row(tensor, row, value)}\n"

    def stages(self) -> str:
        """Rows of one task, several of them in flight."""
        tensor = self.tensor()
        row = self.one("r", "r", "r // 2", f"{ROWS - 1} - r")
        value = self.one(self.value("r", "x"), f"pl.add({tensor}[{row} : {row} + 1, :], 1.0)")
        loop = f"for r in pl.pipeline({self.bound()}, stage={self.one('2', '3')}):"
        return self.scope(loop, f"    {self.set_row(tensor, row, value)}")


class Reversed:
    """Runs the iterations of parallel loops from the last to the first."""

    def reverses(self, op: Op) -> bool:
        return op.name == "for" and ForView(op).kind == "parallel"

    def lower(self, low: Lowering, op: Op) -> Step:
        return for_step(low, op, reversed) if self.reverses(op) else low.plain_op(op)


@dataclass
class Version:
    """A text and its program, which is built unless given."""

    text: str
    made: Program | None = None
    _states: dict[bool, State] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        return self.made or run_passes(parse(self.text))

    def outputs(self, given: Mapping[str, Any], *, backwards: bool = False) -> Any:
        """Return the outputs of a run, or None if the program rejects its arguments."""
        arguments = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()}
        engine = Interpreter(observer=Reversed() if backwards else None)
        try:
            if backwards in self._states:
                self._states[backwards].restart()
                bound = bind_arguments(self.program, arguments, execute=True)
            else:
                self._states[backwards], bound = engine.begin(self.program, arguments)
            engine.go_on(self.program, self._states[backwards], bound)
        except UserError:
            return None
        return {name: arguments[name] for name in ("z", "w")}


def inputs(seed: int) -> Iterator[dict[str, Any]]:
    """Return arguments as a script would have them, the plainest first."""
    for trial in range(INPUTS):
        draw = np.random.default_rng([seed, trial])

        def rows(count: int, draw: np.random.Generator = draw) -> NDArray[np.float32]:
            return draw.standard_normal((count, WIDTH)).astype(np.float32)

        n = np.full(4, ROWS) if trial == 0 else draw.integers(0, TALL + 1, 4)
        table = np.arange(TALL) % ROWS if trial == 0 else draw.integers(0, ROWS, TALL)
        yield {
            "x": rows(TALL),
            "y": rows(WIDTH),
            "n": n.astype(np.int32),
            "table": table.astype(np.int32),
            "limit": ROWS if trial == 0 else int(draw.integers(-1, TALL)),
            "z": rows(ROWS),
            "w": rows(ROWS),
        }
