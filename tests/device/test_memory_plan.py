"""Placement of tiles, tiles that do not fit, and sizes that would."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.device.recorded import A2A3, A5, chain, device_run, passed

import tilelet.language as pl
from tilelet import dtypes
from tilelet.device import Core, DeviceKernel, Pipe, Step, TileStorage, lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.kernel.view import VectorWork
from tilelet.device.memory.limits import program_findings
from tilelet.device.memory.plan import ALIGNMENT, plan_memory
from tilelet.device.memory.report import budget_rows, memory_json, memory_map, memory_report
from tilelet.device.memory.retile import sizes_that_fit
from tilelet.device.schedule.pricing import CostCache
from tilelet.diag.catalogue import describe
from tilelet.diag.catalogue import device as catalogue
from tilelet.diag.core import UserError
from tilelet.ir.core import Program
from tilelet.ir.spec import Cost
from tilelet.ir.types import Mem
from tilelet.models.registry import models

KB = 1024


def codes(found: list[UserError]) -> list[str]:
    return [f.code for f in found]


def kernel_of(steps: list[Step], tiles: list[TileStorage]) -> DeviceKernel:
    function = passed(chain).kernels[0]
    return DeviceKernel(function, tuple(steps), tuple(tiles), frozenset({Core.AIV}))


@st.composite
def lifetimes(draw: st.DrawFn) -> DeviceKernel:
    """Tiles of random sizes and lifetimes, each touched at its first and last step."""
    count = draw(st.integers(1, 12))
    last = draw(st.integers(1, 30))
    tiles: list[TileStorage] = []
    touches: dict[int, list[int]] = {}
    for i in range(count):
        first = draw(st.integers(0, last))
        end = draw(st.integers(first, last))
        nbytes = draw(st.integers(1, 5000))
        shape = (1, nbytes)
        tiles.append(
            TileStorage(i, f"t{i}", shape, dtypes.INT8, Mem.Vec, Core.AIV, nbytes, 1, (first, end))
        )
        for at in (first, end):
            touches.setdefault(at, []).append(i)
    steps = [
        Step(at, Core.AIV, Pipe.VEC, "sort32", VectorWork(Cost.SORT, 1), tuple(ids))
        for at, ids in sorted(touches.items())
    ]
    return kernel_of(steps, tiles)


@given(lifetimes())
def test_tiles_that_live_together_do_not_overlap(kernel: DeviceKernel) -> None:
    (use,) = plan_memory(kernel, A2A3).spaces
    assert use.peak <= use.used <= sum(p.nbytes for p in use.placements)
    for i, a in enumerate(use.placements):
        assert a.offset % ALIGNMENT == 0
        assert a.end <= use.used
        for b in use.placements[i + 1 :]:
            together = a.tile.live[0] <= b.tile.live[1] and b.tile.live[0] <= a.tile.live[1]
            assert not together or a.end <= b.offset or b.end <= a.offset
    assert sum(p.nbytes for p in use.resident) == use.peak


def test_an_elementwise_chain_needs_one_tile() -> None:
    @pl.jit
    def long(x: pl.Tensor[[16, 256], pl.FP32], y: pl.Out[pl.Tensor[[16, 256], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            a = pl.exp(x[:, :])
            b = pl.mul(a, 2.0)
            c = pl.add(b, 1.0)
            y[:, :] = pl.neg(c)
        return y

    (use,) = plan_memory(lower_kernel(passed(long).kernels[0], A2A3), A2A3).spaces
    assert use.used == 16 * KB
    assert [p.in_place for p in use.placements] == ["", "x", "a", "b", "c"]


def test_parts_of_cube_tiles_that_only_move_take_no_vector_memory() -> None:
    @pl.jit
    def gathered(
        pool: pl.Tensor[[256, 512], pl.BF16],
        rows: pl.Tensor[[128], pl.INT32],
        q: pl.Tensor[[32, 512], pl.BF16],
        out: pl.Out[pl.Tensor[[32, 128], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            keys = pl.create_l1([128, 512], pl.BF16)
            for r in pl.range(128):
                row = pl.read(rows, [r])
                keys = pl.gather_row(keys, pool, [r, 0], [row, 0], [1, 512])
            scores = pl.matmul(q[:, :], keys, b_trans=True, out_dtype=pl.FP32)
            for r in pl.range(0, 32, 16):
                out[r : r + 16, :] = scores[r : r + 16, :]
        return out

    plan = plan_memory(lower_kernel(passed(gathered).kernels[0], A2A3), A2A3)
    assert plan.shape == "AIC"
    tiles = {s.space.name: {p.tile.name: p.tile.shape for p in s.placements} for s in plan.spaces}
    assert "Vec" not in tiles
    assert tiles["Mat"]["keys"] == (128, 512)
    assert tiles["Acc"] == {"scores": (32, 128)}


def test_a_tile_filled_in_a_pipelined_loop_has_one_buffer_where_it_is_created() -> None:
    @pl.jit
    def filled(x: pl.Tensor[[256, 128], pl.FP32], out: pl.Out[pl.Tensor[[256, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            for b in pl.range(0, 256, 64):
                rows = pl.create_tensor([64, 128], dtype=pl.FP32)
                for r in pl.pipeline(0, 64, 16, stage=2):
                    rows[r : r + 16, :] = pl.exp(x[b + r : b + r + 16, :])
                total = pl.row_expand_sub(rows, pl.row_max(rows))
                out[b : b + 64, :] = total
        return out

    kernel = lower_kernel(passed(filled).kernels[0], A2A3)
    tiles = {t.name: t for t in kernel.tiles}
    assert tiles["rows"].buffers == 1
    assert tiles["x"].buffers == 2
    # Each outer iteration creates `rows` anew: they die before `total` is stored.
    assert tiles["rows"].live[1] < tiles["total"].live[1]


def test_parts_that_the_vector_unit_uses_take_vector_memory() -> None:
    @pl.jit
    def used(
        a: pl.Tensor[[32, 64], pl.BF16],
        b: pl.Tensor[[64, 128], pl.BF16],
        out: pl.Out[pl.Tensor[[32, 128], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            left = pl.create_l1([32, 64], pl.BF16)
            left = pl.gather_row(left, a, [0, 0], [0, 0], [16, 64])
            left = pl.gather_row(left, a, [16, 0], [16, 0], [16, 64])
            product = pl.matmul(left, b[:, :], out_dtype=pl.FP32)
            half = product[0:16, :]
            out[0:16, :] = half
            out[16:32, :] = pl.add(half, pl.row_expand_mul(half, pl.row_max(left[0:16, :])))
        return out

    plan = plan_memory(lower_kernel(passed(used).kernels[0], A2A3), A2A3)
    tiles = {s.space.name: {p.tile.name for p in s.placements} for s in plan.spaces}
    assert {"left", "half"} <= tiles["Vec"]


def test_big_tensors_in_global_memory_are_no_problem() -> None:
    @pl.jit
    def big(x: pl.Tensor[[16, 8192], pl.FP32], y: pl.Out[pl.Tensor[[16, 8192], pl.FP32]]):
        resid = pl.create_tensor([16, 8192], dtype=pl.FP32)
        for c in pl.parallel(0, 8192, 256):
            with pl.at(level=pl.Level.CORE_GROUP):
                resid[:, c : c + 256] = pl.exp(x[:, c : c + 256])
        for c in pl.parallel(0, 8192, 256):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[:, c : c + 256] = pl.neg(resid[:, c : c + 256])
        return y

    assert program_findings(passed(big), A2A3) == []


def test_an_overflow_names_all_tiles_and_sizes_that_fit() -> None:
    @pl.jit
    def wide(x: pl.Tensor[[64, 4096], pl.FP32], y: pl.Out[pl.Tensor[[64, 4096], pl.FP32]]):
        for r in pl.parallel(0, 64, 32):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
                a = x[r : r + 32, :]
                b = pl.exp(a)
                y[r : r + 32, :] = pl.mul(a, b)
        return y

    program = passed(wide)
    (found,) = program_findings(program, A2A3)
    d = found.diagnostic
    assert d.code == "E0911"
    assert d.message == "kernel `scale` needs 1 MiB of Vec, but `a2a3` has 184 KiB"
    listed = d.notes[0].splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["a", "b"]
    assert all("[32, 4096] FP32" in line and "512 KiB" in line for line in listed[1:])
    assert [int(line.rsplit("line ", 1)[1]) for line in listed[1:]] == [
        d.labels[1].loc.line,
        d.labels[0].loc.line,
    ]
    fits = sizes_that_fit(lower_kernel(program.kernels[0], A2A3), A2A3, Mem.Vec)
    assert [f.us for f in fits] == sorted(f.us for f in fits)
    assert all(f.used <= 184 * KB for f in fits)
    assert {f.change.partition(",")[0] for f in fits} == {"`a` [4", "`a` [32"}
    assert "[4, 4096]" in d.helps[0]
    # A machine with more memory accepts larger tiles of the same kind.
    (on_a5,) = program_findings(program, A5)
    assert "`a5` has 240 KiB" in on_a5.diagnostic.message


def test_a_suggested_size_really_fits() -> None:
    def build(rows: int) -> Any:
        @pl.jit
        def norm(x: pl.Tensor[[64, 1024], pl.FP32], y: pl.Out[pl.Tensor[[64, 1024], pl.FP32]]):
            for r in pl.parallel(0, 64, rows):
                with pl.at(level=pl.Level.CORE_GROUP):
                    a = x[r : r + rows, :]
                    total = pl.row_sum(pl.mul(a, a))
                    y[r : r + rows, :] = pl.row_expand_mul(a, total)
            return y

        return passed(norm)

    (found,) = program_findings(build(64), A2A3)
    assert "`a` [16, 1024]" in found.diagnostic.helps[0]
    assert program_findings(build(16), A2A3) == []
    assert codes(program_findings(build(32), A2A3)) == ["E0911"]
    # 4 rows fit, but their sums form a column of 16 bytes.
    assert codes(program_findings(build(4), A2A3)) == ["E0912"]


def test_it_is_said_when_no_size_fits() -> None:
    @pl.jit
    def folded(x: pl.Tensor[[1, 131072], pl.FP32], y: pl.Out[pl.Tensor[[256, 512], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:, :] = pl.exp(pl.reshape(x[:, :], [256, 512]))
        return y

    (found,) = program_findings(passed(folded), A2A3)
    assert found.diagnostic.helps == (
        "no smaller size of the same kernel fits: split the scope in two",
    )


def test_less_pipelining_is_a_suggestion() -> None:
    @pl.jit
    def staged(x: pl.Tensor[[64, 4096], pl.FP32], y: pl.Out[pl.Tensor[[64, 4096], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            for r in pl.pipeline(0, 64, 8, stage=2):
                y[r : r + 8, :] = pl.exp(x[r : r + 8, :])
        return y

    (found,) = program_findings(passed(staged), A2A3)
    assert found.code == "W0920"
    assert "need 256 KiB of Vec" in found.diagnostic.message
    assert "`pl.range`, not `pl.pipeline`: 128 KiB" in found.diagnostic.helps[0]


def test_stages_that_do_not_fit_are_modelled_with_one_buffer() -> None:
    def staged(rows: int) -> Program:
        @pl.jit
        def scale(x: pl.Tensor[[256, 1024], pl.FP32], y: pl.Out[pl.Tensor[[256, 1024], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.pipeline(0, 256, rows, stage=2):
                    y[r : r + rows, :] = pl.exp(x[r : r + rows, :])
            return y

        return passed(scale)

    def serial(rows: int) -> Program:
        @pl.jit
        def scale(x: pl.Tensor[[256, 1024], pl.FP32], y: pl.Out[pl.Tensor[[256, 1024], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.range(0, 256, rows):
                    y[r : r + rows, :] = pl.exp(x[r : r + rows, :])
            return y

        return passed(scale)

    def us(program: Program) -> float:
        kernel = CostCache(A2A3, A2A3.period()).kernel(program, program.kernels[0].name)
        return kernel_cost(kernel, A2A3).exec_us

    assert program_findings(staged(8), A2A3) == []
    assert us(staged(8)) < us(serial(8))
    assert codes(program_findings(staged(32), A2A3)) == ["W0920"]
    assert us(staged(32)) == us(serial(32))


def test_what_a_pipelined_loop_computes_is_there_once_if_memory_is_short() -> None:
    """Four loads of 16 KiB are in flight; results computed from one are dead before the next."""

    @pl.jit
    def squares(x: pl.Tensor[[16, 8192], pl.BF16], y: pl.Out[pl.Tensor[[16, 1], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            total = pl.reshape(pl.full([1, 16], dtype=pl.FP32, value=0.0), [16, 1])
            for c in pl.pipeline(0, 8192, 512, stage=4):
                wide = pl.cast(x[:, c : c + 512], pl.FP32)
                total = pl.add(total, pl.row_sum(pl.mul(wide, wide)))
            y[:, :] = total
        return y

    assert program_findings(passed(squares), A2A3) == []


def test_a_scaled_tile_lies_where_it_was_loaded_if_memory_is_short() -> None:
    """The first loop needs packing; then the second has room for its two loads only."""

    @pl.jit
    def scales(
        z: pl.Tensor[[16, 8192], pl.BF16],
        x: pl.Tensor[[16, 8192], pl.FP32],
        y: pl.Out[pl.Tensor[[16, 1], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            top = pl.reshape(pl.full([1, 16], dtype=pl.FP32, value=0.0), [16, 1])
            for c in pl.pipeline(0, 8192, 512, stage=4):
                wide = pl.cast(z[:, c : c + 512], pl.FP32)
                top = pl.add(top, pl.row_sum(pl.mul(wide, wide)))
            for c in pl.pipeline(0, 8192, 1024, stage=2):
                scaled = pl.row_expand_mul(x[:, c : c + 1024], top)
                top = pl.maximum(top, pl.row_max(scaled))
            y[:, :] = top
        return y

    assert program_findings(passed(scales), A2A3) == []


def _stores_parts(columns: int) -> Any:
    @pl.jit
    def parts(x: pl.Tensor[[160, 512], pl.FP32], y: pl.Out[pl.Tensor[[160, 512], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            for r in pl.pipeline(0, 160, 40, stage=2):
                tile = pl.exp(x[r : r + 40, :])
                for part in pl.range(0, 40, 20):
                    piece = pl.slice(tile, [20, columns], [part, 512 - columns])
                    y[r + part : r + part + 20, 0:columns] = piece
        return y

    return passed(parts)


def test_rows_of_a_tile_are_no_copy_if_memory_is_short() -> None:
    assert program_findings(_stores_parts(512), A2A3) == []
    assert codes(program_findings(_stores_parts(504), A2A3)) == ["W0920"]


def test_one_large_product_is_cut_but_an_accumulator_is_not() -> None:
    def build(parts: int) -> Any:
        depth = 64 // parts

        @pl.jit
        def product(
            a: pl.Tensor[[256, 64], pl.FP16],
            b: pl.Tensor[[64, 256], pl.FP16],
            c: pl.Out[pl.Tensor[[256, 256], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(a[:, 0:depth], b[0:depth, :], out_dtype=pl.FP32)
                for k in pl.range(depth, 64, depth):
                    acc = pl.matmul_acc(acc, a[:, k : k + depth], b[k : k + depth, :])
                c[:, :] = acc
            return c

        return passed(product)

    assert program_findings(build(1), A2A3) == []
    (found,) = program_findings(build(2), A2A3)
    assert "256 KiB of Acc, but `a2a3` has 128 KiB" in found.diagnostic.message
    assert program_findings(build(2), A5) == []


@pytest.mark.parametrize(
    "cls",
    [
        catalogue.OnChipOverflow,
        catalogue.SerializedStages,
        catalogue.UnalignedTile,
        catalogue.NonFractalTile,
        catalogue.MatmulExtent,
        catalogue.VectorDType,
    ],
)
def test_catalogue_examples_make_their_mistake(cls: type[UserError], tmp_path: Path) -> None:
    path = tmp_path / f"{cls.code}.py"
    path.write_text("import tilelet.language as pl\n\n" + describe(cls).example)
    spec = importlib.util.spec_from_file_location(cls.code, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (kernel,) = [v for v in vars(module).values() if hasattr(v, "specialize")]
    assert codes(program_findings(passed(kernel), A2A3)) == [cls.code]


def test_bf16_arithmetic_is_for_a5() -> None:
    @pl.jit
    def double(x: pl.Tensor[[16, 128], pl.BF16], y: pl.Out[pl.Tensor[[16, 128], pl.BF16]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            wide = pl.cast(x[:, :], pl.FP32)
            y[:, :] = pl.add(x[:, :], pl.cast(wide, pl.BF16))
        return y

    assert codes(program_findings(passed(double), A2A3)) == ["E0915"]
    assert program_findings(passed(double), A5) == []


def test_products_of_type_bf16_reach_the_vector_unit_as_fp32() -> None:
    def build(rounded: bool) -> Program:
        @pl.jit
        def scores(
            a: pl.Tensor[[16, 128], pl.BF16],
            b: pl.Tensor[[128, 64], pl.BF16],
            c: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                total = pl.full([16, 64], dtype=pl.FP32, value=0.0)
                carried = pl.matmul(a[:, 0:64], b[0:64, :])
                for k in pl.range(0, 128, 64):
                    product = pl.matmul(a[:, k : k + 64], b[k : k + 64, :])
                    carried = pl.maximum(carried, pl.mul(product, 0.5))
                    total = pl.add(total, product)
                if rounded:
                    carried = pl.cast(pl.cast(carried, pl.FP32), pl.BF16)
                c[:, :] = pl.add(total, pl.exp(pl.reshape(carried, [16, 64])))
            return c

        return passed(scores)

    assert program_findings(build(False), A2A3) == []
    assert set(codes(program_findings(build(True), A2A3))) == {"E0915"}


def test_one_message_for_a_chain_of_narrow_tiles() -> None:
    @pl.jit
    def narrow(x: pl.Tensor[[16, 12], pl.FP32], y: pl.Out[pl.Tensor[[16, 12], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:, :] = pl.neg(pl.exp(x[:, :]))
        return y

    assert codes(program_findings(passed(narrow), A2A3)) == ["E0912"]


@pytest.mark.parametrize("name", [f"{n}:{v}" for n, m in models().items() for v in m.variants])
def test_no_false_alarm_on_programs_that_ran_on_boards(name: str) -> None:
    model, _, variant = name.partition(":")
    program = passed(models()[model].build(variant))
    assert program_findings(program, A2A3) == []
    assert program_findings(program, A5) == []


# Files


def test_files_say_the_same() -> None:
    run = device_run(chain)
    text = memory_report(run.plans, "a2a3")
    lines = text.splitlines()
    assert lines[:4] == [
        "Memory usage (modelled)",
        "Pass: AllocateMemoryAddr",
        "Backend: a2a3",
        "Compute functions: 2",
    ]
    assert lines[5] == "--- product (AIC) ---"
    assert lines[6].replace(" ", "") == "Space|Used|Limit|Usage%|MemRefs"
    table = {
        line.split("|")[0].strip(): line.split("|")[2].strip() for line in lines if "KiB" in line
    }
    assert table == {
        "Mat": "512 KiB",
        "Left": "64 KiB",
        "Right": "64 KiB",
        "Acc": "128 KiB",
        "Vec": "184 KiB",
    }
    data = json.loads(memory_json(run.plans, "a2a3"))
    assert [k["kernel"] for k in data["kernels"]] == ["product", "activate"]
    shown = memory_map(run.plans)
    for kernel in data["kernels"]:
        for space in kernel["spaces"]:
            assert space["used"] == max(t["offset"] + t["bytes"] for t in space["tiles"])
            for tile in space["tiles"]:
                assert f"{tile['offset']:#x}" in shown


def test_budget_in_tilelets_and_tiles() -> None:
    @pl.jit
    def budget(
        a: pl.Tensor[[4, 128], pl.FP32],
        b: pl.Tensor[[4, 64], pl.FP32],
        c: pl.Tensor[[8, 128], pl.FP32],
        q: pl.Tensor[[16, 128], pl.BF16],
        w: pl.Tensor[[128, 64], pl.BF16],
        out: pl.InOut[pl.Tensor[[16, 128], pl.FP32]],
        prod: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[0:4, :] = pl.exp(a[:, :])
            out[0:4, 0:64] = pl.exp(b[:, :])
            out[0:8, :] = pl.exp(c[:, :])
        with pl.at(level=pl.Level.CORE_GROUP):
            prod[:, :] = pl.matmul(q[:, :], w[:, :], out_dtype=pl.FP32)
        return out, prod

    rows = {r["tile"]: r for r in budget_rows(device_run(budget).kernels)}
    shares = {name: (rows[name]["share"], rows[name]["unit"]) for name in "abcqw"}
    assert shares == {
        "a": (1.0, "TILELET"),
        "b": (0.5, "TILELET"),
        "c": (2.0, "TILELET"),
        "q": (0.25, "TILE"),
        "w": (1.0, "TILE"),
    }
