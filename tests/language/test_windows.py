"""Windows as the first versions of the language stated them, run on every engine."""

from __future__ import annotations

import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.everywhere import run
from tests.kernels import lowered, task_counts

import tilelet.language as pl
from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag.core import UserError, UserErrors
from tilelet.interp.interpreter import Interpreter
from tilelet.runtime import TensorSpec
from tilelet.runtime import run as run_case

X = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) / 8 - 10

# --- sizes known at run time ----------------------------------------------------------------------

SIZES = {
    "smallest": "pl.min(n, 12)",
    "of a remainder": "n % 13",
    "of a sum": "pl.min(n, 5) + pl.max(pl.min(n - 5, 3), 0)",
    "of a quotient": "pl.min(n * 3, 24) // 3",
    "of a product": "pl.min(n, 4) * 2",
    "after a cast": "pl.cast(pl.min(n, 10), pl.INDEX)",
    "of the tensor": "n",
}
STARTS = {"constant": "4", "computed": "r"}
FORMS = {
    "slice": "pl.slice(x, [size, 16], [start, 0])",
    "load": "pl.load(x, [start, 0], [size, 16])",
    "subscript": "x[start : start + size, :]",
    "view": "view",
    "load of a view": "pl.load(view, [0, 0], [size, 16])",
    "part of a view": "pl.slice(view, [size, 8], [0, 4])",
}
PROGRAM = """
import tilelet.language as pl

@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[32, 16], pl.FP32],
        n: pl.Scalar[pl.INDEX],
        r: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[32, 16], pl.FP32]],
        sums: pl.Out[pl.Tensor[[32, 1], pl.FP32]],
    ):
        size = {size}
        start = {start}
        view = pl.slice(x, [size, 16], [start, 0])
        with pl.at(level=pl.Level.CORE_GROUP):
            tile = pl.add({form}, 1.0)
            out = pl.assemble(out, tile, [start, 0])
            sums = pl.assemble(sums, pl.row_sum(tile), [start, 0])
        return out, sums
"""


def expected(size: str, start: str, form: str, n: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    out, sums = np.zeros((32, 16), np.float32), np.zeros((32, 1), np.float32)
    numbers = {"n": n, "r": r, "pl": _Numbers}
    at, rows = eval(start, numbers), eval(size, numbers)
    columns = slice(4, 12) if form == "part of a view" else slice(0, 16)
    window = X[at : at + rows, columns] + 1
    out[at : at + rows, : window.shape[1]] = window
    sums[at : at + rows] = window.sum(1, keepdims=True)
    return out, sums


class _Numbers:
    min, max, INDEX = min, max, None

    @staticmethod
    def cast(number: int, _: object) -> int:
        return number


BOUNDED = [size for size in SIZES if size != "of the tensor"]
CASES = [
    *((form, BOUNDED[i], "constant") for i, form in enumerate(FORMS)),
    *((form, BOUNDED[-1 - i], "computed") for i, form in enumerate(FORMS)),
    *((form, "of the tensor", "computed") for form in ("slice", "load", "subscript")),
]


@pytest.mark.parametrize(("form", "size", "start"), CASES)
def test_a_tile_has_the_largest_size_and_so_much_is_valid(form: str, size: str, start: str) -> None:
    program = pl.parse(PROGRAM.format(size=SIZES[size], start=STARTS[start], form=FORMS[form]))
    for n, r in ((6, 3), (8, 24)):
        out, sums = expected(SIZES[size], STARTS[start], form, n, r)
        zeros = {"out": np.zeros_like(out), "sums": np.zeros_like(sums)}
        given = run(program, x=X, n=n, r=r, **zeros)
        np.testing.assert_array_equal(given["out"], out)
        np.testing.assert_allclose(given["sums"], sums, rtol=1e-6)


def test_a_size_without_a_bound_is_an_error() -> None:
    text = PROGRAM.format(size="n", start="r", form="view")
    with pytest.raises(UserErrors, match="not constant in axis 0"):
        pl.parse(text)


def test_a_window_past_the_end_is_an_error() -> None:
    program = pl.parse(PROGRAM.format(size="pl.min(n, 12)", start="r", form=FORMS["load"]))
    zeros = {"out": np.zeros((32, 16), np.float32), "sums": np.zeros((32, 1), np.float32)}
    with pytest.raises(Exception, match="window 28:34 is outside axis 0"):
        run(program, x=X, n=6, r=28, **zeros)


@pytest.mark.parametrize("form", ["slice", "load", "subscript", "of a tile"])
@pytest.mark.parametrize("engine", [CpuEngine, Interpreter])
def test_no_window_has_a_negative_size(engine: Any, form: str) -> None:
    text = FORMS.get(form, "pl.slice(pl.load(x, [0, 0], [16, 16]), [size, 16], [0, 0])")
    unseen = "        view = pl.slice(x, [size, 16], [start, 0])\n"
    text = PROGRAM.replace(unseen, "").format(size="pl.min(n, 12)", start="r", form=text)
    program = lowered(pl.parse(text))
    for n in (0, -3):
        out, sums = np.zeros((32, 16), np.float32), np.zeros((32, 1), np.float32)
        arguments = {"x": X, "n": n, "r": 2, "out": out, "sums": sums}
        if n == 0:
            engine().run(program, arguments)
            assert not out.any()
            continue
        with pytest.raises(
            UserError, match="valid extent -3 does not fit a tile of extent 12"
        ) as found:
            engine().run(program, arguments)
        assert "`pl.max(size, 0)`" in found.value.diagnostic.helps[0]


def test_jit_functions_state_a_region() -> None:
    @pl.jit
    def kernel(x: pl.Tensor, n: pl.Scalar[pl.INDEX], out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.slice(x, [pl.min(n, 12), 16], [0, 0]), [0, 0])
        return out

    with pytest.raises(UserErrors, match="not constant in axis 0"):
        kernel(X, 3, np.zeros_like(X))


# --- transposing loads ----------------------------------------------------------------------------

Q = np.arange(16 * 16, dtype=np.float32).reshape(16, 16) % 7 - 3
KEYS = np.arange(64 * 16, dtype=np.float32).reshape(64, 16) % 5 - 2
PRODUCT = """
import tilelet.language as pl

@pl.program
class Program:
    @pl.function(type=pl.FunctionType.InCore)
    def product(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[64, 16], pl.FP32],
        row: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[16, {width}], pl.FP32]],
    ) -> pl.Tensor[[16, {width}], pl.FP32]:
        left = pl.load(q, [0, 0], [16, 16], target_memory=pl.Mem.Mat)
        right = pl.load({window}, target_memory=pl.Mem.Mat, transpose=True)
        acc = pl.matmul(pl.move(left, pl.Mem.Left), pl.move(right, pl.Mem.Right))
        return pl.store(acc, [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[64, 16], pl.FP32],
        row: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[16, {width}], pl.FP32]],
    ) -> pl.Tensor[[16, {width}], pl.FP32]:
        return self.product(q, keys, row, out)
"""
WINDOWS = {
    "of the tensor": ("keys, [row, 0], [32, 16]", 32),
    "too wide for the tensor": ("keys, [0, 0], [16, 32]", 32),
    "moves along a whole axis": ("keys, [0, row], [16, 16]", 16),
    "decided by the product": ("keys, [0, row], [16, 8]", 8),
    "at a place of the tensor": ("keys, [row, 0], [16, 8]", 8),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_the_window_of_a_transposing_load(window: str) -> None:
    text, width = WINDOWS[window]
    program = pl.parse(PRODUCT.format(window=text, width=width))
    noted = any("offsets and shapes" in c.message for c in program.cautions)
    assert noted == (window != "of the tensor")
    row = 24 if "row" in text else 0
    given = run(program, q=Q, keys=KEYS, row=row, out=np.zeros((16, width), np.float32))["out"]
    np.testing.assert_array_equal(given, Q @ KEYS[row : row + width].T)


def test_a_product_that_fits_neither_way_is_reported_as_it_reads_today() -> None:
    with pytest.raises(UserErrors, match="needs equal inner dimensions, got 16 and 12"):
        pl.parse(PRODUCT.format(window="keys, [0, row], [4, 12]", width=4))


# --- windows of a tensor with its axes swapped ----------------------------------------------------

WIDE = np.arange(64 * 96, dtype=np.float32).reshape(64, 96) % 7 - 3
SWAPPED = """
import tilelet.language as pl

ROWS = pl.dynamic("ROWS")
COLUMNS = pl.dynamic("COLUMNS")

@pl.program
class Program:
    @pl.function(type=pl.FunctionType.InCore)
    def kernel(
        self,
        x: pl.Tensor[[{extents}], pl.FP32],
        r: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[32, 48], pl.FP32]],
    ) -> pl.Tensor[[32, 48], pl.FP32]:
        swapped = pl.transpose(x, -2, -1)
        tile = {window}
        return pl.store(pl.move(tile, pl.Mem.Vec), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        x: pl.Tensor[[64, 96], pl.FP32],
        r: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[32, 48], pl.FP32]],
    ) -> pl.Tensor[[32, 48], pl.FP32]:
        return self.kernel(x, r, out)
"""
OF_SWAPPED = {
    "to Mat": "pl.load(swapped, [r, 8], [32, 48], target_memory=pl.Mem.Mat)",
    "to Vec": "pl.load(swapped, [r, 8], [32, 48])",
    "slice": "pl.slice(swapped, [32, 48], [r, 8])",
    "subscript": "swapped[r : r + 32, 8:56]",
    "of a part": "pl.slice(swapped, [48, 48], [r, 8], valid_shape=[40, 48])[0:32, :]",
}


@pytest.mark.parametrize("extents", ["64, 96", "ROWS, COLUMNS"])
@pytest.mark.parametrize("window", OF_SWAPPED)
def test_only_the_window_of_a_swapped_tensor_is_loaded(window: str, extents: str) -> None:
    program = pl.parse(SWAPPED.format(extents=extents, window=OF_SWAPPED[window]))
    given = run(program, x=WIDE, r=50, out=np.zeros((32, 48), np.float32))["out"]
    np.testing.assert_array_equal(given, WIDE[8:56, 50:82].T)
    loads = [
        op for op in lowered(program).functions["kernel"].body.ops if op.name in ("load", "slice")
    ]
    whole = [op for op in loads if 64 in (op.args.get("shape") or op.args.get("shapes") or ())]
    assert loads
    assert not whole


def test_elements_and_extents_of_a_swapped_tensor() -> None:
    window = "pl.add(pl.load(x, [0, 0], [32, 48]), pl.read(swapped, [r, 3]))"
    for extents in ("64, 96", "ROWS, COLUMNS"):
        program = pl.parse(SWAPPED.format(extents=extents, window=window))
        given = run(program, x=WIDE, r=70, out=np.zeros((32, 48), np.float32))["out"]
        np.testing.assert_array_equal(given, WIDE[:32, :48] + WIDE[3, 70])


def test_what_was_swapped_before_a_write_is_what_was_there() -> None:
    @pl.program
    class Written:
        @pl.function(type=pl.FunctionType.InCore)
        def kernel(self, x: pl.InOut[pl.Tensor[[16, 16], pl.FP32]]) -> pl.Tensor[[16, 16], pl.FP32]:
            swapped = pl.transpose(x, 0, 1)
            x = pl.store(pl.full([16, 16], dtype=pl.FP32, value=7.0), [0, 0], x)
            return pl.store(pl.slice(swapped, [8, 16], [4, 0]), [0, 0], x)

        @pl.function(type=pl.FunctionType.Orchestration)
        def main(self, x: pl.InOut[pl.Tensor[[16, 16], pl.FP32]]) -> pl.Tensor[[16, 16], pl.FP32]:
            return self.kernel(x)

    square = WIDE[:16, :16].copy()
    wanted = np.full_like(square, 7)
    wanted[:8] = square.T[4:12]
    np.testing.assert_array_equal(run(Written, x=square)["x"], wanted)


OVERTAKEN = """
import tilelet.language as pl

@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.InOut[pl.Tensor[[16, 16], pl.FP32]],
        out: pl.Out[pl.Tensor[[8, 8], pl.FP32]],
    ):
        part = pl.slice(x, [8, 16], [4, 0])
        with pl.at(level=pl.Level.CORE_GROUP):
            swapped = pl.transpose({of}, 0, 1)
{body}
        return x, out
"""
ADDED = "{0}[0:8, 0:8] = pl.add({0}[0:8, 0:8], 1.0)"
OVERTAKING = {
    "a loop": f"""
for i in pl.range(3):
    out[:] = swapped[0:8, 0:8]
    {ADDED}""",
    "a loop after another": f"""
for i in pl.range(3):
    for j in pl.range(2):
        out[4 * j : 4 * j + 4, :] = swapped[4 * j : 4 * j + 4, 0:8]
    {ADDED}""",
    "a condition": f"""
i = 0
while i < 3:
    out[:] = swapped[0:8, 0:8]
    {ADDED}
    i = i + 1""",
    "nothing": f"""
{ADDED}
out[:] = swapped[0:8, 0:8]""",
}


@pytest.mark.parametrize(("of", "written"), [("x", "x"), ("x", "part"), ("part", "x")])
@pytest.mark.parametrize("around", OVERTAKING)
def test_what_was_swapped_before_a_write_elsewhere(around: str, of: str, written: str) -> None:
    """The write is in a later iteration, or uses another name."""
    body = textwrap.indent(OVERTAKING[around].format(written).strip("\n"), " " * 12)
    arrays = {"x": WIDE[:16, :16].copy(), "out": np.zeros((8, 8), np.float32)}
    start = arrays["x"] if of == "x" else arrays["x"][4:]
    wanted = start[:8, :8].T.copy()
    program = pl.parse(OVERTAKEN.format(of=of, body=body))
    np.testing.assert_array_equal(run(program, **arrays)["out"], wanted)


# --- windows as four numbers ----------------------------------------------------------------------


@pl.program
class FourNumbers:
    @pl.function(type=pl.FunctionType.InCore)
    def moved(
        self,
        x: pl.Tensor[[32, 16], pl.FP32],
        row: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[32, 16], pl.FP32]],
    ) -> pl.Tensor[[32, 16], pl.FP32]:
        tile: pl.Tile[[8, 16], pl.FP32] = pl.op.block.load(x, row, 0, 8, 16)
        pl.op.block.l0c_store(tile, 0, 0, 8, 16, out)
        again = pl.op.block.load(x, row + 8, 0, 8, 16, target_memory=1)
        out = pl.store(pl.block.view(again, [8, 8], [0, 8]), 8, 0, 8, 8, out)
        return out

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        x: pl.Tensor[[32, 16], pl.FP32],
        row: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[32, 16], pl.FP32]],
    ) -> pl.Tensor[[32, 16], pl.FP32]:
        for _ in pl.parallel(0, 2, 1, chunk=2):  # not truncated by these programs
            out = self.moved(x, row, out)
        return out


def test_rows_columns_height_and_width() -> None:
    wanted = np.zeros_like(X)
    wanted[:8], wanted[8:16, :8] = X[4:12], X[12:20, 8:]
    given = run(FourNumbers, x=X, row=4, out=np.zeros_like(X))["out"]
    np.testing.assert_array_equal(given, wanted)
    assert any("`chunk=` has no effect" in c.message for c in FourNumbers.cautions)


def test_spaces_by_number() -> None:
    text = PRODUCT.format(window=WINDOWS["of the tensor"][0], width=32)
    old = text.replace("target_memory=pl.Mem.Mat", "target_memory=2")
    old = old.replace("pl.Mem.Left", "3").replace("pl.Mem.Right", "4")
    assert pl.parse(old).as_python() == pl.parse(text).as_python()


# --- memory made for another type -----------------------------------------------------------------


@pl.program
class MadeForAnotherType:
    @pl.function(type=pl.FunctionType.InCore)
    def narrowed(
        self, x: pl.Tensor[[32, 16], pl.FP32], out: pl.Out[pl.Tensor[[32, 16], pl.BF16]]
    ) -> pl.Tensor[[32, 16], pl.BF16]:
        return pl.store(pl.cast(pl.load(x, [0, 0], [32, 16]), pl.BF16, mode="rint"), [0, 0], out)

    @pl.function(type=pl.FunctionType.InCore)
    def widened(
        self, x: pl.Tensor[[32, 16], pl.BF16], out: pl.Out[pl.Tensor[[32, 16], pl.FP32]]
    ) -> pl.Tensor[[32, 16], pl.FP32]:
        return pl.store(pl.cast(pl.load(x, [0, 0], [32, 16]), pl.FP32), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[32, 16], pl.FP32], out: pl.Out[pl.Tensor[[32, 16], pl.FP32]]
    ) -> pl.Tensor[[32, 16], pl.FP32]:
        between = pl.create_tensor([32, 16], dtype=pl.FP16)
        between = self.narrowed(x, between)
        return self.widened(between, out)


def test_new_memory_is_of_the_type_that_is_written() -> None:
    given = run(MadeForAnotherType, x=X, out=np.zeros_like(X))["out"]
    np.testing.assert_array_equal(given, X.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert any("the type pl.FP16 of `between`" in c.message for c in MadeForAnotherType.cautions)


def test_memory_that_holds_something_has_its_type() -> None:
    with pytest.raises(UserErrors, match=r"`pl.Tensor.*FP16.*`, expected `pl.Tensor.*BF16"):

        @pl.program
        class Misread:
            @pl.function(type=pl.FunctionType.InCore)
            def kernel(
                self, x: pl.Out[pl.Tensor[[32, 16], pl.BF16]]
            ) -> pl.Tensor[[32, 16], pl.BF16]:
                return pl.store(pl.load(x, [0, 0], [32, 16]), [0, 0], x)

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(self, x: pl.Out[pl.Tensor[[32, 16], pl.FP16]]) -> pl.Tensor[[32, 16], pl.BF16]:
                return self.kernel(x)


# --- declarations of the transposed tensor --------------------------------------------------------


@pl.program
class DeclaredTransposed:
    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[16, 64], pl.FP32, pl.DN],
        rows: pl.Tensor[[1], pl.INT32],
        out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    ) -> pl.Tensor[[16, 16], pl.FP32]:
        part = pl.slice(keys, [16, 16], [pl.read(rows, [0]), 0])
        with pl.at(level=pl.Level.CORE_GROUP):
            left = pl.load(q, [0, 0], [16, 16], target_memory=pl.Mem.Mat)
            right = pl.load(part, [0, 0], [16, 16], target_memory=pl.Mem.Mat, transpose=True)
            out = pl.store(pl.matmul(left, right), [0, 0], out)
        return out


@pytest.mark.parametrize(("shape", "fits"), [((64, 16), True), ((16, 32), False)])
def test_a_column_major_tensor_is_taken_as_it_is_stored(shape: tuple[int, int], fits: bool) -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"][:] = tensors["q"] @ tensors["keys"][32:48].T

    specs = [
        TensorSpec("q", [16, 16], pl.FP32, lambda: Q),
        TensorSpec("keys", list(shape), pl.FP32, lambda: KEYS),
        TensorSpec("rows", [1], pl.INT32, 32),
        TensorSpec("out", [16, 16], pl.FP32, is_output=True),
    ]
    result = run_case(DeclaredTransposed, specs, golden)
    assert result.passed == fits, result.error
    assert fits or "E0604" in str(result.error)


@pl.program
class LoadsDeclaredTransposed:
    """The product is defined only for `keys` as stored."""

    @pl.function(type=pl.FunctionType.InCore)
    def scores(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[16, 64], pl.FP32, pl.DN],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        left = pl.load(q, [0, 0], [16, 16], target_memory=pl.Mem.Mat)
        right = pl.load(keys, [0, 0], [16, 64], target_memory=pl.Mem.Mat, transpose=True)
        return pl.store(pl.matmul(left, right), [0, 0], out)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[16, 64], pl.FP32, pl.DN],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        return self.scores(q, keys, out)


def test_kernels_take_column_major_tensors_as_they_are_stored() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"][:] = tensors["q"] @ tensors["keys"].T

    specs = [
        TensorSpec("q", [16, 16], pl.FP32, lambda: Q),
        TensorSpec("keys", [64, 16], pl.FP32, lambda: KEYS),
        TensorSpec("out", [16, 64], pl.FP32, is_output=True),
    ]
    result = run_case(LoadsDeclaredTransposed, specs, golden)
    assert result.passed, result.error


@pl.program
class GivesDeclaredTransposed:
    """Besides `keys` it takes a column that reads the same either way, and a transposed result."""

    @pl.function(type=pl.FunctionType.InCore)
    def scores(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[16, 64], pl.FP32, pl.DN],
        sums: pl.Out[pl.Tensor[[16, 1], pl.FP32, pl.DN]],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ) -> tuple[
        pl.Tensor[[16, 64], pl.FP32],
        pl.Tensor[[16, 1], pl.FP32, pl.DN],
        pl.Tensor[[16, 64], pl.FP32, pl.DN],
    ]:
        left = pl.load(q, [0, 0], [16, 16], target_memory=pl.Mem.Mat)
        right = pl.load(keys, [0, 0], [16, 64], target_memory=pl.Mem.Mat, transpose=True)
        out = pl.store(pl.matmul(left, right), [0, 0], out)
        rows = pl.load(q, [0, 0], [16, 16], target_memory=pl.Mem.Vec)
        sums = pl.store(pl.row_sum(rows), [0, 0], sums)
        return out, sums, keys

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self,
        q: pl.Tensor[[16, 16], pl.FP32],
        keys: pl.Tensor[[16, 64], pl.FP32, pl.DN],
        sums: pl.Out[pl.Tensor[[16, 1], pl.FP32]],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        out, sums, again = self.scores(q, keys, sums, out)
        return out


def test_columns_and_results_that_are_declared_column_major() -> None:
    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"][:] = tensors["q"] @ tensors["keys"].T
        tensors["sums"][:] = tensors["q"].sum(1, keepdims=True)

    specs = [
        TensorSpec("q", [16, 16], pl.FP32, lambda: Q),
        TensorSpec("keys", [64, 16], pl.FP32, lambda: KEYS),
        TensorSpec("sums", [16, 1], pl.FP32, is_output=True),
        TensorSpec("out", [16, 64], pl.FP32, is_output=True),
    ]
    result = run_case(GivesDeclaredTransposed, specs, golden)
    assert result.passed, result.error


def test_mistakes_beside_a_column_major_tensor_are_told_as_the_text_reads() -> None:
    with pytest.raises(UserErrors, match="E0313"):

        @pl.program
        class Unequal:  # pyright: ignore[reportUnusedClass]
            @pl.function(type=pl.FunctionType.Orchestration)
            def main(
                self,
                q: pl.Tensor[[16, 32], pl.FP32],
                keys: pl.Tensor[[16, 64], pl.FP32, pl.DN],
                out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
            ) -> pl.Tensor[[16, 64], pl.FP32]:
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.matmul(q, keys), [0, 0])
                return out


@pl.program
class ComputesInChunks:
    @pl.function(type=pl.FunctionType.Orchestration)
    def main(
        self, x: pl.Tensor[[32, 16], pl.FP32], out: pl.Out[pl.Tensor[[32, 16], pl.FP32]]
    ) -> pl.Tensor[[32, 16], pl.FP32]:
        for row in pl.parallel(0, 32, 1, chunk=8):
            tile = pl.load(x, [row, 0], [1, 16])
            out = pl.store(pl.add(tile, 1.0), [row, 0], out)
        return out


def test_a_chunk_loop_that_computes_gets_a_scope() -> None:
    counts = task_counts(ComputesInChunks, {"x": X, "out": np.zeros_like(X)})
    assert list(counts.values()) == [4]
    np.testing.assert_array_equal(run(ComputesInChunks, x=X, out=np.zeros_like(X))["out"], X + 1)
