"""The modelled report: layout, sums, critical path and traffic."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.device.recorded import A2A3, A5, chain, device_run, many_rows

import tilelet.language as pl
from tilelet.device.machine.description import Machine
from tilelet.device.report.critical import critical_path
from tilelet.device.report.profile import FunctionRow, KernelRow, Profile, TensorRow, _Summary
from tilelet.device.report.text import function_table, report_parts, report_text, side_by_side
from tilelet.device.report.traffic import _union
from tilelet.diag.catalogue.device import BadProfile
from tilelet.diag.tables import Table, byte_text, show

# The keys that other programs read from the report.
MAKESPAN = re.compile(r"Total Test Time:\s*([0-9.]+)\s*us")
TOTAL = re.compile(r"^TOTAL\s+(\d+)\s+([0-9.]+)\s+([0-9.]+)", re.MULTILINE)


def by_hand() -> Profile:
    """A profile with round numbers."""
    return Profile(
        program="Decode",
        machine="a2a3",
        title="one die",
        period="2026-04",
        tasks=101,
        total_us=250.0,
        functions=(
            FunctionRow(0, "projection", "AIC", 100, 5000.0, 6000.0, 300.0, 700.0),
            FunctionRow(1, "norm", "AIV", 1, 30.0, 40.0, 4.0, 6.0),
        ),
        kernels=(
            KernelRow(
                "projection",
                "decode.py:12",
                "AIC",
                100,
                5000.0,
                "GM",
                200.0,
                4,
                8_000_000,
                100_000,
                4_000_000,
                100_000,
                16_000_000,
                76.8,
                2000.0,
                {"Mat": 20480, "Acc": 4096},
            ),
            KernelRow(
                "norm",
                "decode.py:5",
                "AIV",
                1,
                30.0,
                "vector",
                30.0,
                1,
                50_000,
                25_000,
                50_000,
                25_000,
                0,
                0.0,
                0.0,
                {"Vec": 8192},
            ),
        ),
        tensors=(
            TensorRow("w", "param", 4_000_000, 8_000_000, 0, 4_000_000, 0),
            TensorRow("normed", "temp", 25_000, 50_000, 125_000, 0, 0),
        ),
        path={"exec": 230.0, "head": 4.0, "tail": 6.0, "scheduler": 9.0, "orchestrator": 1.0},
        busy={"AIC": 0.8, "AIV": 0.01},
        cores={"AIC": 24, "AIV": 48},
        orchestrator_us=60.0,
        window_stall_us=0.0,
        heap_stall_us=0.0,
        scheduler_busy=(0.4, 0.4, 0.3),
        hbm_read=4_100_000,
        hbm_written=100_000,
        hbm_gbs=1065.0,
        exchanged=0,
        peak_gflops=363_000.0,
        limits={"Vec": 188416, "Mat": 524288, "Acc": 131072},
    )


def test_the_report_is_pinned(golden) -> None:
    golden("device/report.txt", report_text(by_hand()))


def test_other_programs_can_read_the_table() -> None:
    text = function_table(by_hand()).text()
    assert MAKESPAN.findall(text) == ["250.00"]
    assert TOTAL.findall(text) == [("101", "5030.00", "6040.00")]
    assert "Total Test Time: 250.00 us (from earliest dispatch to latest finish)" in text
    rule, header = "-" * 5, text.splitlines()[3]
    assert header.split()[:3] == ["Func_ID", "Func_Name", "Count"]
    assert sum(line.startswith(rule) for line in text.splitlines()) == 2


def test_every_part_says_that_it_is_modelled() -> None:
    for part in report_parts(by_hand()):
        assert "[modelled]" in (part.title if isinstance(part, Table) else part)


def test_sums_of_a_real_run() -> None:
    run = device_run(chain)
    timeline, profile = run.timeline, run.profile
    assert profile.tasks == 8
    assert [(f.name, f.count) for f in profile.functions] == [("product", 4), ("activate", 4)]
    latency = float((timeline.finish - timeline.dispatch).sum())
    assert sum(f.latency_us for f in profile.functions) == pytest.approx(latency)
    for f in profile.functions:
        assert f.head_us + f.exec_us + f.tail_us == pytest.approx(f.latency_us)
    span = float(timeline.finish.max() - timeline.dispatch.min())
    assert profile.total_us == pytest.approx(span)
    assert 0 < profile.busy["AIC"] < 1
    assert {k.bound for k in profile.kernels} <= {
        "cube",
        "vector",
        "MTE",
        "scalar",
        "latency",
        "GM",
        "dispatch",
    }


@pytest.mark.parametrize(
    ("machine", "period"),
    [(A2A3, "2026-04"), (A2A3, "2026-06"), (A2A3, "2026-07"), (A5, None)],
)
def test_the_critical_path_is_all_of_the_time(machine, period) -> None:
    for kernel in (chain, many_rows(300)):
        run = device_run(kernel, machine)
        run.period = period
        path = critical_path(run.timeline)
        assert sum(path.parts.values()) == pytest.approx(run.timeline.total_us)
        assert all(us >= -1e-9 for us in path.parts.values()), path.parts
        assert sum(path.kernel_us.values()) == pytest.approx(path.parts["exec"])
        starts = run.timeline.start[list(path.records)]
        assert (np.diff(starts) > 0).all()


def test_the_path_follows_dependencies() -> None:
    run = device_run(chain)
    path = critical_path(run.timeline)
    names = [run.timeline.kernel_names[run.timeline.kernel[r]] for r in path.records]
    assert names[-2:] == ["product", "activate"]


# Traffic


def test_bytes_and_what_is_compulsory() -> None:
    profile = device_run(chain).profile
    rows = {t.name: t for t in profile.tensors}
    x, w, y = rows["x"], rows["w"], rows["y"]
    assert (x.read, x.least_read, x.written) == (64 * 256 * 4, 64 * 256 * 4, 0)
    # Each of four tasks reads all of the weights.
    assert (w.read, w.least_read) == (4 * 256 * 128 * 4, 256 * 128 * 4)
    assert (y.read, y.written, y.least_written) == (0, 64 * 128 * 4, 64 * 128 * 4)
    part = rows["part"]
    assert (part.origin, part.read, part.written) == ("temp", 64 * 128 * 4, 64 * 128 * 4)
    assert part.least_read == part.least_written == 0
    product = next(k for k in profile.kernels if k.name == "product")
    assert product.flops == 2 * 64 * 256 * 128
    assert product.least_read == x.least_read + w.least_read
    assert profile.least == x.least_read + w.least_read + y.least_written


def test_a_summary_lacks_only_what_takes_long() -> None:
    run = device_run(chain)

    def rest(profile: Profile) -> dict[str, Any]:
        quick = {"depends_on", "kernels", "tensors"}
        found = {k: v for k, v in vars(profile).items() if k not in quick}
        rows = [*profile.kernels, *profile.tensors]
        return found | {
            f"row {i}": {k: v for k, v in vars(row).items() if not k.startswith("least")}
            for i, row in enumerate(rows)
        }

    assert run.profile.least > 0
    assert rest(run.summary) == rest(run.profile)


def test_overlapping_windows_count_once() -> None:
    @pl.jit
    def smooth(x: pl.Tensor[[64, 64], pl.FP32], y: pl.Out[pl.Tensor[[48, 64], pl.FP32]]):
        for r in pl.parallel(0, 48, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[r : r + 16, :] = pl.add(x[r : r + 16, :], x[r + 8 : r + 24, :])
        return y

    rows = {t.name: t for t in device_run(smooth).profile.tensors}
    assert rows["x"].read == 2 * 48 * 64 * 4
    assert rows["x"].least_read == 56 * 64 * 4


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 9), st.integers(1, 5)),
        min_size=2,
        max_size=8,
    )
)
def test_the_union_of_boxes(boxes: list[tuple[int, int, int, int]]) -> None:
    painted = np.zeros((16, 16), bool)
    for row, height, column, width in boxes:
        painted[row : row + height, column : column + width] = True
    rows = np.array([(0, r, r + h, c, c + w) for r, h, c, w in boxes], np.int64)
    assert _union(rows) == painted.sum()


# Other views


def test_two_machines_side_by_side() -> None:
    table = side_by_side([device_run(chain, m).profile for m in (A2A3, A5)])
    assert table.heads == ("", "a2a3", "a5")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["tasks"] == ("8", "8")
    assert rows["Acc used"] == ("8.0 of 128 KB", "8.0 of 256 KB")


def test_the_same_run_gives_the_same_bytes() -> None:
    first, second = device_run(chain), device_run(chain)
    assert first.profile.to_json() == second.profile.to_json()
    assert report_text(first.profile) == report_text(second.profile)


def test_a_profile_can_be_kept() -> None:
    text = device_run(chain).profile.to_json()
    assert Profile.from_json(text, "p.json").to_json() == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ("[1]", "`version: 1`"),
        ('{"version": 1}', "it lacks"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_a_file_that_is_no_profile(text: str, problem: str) -> None:
    with pytest.raises(BadProfile) as caught:
        Profile.from_json(text, "p.json")
    assert problem in caught.value.diagnostic.notes[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"tasks": 101', '"tasks": "many"'),
        ('"total_us": 250.0', '"total_us": null'),
        ('"func_id": 0', '"number": 0'),
        ('"exec": 230.0', '"exec": "long"'),
        ('"AIC": 0.8', '"AIC": []'),
    ],
)
def test_a_damaged_profile(old: str, new: str) -> None:
    text = by_hand().to_json()
    assert old in text
    with pytest.raises(BadProfile):
        Profile.from_json(text.replace(old, new), "p.json")


def test_tables_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    table = Table("Title", ("name", "us"), [("a[0]", "1.00")])
    show([table, "text [bold]"])
    plain = capsys.readouterr().out
    assert plain == "Title\n  name    us\n  ----  ----\n  a[0]  1.00\n\ntext [bold]\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show([table, "text [bold]"])
    rich = capsys.readouterr().out
    assert "a[0]" in rich
    assert "text [bold]" in rich


def test_bytes_in_words() -> None:
    assert [byte_text(n) for n in (0, 999, 1000, 786_432_000, 1_556_000_000)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "786.4 MB",
        "1.6 GB",
    ]


@pl.jit
def shared(
    x: pl.Tensor[[16, 2048], pl.BF16],
    w: pl.Tensor[[2048, 128], pl.BF16],
    y: pl.Out[pl.Tensor[[1536, 128], pl.FP32]],
):
    """Every task reads the same weight: L2 serves all but the first of them."""
    for r in pl.parallel(0, 1536, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            acc = pl.matmul(x[:, 0:256], w[0:256, :], out_dtype=pl.FP32)
            for k in pl.range(256, 2048, 256):
                acc = pl.matmul_acc(acc, x[:, k : k + 256], w[k : k + 256, :])
            y[r : r + 16, :] = acc
    return y


@pytest.mark.parametrize("machine", [A2A3, A5])
def test_no_kernel_passes_its_roof_and_near_it_the_roof_is_what_limits(machine: Machine) -> None:
    for program in (shared, chain):
        for kernel in device_run(program, machine).profile.kernels:
            if not kernel.flops:
                continue
            share = kernel.gflops / kernel.roof_gflops
            assert 0 < share <= 1.0
            assert kernel.bound in ("cube", "GM") or share < 0.8


def test_a_kernel_at_its_roof_is_bound_by_it() -> None:
    """The pipes of each core alone would suggest another bottleneck."""
    summary = _Summary(device_run(shared).timeline, "shared")
    peak = summary.peak_gflops(summary.stream.kernels)
    assert summary.bound(0, 1e9, peak, 0.9 * peak) == "cube"
    assert summary.bound(0, 1e9, 0.5 * peak, 0.45 * peak) == "GM"
    assert summary.bound(0, 1e-9, peak, 0.1 * peak) == "dispatch"
