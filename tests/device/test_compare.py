"""Comparison of modelled runs: figures, and causes that add up."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from tests.device.recorded import A2A3, A5, chain, device_run, many_rows

import tilelet.language as pl
from tilelet.device.report.compare import ProfileComparison
from tilelet.diag.tables import as_text


@pl.jit
def coarse(
    x: pl.Tensor[[400, 64], pl.FP32],
    y: pl.Out[pl.Tensor[[400, 64], pl.FP32]],
):
    for r in pl.parallel(0, 400, 40):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[r : r + 40, :] = pl.mul(x[r : r + 40, :], 2.0)
    return y


def comparison(a, b) -> ProfileComparison:
    return ProfileComparison(a.profile, b.profile)


@pytest.mark.parametrize(
    "pair",
    [
        lambda: (device_run(many_rows(400)), device_run(coarse)),
        lambda: (device_run(chain), device_run(chain, A5)),
        lambda: (device_run(chain), device_run(coarse)),
    ],
)
def test_the_causes_add_up_to_the_difference(pair) -> None:
    c = comparison(*pair())
    assert sum(cause.us for cause in c.causes()) == pytest.approx(c.difference_us, abs=0.05)
    sizes = [abs(cause.us) for cause in c.causes()]
    assert sizes == sorted(sizes, reverse=True)


def test_fewer_tasks_are_the_first_cause() -> None:
    c = comparison(device_run(many_rows(400)), device_run(coarse))
    assert c.difference_us < 0
    text = c.why()
    first = text.splitlines()[1]
    assert "the orchestrator, which submits 10 instead of 400 tasks" in first
    assert first.strip().startswith("1. -")
    assert c.verdict().startswith("B is ")
    assert text.count("\n  ") >= 2


def test_equal_numbers_of_tasks_are_no_change() -> None:
    causes = comparison(device_run(chain), device_run(chain, A5)).causes()
    assert any("tasks" in cause.text for cause in causes)
    assert not [c for c in causes if re.search(r"\b(\d+) instead of \1 task", c.text)]


def test_the_table_has_both_sides_and_their_ratio() -> None:
    c = comparison(device_run(many_rows(400)), device_run(coarse))
    rows = {row[0]: row[1:] for row in c.table().rows}
    assert rows["tasks"] == ("400", "10", "0.03x")
    assert rows["GM bytes"] == ("204.8 KB", "204.8 KB", "1.00x")
    assert rows["peak Vec"] == ("0.2 KB", "10.0 KB", "40.00x")


def test_the_same_twice() -> None:
    run = device_run(chain)
    c = comparison(run, run)
    assert c.causes() == []
    assert c.why().startswith("Both take ")


def test_two_machines_pair_their_kernels() -> None:
    c = comparison(device_run(chain, A2A3), device_run(chain, A5))
    assert all(a and b for a, b in c.kernel_pairs())
    assert any("kernel `product`: " in cause.text for cause in c.causes())


def test_different_work_is_pointed_out() -> None:
    assert "different work" in comparison(device_run(chain), device_run(coarse)).why()
    assert "different work" not in comparison(device_run(coarse), device_run(many_rows(400))).why()


def test_more_traffic_is_named() -> None:
    run = device_run(chain).profile
    product = run.kernels[0]
    worse = dataclasses.replace(
        product, read=2 * product.read, path_us=product.path_us + 40, exec_us=product.exec_us + 160
    )
    slow = dataclasses.replace(
        run,
        total_us=run.total_us + 40,
        kernels=(worse, *run.kernels[1:]),
        path={**run.path, "exec": run.path["exec"] + 40},
    )
    cause = ProfileComparison(run, slow).causes()[0]
    assert cause.us == pytest.approx(40)
    assert "; it moves 1.2 MB instead of 622.6 KB" in cause.text


def test_as_data_and_as_text_agree() -> None:
    c = comparison(device_run(many_rows(400)), device_run(coarse))
    data = c.to_data()
    assert data["a"]["tasks"] == 400
    assert data["difference_us"] == pytest.approx(c.difference_us, abs=1e-3)
    assert len(data["causes"]) <= 3
    text = "\n".join(as_text(c.parts()))
    assert all(cause["text"] in text for cause in data["causes"])


@pl.jit
def coarse_spmd(
    data: pl.Tensor[[400, 64], pl.FP32],
    y: pl.Out[pl.Tensor[[400, 64], pl.FP32]],
):
    with pl.spmd(10, name_hint="whole"):
        r = pl.get_block_idx() * 40
        y[r : r + 40, :] = pl.mul(data[r : r + 40, :], 2.0)
    return y


def test_a_kernel_that_became_spmd_is_still_the_same() -> None:
    c = comparison(device_run(coarse), device_run(coarse_spmd))
    ((a, b),) = c.kernel_pairs()
    assert a is not None
    assert b is not None
    assert a.name != b.name
    text = "\n".join(as_text(c.parts()))
    assert "only in" not in text
    assert f"{a.name} -> {b.name}" in text
    (cause,) = [cause.text for cause in c._kernels()]
    assert cause.startswith(f"kernel `{b.name}` (`{a.name}` in A): ")


def test_kernels_that_do_something_else_are_not_paired() -> None:
    c = comparison(device_run(coarse), device_run(chain))
    assert all(a is None or b is None for a, b in c.kernel_pairs())


def test_each_kernel_is_in_one_pair_and_the_likest_go_together() -> None:
    run = device_run(chain).profile
    product, activate = run.kernels
    twin = dataclasses.replace(product, name="twin", where="elsewhere.py:1")
    moved = dataclasses.replace(activate, name="act", where="elsewhere.py:2")
    other = dataclasses.replace(run, kernels=(moved, twin))
    pairs = [(a.name, b.name) for a, b in ProfileComparison(run, other).kernel_pairs() if a and b]
    assert pairs == [("product", "twin"), ("activate", "act")]


def test_profiles_saved_without_structure_can_still_be_compared() -> None:
    import json

    from tilelet.device.report.profile import Profile

    data = json.loads(device_run(chain).profile.to_json())
    for kernel in data["kernels"]:
        del kernel["structure"]
    old = Profile.from_json(json.dumps(data), "old.json")
    assert all(a and b for a, b in ProfileComparison(old, old).kernel_pairs())


def test_stages_that_do_not_fit_are_named_as_a_cause() -> None:
    def doubled(height: int) -> Any:
        H = height

        @pl.jit
        def double(x: pl.Tensor[[512, 1024], pl.FP32], y: pl.Out[pl.Tensor[[512, 1024], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
                for r in pl.pipeline(0, 512, H, stage=2):
                    y[r : r + H, :] = pl.exp(x[r : r + H, :])
            return y

        return double

    wide, fitting = (device_run(doubled(height)).profile for height in (32, 8))
    assert wide.kernels[0].serialized_us > 0
    assert fitting.kernels[0].serialized_us == 0
    assert "buffers do not fit" in ProfileComparison(wide, fitting).causes()[0].text
