"""Small programs, right and wrong, and what the checks as a whole have to say of each.

A line marked `# found` must be among the places of the findings; a program without findings must
have none of any check.
"""

from __future__ import annotations

import inspect
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelet
import tilelet.language as pl
from tilelet.checks.findings import Status

RANDOM = np.random.default_rng(0)
PROGRAMS: dict[str, tuple[Any, list[str], tuple[Any, ...]]] = {}


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def expect(codes: list[str], *arguments: Any) -> Callable[[Any], Any]:
    """Return the codes of all findings for a call with these arguments."""

    def add(program: Any) -> Any:
        PROGRAMS[program.__name__] = program, codes, arguments
        return program

    return add


@expect([], normal(64, 128), zeros(64, 128))
@pl.jit
def nested_parallel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        for c in pl.parallel(0, 128, 32):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 16, c : c + 32] = pl.exp(x[r : r + 16, c : c + 32])
    return out


@expect(["E1102"], normal(64, 128), zeros(64, 128))
@pl.jit
def nested_parallel_overlap(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]
):
    for r in pl.parallel(0, 64, 16):
        for c in pl.parallel(0, 96, 32):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 16, c : c + 64] = pl.exp(x[r : r + 16, c : c + 64])  # found
    return out


@expect([], normal(64, 128), zeros(16, 128))
@pl.jit
def manual_with_deps(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    tmp = pl.create_tensor([16, 128], dtype=pl.FP32)
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP) as a:
            tmp[:, :] = pl.exp(x[0:16, :])
        with pl.at(level=pl.Level.CORE_GROUP, deps=[a]):
            out[:, :] = pl.add(tmp[:, :], 1.0)
    return out


@expect(["E1102"], normal(64, 128), zeros(16, 128))
@pl.jit
def manual_deps_wrong_one(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]
):
    tmp = pl.create_tensor([16, 128], dtype=pl.FP32)
    other = pl.create_tensor([16, 128], dtype=pl.FP32)
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            tmp[:, :] = pl.exp(x[0:16, :])
        with pl.at(level=pl.Level.CORE_GROUP) as b:
            other[:, :] = pl.exp(x[16:32, :])
        with pl.at(level=pl.Level.CORE_GROUP, deps=[b]):
            out[:, :] = pl.add(tmp[:, :], other[:, :])  # found
    return out


@expect([], normal(64, 128), zeros(64, 128))
@pl.jit
def spmd_disjoint(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for b in pl.spmd(4):
        out[b * 16 : b * 16 + 16, :] = pl.exp(x[b * 16 : b * 16 + 16, :])
    return out


@expect(["E1102", "E1110"], normal(64, 128), zeros(64, 128))
@pl.jit
def spmd_overlap(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for b in pl.spmd(4):
        s = pl.min(b * 16, 32)
        out[s : s + 16, :] = pl.exp(x[b * 16 : b * 16 + 16, :])  # found
    return out


@expect(["E1110"], normal(64, 128), zeros(64, 128))
@pl.jit
def spmd_missing_block(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]
):
    for b in pl.spmd(3):
        out[b * 16 : b * 16 + 16, :] = pl.exp(x[b * 16 : b * 16 + 16, :])  # found
    return out


@expect([], normal(64, 128), np.zeros((64, 128), np.int32))
@pl.jit
def int_output(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.INT32]]):
    for r in pl.range(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.cast(x[r : r + 16, :], pl.INT32)
    return out


@expect(["E0912", "E1110"], normal(64, 128), np.zeros((64, 128), np.int32))
@pl.jit
def int_output_part(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.INT32]]):
    for r in pl.range(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, 0:127] = pl.cast(x[r : r + 16, 0:127], pl.INT32)  # found
    return out


@expect([], normal(64, 128), zeros(64, 128))
@pl.jit
def masked(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        a = x[:, :]
        m = pl.cmps(a, 0.0, cmp_type="gt")
        out[:, :] = pl.sel(m, a, pl.mul(a, 0.1))
    return out


@expect(["E1111"], normal(64, 128), zeros(64, 128))
@pl.jit
def masked_undefined(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    u = pl.create_tensor([64, 128], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        a = x[:, :]
        m = pl.cmps(u[:, :], 0.0, cmp_type="gt")  # found
        out[:, :] = pl.sel(m, a, pl.mul(a, 0.1))
    return out


@expect([], normal(60, 128), zeros(60, 128))
@pl.jit
def valid_tail(x: pl.Tensor[[60, 128], pl.FP32], out: pl.Out[pl.Tensor[[60, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            n = pl.min(16, 60 - r)
            a = pl.slice(x, [16, 128], [r, 0], valid_shape=[n, 128])
            out = pl.assemble(out, pl.exp(a), [r, 0])
    return out


@expect(["E1110"], normal(60, 128), zeros(60, 128))
@pl.jit
def valid_tail_short(x: pl.Tensor[[60, 128], pl.FP32], out: pl.Out[pl.Tensor[[60, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            n = pl.min(16, 59 - r)
            a = pl.slice(x, [16, 128], [r, 0], valid_shape=[n, 128])
            out = pl.assemble(out, pl.exp(a), [r, 0])  # found
    return out


@expect([], normal(64, 128), zeros(64, 128), zeros(64, 1))
@pl.jit
def two_outputs(
    x: pl.Tensor[[64, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
    s: pl.Out[pl.Tensor[[64, 1], pl.FP32]],
):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            a = pl.exp(x[r : r + 16, :])
            out[r : r + 16, :] = a
            s[r : r + 16, :] = pl.row_sum(a)
    return out, s


@expect(["E1110"], normal(64, 128), zeros(64, 128), zeros(64, 1))
@pl.jit
def two_outputs_one_missing(
    x: pl.Tensor[[64, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
    s: pl.Out[pl.Tensor[[64, 1], pl.FP32]],
):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            a = pl.exp(x[r : r + 16, :])
            out[r : r + 16, :] = a
            if r > 0:
                s[r : r + 16, :] = pl.row_sum(a)  # found
    return out, s


@expect([], normal(64, 128), normal(64, 128))
@pl.jit
def inout_in_place(x: pl.Tensor[[64, 128], pl.FP32], y: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[r : r + 16, :] = pl.add(y[r : r + 16, :], x[r : r + 16, :])
    return y


@expect([], normal(64, 128), normal(64, 128))
@pl.jit
def inout_twice(x: pl.Tensor[[64, 128], pl.FP32], y: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]):
    for _ in pl.range(3):
        for r in pl.parallel(0, 64, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[r : r + 16, :] = pl.add(y[r : r + 16, :], x[r : r + 16, :])
    return y


@expect(["E1103"], normal(64, 128), normal(64, 128))
@pl.jit
def inout_shifted(x: pl.Tensor[[64, 128], pl.FP32], y: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 48, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[r : r + 16, :] = pl.add(y[r + 16 : r + 32, :], x[r : r + 16, :])  # found
    return y


@expect(["E1102"], normal(64, 128), zeros(64, 128))
@pl.jit
def war_scratch(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    tmp = pl.create_tensor([16, 128], dtype=pl.FP32)
    for r in pl.range(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            tmp[:, :] = pl.exp(x[r : r + 16, :])  # found
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.add(tmp[:, :], 1.0)
    return out


@expect([], normal(64, 128), zeros(64, 128))
@pl.jit
def fresh_scratch(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.range(0, 64, 16):
        tmp = pl.create_tensor([16, 128], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP):
            tmp[:, :] = pl.exp(x[r : r + 16, :])
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.add(tmp[:, :], 1.0)
    return out


@expect([], normal(64, 128), np.array([40], np.int32), zeros(64, 128))
@pl.jit
def dynamic_rows(
    x: pl.Tensor[[64, 128], pl.FP32],
    n: pl.Tensor[[1], pl.INT32],
    out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]],
):
    k = pl.read(n, [0])
    for r in pl.range(0, k, 8):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 8, :] = pl.exp(x[r : r + 8, :])
    return out


@expect(["E1130"], normal(64, 128), np.array([60], np.int32), zeros(64, 128))
@pl.jit
def dynamic_rows_out(
    x: pl.Tensor[[64, 128], pl.FP32],
    n: pl.Tensor[[1], pl.INT32],
    out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]],
):
    k = pl.read(n, [0])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:8, :] = x[k : k + 8, :]  # found
    return out


@expect([], normal(64, 128), zeros(16, 128))
@pl.jit
def atomic_sum(x: pl.Tensor[[64, 128], pl.FP32], out: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.exp(x[r : r + 16, :]), [0, 0], atomic=pl.AtomicType.Add)
    return out


@expect(["E1111"], normal(64, 128), zeros(16, 128))
@pl.jit
def atomic_into_undefined(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]
):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            part = pl.exp(x[r : r + 16, :])
            out = pl.assemble(out, part, [0, 0], atomic=pl.AtomicType.Add)  # found
    return out


@expect(["E1102"], normal(64, 128), zeros(16, 128))
@pl.jit
def atomic_and_read(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    acc = pl.create_tensor([16, 128], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        acc[:, :] = pl.full([16, 128], dtype=pl.FP32, value=0.0)
    for r in pl.range(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            acc = pl.assemble(acc, pl.exp(x[r : r + 16, :]), [0, 0], atomic=pl.AtomicType.Add)
    with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[acc]):
        out[:, :] = acc[:, :]  # found
    return out


@expect([], normal(64, 128), normal(128, 32), zeros(64, 32))
@pl.jit
def matmul_k(
    x: pl.Tensor[[64, 128], pl.FP32],
    w: pl.Tensor[[128, 32], pl.FP32],
    out: pl.Out[pl.Tensor[[64, 32], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.matmul(x[:, 0:64], w[0:64, :], out_dtype=pl.FP32)
        for k in pl.range(64, 128, 64):
            acc = pl.matmul_acc(acc, x[:, k : k + 64], w[k : k + 64, :])
        out[:, :] = acc
    return out


@expect(["E1111"], normal(64, 128), zeros(64, 128))
@pl.jit
def create_and_partial(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.create_tensor([64, 128], dtype=pl.FP32)  # found
        tile[0:32, :] = x[0:32, :]
        out[:, :] = tile
    return out


@expect([], normal(64, 128), zeros(64, 128))
@pl.jit
def transposed(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    tmp = pl.create_tensor([128, 64], dtype=pl.FP32)
    for c in pl.parallel(0, 128, 32):
        with pl.at(level=pl.Level.CORE_GROUP):
            tmp[c : c + 32, :] = pl.transpose(x[:, c : c + 32], 0, 1)
    for r in pl.parallel(0, 64, 32):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 32, :] = pl.transpose(tmp[:, r : r + 32], 0, 1)
    return out


@expect([], normal(64, 128), zeros(64, 128))
@pl.jit
def branch_on_known(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.range(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            if r % 32 == 0:
                out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            else:
                out[r : r + 16, :] = pl.mul(x[r : r + 16, :], 2.0)
    return out


@expect(["E1102"], normal(64, 128), zeros(16, 128))
@pl.jit
def manual_dep_tensor(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    tmp = pl.create_tensor([16, 128], dtype=pl.FP32, manual_dep=True)
    with pl.at(level=pl.Level.CORE_GROUP):
        tmp[:, :] = pl.exp(x[0:16, :])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(tmp[:, :], 1.0)  # found
    return out


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_verdict_is_right(name: str) -> None:
    program, codes, arguments = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tilelet.check(program, *arguments).findings
    assert sorted({f.code for f in found}) == codes
    lines, first = inspect.getsourcelines(inspect.unwrap(program))
    marked = {first + i for i, line in enumerate(lines) if "# found" in line}
    named = {label.loc.line for f in found for label in f.diagnostic.labels}
    named |= {place.loc.line for f in found for place in f.places}
    assert bool(marked) == bool(codes)
    assert marked <= named


@pytest.mark.parametrize("name", ["manual_with_deps", "manual_dep_tensor", "spmd_disjoint"])
def test_the_other_machine_says_the_same_of_races(name: str) -> None:
    program, codes, arguments = PROGRAMS[name]
    found = tilelet.check(program, *arguments, platform="a5", only=["race", "init"]).findings
    assert sorted({f.code for f in found}) == codes


CHUNKS_IN_A_CHUNK = """
for b in pl.parallel(0, 2, 1, chunk=2):
    tile = pl.exp(pl.slice(x, [16, 4096], [b * 16, 0]))
    for c in pl.parallel(0, 4, 1, chunk=2):
        part = pl.slice(tile, [16, 1024], [0, c * 1024])
        out = pl.assemble(out, pl.neg(part), [b * 16, c * 1024])
"""
PARTIALLY_VALID = """
rows = pl.read(n, [0])
tile = pl.exp(pl.slice(x, [16, 4096], [0, 0], valid_shape=[rows, 4096]))
again = pl.create_tensor([16, 4096], dtype=pl.FP32)
again = pl.assemble(again, pl.neg(tile), [0, 0])
out = pl.assemble(out, pl.add(again, tile), [0, 0])
"""
ONE_SEQUENCE = "out = pl.assemble(out, pl.exp(pl.slice(x, [16, 4096], [0, 0])), [0, 0])\n"


@pytest.mark.parametrize(
    ("body", "divides"), [(CHUNKS_IN_A_CHUNK, True), (PARTIALLY_VALID, True), (ONE_SEQUENCE, False)]
)
def test_nothing_is_said_of_kernels_that_a_compiler_divides(body: str, divides: bool) -> None:
    text = f"""
import tilelet.language as pl
@pl.program
class Auto:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[32, 4096], pl.FP32],
        n: pl.Tensor[[1], pl.INT32],
        out: pl.Out[pl.Tensor[[32, 4096], pl.FP32]],
    ):
        with pl.auto_incore():
{textwrap.indent(body, " " * 12)}
        return out
"""
    program = pl.parse(text)
    assert ("W0404" in [d.code for d in program.cautions]) == divides
    arguments = zeros(32, 4096), np.array([9], np.int32), zeros(32, 4096)
    (part,) = tilelet.check(program, *arguments, platform="a2a3", only=["capacity"]).parts
    assert [f.code for f in part.findings] == ([] if divides else ["E0911"])
    assert (part.status is Status.NOT_CHECKED) == divides
    assert len(part.remarks) == divides
