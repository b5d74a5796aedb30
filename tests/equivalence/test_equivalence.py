"""Programs equal for all inputs are shown to be equal; others never are."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from tests.kernels import lowered

from tilelet.equivalence import execute
from tilelet.equivalence.proof import prove_equal
from tilelet.equivalence.trials import difference
from tilelet.ir.core import Program
from tilelet.language.text import parse

HEAD = """\
import tilelet.language as pl

@pl.program
class Kernel:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[32, 64], pl.FP32],
        y: pl.Tensor[[64, 64], pl.FP32],
        n: pl.Tensor[[1], pl.INT32],
        table: pl.Tensor[[16], pl.INT32],
        z: pl.InOut[pl.Tensor[[16, 64], pl.FP32]],
    ):
"""


def program(*parts: str) -> Program:
    """A program with these statements; `task:` begins a scope."""
    body = "".join(textwrap.dedent(part).lstrip("\n") for part in parts)
    body = body.replace("task:", "with pl.at(level=pl.Level.CORE_GROUP):")
    return lowered(parse(HEAD + textwrap.indent(body + "return z\n", " " * 8)))


FILL = """
for r in pl.range(16):
    task:
        z = pl.assemble(z, pl.full([1, 64], dtype=pl.FP32, value=0.0), [r, 0])
"""

ALL_ROWS = """
for r in pl.range(16):
    task:
        z[r : r + 1, :] = x[r : r + 1, :]
"""

SOME_ROWS = """
for r in pl.range(pl.read(n, [0])):
    task:
        z[r : r + 1, :] = x[r : r + 1, :]
"""

ROWS_IF = """
if pl.read(n, [0]) > 3:
    task:
        z[0:16, :] = x[0:16, :]
"""

ROWS_OF_A_TABLE = """
for i in pl.range(16):
    r = pl.read(table, [i])
    task:
        z[r : r + 1, :] = x[i : i + 1, :]
"""

ADDED = """
for i in pl.range(16):
    r = pl.read(table, [i])
    task:
        z[r : r + 1, :] = pl.add(z[r : r + 1, :], x[i : i + 1, :])
"""

ADDED_ONCE = """
for i in pl.range(16):
    r = pl.read(table, [i])
    task:
        zeros = pl.full([1, 64], dtype=pl.FP32, value=0.0)
        z[r : r + 1, :] = pl.add(zeros, x[i : i + 1, :])
"""

THROUGH_MEMORY = """
t = pl.create_tensor([16, 64], pl.FP32)
for r in pl.range(pl.read(n, [0])):
    task:
        t[r : r + 1, :] = pl.exp(x[r : r + 1, :])
        z[r : r + 1, :] = pl.neg(t[r : r + 1, :])
"""

ON_CHIP = """
for r in pl.range(pl.read(n, [0])):
    task:
        z[r : r + 1, :] = pl.neg(pl.exp(x[r : r + 1, :]))
"""

COLUMNS_FIRST = """
for k in pl.range(0, 64, 16):
    for r in pl.range(0, 16, 8):
        task:
            z[r : r + 8, k : k + 16] = pl.exp(x[r : r + 8, k : k + 16])
"""

ROWS_FIRST = """
for r in pl.range(0, 16, 4):
    task:
        z[r : r + 4, :] = pl.exp(x[r : r + 4, :])
"""

TWICE = """
i = pl.read(n, [0])
task:
    z[i : i + 1, :] = x[i * 2 : i * 2 + 1, :]
"""

HANDED_ON = """
t = pl.create_tensor([16, 64], pl.FP32)
u = pl.create_tensor([16, 64], pl.FP32)
for r in pl.range(pl.read(n, [0])):
    task:
        z[0:16, :] = t[0:16, :]
        t[0:16, :] = x[0:16, :]
        u[0:16, :] = x[16:32, :]
"""

READ_BEFORE = """
i = pl.read(n, [0])
task:
    z[0:1, :] = pl.neg(z[0:1, :])
    row = x[i : i + 1, :]
    z[0:1, :] = pl.maximum(row, row)
    z[0:1, :] = pl.neg(x[0:1, :])
"""

NOT_READ = """
task:
    z[0:1, :] = pl.neg(x[0:1, :])
"""

SUM_LEFT = """
task:
    z[0:16, :] = pl.add(pl.add(x[0:16, :], x[16:32, :]), y[0:16, :])
"""

SUM_RIGHT = """
task:
    z[0:16, :] = pl.add(x[0:16, :], pl.add(x[16:32, :], y[0:16, :]))
"""

DIFFERENCE = """
task:
    z[0:16, :] = pl.sub(x[0:16, :], x[16:32, :])
"""

STEPS = """
k = 0
for i in pl.range(pl.read(n, [0])):
    v = pl.read(table, [k])
    k = pl.min(k + 1, 15)
"""

STEPS_IN_MEMORY = """
t = pl.create_tensor([1], pl.INT32, init_value=0)
for i in pl.range(pl.read(n, [0])):
    k = pl.read(t, [0])
    v = pl.read(table, [k])
    pl.write(t, [0], pl.min(k + 1, 15))
"""

WHILE = """
i = pl.read(n, [0])
while i < 16:
    v = pl.read(table, [i])
    i = i + 1
"""

FROM_THE_SECOND_ON = """
t = pl.create_tensor([1], pl.INT32, init_value=0)
for i in pl.range(pl.read(n, [0])):
    if pl.read(t, [0]) > 0:
        task:
            z[0:16, :] = x[0:16, :]
    pl.write(t, [0], 1)
"""

CUT = """
k = pl.read(n, [0])
task:
    t = pl.load(x, [0, 0], [16, 64], valid_shapes=[k, 64], sized=False)
    z = pl.store(t, [0, 0], z)
"""

NEW_EVERY_TIME = """
t = pl.create_tensor([16, 64], pl.FP32, init_value=0.0)
u = pl.create_tensor([16, 64], pl.FP32, init_value=1.0)
for i in pl.range(pl.read(n, [0])):
    v = pl.create_tensor([16, 64], pl.FP32)
    task:
        v[0:16, :] = pl.exp(t[0:16, :])
    u = t
    t = v
task:
    z[0:16, :] = u[0:16, :]
"""

ENDLESS = """
i = pl.read(n, [0])
while i < 16:
    i = i * 1
"""

TWO_SHAPES = """
i = pl.read(table, [0])
j = pl.read(table, [1])
w = pl.reshape(z, [32, 32])
a = pl.read(z, [i, j])
b = pl.read(w, [i, j])
pl.write(z, [i, j], 1.0)
"""

WRAPPED = """
i = pl.read(n, [0])
if i + 2000000000 + 2000000000 - i > 0:
    task:
        z[0:16, :] = x[0:16, :]
"""

WIDENED = """
for j in pl.range(1):
    i = pl.read(n, [0])
    if i + i + j > 0:
        task:
            z[0:16, :] = x[0:16, :]
"""

COUNTED = """
k = pl.const(0, pl.UINT8)
for i in pl.range(pl.read(n, [0])):
    k = k + 1
task:
    z[k : k + 1, :] = x[0:1, :]
"""

CHOSEN = """
k = pl.const(0, pl.UINT8)
if pl.read(n, [0]) > 0:
    k = pl.const(7, pl.UINT8)
else:
    k = pl.const(9, pl.UINT8)
if k - 8 < 0:
    task:
        z[0:16, :] = x[0:16, :]
"""

EQUAL = {
    "a fill that is overwritten": (FILL + ALL_ROWS, ALL_ROWS),
    "a tile that is stored and loaded": (THROUGH_MEMORY, ON_CHIP),
    "loops that change places": (COLUMNS_FIRST, ROWS_FIRST),
    "an offset computed in another way": (TWICE, TWICE.replace("i * 2", "i + i")),
    "an access that is left out": (READ_BEFORE, NOT_READ),
}

DIFFERENT = {
    "a fill that a length leaves": (FILL + SOME_ROWS, SOME_ROWS),
    "a fill that a branch leaves": (FILL + ROWS_IF, ROWS_IF),
    "a fill that a table leaves": (FILL + ROWS_OF_A_TABLE, ROWS_OF_A_TABLE),
    "rows that a table may repeat": (FILL + ADDED, FILL + ADDED_ONCE),
    "an access that may fail": (NOT_READ, READ_BEFORE),
    "operands that change places": (
        DIFFERENCE,
        DIFFERENCE.replace("x[0:16, :], x[16:32, :]", "x[16:32, :], x[0:16, :]"),
    ),
    "another order of a sum": (SUM_LEFT, SUM_RIGHT),
    "another state that is handed on": (HANDED_ON, HANDED_ON.replace("= t[", "= u[")),
    "a carried index that goes too far": (STEPS, STEPS.replace("pl.min(k + 1, 15)", "k + 1")),
    "a carried index that starts too far": (STEPS, STEPS.replace("k = 0", "k = 16")),
    "a stored index that goes too far": (
        STEPS_IN_MEMORY,
        STEPS_IN_MEMORY.replace("pl.min(k + 1, 15)", "k + 1"),
    ),
    "a condition that holds for too long": (WHILE, WHILE.replace("i < 16", "i < 32")),
    "a store that the first iteration skips": (
        FROM_THE_SECOND_ON,
        FROM_THE_SECOND_ON.replace("x[0:16", "x[16:32"),
    ),
    "a size that may be negative": (CUT, CUT.replace("sized=False", "sized=True")),
    "a tensor of another iteration": (NEW_EVERY_TIME, NEW_EVERY_TIME.replace("= u[", "= t[")),
    "a loop that may not end": ("i = pl.read(n, [0])\n", ENDLESS),
    "a step that may be 0": (
        "i = pl.read(n, [0])\n",
        "for r in pl.range(0, 9, pl.read(n, [0])):\n    task:\n        z[0:1, :] = z[0:1, :]\n",
    ),
    "an element of another shape": (TWO_SHAPES, TWO_SHAPES.replace("write(z", "write(w")),
    "a sum that wraps": (WRAPPED, "task:\n    z[0:16, :] = x[0:16, :]\n"),
    "a sum in a wider type": (WIDENED, WIDENED.replace("i + i + j", "i + j + i")),
    "a carried index of another type": (COUNTED, COUNTED.replace("UINT8", "INT64")),
    "a chosen number of another type": (CHOSEN, CHOSEN.replace("UINT8", "INT64")),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_equal(pair: tuple[str, str]) -> None:
    before, after = map(program, pair)
    assert prove_equal(before, after).why == ""


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_different(pair: tuple[str, str]) -> None:
    before, after = map(program, pair)
    assert prove_equal(before, before).holds
    assert prove_equal(after, after).holds
    assert not prove_equal(before, after).holds


def test_sums_in_another_order_are_equal_but_for_rounding() -> None:
    assert prove_equal(program(SUM_LEFT), program(SUM_RIGHT), rounding=True).holds
    swapped = map(program, DIFFERENT["operands that change places"])
    assert not prove_equal(*swapped, rounding=True).holds


def test_products_do_not_distribute_over_sums_of_infinities() -> None:
    """(2 - 1) * inf is infinite, but 2 * inf - 1 * inf is not a number."""
    factored = """
    task:
        z[0:16, :] = pl.matmul(pl.add(x[0:16, :], x[16:32, :]), y[:, :])
    """
    distributed = """
    task:
        z[0:16, :] = pl.add(pl.matmul(x[0:16, :], y[:, :]), pl.matmul(x[16:32, :], y[:, :]))
    """
    assert prove_equal(program(factored), program(factored), rounding=True).holds
    assert not prove_equal(program(factored), program(distributed), rounding=True).holds


def test_an_infinity_is_not_a_rounding_of_nan() -> None:
    old = {"z": np.array([1.0, np.inf, np.nan], np.float32)}
    assert difference([[old]], [[{"z": old["z"].copy()}]], rounding=True) == ""
    for other in ([1.0, np.nan, np.nan], [1.0, -np.inf, np.nan]):
        new = {"z": np.array(other, np.float32)}
        assert "more than rounding" in difference([[old]], [[new]], rounding=True)


def test_a_product_is_split_but_for_rounding() -> None:
    whole = program("task:\n    z[0:16, :] = pl.matmul(x[0:16, :], y[0:64, :])\n")
    split = """
    task:
        t = pl.matmul(x[0:16, 0:32], y[0:32, :])
        z[0:16, :] = pl.matmul_acc(t, x[0:16, 32:64], y[32:64, :])
    """
    assert prove_equal(whole, program(split), rounding=True).holds
    assert not prove_equal(whole, program(split)).holds
    wrong = program(split.replace("y[32:64, :]", "y[0:32, :]"))
    assert not prove_equal(whole, wrong, rounding=True).holds


@pytest.mark.parametrize("row", ["r - 1", "r + 16"])
def test_an_element_outside_of_a_tile_is_not_modelled(row: str) -> None:
    text = """
    task:
        t = pl.exp(x[0:16, :])
        for r in pl.range(1):
            z[0:1, :] = pl.mul(x[0:1, :], pl.read(t, [r + 15, 0]))
    """
    wrong = program(text.replace("r + 15", row))
    assert "outside of a tile" in prove_equal(program(text), wrong).why


RETURNS = """\
import tilelet.language as pl

@pl.program
class Kernel:
    @pl.function
    def main(
        self,
        a: pl.InOut[pl.Tensor[[16, 64], pl.FP32]],
        b: pl.Tensor[[16, 64], pl.FP32],
    ):
        t = pl.create_tensor([32, 64], pl.FP32, init_value=0.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            a[0:16, :] = b[0:16, :]
        return a, b, t
"""


@pytest.mark.parametrize(
    "change",
    [
        ("return a, b, t", "return b, a, t"),
        ("return a, b, t", "return a, b, t[0:16, :]"),
        ("return a, b, t", "return a, b, pl.reshape(t, [64, 32])"),
        ("[32, 64], pl.FP32, init", "[32, 64], pl.INT32, init"),
        ("Tensor[[16, 64], pl.FP32]", "Tensor[[16, 64], pl.INT32]"),
        ("Tensor[[16, 64], pl.FP32]", "Tensor[[16, 32, 2], pl.FP32]"),
    ],
    ids=["order", "window", "shape", "dtype", "parameter dtype", "parameter shape"],
)
def test_parameters_and_results_are_compared(change: tuple[str, str]) -> None:
    text = RETURNS.replace(*change)
    if "[16, 32, 2]" in text:
        text = text.replace("[0:16, :] = b[0:16, :]", "[0:16, :, :] = b[0:16, :, :]")
    before, after = lowered(parse(RETURNS)), lowered(parse(text))
    assert prove_equal(after, after).holds
    assert prove_equal(before, after).why == "it has other parameters or results"


@pytest.mark.parametrize(
    "value",
    [
        "pl.sub(y[0:16, :], y[0:16, :])",
        "pl.matmul(pl.full([16, 64], dtype=pl.FP32, value=0.0), y[0:64, :])",
    ],
    ids=["difference", "product"],
)
def test_infinities_do_not_cancel(value: str) -> None:
    zero = program("task:\n    z[0:16, :] = pl.full([16, 64], dtype=pl.FP32, value=0.0)\n")
    assert not prove_equal(zero, program(f"task:\n    z[0:16, :] = {value}\n"), rounding=True).holds


def test_what_takes_too_much_work_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "MAX_WORK", 1000)
    fills = program(FILL)
    assert "symbolic elements" in prove_equal(fills, fills).why


DECISIONS = {
    "a branch": "if pl.read(s, [0, 0]) > 0.0:\n    task:\n        z[0:16, :] = x[0:16, :]\n",
    "a comparison": "task:\n    z[0:16, :] = pl.cast(pl.cmps(s, 0.0, cmp_type=4), pl.FP32)\n",
    "a cast": "task:\n    z[0:16, :] = pl.cast(pl.cast(s[0:16, :], pl.INT32), pl.FP32)\n",
    "a remainder": "task:\n    z[0:16, :] = pl.fmods(s[0:16, :], 1.0)\n",
}


@pytest.mark.parametrize("then", DECISIONS.values(), ids=DECISIONS)
def test_what_rounding_may_flip_is_proved_bit_for_bit_only(then: str) -> None:
    start = "s = pl.create_tensor([16, 64], dtype=pl.FP32)\n"
    sums = [text.replace("z[0:16, :]", "s[0:16, :]") for text in (SUM_LEFT, SUM_RIGHT)]
    left, right = (program(start, text, then) for text in sums)
    assert prove_equal(left, left, rounding=True).holds
    assert not prove_equal(left, right, rounding=True).holds


GUARDED = """
count = pl.read(n, [0])
for first in pl.range(0, count, 3):
    task:
        for k in pl.range(3):
            r = first + k
            if r < count:
                z[r % 16 : r % 16 + 1, :] = x[r % 32 : r % 32 + 1, :]
"""

BOUNDED = """
count = pl.read(n, [0])
for first in pl.range(0, count, 3):
    task:
        for r in pl.range(first, pl.min(first + 3, count)):
            z[r % 16 : r % 16 + 1, :] = x[r % 32 : r % 32 + 1, :]
"""


def test_a_part_of_a_loop_is_bounded_or_guarded() -> None:
    guarded = program(GUARDED)
    assert prove_equal(guarded, program(BOUNDED)).holds
    assert prove_equal(
        guarded, program(BOUNDED.replace("first + 3, count", "count, first + 3"))
    ).holds
    for change in ("first + 2, count", "first + 4, count", "first + 3, count + 1", "count, count"):
        assert not prove_equal(
            guarded, program(BOUNDED.replace("first + 3, count", change))
        ).holds, change
    assert not prove_equal(guarded, program(BOUNDED.replace("(first, ", "(first + 1, "))).holds
