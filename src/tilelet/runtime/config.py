"""`RunConfig`: one class that takes the settings of every era of the harness.

Most settings of the original harness steer a board or a vendor toolchain. Those are accepted, so
that scripts run unchanged, and mean nothing on a CPU. A setting that is not known is an error.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.command import UnknownPlatform
from tilelet.diag.catalogue.harness import BadConfig, UnknownConfigField
from tilelet.ranks.config import DistributedConfig

PLATFORMS = ("a2a3sim", "a2a3", "a5sim", "a5")
DEFAULT_PLATFORM = "a2a3sim"


class BackendType(enum.Enum):
    """The processor family a platform belongs to."""

    Ascend910B = "a2a3"
    Ascend950 = "a5"
    # Older names of the same platforms.
    Ascend910B_PTO = "a2a3"  # noqa: PIE796
    Ascend910B_CCE = "a2a3"  # noqa: PIE796
    PTO = "a2a3"  # noqa: PIE796
    CCE = "a2a3"  # noqa: PIE796


class OptimizationStrategy(enum.Enum):
    """Accepted for compatibility: Tilelet has one pipeline."""

    Default = "Default"
    DebugTileOptimization = "DebugTileOptimization"
    XPlatform = "XPlatform"
    PTOAS = "PTOAS"
    CCE = "CCE"
    TileCCEOptimization = "TileCCEOptimization"
    TilePTOOptimization = "TilePTOOptimization"


# Names of the profiling option in all eras.
PROFILING = (
    "runtime_profiling",
    "enable_profiling",
    "enable_l2_swimlane",
    "enable_chip_swimlane",
    "on_device_profiling",
)
# Settings that request records which only a board produces.
BOARD_RECORDS = (
    "enable_dump_args",
    "enable_dump_tensor",
    "enable_pmu",
    "enable_dep_gen",
    "enable_scope_stats",
)


@dataclass
class RunConfig:
    """Settings of one run. Give them by name; all have defaults.

    `compile` and `runtime` are the nested form: settings in them count as if given directly.
    """

    platform: str | None = None
    rtol: float | None = None
    atol: float | None = None
    backend_type: BackendType | None = None
    dump_passes: object = False
    save_kernels: bool = False
    save_kernels_dir: str | Path | None = None
    output_dir: str | Path | None = None
    work_dir: str | Path | None = None
    codegen_only: bool = False
    compile_only: bool = False
    engine: str | None = None
    compare_fn: Mapping[str, Callable[..., Any]] | Callable[..., Any] | None = None
    compile: dict[str, Any] = field(default_factory=dict[str, Any])
    runtime: dict[str, Any] = field(default_factory=dict[str, Any])

    runtime_profiling: object = False
    enable_profiling: object = False
    enable_l2_swimlane: object = False
    enable_chip_swimlane: object = False
    on_device_profiling: object = False

    # Accepted, without effect on a CPU.
    device_id: object = 0
    strategy: object = None
    pto_isa_commit: object = None
    compile_profiling: object = False
    pipeline_profiling: object = False
    warning_level: object = None
    disabled_warnings: object = None
    block_dim: object = None
    aicpu_thread_num: object = None
    memory_planner: object = None
    verification_level: object = None
    skip_ptoas: object = False
    dump_ptoas_passes: object = False
    enable_dump_args: object = 0
    enable_dump_tensor: object = False
    enable_pmu: object = 0
    enable_dep_gen: object = False
    enable_scope_stats: object = False
    ring_task_window: object = None
    ring_heap: object = None
    ring_dep_pool: object = None
    log_level: object = None
    runtime_env: object = None
    analyze_auto_scopes_for_deps: object = False
    enable_pypto_l0c_double_buffer: object = None
    diagnostic_phase: object = None
    disabled_diagnostics: object = None
    golden_data_dir: object = None
    distributed_config: DistributedConfig | None = None
    dsa_export_dir: object = None
    dsa_solution_dir: object = None
    dsa_reuse_penalty_recognizer: object = None
    dsa_reference_placement: object = None
    dsa_reference_target: object = None
    ptoas_sync_summary_dir: object = None
    use_ptoas_multi_buffer: object = None
    enable_out_window_externalization: object = None
    validate_ir: object = False
    validate_ir_only: object = False

    def __post_init__(self) -> None:
        for group in (self.compile, self.runtime):
            for name, value in (group or {}).items():
                _check_known(name)
                setattr(self, name, value)
        if self.platform is not None and self.platform not in PLATFORMS:
            raise UnknownPlatform(str(self.platform), PLATFORMS)
        if isinstance(self.backend_type, BackendType):
            self.platform = _matching_platform(self.platform or DEFAULT_PLATFORM, self.backend_type)

    @property
    def stops_after_compile(self) -> bool:
        return bool(self.codegen_only or self.compile_only)

    @property
    def profiles(self) -> bool:
        """Whether the script asked for timing in any of its spellings."""
        return any(bool(getattr(self, name)) for name in PROFILING)

    @property
    def wants_only_results(self) -> bool:
        """Whether only results are wanted, from the native engine."""
        return self.engine in (None, "cpu") and not self.profiles

    @property
    def board_records(self) -> list[str]:
        """Requested records that a CPU run does not produce."""
        return [name for name in BOARD_RECORDS if getattr(self, name)]

    @property
    def directory(self) -> Path | None:
        """The artifact directory that the script requests, if any."""
        chosen = self.output_dir or self.work_dir or self.save_kernels_dir
        return Path(chosen) if chosen else None

    def any_dfx_enabled(self) -> bool:
        """Whether the script requests timing, or records that only a board produces."""
        return self.profiles or bool(self.board_records)

    def with_settings(self, settings: Mapping[str, object] | None) -> RunConfig:
        """Return a copy with `settings` (a `compile_cfg` or `runtime_cfg`) applied."""
        for name in settings or {}:
            _check_known(name)
        return dataclasses.replace(self, compile={}, runtime={}, **(settings or {}))


def as_config(given: object) -> RunConfig | None:
    """Return settings given as a `RunConfig` or a dict; None if there are none."""
    if given is None or isinstance(given, RunConfig):
        return given
    if not isinstance(given, Mapping):
        raise BadConfig("config", type(given).__name__, "a `RunConfig` or a dict")
    return RunConfig().with_settings(cast("Mapping[str, object]", given))


def _check_known(name: str) -> None:
    known = [f.name for f in dataclasses.fields(RunConfig)]
    if name not in known:
        raise UnknownConfigField(name, known)


def _matching_platform(platform: str, backend: BackendType) -> str:
    """Return the platform of the backend's family, keeping `sim`."""
    return backend.value + ("sim" if platform.endswith("sim") else "")


def _reject_unknown_fields() -> None:
    """Make `RunConfig(typo=1)` a catalogue error, without losing the signature editors show."""
    generated = RunConfig.__init__

    @functools.wraps(generated)
    def checked(self: RunConfig, *args: Any, **named: Any) -> None:
        for name in named:
            _check_known(name)
        generated(self, *args, **named)

    RunConfig.__init__ = checked  # type: ignore[method-assign]


_reject_unknown_fields()
