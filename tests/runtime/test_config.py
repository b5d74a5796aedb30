"""`RunConfig` takes the fields of every era and rejects the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilelet.diag.catalogue.command import UnknownPlatform
from tilelet.diag.catalogue.harness import UnknownConfigField
from tilelet.runtime import BackendType, OptimizationStrategy, RunConfig


def test_the_oldest_form() -> None:
    config = RunConfig(
        platform="a5",
        device_id=3,
        rtol=1e-3,
        atol=2e-3,
        strategy=OptimizationStrategy.Default,
        backend_type=BackendType.Ascend950,
        dump_passes=True,
        save_kernels=True,
        save_kernels_dir="somewhere",
        pto_isa_commit="abc",
        runtime_profiling=True,
    )
    assert config.platform == "a5"
    assert config.profiles
    assert config.directory == Path("somewhere")


def test_settings_in_groups_count_like_direct_ones() -> None:
    config = RunConfig(
        rtol=1e-3, compile={"dump_passes": True}, runtime={"platform": "a2a3", "device_id": 1}
    )
    assert config.dump_passes is True
    assert config.platform == "a2a3"


def test_with_settings_leaves_the_original_alone() -> None:
    config = RunConfig(platform="a2a3sim")
    assert config.with_settings({"platform": "a5sim"}).platform == "a5sim"
    assert config.with_settings(None).platform == "a2a3sim"
    assert config.platform == "a2a3sim"


@pytest.mark.parametrize(
    "name",
    [
        *("runtime_profiling", "enable_profiling", "on_device_profiling"),
        *("enable_l2_swimlane", "enable_chip_swimlane"),
    ],
)
def test_every_spelling_of_profiling(name: str) -> None:
    assert RunConfig(**{name: 4}).profiles
    assert not RunConfig(**{name: 0}).profiles


def test_the_backend_decides_the_family() -> None:
    assert RunConfig(platform="a2a3sim", backend_type=BackendType.Ascend950).platform == "a5sim"
    assert RunConfig(platform="a5", backend_type=BackendType.Ascend910B_PTO).platform == "a2a3"
    assert RunConfig(backend_type=BackendType.Ascend950).platform == "a5sim"


def test_board_records_are_named() -> None:
    assert RunConfig(enable_pmu=2, enable_dep_gen=True).board_records == [
        "enable_pmu",
        "enable_dep_gen",
    ]


def test_settings_of_earlier_harnesses() -> None:
    given = RunConfig(
        enable_dump_tensor=True, enable_out_window_externalization=True, use_ptoas_multi_buffer=2,
        dsa_export_dir="dsa", validate_ir=True, distributed_config=None,
    )  # fmt: skip
    assert given.board_records == ["enable_dump_tensor"]
    assert given.any_dfx_enabled()
    assert RunConfig(runtime_profiling=True).any_dfx_enabled()
    assert not RunConfig(validate_ir=True).any_dfx_enabled()


def test_unknown_fields_are_errors_wherever_they_stand() -> None:
    with pytest.raises(UnknownConfigField, match=r"did you mean `platform`"):
        RunConfig(plattform="a5")
    with pytest.raises(UnknownConfigField):
        RunConfig(compile={"dump_pases": True})
    with pytest.raises(UnknownConfigField):
        RunConfig().with_settings({"devce_id": 0})
    with pytest.raises(UnknownPlatform):
        RunConfig(platform="a4")
