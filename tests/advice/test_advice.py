"""Advice: findings at the faulty lines, correct rewritings, and no advice where nothing helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.advice import scripts
from tests.advice.scripts import line_of, script
from tests.advice.test_rules import differs as outputs_differ

from tilelet.advice.advisor import AdviceFinding, Advisor, Report
from tilelet.advice.programs import ScriptPrograms, Setting
from tilelet.advice.proof import examine
from tilelet.advice.report import diagnostics
from tilelet.device.machine.description import load_machine
from tilelet.equivalence.trials import difference
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

SETTING = Setting(load_machine("a2a3"), None, RecordingOptions(platform="a2a3", quiet=True))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)


def target(text: str) -> Target:
    path = Path("kernel.py")
    path.write_text(text, encoding="utf-8")
    return Target(str(path), text=text)


def advise(text: str) -> Report:
    return Advisor(target(text), SETTING).advise()


def of_rule(report: Report, rule: str) -> list[AdviceFinding]:
    return [finding for finding in report.findings if finding.rule.name == rule]


def places(report: Report, rule: str) -> list[int]:
    return [f.advice.loc.line for f in of_rule(report, rule) if f.advice.loc]


def differs(a: str, b: str, *, rounding: bool) -> str:
    """Return how the outputs of two scripts differ on the first script's inputs."""
    return outputs_differ(ScriptPrograms(target(a), SETTING), a, b, rounding=rounding)


def test_a_sum_in_memory_is_rewritten_step_by_step() -> None:
    """Scopes are merged, the addition becomes a `matmul_acc`, and loops are interchanged."""
    text = script(scripts.SUM)
    report = Advisor(target(text), SETTING).fix()
    assert report.steps[0].finding.rules[:2] == ["round-trip", "sum-in-memory"]
    rules = {name for step in report.steps for name in step.finding.rules}
    assert "zeros-read-back" in rules
    assert report.after.us < report.before.us / 2
    assert report.after.tasks < report.before.tasks / 3
    # Comments and unrelated statements stay.
    assert "# one block of the activations" in report.text
    assert report.text.startswith(scripts.HEAD)
    assert report.text.endswith(scripts.TAIL)
    assert differs(text, report.text, rounding=True) == ""


def test_what_does_not_hold_is_left_out_of_what_is_done_together() -> None:
    """Ignoring the intermediate store would remove a dependency and look faster, but is wrong."""
    text = script(scripts.WRITTEN_SINCE)
    report = Advisor(target(text), SETTING).fix()
    taken = {name for step in report.steps for name in step.finding.rules}
    assert taken
    assert "zeros-read-back" not in taken
    assert report.after.us < report.before.us
    assert differs(text, report.text, rounding=True) == ""


def test_a_fill_that_nobody_reads() -> None:
    text = script(scripts.DEAD_FILL)
    report = advise(text)
    assert places(report, "fill") == [line_of(text, "for kb in")]
    (finding,) = of_rule(report, "fill")
    assert finding.after is not None
    assert finding.after.us < report.before.us


def test_a_fill_that_somebody_reads_is_left_alone() -> None:
    assert of_rule(advise(script(scripts.LIVE_FILL)), "fill") == []


def test_a_round_trip_between_scopes() -> None:
    text = script(scripts.ROUND_TRIP)
    report = Advisor(target(text), SETTING).fix()
    assert places(report, "round-trip") == [line_of(text, "with pl.at")]
    assert report.after.tasks == report.before.tasks // 2
    assert "# and back" in report.text
    assert differs(text, report.text, rounding=False) == ""


def test_a_script_with_findings_of_its_own_gets_advice_too() -> None:
    """If the script itself fails its golden or has a race, only new findings count."""
    text = script(scripts.SUM).replace(
        "return out\n",
        """for kb in pl.range(HIDDEN // TILE):
            with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out]):
                out[:, kb * TILE : (kb + 1) * TILE] = pl.mul(
                    acc[:, kb * TILE : (kb + 1) * TILE], 2.0
                )
        return out
""",
        1,
    )
    assert examine(ScriptPrograms(target(text), SETTING), text, SETTING).findings
    assert any(finding.after for finding in advise(text).findings)


def test_nothing_is_proposed_for_what_is_fine() -> None:
    text = Advisor(target(script(scripts.ROUND_TRIP)), SETTING).fix().text
    # Sizes are left to `tilelet tune`.
    found = [finding for finding in advise(text).findings if finding.rule.name != "tile-size"]
    assert all(finding.after is None for finding in found)


def test_reads_that_could_be_done_once() -> None:
    text = script(scripts.READS)
    assert any("pl.read" in cause for cause in advise(text).causes)
    loop, read = "for r in pl.range(4):\n", "n = pl.read(lengths, [r])\n"
    once = script(
        scripts.READS.replace(f"            {read}", "").replace(loop, f"{loop}        {read}")
    )
    assert not any("pl.read" in cause for cause in advise(once).causes)


def test_a_norm_without_its_root() -> None:
    text = script(scripts.NORM)
    assert places(advise(text), "missing-root") == [line_of(text, "pl.add(mean, 1e-6)")]
    right = text.replace("pl.add(mean, 1e-6)", "pl.rsqrt(pl.add(mean, 1e-6))")
    assert places(advise(right), "missing-root") == []


def test_what_the_text_says() -> None:
    text = script(scripts.NORM).replace(
        "class Program:", 'class Program:\n    """Rows of 16 \u00d7 8, CHUNK=32, TILE is 128."""\n'
    )
    report = Advisor(target(text), SETTING).fix()
    assert places(report, "stale-constant") == [line_of(text, "CHUNK=32")]
    assert places(report, "look-alike") == [line_of(text, "CHUNK=32")]
    assert '"""Rows of 16 x 8, CHUNK=64, TILE is 128."""' in report.text


def test_a_quotient_that_relies_on_equal_constants() -> None:
    text = script(
        scripts.ROUND_TRIP.replace("[0, k0])\n    # and", "[0, k0 // WIDTH * WIDTH])\n    # and")
    ).replace("CHUNK = 64\n", "CHUNK = 64\nWIDTH = 64\n")
    assert places(advise(text), "hidden-equality") == [line_of(text, "k0 // WIDTH")]


def test_what_was_not_tried_is_not_advice() -> None:
    """Four tasks do not fill the cores: smaller tiles are tried, and rejected with the reason."""
    for text in (script(scripts.SUM), script(scripts.NORM), script(scripts.ROUND_TRIP)):
        report = advise(text)
        untried = [f for f in report.findings if f.after is None and not f.why_not]
        assert all(f.rule.is_fault or f.rule.is_about_text for f in untried)
        changes = [f.text for f in report.findings if f.text is not None]
        assert len(changes) == len(set(changes))


FEW_TASKS = """
for kb in pl.range(HIDDEN // SIZE):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.cast(x[:, kb * SIZE : (kb + 1) * SIZE], target_type=pl.FP32)
        for r in pl.range(300):
            t = pl.exp(pl.mul(t, 0.5))
        out[:, kb * SIZE : (kb + 1) * SIZE] = t
return out
"""


def test_few_tasks_get_a_size_that_was_tried() -> None:
    text = script(FEW_TASKS).replace("CHUNK = 64\n", "CHUNK = 64\nSIZE = 256\n")
    report = advise(text)
    (finding,) = of_rule(report, "tile-size")
    assert "`SIZE` is 256, and 128 is faster" in finding.advice.diagnostic.message
    assert finding.after is not None
    assert finding.after.us < report.before.us
    notes = next(d.notes for d in diagnostics(report) if d.code == "W1330")
    assert any("x faster" in note for note in notes)
    assert any("2 tasks of `main_incore_0` for 48 cores" in note for note in notes)


def test_outputs_are_compared_bit_for_bit_or_by_rounding() -> None:
    import numpy as np

    a = {"out": np.array([1.0, -2.0], np.float32)}
    nearly = {"out": np.array([1.0, np.nextafter(np.float32(-2.0), np.float32(0))], np.float32)}
    far = {"out": np.array([1.0, -2.1], np.float32)}
    assert difference([[a]], [[a]], rounding=False) == ""
    assert difference([[a]], [[nearly]], rounding=False) == "`out` differs in trial 0"
    assert difference([[a]], [[nearly]], rounding=True) == ""
    assert "rounding" in difference([[a]], [[far]], rounding=True)
    whole = {"out": np.array([1, 2], np.int32)}
    assert difference([[whole]], [[{"out": np.array([1, 3], np.int32)}]], rounding=True)


def test_inputs_that_the_script_rejects_are_no_trials() -> None:
    import numpy as np

    a = {"out": np.zeros(2, np.float32)}
    assert difference([[None]], [[a]], rounding=False) == ""
    assert "fails in trial 0" in difference([[a]], [[None]], rounding=False)
