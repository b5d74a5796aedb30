"""Machine files: built-in ones are consistent, wrong ones are reported by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilelet.device import load_machine, machine_names
from tilelet.device.machine.description import BUILT_IN, EVIDENCE, with_fields
from tilelet.diag import UserError
from tilelet.ir.spec import REGISTRY, Cost, Engine
from tilelet.ir.types import Mem

A2A3 = (BUILT_IN / "a2a3.toml").read_text(encoding="utf-8")


def test_built_in_machines() -> None:
    assert machine_names() == ["a2a3", "a5"]
    a2a3, a5 = (load_machine(n) for n in machine_names())
    assert (a2a3.cores.clusters, a2a3.cores.vectors) == (24, 48)
    assert {s.name: m.usable // 1024 for s, m in a2a3.buffers.items()} == {
        "Vec": 184,
        "Mat": 512,
        "Left": 64,
        "Right": 64,
        "Acc": 128,
        "Bias": 1,
    }
    assert a5.buffers[Mem.Vec].usable == 240 * 1024
    assert a5.buffers[Mem.Acc].usable == 256 * 1024
    assert a5.buffers[Mem.Bias].usable == 4096
    assert (a2a3.gm.granule, a5.gm.granule) == (512, 128)
    assert a5.has_path("l0c_to_ub")
    assert not a2a3.has_path("l0c_to_ub")
    assert {"2026-04", "2026-05-15", "2026-06", "2026-07"} <= set(a2a3.runtime)
    assert list(a2a3.runtime) == sorted(a2a3.runtime)


def test_the_simulators_name_means_the_machine() -> None:
    assert load_machine("a2a3sim") is load_machine("a2a3")


@pytest.mark.parametrize("name", ["a2a3", "a5"])
def test_every_fitted_number_says_where_it_comes_from(name: str) -> None:
    evidence = load_machine(name).evidence
    for field in ("gm.efficiency", "paths.gm_to_l1.latency_cycles", "body.start_cycles"):
        assert evidence[field].tag in EVIDENCE
        assert evidence[field].source


def test_every_vector_op_has_a_cost() -> None:
    ops = [s for s in REGISTRY.values() if s.engine is Engine.VEC and s.expands is None]
    assert [s.name for s in ops if s.cost is Cost.DEFAULT] == []
    for name in machine_names():
        # Without costs of their own, scatters run on the scalar unit and padding is a copy.
        assert {c.value for c in Cost} - {"scatter", "pad"} <= set(load_machine(name).vector)


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


WRONG = {
    "missing": ("gm.hbm_gbs", 'hbm_gbs = { value = 1420, evidence = "D"', "# ", "E0903"),
    "negative": ("cores.clusters", "clusters = { value = 24", "clusters = { value = -24", "E0905"),
    "zero": ("cores.clock_ghz", "value = 1.85", "value = 0", "E0905"),
    "a text": ("cube.fractal", "fractal = { value = 16", 'fractal = { value = "16"', "E0905"),
    "not a number": (
        "gm.efficiency",
        "efficiency = { value = 0.79",
        "efficiency = { value = nan",
        "E0905",
    ),
    "a fraction": (
        "cores.clusters",
        "clusters = { value = 24",
        "clusters = { value = 2.5",
        "E0905",
    ),
    "too large a share": (
        "gm.efficiency",
        "efficiency = { value = 0.79",
        "efficiency = { value = 1.1",
        "E0905",
    ),
    "unknown evidence": (
        "evidence",
        'value = 24, evidence = "C"',
        'value = 24, evidence = "X"',
        "E0905",
    ),
    "unknown field": ("cores.clok", "[cores]", "[cores]\nclok = 1", "E0904"),
    "unknown path": ("paths.gm_to_moon", "[cube]", "[paths.gm_to_moon]\n[cube]", "E0904"),
    "unknown table": ("extra", "[cores]", "[extra]\n[cores]", "E0904"),
    "usable over size": (
        "buffers.Vec.usable",
        "usable = 188416",
        "usable = 288416",
        "E0906",
    ),
    "cold faster than hot": (
        "paths.gm_to_ub.cold_bytes_per_cycle",
        "cold_bytes_per_cycle = { value = 32",
        "cold_bytes_per_cycle = { value = 320",
        "E0906",
    ),
    "more threads than clusters": (
        "runtime.2026-04.threads",
        "threads = { value = 3",
        "threads = { value = 30",
        "E0906",
    ),
    "unknown rule": ("runtime.2026-04.rule", 'rule = "kernel"', 'rule = "none"', "E0905"),
    "unknown default period": (
        "default_period",
        'default_period = "2026-04"',
        'default_period = "2025-01"',
        "E0905",
    ),
    "no TOML": ("", "[cores]", "[cores", "E0902"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_reported_by_field(what: str, tmp_path: Path) -> None:
    field, old, new, code = WRONG[what]
    assert old in A2A3
    with pytest.raises(UserError) as caught:
        load_machine(written(tmp_path, A2A3.replace(old, new, 1)))
    assert caught.value.code == code
    assert field in caught.value.diagnostic.message or not field


def test_unknown_machine() -> None:
    with pytest.raises(UserError, match="a2a3") as caught:
        load_machine("a2a4")
    assert caught.value.code == "E0901"
    with pytest.raises(UserError):
        load_machine("nowhere/mine.toml")


def test_a_period_is_like_another_one_but_for_what_it_says(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    text = 'extends = "a2a3"\n[runtime."2026-08-20"]\nlike = "2026-07"\nsubmit_us = 0.3\n'
    own.write_text(text)
    machine = load_machine(own)
    assert machine.period("2026-08-31").submit_us == 0.3
    assert machine.period("2026-08-20").threads == machine.period("2026-07").threads
    own.write_text(text.replace('like = "2026-07"', 'like = "2027-01"'))
    with pytest.raises(UserError, match=r"runtime\.2026-08-20\.like") as caught:
        load_machine(own)
    assert caught.value.code == "E0905"


def test_periods_without_a_date_are_chosen_by_name_only() -> None:
    machine = load_machine("a2a3")
    assert machine.newest_period == machine.period_name("2030-01-01") == "2026-09"
    assert machine.period("host-graph").submit_us < machine.period("2026-07").submit_us


def test_unknown_period() -> None:
    with pytest.raises(UserError, match="2026-06") as caught:
        load_machine("a2a3").period("2025-12")
    assert caught.value.code == "E0907"
    for asked in ("June", "2026-13", "2026-06-41", "2026-6"):
        with pytest.raises(UserError, match="2026-06"):
            load_machine("a2a3").period(asked)


@pytest.mark.parametrize(
    ("date", "period"),
    [
        ("2026-04-13", "2026-04"),
        ("2026-04-27", "2026-04-23"),
        ("2026-05", "2026-04-29"),
        ("2026-05-18", "2026-05-15"),
        ("2026-06-18", "2026-06-11"),
        ("2026-08-16", "2026-07"),
        ("2026-08-30", "2026-08-17"),
        ("2027-01-01", "2026-09"),
    ],
)
def test_a_date_means_the_period_that_had_begun(date: str, period: str) -> None:
    machine = load_machine("a2a3")
    assert machine.period_name(date) == period
    assert machine.period(date) is machine.runtime[period]


def test_a_file_may_extend_a_machine(tmp_path: Path) -> None:
    text = 'extends = "a2a3"\nname = "half"\n[cores]\nclusters = 12\n'
    half = load_machine(written(tmp_path, text))
    assert half.name == "half"
    assert half.cores.clusters == 12
    assert half.cores.clock_ghz == load_machine("a2a3").cores.clock_ghz
    with pytest.raises(UserError, match="extends"):
        load_machine(written(tmp_path, 'extends = "b9"\n'))


def test_varied_changes_only_what_it_is_told() -> None:
    machine = load_machine("a2a3")
    other = with_fields(machine, {"gm.efficiency": 0.5, "runtime.2026-04.dispatch_us": 9.0})
    assert other.gm.efficiency == 0.5
    assert other.period("2026-04").dispatch_us == 9.0
    assert other.period("2026-06") == machine.period("2026-06")
    assert machine.gm.efficiency != 0.5


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[cores]\nclusters = " + "9" * 400, "E0905"),
        ("[cores]\nclusters = 0x" + "f" * 9000, "E0905"),
        ("[cores]\nclusters = 1_000_000_000", "E0905"),
        ("[cores]\nclock_ghz = 1e-300", "E0905"),
        ("[cores]\nclock_ghz = 1e300", "E0905"),
        ("[cores]\nclock_ghz = nan", "E0905"),
        ("[gm]\nefficiency = 1e-300", "E0905"),
        ("[errors.waiting]\nwithin = 1e10", "E0905"),
        ("[cores]\nclusters = " + "9" * 5000, "E0902"),
        ("deep = " + "[" * 100000 + "]" * 100000, "E0902"),
    ],
)
def test_numbers_and_nesting_beyond_all_machines(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "m.toml"
    path.write_text(f'name = "m"\ntitle = "t"\nextends = "a2a3"\n{text}\n')
    with pytest.raises(UserError) as caught:
        load_machine(path)
    assert caught.value.code == code
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", ["x" * 300 + ".toml", "x/" * 3000 + "m.toml"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(UserError) as caught:
        load_machine(name)
    assert caught.value.code == "E0901"
