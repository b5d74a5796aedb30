"""Intervals, likelihoods and sensitivities of modelled figures."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from tests.device.recording import elementwise, projection, recorded

from tilelet.device import load_machine, simulate
from tilelet.device.machine.description import with_fields
from tilelet.device.report import sensitivity, uncertainty
from tilelet.device.report.compare import ProfileComparison
from tilelet.device.report.profile import Profile
from tilelet.device.report.text import report_text
from tilelet.device.run import DeviceRun, Recorded
from tilelet.device.schedule.simulate import replay

A2A3, A5 = load_machine("a2a3"), load_machine("a5")


def run_of(program, machine=A2A3) -> DeviceRun:
    tasks, compiled = recorded(program)
    return DeviceRun(Recorded("p", compiled, tasks), machine)


@pytest.mark.parametrize("group", sensitivity.GROUPS)
def test_a_replay_is_what_simulating_again_gives(group: str) -> None:
    tasks, program = recorded(projection(columns=64, depth=1024, tasks=30))
    changed = sensitivity.scale_parameters(A2A3, {group: 1.3})
    again = replay(simulate(tasks, program, A2A3), changed)
    afresh = simulate(tasks, program, changed)
    assert again.finish.tolist() == afresh.finish.tolist()


def test_groups_name_fields_of_every_machine() -> None:
    for machine in (A2A3, A5):
        for group in sensitivity.GROUPS:
            for name in sensitivity.fields_of(machine, group):
                assert sensitivity.field_value(machine, name) >= 0


def test_the_largest_dependence_comes_first_and_is_real() -> None:
    line = run_of(elementwise(2000)).timeline
    found = sensitivity.sensitivities(line)
    first = next(iter(found))
    assert first == "submission of a task"
    more = replay(line, with_fields(A2A3, {"runtime.2026-04.submit_us": 0.55 * 1.1}))
    assert found[first] == pytest.approx((more.total_us / line.total_us - 1) / 0.1)
    assert [abs(x) for x in found.values()] == sorted(
        (abs(x) for x in found.values()), reverse=True
    )


def test_a_profile_has_an_interval_and_three_dependences() -> None:
    run = run_of(elementwise(200))
    profile = run.profile
    low, high = profile.interval
    within = sum(share * A2A3.errors[cause].within for cause, share in profile.shares.items())
    within *= A2A3.period_errors[profile.period].factor
    assert sum(profile.shares.values()) == pytest.approx(1.0)
    assert low == pytest.approx(profile.total_us * math.exp(-within))
    assert high == pytest.approx(profile.total_us * math.exp(within))
    assert len(profile.depends_on) == sensitivity.MAX_SHOWN
    assert "90 % interval" in report_text(profile)
    assert Profile.from_json(profile.to_json(), "p").bound == profile.bound


def test_a_machine_without_published_rows_claims_nothing() -> None:
    profile = run_of(elementwise(20), A5).profile
    assert profile.interval == ()
    assert "no published figures" in report_text(profile)


def test_old_profiles_are_read() -> None:
    data = json.loads(run_of(elementwise(20)).profile.to_json())
    for name in ("bound", "shares", "interval", "pair", "depends_on"):
        del data[name]
    assert Profile.from_json(json.dumps(data), "old").interval == ()


def test_the_likelihood_grows_with_the_change() -> None:
    pair = {"floor": 0.1, "slope": 0.5, "ceiling": 0.4}
    likely = [uncertainty.likelihood(pair, 100.0, us) for us in (99.0, 90.0, 70.0, 40.0)]
    assert likely == sorted(likely)
    assert likely[0] == pytest.approx(0.54, abs=0.01)
    assert uncertainty.in_words(pair, 100.0, 99.0) == "too close to tell"
    assert uncertainty.in_words(pair, 100.0, 40.0) == "faster, 92 % likely"
    assert uncertainty.in_words(pair, 40.0, 100.0) == "slower, 92 % likely"
    assert uncertainty.in_words({}, 40.0, 100.0) == ""


def test_a_comparison_says_how_sure_it_is() -> None:
    few, many = run_of(elementwise(20)).profile, run_of(elementwise(500)).profile
    better = ProfileComparison(many, few)
    assert "B is faster, " in better.verdict()
    assert better.to_data()["likelihood"] > 0.9
    close = dataclasses.replace(few, total_us=few.total_us * 1.005)
    assert "too close to tell" in ProfileComparison(few, close).verdict()
    elsewhere = dataclasses.replace(few, machine="a5", total_us=1.0)
    assert "likely" not in ProfileComparison(few, elsewhere).verdict()
    assert ProfileComparison(few, elsewhere).to_data()["likelihood"] is None
