"""The report on all rows: its sums, its page, and the derived spreads."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import pytest
from tests.device.recorded import device_run

import tilelet.language as pl
from tilelet.calibration import page, published
from tilelet.calibration import report as reports
from tilelet.calibration.fit import fit
from tilelet.calibration.published import PublicProgram
from tilelet.calibration.report import RowFit
from tilelet.calibration.rows import PUBLISHED, Line, public_lines, public_rows
from tilelet.device import Machine, load_machine
from tilelet.device.report import uncertainty

ROOT = Path(__file__).parents[2]
A2A3 = load_machine("a2a3")


def outcome(name: str, modelled: float, left_out: float, cause: str = "vector") -> RowFit:
    return row(name, name, 100.0, modelled, left_out, cause)


def row(
    name: str,
    family: str,
    published: float,
    modelled: float,
    left_out: float,
    cause: str = "vector",
    period: str = "2026-06",
) -> RowFit:
    shares = {cause: 1.0}
    return RowFit(name, family, period, "cores", "us", published, modelled, left_out, shares)


def test_pairs_and_directions() -> None:
    rows = [
        row("a.before", "a", 100.0, 80.0, 80.0),
        row("a.after", "a", 50.0, 60.0, 60.0, "GM"),
        row("b.base", "b", 100.0, 80.0, 80.0),
        row("b.after", "b", 97.0, 90.0, 90.0),
        outcome("alone", 100.0, 100.0),
    ]
    first, second = reports.pairs_of(rows)
    assert (first.name, first.published, first.modelled) == ("a", 0.5, 0.75)
    assert first.cause == "vector"
    assert first.right
    assert first.noticed
    assert not second.right
    assert not second.noticed
    assert reports.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert reports.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)


def line(name: str, family: str, published: float, power: float, weight: float = 1.0) -> Line:
    """A row with a prediction of 100 us that scales with a power of the store time."""
    now = A2A3.paths["ub_to_gm"].fixed_cycles

    def predict(machine: Machine, _period: str) -> float:
        return 100.0 * (machine.paths["ub_to_gm"].fixed_cycles / now) ** power

    return Line(name, family, published, "us", predict, weight=weight)


def left_out(*others: Line) -> float:
    """Return the prediction for a program of stores from a fit to the other rows."""
    return fit(A2A3, [*others, line("asked", "asked", 100.0, 1.0)]).left_out[-1]


def test_a_change_counts_although_both_rows_are_off() -> None:
    off = line("a.before", "a", 150.0, 0.0), line("a.after", "a", 150.0 * 0.8, 1.0)
    apart = line("a1", "a", 150.0, 0.0), line("a2", "a", 150.0 * 0.8, 1.0)
    # The second row alone suggests longer stores; both rows together suggest 20 % less.
    assert left_out(*apart) > 101
    assert left_out(*off) < left_out(*apart) - 3


def test_rows_count_by_their_weight() -> None:
    more, less = (line(name, "a", us, 1.0) for name, us in (("m", 120.0), ("l", 80.0)))
    unsure = line("l", "a", 80.0, 1.0, weight=0.25)
    assert left_out(more, unsure) > left_out(more, less) + 3


def test_nine_of_ten_lie_inside() -> None:
    rows = [outcome(f"r{i}", 100.0, 100.0 * math.exp(0.02 * i)) for i in range(60)]
    rows += [outcome(f"m{i}", 100.0, 100.0 * math.exp(0.005 * i), "GM") for i in range(60)]
    spread = reports.spreads(rows)
    assert spread["GM"][0] < spread["vector"][0]
    assert spread["vector"][1] == 60
    assert reports.coverage(rows) >= 0.88


def off_by(error: float, name: str, period: str = "2026-06") -> RowFit:
    return row(name, name, 100.0, 100.0, 100.0 * math.exp(error), period=period)


def test_intervals_hold_for_families_that_had_no_part_in_them() -> None:
    rows = [off_by(0.01 * (i % 10), f"r{i}") for i in range(40)]
    far = [row(f"far{i}", "far", 100.0, 100.0, 100.0 * math.exp(0.5)) for i in range(8)]
    # Without the distant family intervals would be narrow; they are widened by its excess.
    assert reports.spreads([*rows, *far])["vector"][0] > 0.3
    assert reports.spreads(rows)["vector"][0] < 0.12
    # No other row predicts that family, so it counts as missed.
    assert reports.coverage([*rows, *far]) == pytest.approx(40 / 48)


def test_intervals_are_wider_in_periods_that_are_modelled_worse() -> None:
    good = [off_by(0.005 * (i % 20 + 1), f"g{i}") for i in range(40)]
    bad = [off_by(0.03 * (i % 20 + 1), f"b{i}", "2026-05-22") for i in range(20)]
    few = [off_by(0.3, "f", "2026-06-29")]
    rows = [*good, *bad, *few]
    factors = reports.period_factors(rows)
    assert factors["2026-06"][0] < 0.6 < 1.5 < factors["2026-05-22"][0]
    assert 1.0 < factors["2026-06-29"][0] < 1.3
    assert factors["2026-05-22"][1] == 20
    assert reports.coverage(rows) >= 0.9
    alike = [dataclasses.replace(o, period="2026-06") for o in rows]
    assert reports.typical_width(rows) < reports.typical_width(alike)


def test_a_tolerance_limit_is_above_the_quantile() -> None:
    rows = [off_by(0.001 * (i + 1), f"r{i}") for i in range(97)]
    width = math.log(reports.typical_width(rows))
    assert sum(o.left_out <= 100.0 * math.exp(width) for o in rows) == 91
    few = rows[:10]
    assert math.log(reports.typical_width(few)) >= 0.01


def test_the_spread_of_changes_grows_with_them() -> None:
    pairs = [
        reports.Pair(f"p{i}", math.exp(-c * 1.4), math.exp(-c), math.exp(-c))
        for i, c in enumerate((1, 2))
    ]
    pairs += [reports.Pair(f"q{i}", 1.05, 1.0, 1.0) for i in range(6)]
    spread = reports.pair_spread(pairs, {})
    assert 0.03 <= spread["floor"] < 0.1
    assert spread["slope"] > 0.1
    assert spread["dispatch"] == spread["rows"] == 8
    inside = [uncertainty.ratio_interval(spread, 1.0, p.left_out) or (0.0, 0.0) for p in pairs]
    assert all(low <= p.published <= high for p, (low, high) in zip(pairs, inside))


def test_intervals_and_likelihoods_of_changes_hold_for_families_left_out() -> None:
    outcomes = reports.load_outcomes()
    inside, width = reports.pair_coverage(outcomes)
    assert inside > 0.88
    assert width < reports.typical_width(outcomes)
    pairs = reports.pairs_of(outcomes)
    spread = reports.change_errors(outcomes)
    likely = [uncertainty.likelihood(spread, 1.0, p.left_out) or 0.0 for p in pairs]
    right = sum(p.right for p in reports.left_out(pairs))
    assert sum(likely) == pytest.approx(right, abs=2)


def test_errors_of_changes_are_in_units_of_their_period() -> None:
    outcomes = reports.load_outcomes()
    by_period = reports.Scales.of_rows(outcomes).periods
    pairs = reports.pairs_of(outcomes)
    assert reports.pair_spread(pairs, by_period) != reports.pair_spread(pairs, {})
    late, other = (
        uncertainty.pair_errors(load_machine("a2a3"), p) for p in ("2026-05-22", "2026-06")
    )
    assert late["within"] == other["within"]
    ratio = by_period["2026-05-22"] / by_period["2026-06"]
    assert late["floor"] / other["floor"] == pytest.approx(ratio, rel=1e-2)


def test_large_changes_are_as_sure_as_two_totals() -> None:
    pair = {"floor": 0.03, "slope": 0.3, "ceiling": 0.5, "within": 3.0}
    low, high = uncertainty.ratio_interval(pair, 1.0, 100.0) or (0.0, 0.0)
    assert high / 100.0 == pytest.approx(math.exp(3.0 * math.hypot(0.03, 0.5)))


def test_the_page_and_the_machine_file_are_of_the_saved_figures() -> None:
    outcomes = reports.load_outcomes()
    assert (ROOT / "docs" / page.PAGE).read_text() == page.page_text(outcomes)
    assert (ROOT / "docs" / page.PLOT).read_text() == page.plot_text(outcomes)
    machine = load_machine("a2a3")
    found = {bound: (s.within, s.rows) for bound, s in machine.errors.items()}
    assert found == reports.spreads(outcomes)
    factors = {period: (s.factor, s.rows) for period, s in machine.period_errors.items()}
    assert factors == reports.period_factors(outcomes)
    assert machine.pairs is not None
    assert dataclasses.asdict(machine.pairs) == reports.change_errors(outcomes)


def test_saved_figures_are_of_rows_that_exist() -> None:
    for o in reports.load_outcomes():
        name = o.name.split(" ")[0]
        assert name in PUBLISHED or name.rsplit(" ", 1)[0] in PUBLISHED
        assert PUBLISHED[name]["family"] == o.family


def test_rows_without_a_program_are_listed(tmp_path: Path) -> None:
    found, missing = public_lines(published.recorder(tmp_path))
    assert found == []
    assert missing == [row.id for row in public_rows()]


def test_a_public_program_is_run_as_it_is(tmp_path: Path) -> None:
    row = next(r for r in public_rows() if r.metric == "total_test_time" and not r.kernel)
    script = tmp_path / row.rev / row.path
    script.parent.mkdir(parents=True)
    script.write_text(
        "import sys\n"
        "import pypto.language as pl\n"
        "import numpy as np\n"
        "import helper_of_this_revision\n"
        f"assert sys.argv[1:] == {list(row.arguments)!r}\n"
        "@pl.jit\n"
        "def double(x: pl.Tensor[[64, 64], pl.FP32], y: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):\n"
        "    for i in pl.parallel(4):\n"
        "        with pl.at(level=pl.Level.CORE_GROUP):\n"
        "            y[i * 16 : i * 16 + 16, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 2.0)\n"
        "    return y\n"
        "double(np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32))\n"
    )
    (script.parent / "helper_of_this_revision.py").write_text("")
    found, missing = public_lines(published.recorder(tmp_path))
    assert row.id not in missing
    line = next(x for x in found if x.name == row.id)
    machine = load_machine("a2a3")
    assert line.predict(machine, line.period) > 0
    assert line.bound(machine, line.period) in ("memory", "cores", "waiting")
    assert "helper_of_this_revision" not in sys.modules


def test_counting_events_takes_ten_reads_of_a_register_per_block() -> None:
    @pl.jit
    def double(x: pl.Tensor[[4096, 64], pl.FP32], y: pl.Out[pl.Tensor[[4096, 64], pl.FP32]]):
        for i in pl.spmd(256):
            y[i * 16 : i * 16 + 16, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 2.0)
        return y

    run, machine = device_run(double).run, load_machine("a2a3")
    row = next(r for r in public_rows() if r.metric == "total_test_time" and not r.kernel)
    plain, counting = (
        PublicProgram(dataclasses.replace(row, counters=c, runs=1), run).predict(
            machine, "2026-05-19"
        )
        for c in (False, True)
    )
    runtime = machine.period("2026-05-19")
    reads = 256 * published.COUNTERS * runtime.poll_us / runtime.threads
    assert counting - plain >= 0.9 * reads


def test_figures_are_older_than_the_day_they_were_published() -> None:
    rows = {row.id: row for row in public_rows()}
    machine = load_machine("a2a3")
    # Published the day after a compiler change, so measured before the change.
    row = rows["pl223.decode"]
    assert (row.date, row.measured) == ("2026-05-07", "2026-05-05")
    assert machine.period_name(row.date) != machine.period_name(row.measured)
