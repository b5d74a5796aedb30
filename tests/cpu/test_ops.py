"""Every op on every element type, with fully and partially valid tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import agree_lowered, numbers
from tests.interp.build import Build, index, tensor

from tilelet import dtypes
from tilelet.dtypes import BF16, FP8E4M3FN, FP8E5M2, FP16, FP32, INT8, INT32, DType
from tilelet.ir.core import Value
from tilelet.ir.types import TileType
from tilelet.numerics import MODES
from tilelet.passes.pipeline import run_passes

pytestmark = pytest.mark.usefixtures("compile_quickly")

M, N = 5, 19
FULL, PARTIAL = (M, N), (M - 2, N - 6)
FLOATS = [FP32, BF16, FP16]
INTS = [d for d in dtypes.ALL if d.kind in ("int", "uint")]
NUMBERS = FLOATS + INTS

Make = Callable[..., Any]


class Cases:
    """Many ops in one program, each in a task that loads its operands and stores its result.

    The program is compiled once and runs with each of the `valid` extents.
    """

    def __init__(self, *valid: tuple[int, int]) -> None:
        self.b = Build()
        self.arguments: dict[str, Any] = {}
        self.rows = self.b.param("rows", index())
        self.columns = self.b.param("columns", index())
        self._valid = valid
        self._inputs: dict[str, Value] = {}
        self._count = 0

    def given(self, name: str, array: np.ndarray) -> Value:
        if name not in self._inputs:
            dtype = dtypes.from_numpy(array.dtype)
            self._inputs[name] = self.b.param(name, tensor(array.shape, dtype))
            self.arguments[name] = array
        return self._inputs[name]

    def load(self, s: Build, x: Value) -> Value:
        """The tensor as a tile; axes of extent M or N are valid in `rows` or `columns`."""
        limits = [{M: self.rows, N: self.columns}.get(d, d) for d in x.type.shape]  # type: ignore[union-attr]
        zero = [0] * len(limits)
        return s.window(x, x.type.shape, zero, valid_shape=limits)  # type: ignore[union-attr]

    def add(self, op: str, operands: dict[str, Value], **rest: Any) -> None:
        """One task with one op."""
        self.task(lambda s, **tiles: s.op(op, **tiles, **rest), operands, op)

    def task(self, body: Make, operands: dict[str, Value], hint: str) -> None:
        probe = Build(in_scope=True)
        results = body(probe, **{n: self.load(probe, v) for n, v in operands.items()})
        results = results if isinstance(results, tuple) else (results,)
        made: list[TileType] = [r.type for r in results]
        outs = []
        for t in made:
            self._count += 1
            array = numbers(t.dtype, *t.shape, seed=99, special=False)
            outs.append(self.given(f"out{self._count}_{hint}", array))

        def inside(s: Build) -> list[Value]:
            found = body(s, **{n: self.load(s, v) for n, v in operands.items()})
            found = found if isinstance(found, tuple) else (found,)
            return [s.put(o, f, [0] * len(f.type.shape)) for o, f in zip(outs, found)]

        self.b.scope(inside, hint=hint.replace(".", "_"))

    def runs(self) -> list[dict[str, Any]]:
        """Return the arguments of each run."""
        return [self.arguments | {"rows": r, "columns": c} for r, c in self._valid]

    def check(self, ulp: int = 0) -> None:
        lowered = run_passes(self.b.program())
        for arguments in self.runs():
            agree_lowered(lowered, arguments, ulp)


@pytest.fixture
def cases() -> Cases:
    return Cases(FULL, PARTIAL)


BINARY = ["add", "sub", "mul", "div", "rem", "fmod", "maximum", "minimum"]
BITWISE = ["and_", "or_", "xor"]
SHIFTS = ["shl", "shr"]


def _pair(cases: Cases, dtype: DType) -> tuple[Value, Value, Value, Value]:
    a = cases.given("a", numbers(dtype, M, N, seed=1))
    b = cases.given("b", numbers(dtype, M, N, seed=2))
    row = cases.given("row", numbers(dtype, M, 1, seed=3))
    col = cases.given("col", numbers(dtype, 1, N, seed=4))
    return a, b, row, col


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_binary(cases: Cases, dtype: DType) -> None:
    a, b, row, col = _pair(cases, dtype)
    names = BINARY + (BITWISE + SHIFTS if dtype.is_integer else [])
    for name in names:
        cases.add(name, {"lhs": a, "rhs": b})
        cases.add(name, {"lhs": a, "rhs": row})
        cases.add(name, {"lhs": col, "rhs": a})
        cases.add(name, {"lhs": a}, rhs=3)
    for name in ("adds", "subs", "muls", "divs", "rems", "fmods", "maxs", "mins", "maximums"):
        cases.add(name, {"lhs": a}, rhs=2)
    cases.check()


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_unary(cases: Cases, dtype: DType) -> None:
    a, *_ = _pair(cases, dtype)
    for name in ("neg", "abs", "relu", "sqrt", "rsqrt", "recip"):
        cases.add(name, {"x": a})
    if dtype.is_integer:
        cases.add("not_", {"x": a})
    else:
        b = cases.given("b", numbers(dtype, M, N, seed=2))
        cases.add("lrelu", {"x": a}, slope=0.1)
        cases.add("prelu", {"x": a, "slope": b})
    cases.check()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_transcendental(cases: Cases, dtype: DType) -> None:
    a, *_ = _pair(cases, dtype)
    for name in ("exp", "log", "sin", "cos"):
        cases.add(name, {"x": a})
    # Two units of FP32 are at most one of a narrower type.
    cases.check(ulp=2 if dtype is FP32 else 1)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_expand(cases: Cases, dtype: DType) -> None:
    a, _, row, col = _pair(cases, dtype)
    for name in ("add", "sub", "mul", "div", "max", "min"):
        cases.add(f"row_expand_{name}", {"x": a, "row_vec": row})
        cases.add(f"col_expand_{name}", {"x": a, "col_vec": col})
    cases.add("row_expand", {"target": a, "row_vec": row})
    cases.add("row_expand", {"target": a})
    cases.add("col_expand", {"target": a, "col_vec": col})
    cases.add("expand_clone", {"src": row, "target": a})
    cases.add("expands", {"target": a}, scalar=5)
    cases.check()


@pytest.mark.parametrize("dtype", [*NUMBERS, dtypes.BOOL], ids=str)
def test_comparison_and_selection(cases: Cases, dtype: DType) -> None:
    a, b, row, _ = _pair(cases, dtype)
    for kind in range(6):
        cases.add("cmp", {"lhs": a, "rhs": b}, cmp_type=kind)
        cases.add("cmp", {"lhs": a, "rhs": row}, cmp_type=kind)
    cases.add("sel", {"mask": a, "lhs": a, "rhs": b})
    cases.add("sels", {"mask": b, "x": a}, tmp=None, scalar=1)
    cases.check()


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_three_operands_and_parts(cases: Cases, dtype: DType) -> None:
    a, b, *_ = _pair(cases, dtype)
    c = cases.given("c", numbers(dtype, M, N, seed=5))
    cases.add("addc", {"lhs": a, "rhs": b, "rhs2": c})
    cases.add("subc", {"lhs": a, "rhs": b, "rhs2": c})
    cases.add("addsc", {"lhs": a, "rhs2": c}, rhs=2)
    cases.add("subsc", {"lhs": a, "rhs2": c}, rhs=2)
    for name in ("part_add", "part_mul", "part_max", "part_min"):
        cases.add(name, {"lhs": a, "rhs": b})
    cases.check()


def test_mixed_types(cases: Cases) -> None:
    kinds = [FP32, BF16, INT32, dtypes.UINT8, dtypes.INT64, dtypes.UINT32]
    given = [cases.given(f"x{d.name}", numbers(d, M, N, seed=i)) for i, d in enumerate(kinds)]
    for a in given:
        for b in given:
            cases.add("add", {"lhs": a, "rhs": b})
    cases.check()


@pytest.mark.parametrize(
    "source", [d for d in dtypes.ALL if d.kind not in ("index", "task")], ids=str
)
def test_casts(source: DType) -> None:
    cases = Cases(FULL)
    array = numbers(source, M, N, seed=1, scale=200.0)
    x = cases.given("x", array)
    for target in dtypes.ALL:
        if target.kind not in ("index", "task"):
            for mode in MODES:
                cases.add("cast", {"x": x}, target_type=target, mode=mode)
    cases.check()


@pytest.mark.parametrize("dtype", [BF16, FP16, FP8E4M3FN, FP8E5M2], ids=str)
def test_every_pattern_of_a_narrow_float(dtype: DType) -> None:
    """Widen all bit patterns, narrow them again in every mode, and convert them to integers."""
    cases = Cases(FULL)
    kind = f"u{dtype.itemsize}"
    count = 1 << dtype.bits
    every = np.arange(count, dtype=kind).view(dtype.numpy).reshape(count // 256, 256)
    x = cases.given("x", every)
    for mode in MODES:
        for target in (FP32, FP8E4M3FN, FP8E5M2, BF16, FP16, INT8, dtypes.UINT16, INT32):
            cases.add("cast", {"x": x}, target_type=target, mode=mode)
    cases.check()


@pytest.mark.parametrize("target", [BF16, FP16, FP8E4M3FN, FP8E5M2], ids=str)
def test_every_half_way_point(target: DType) -> None:
    """FP32 values at, just below and just above every value of the type and between neighbors."""
    cases = Cases(FULL)
    count = 1 << target.bits
    values = np.arange(count, dtype=f"u{target.itemsize}").view(target.numpy).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    middles = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    points = np.concatenate(
        [finite, middles.astype(np.float32), [np.inf, -np.inf, np.nan, 3e38, -3e38]]
    )
    around = np.stack([np.nextafter(points, -np.inf), points, np.nextafter(points, np.inf)])
    flat = around.reshape(-1).astype(np.float32)
    flat = np.pad(flat, (0, -len(flat) % 64)).reshape(-1, 64)
    x = cases.given("x", np.ascontiguousarray(flat))
    for mode in MODES:
        cases.add("cast", {"x": x}, target_type=target, mode=mode)
    cases.check()


REDUCTIONS = [
    f"{axis}_{f}"
    for axis in ("row", "col")
    for f in ("sum", "prod", "max", "min", "argmax", "argmin")
]


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16, INT8, INT32, dtypes.UINT64], ids=str)
def test_reductions(cases: Cases, dtype: DType) -> None:
    for columns in (1, 3, 8, N, 64):
        x = cases.given(f"x{columns}", numbers(dtype, M, columns, seed=7, special=columns != 64))
        for name in REDUCTIONS:
            cases.add(name, {"x": x})
    for name in ("tile.sum", "tile.max", "tile.min"):
        cases.add(name, {"x": x}, axis=0, keepdim=False)
        cases.add(name, {"x": x}, axis=-1, keepdim=True)
    cases.check()


def test_reductions_of_a_batch() -> None:
    cases = Cases(FULL)
    for dtype in (FP32, BF16, INT32):
        x = cases.given(f"x{dtype.name}", numbers(dtype, 3, 4, 21, seed=7))
        for name in REDUCTIONS:
            cases.add(name, {"x": x})
    cases.check()


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16, INT8], ids=str)
def test_matmul(cases: Cases, dtype: DType) -> None:
    k = 11
    a = cases.given("a", numbers(dtype, M, k, seed=1, special=False))
    at = cases.given("at", numbers(dtype, k, M, seed=2, special=False))
    b = cases.given("b", numbers(dtype, k, N, seed=3, special=False))
    bt = cases.given("bt", numbers(dtype, N, k, seed=4))
    total = INT32 if dtype is INT8 else FP32
    acc = cases.given("acc", numbers(total, M, N, seed=5))
    bias = cases.given("bias", numbers(total, 1, N, seed=6))
    outs = [None, total] if dtype is INT8 else [None, FP32, BF16, FP16]
    for out in outs:
        cases.add("matmul", {"lhs": a, "rhs": b}, out_dtype=out)
        cases.add("matmul", {"lhs": at, "rhs": b}, out_dtype=out, a_trans=True)
        cases.add("matmul", {"lhs": a, "rhs": bt}, out_dtype=out, b_trans=True)
        cases.add("matmul", {"lhs": at, "rhs": bt}, out_dtype=out, a_trans=True, b_trans=True)
    cases.add("matmul_acc", {"acc": acc, "lhs": a, "rhs": b})
    cases.add("matmul_acc", {"acc": acc, "lhs": at, "rhs": bt}, a_trans=True, b_trans=True)
    cases.add("matmul_acc", {"acc": acc, "lhs": a, "rhs": b}, init_cond=True)
    cases.add("matmul_acc", {"acc": acc, "lhs": a, "rhs": b}, init_cond=False)
    cases.add("matmul_bias", {"lhs": a, "rhs": b, "bias": bias})
    v = cases.given("v", numbers(dtype, 1, k, seed=8))
    cases.add("gemv", {"lhs": v, "rhs": b})
    cases.add("gemv_bias", {"lhs": v, "rhs": b, "bias": bias})
    cases.add("gemv_acc", {"acc": bias, "lhs": v, "rhs": b})
    batch = cases.given("batch", numbers(dtype, 3, M, k, seed=9, special=False))
    other = cases.given("other", numbers(dtype, 1, k, N, seed=9, special=False))
    cases.add("batch_matmul", {"lhs": batch, "rhs": other})
    cases.task(
        lambda s, lhs, rhs: s.op("matmul", lhs=s.op("transpose", x=lhs, axis1=0, axis2=1), rhs=rhs),
        {"lhs": at, "rhs": b},
        "transposed_view",
    )
    cases.check()


@pytest.mark.parametrize("dtype", [FP32, BF16, INT8, dtypes.INT64, dtypes.BOOL], ids=str)
def test_moving(cases: Cases, dtype: DType) -> None:
    a = cases.given("a", numbers(dtype, M, N, seed=1))
    small = cases.given("small", numbers(dtype, 2, 3, seed=2))
    cases.add("transpose", {"x": a}, axis1=0, axis2=1)
    cases.add("slice", {"x": a}, shape=[2, 4], offset=[1, 3])
    cases.add("slice", {"x": a}, shape=[2, 4], offset=[4, 17], clamp=True)
    cases.add(
        "slice", {"x": a}, shape=[4, 4], offset=[2, 16], valid_shape=[1, 2], pad_value=float("inf")
    )
    cases.add("slice", {"x": a}, shape=[1, 4], offset=[1, 3], drop_dims=[0])
    for pad in (0, float("inf"), float("-inf")):
        cases.add("fillpad", {"x": a}, pad_value=pad)
        cases.add("fillpad_expand", {"x": a}, shape=[M + 3, N + 2], pad_value=pad)
    cases.add("set_validshape", {"x": a}, rows=2, cols=7)
    cases.add("set_validshape", {"x": a}, rows=cases.rows, cols=cases.columns)
    cases.add("move", {"tile": a}, target_memory=_mat())
    cases.add("concat", {"src0": small, "src1": small})
    cases.task(lambda s, a, small: s.put(a, small, [1, 2]), {"a": a, "small": small}, "insert")
    cases.task(lambda s, small: s.op("reshape", x=small, shape=[3, 2]), {"small": small}, "reshape")
    cases.task(lambda s, small: s.op("reshape", x=small, shape=[1, 6]), {"small": small}, "reshape")
    cases.task(_write_and_read, {"a": a}, "elements")
    if dtype is FP32:
        cases.add("reinterpret_view", {"x": a}, dtype=INT32)
        cases.add("reinterpret_view", {"x": a}, dtype=BF16)
    cases.check()


def _mat() -> Any:
    from tilelet.ir.types import Mem

    return Mem.Mat


def _write_and_read(s: Build, a: Value) -> Any:
    one = s.op("read", x=a, indices=[1, 2])
    return s.op("write", x=a, indices=[0, 3], value=one)


def test_creation() -> None:
    cases = Cases(FULL)
    for dtype in (*NUMBERS, dtypes.BOOL):
        cases.task(lambda s, d=dtype: s.op("full", shape=[M, N], dtype=d, value=1), {}, "full")
    for dtype in (dtypes.INT16, INT32, dtypes.UINT16, dtypes.UINT32):
        cases.task(lambda s, d=dtype: s.op("arange", start=7, shape=[1, N], dtype=d), {}, "arange")
        cases.task(
            lambda s, d=dtype: s.op("ci", start=cases.rows, shape=[1, N], dtype=d, descending=True),
            {},
            "ci",
        )
    cases.task(lambda s: s.op("create_tile", shape=[2, 3], dtype=INT32), {}, "fresh")
    cases.task(lambda s: s.op("create_tensor", shape=[2, 3], dtype=FP32), {}, "fresh")
    cases.check()


def test_gather_and_sort() -> None:
    cases = Cases(FULL)
    x = cases.given("x", numbers(FP32, 4, 32, seed=1))
    at = cases.given("at", np.random.default_rng(1).integers(0, 32, (4, 8)).astype(np.int32))
    number = cases.given("number", np.arange(128, dtype=np.uint32).reshape(4, 32))
    cases.add("gather", {"x": x, "index": at}, dim=-1)
    cases.add("gather", {"x": x}, mask_pattern="P0101")
    cases.task(
        lambda s, x: s.op("gather", x=x, kvalue=0.5, cmp_mode=4, out_cols=6), {"x": x}, "found"
    )
    cases.add(
        "sort32",
        {"src": x, "idx": number} if _takes(("src", "idx"), "sort32") else _sort_args(x, number),
    )
    cases.check()


def _takes(names: tuple[str, ...], op: str) -> bool:
    from tilelet.ir.spec import REGISTRY

    return set(names) <= set(REGISTRY[op].signature.parameters)


def _sort_args(x: Value, number: Value) -> dict[str, Value]:
    from tilelet.ir.spec import REGISTRY

    names = list(REGISTRY["sort32"].signature.parameters)
    return {names[0]: x, names[1]: number}
