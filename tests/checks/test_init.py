"""Undefined memory: what is found and where, with every element compared with an oracle."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checks import scalar_programs
from tests.checks.programs import COLUMNS, ROWS, Generated, generate, parsed, subject_of

import tilelet.language as pl
from tilelet.checks import init
from tilelet.checks.boxes import boxes_of
from tilelet.checks.comparison import GoldenComparison
from tilelet.interp.cells import DEFINED, NEVER, UNDEFINED

X = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)


def findings(kernel, **arguments):
    return init.check(subject_of(kernel, arguments)).findings


def test_elements_that_nobody_writes_are_named() -> None:
    @pl.jit
    def short(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.INT32]]):
        for r in pl.parallel(0, 48, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 16, 0:64] = pl.cast(x[r : r + 16, 0:64], pl.INT32)
        return out

    (found,) = findings(short)
    assert found.code == "E1110"
    assert "5120 of 8192 elements of output `out` are never written" in found.message
    assert found.diagnostic.notes == ("not written: out[0:48, 64:128], out[48:64, 0:128]",)
    (place,) = found.places
    assert place.role == "writes"
    assert place.loc.line == found.diagnostic.labels[0].loc.line


def test_a_store_that_no_iteration_reaches() -> None:
    @pl.jit
    def forgotten(
        x: pl.Tensor[[16, 128], pl.FP32],
        count: pl.Tensor[[1], pl.INT32],
        out: pl.Out[pl.Tensor[[16, 128], pl.BF16]],
    ):
        for _ in pl.range(pl.read(count, [0])):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:, :] = pl.cast(x[:, :], pl.BF16)
        return out

    (found,) = findings(forgotten, count=np.zeros(1, np.int32))
    assert found.message == "2048 of 2048 elements of output `out` are never written"
    assert findings(forgotten, count=np.ones(1, np.int32)) == ()


ROWS64, OUT64 = pl.Tensor[[64, 128], pl.FP32], pl.Out[pl.Tensor[[64, 128], pl.FP32]]


@pl.jit
def one_branch_beside_its_place(x: ROWS64, out: OUT64):
    for b in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            if b % 2 == 0:
                out[b * 16 : b * 16 + 16, :] = pl.exp(x[b * 16 : b * 16 + 16, :])
            else:
                out[b * 16 - 16 : b * 16, :] = pl.neg(x[b * 16 : b * 16 + 16, :])
    return out


@pl.jit
def all_into_one_part(x: ROWS64, out: OUT64):
    scratch = pl.create_tensor([64, 128], dtype=pl.FP32)
    for b in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            scratch[b // 2 * 16 : b // 2 * 16 + 16, :] = pl.neg(x[b * 16 : b * 16 + 16, :])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.exp(scratch[:, :])
    return out


@pl.jit
def sum_without_a_start(x: ROWS64, out: OUT64):
    total = pl.create_tensor([16, 128], dtype=pl.FP32)
    for b in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            total[:, :] = pl.add(total[:, :], x[b * 16 : b * 16 + 16, :])
    for b in pl.parallel(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[b * 16 : b * 16 + 16, :] = total[:, :]
    return out


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (one_branch_beside_its_place, "task 1 overwrites what line {} has written (task 0)"),
        (all_into_one_part, "task 1 overwrites what task 0 has written"),
    ],
)
def test_a_store_that_writes_over_another_was_meant_for_another_place(kernel, said) -> None:
    (found,) = findings(kernel)
    labels = {label.text: label.loc.line for label in found.diagnostic.labels}
    stores = [p.loc.line for p in found.places if p.role == "writes"]
    wanted = said.format(labels and stores[0] - 2)
    assert wanted in labels
    assert labels[wanted] in stores


def test_a_sum_that_goes_on_is_not_out_of_place() -> None:
    (found,) = findings(sum_without_a_start)
    assert not any("overwrites" in label.text for label in found.diagnostic.labels)


@pl.jit
def tail_of_scratch(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    t = pl.create_tensor([64, 128], dtype=pl.FP32)
    for r in pl.parallel(0, 48, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            t[r : r + 16, :] = pl.exp(x[r : r + 16, :])
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            a = t[r : r + 16, :]
            out[r : r + 16, :] = pl.row_expand_mul(a, pl.row_sum(a))
    return out


def test_undefined_elements_reach_an_output() -> None:
    (found,) = findings(tail_of_scratch)
    assert found.code == "E1111"
    assert str(found.region) == "out[48:64, 0:128]"
    taken, stored, beside = found.places
    assert beside.role == "writes"
    assert (taken.role, stored.role) == ("uses undefined elements", "stores")
    assert "uses undefined elements of `t`" in str(found)


def test_padding_that_is_read() -> None:
    @pl.jit
    def padding(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            part = pl.slice(x, [16, 128], [0, 0], valid_shape=[16, 100])
            out[:, :] = pl.set_validshape(part, 16, 128)
        return out

    @pl.jit
    def filled(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            part = pl.slice(x, [16, 128], [0, 0], valid_shape=[16, 100])
            out[:, :] = pl.fillpad(part, pad_value=pl.PadValue.zero)
        return out

    (found,) = findings(padding)
    assert str(found.region) == "out[0:16, 100:128]"
    assert findings(filled) == ()


def test_a_window_that_overhangs_its_tensor() -> None:
    @pl.jit
    def overhanging(x: pl.Tensor[[24, 128], pl.FP32], out: pl.Out[pl.Tensor[[24, 128], pl.FP32]]):
        t = pl.create_tensor([24, 128], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP):
            t[0:8, :] = pl.exp(x[0:8, :])
        for r in pl.parallel(0, 24, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                part = pl.slice(t, [16, 128], [r, 0], valid_shape=[pl.min(16, 24 - r), 128])
                out = pl.assemble(out, pl.add(part, 1.0), [r, 0])
        return out

    (found,) = findings(overhanging)
    assert str(found.region) == "out[8:24, 0:128]"


def test_products_reductions_and_casts() -> None:
    @pl.jit
    def product(
        w: pl.Tensor[[64, 64], pl.BF16],
        out: pl.Out[pl.Tensor[[32, 64], pl.FP32]],
        sums: pl.Out[pl.Tensor[[1, 64], pl.FP32]],
    ):
        a = pl.create_tensor([32, 64], dtype=pl.BF16)
        with pl.at(level=pl.Level.CORE_GROUP):
            a[0:16, :] = pl.full([16, 64], dtype=pl.BF16, value=1.0)
            a[16:32, 0:32] = pl.full([16, 32], dtype=pl.BF16, value=1.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.matmul(a[:, :], w[:, :], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP):
            sums[:, :] = pl.col_sum(pl.cast(a[:, :], pl.FP32))
        return out, sums

    (found,) = findings(product)
    # One undefined element makes the whole row undefined, and so every sum over it.
    assert str(found.region) == "out[16:32, 0:64]"
    assert found.diagnostic.notes[0] == "undefined: out[16:32, 0:64]"
    # Both findings come from the undefined elements of `a`.
    assert "1 more finding of the same cause" in found.diagnostic.notes[1]
    assert "32 elements of output `sums` come from undefined memory" in found.diagnostic.notes[1]


@pytest.mark.parametrize(("rows", "wrong"), [(8, False), (9, True)])
def test_padding_rows_of_an_accumulator_stay_in_their_rows(rows: int, wrong: bool) -> None:
    @pl.jit
    def padded(
        x: pl.Tensor[[8, 64], pl.INT8],
        w: pl.Tensor[[64, 32], pl.INT8],
        out: pl.Out[pl.Tensor[[16, 32], pl.INT32]],
    ):
        pad = pl.create_tensor([16, 64], dtype=pl.INT8)
        with pl.at(level=pl.Level.CORE_GROUP):
            pad[0:8, :] = x[:, :]
        with pl.at(level=pl.Level.CORE_GROUP):
            acc = pl.matmul(pad[:, 0:32], w[0:32, :], out_dtype=pl.INT32)
            acc = pl.matmul_acc(acc, pad[:, 32:64], w[32:64, :])
            out[:, :] = pl.full([16, 32], dtype=pl.INT32, value=0)
            out[0:rows, :] = acc[0:rows, :]
        return out

    assert [str(f.region) for f in findings(padded)] == ["out[8, 0:32]"] * wrong


def test_a_choice_takes_only_what_is_defined() -> None:
    @pl.jit
    def chosen(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            nothing = pl.create_tensor([16, 128], dtype=pl.FP32)
            mask = pl.cmps(x[:, :], 0.0, cmp_type="gt")
            out[:, :] = pl.sel(mask, x[:, :], nothing)
        return out

    positive = np.abs(X[:16]) + 1
    out = np.zeros((16, 128), np.float32)
    assert findings(chosen, x=positive, out=out) == ()
    (found,) = findings(chosen, x=X[:16].copy(), out=out)
    count = int((X[:16] <= 0).sum())
    assert found.message.startswith(f"{count} elements of output `out`")


def test_an_index_and_a_branch() -> None:
    @pl.jit
    def decided(
        x: pl.Tensor[[64, 128], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
    ):
        t = pl.create_tensor([8, 8], dtype=pl.INT32)
        with pl.at(level=pl.Level.CORE_GROUP):
            t[0:1, :] = pl.full([1, 8], dtype=pl.INT32, value=0)
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(t, [0, 0])
            other = pl.read(t, [1, 0])
            out[:, :] = x[row : row + 16, :]
            if other > 3:
                out[:, :] = x[0:16, :]
        return out

    found = findings(decided, x=X, out=np.zeros((16, 128), np.float32))
    assert [f.code for f in found] == ["E1112"]
    assert "a branch depends on undefined elements of `t`" in found[0].message


def test_zero_times_undefined_is_zero() -> None:
    @pl.jit
    def cleared(out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            nothing = pl.create_tensor([16, 128], dtype=pl.FP32)
            out[:, :] = pl.mul(nothing, 0.0)
        return out

    assert findings(cleared) == ()


def test_a_tensor_that_the_script_fills_keeps_its_contents() -> None:
    @pl.program
    class Cache:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(self, x: pl.Tensor[[16, 128], pl.FP32], cache: pl.Tensor[[64, 128], pl.FP32]):
            with pl.incore():
                cache = pl.assemble(cache, x, [0, 0])
            return cache

    filled = GoldenComparison(1e-5, 1e-5, filled=("x", "cache"))
    assert init.check(subject_of(Cache, comparison=filled)).findings == ()
    fresh = GoldenComparison(1e-5, 1e-5, filled=("x",))
    assert len(init.check(subject_of(Cache, comparison=fresh)).findings) == 1


# --- against an oracle: every element, step by step


def oracle(made: Generated) -> np.ndarray:
    codes = {name: np.zeros((ROWS, COLUMNS), np.uint8) for name in ("s", "t", "out")}
    codes["x"] = np.full((ROWS, COLUMNS), DEFINED, np.uint8)
    for step in made.steps:
        defined = [
            codes[name][r : r + rows, c : c + columns] == DEFINED
            for name, r, c, rows, columns in step.sources
        ]
        name, r, c, rows, columns = step.target
        made_of = np.where(defined[0] & defined[1], DEFINED, UNDEFINED)
        codes[name][r : r + rows, c : c + columns] = made_of
    return codes["out"]


@pytest.mark.parametrize("values", [False, True])
def test_generated_programs_against_all_elements(values: bool) -> None:
    kinds: set[int] = set()
    for seed in range(40):
        made = generate(seed)
        subject = subject_of(parsed(made))
        given = {n: np.ones((ROWS, COLUMNS), np.float32) for n in ("x", "out")} if values else {}
        run = init.watch(subject.program, given, {"out"}, values=values)
        ((_, window),) = run.outputs
        codes = window.buffer.defined.get(window)
        expected = oracle(made)
        assert np.array_equal(codes, expected), f"seed {seed}\n{made.text}"
        kinds |= set(np.unique(expected).tolist())
    assert kinds == {NEVER, DEFINED, UNDEFINED}


def test_sets_as_boxes() -> None:
    mask = np.zeros((12, 8), np.bool_)
    mask[::4, 2:5] = True
    boxes, more = boxes_of(mask, "out")
    assert [str(b) for b in boxes] == ["out[0:9:4, 2:5]"]
    assert more == 0
    random = np.random.default_rng(1).random((9, 7, 5)) < 0.4
    boxes, more = boxes_of(random, "x", most=1000)
    again = np.zeros_like(random)
    for box in boxes:
        axes = tuple(slice(*axis) for axis in zip(box.start, box.stop, box.step))
        assert not again[axes].any()
        again[axes] = True
    assert more == 0
    assert np.array_equal(again, random)


# --- numbers


def test_numbers_carry_what_they_come_from_through_branches_loops_and_calls() -> None:
    kinds: set[tuple[str, bool, bool]] = set()
    for seed in range(120):
        made = scalar_programs.generate(seed)
        subject = subject_of(pl.parse(made.text))
        values = made.place == "kernel"
        given = {"out": np.zeros(len(scalar_programs.NAMES), np.int32)}
        run = init.watch(subject.program, given, {"out"}, values=values)
        context = f"seed {seed}\n{made.text}"
        assert bool(run.watcher.uses) == made.decides, context
        kinds.add((made.place, made.decides, all(made.defined)))
        if made.decides:
            continue
        ((_, window),) = run.outputs
        codes = window.buffer.defined.get(window)
        assert (codes == DEFINED).tolist() == made.defined, context
    assert len(kinds) >= 6


def test_an_undefined_number_that_a_loop_carries_decides() -> None:
    @pl.jit
    def carried(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        t = pl.create_tensor([8], dtype=pl.INT32)
        row = 0
        for _ in pl.range(2):
            row = row + pl.read(t, [1])
        at = 0
        if x.shape[0] > 8:
            at = row
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = x[at : at + 16, :]
        return out

    (found,) = findings(carried)
    assert found.code == "E1112"
    assert "an index depends on undefined elements of `t`" in found.message


def test_how_often_a_loop_runs_must_be_defined() -> None:
    @pl.jit
    def repeated(out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        t = pl.create_tensor([8], dtype=pl.INT32)
        n = pl.read(t, [0])
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.full([16, 128], dtype=pl.FP32, value=0.0)
        while n > 0:
            n = n - 1
        return out

    (found,) = findings(repeated)
    assert "a branch depends on undefined elements of `t`" in found.message
