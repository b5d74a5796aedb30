"""What the command line asks for, as each command gets it."""

from __future__ import annotations

import argparse
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tilelet.scripts.target import Target

TEXT, JSON, SARIF = FORMATS = ("text", "json", "sarif")
DEFAULT_MACHINE = "a2a3"

NO_TARGET = Target("")
"""Of `compare`, which has two."""

T = TypeVar("T")


@dataclass(frozen=True)
class ScriptOptions:
    """How a script runs, whatever is asked about it.

    command     "run", "profile", ...
    pypto       what `import pypto` means: "tilelet" or "installed"
    golden      what `import golden` means: "tilelet" or "script"
    """

    command: str
    format: str = TEXT
    build_dir: Path | None = None
    seed: int = 0
    pypto: str = "tilelet"
    golden: str = "tilelet"


@dataclass(frozen=True)
class RunOptions(ScriptOptions):
    """`tilelet run` and `tilelet tasks`; the second has only the first of these."""

    target: Target = NO_TARGET
    platform: str | None = None
    dump_passes: bool = False
    engine: str | None = None
    keep_c: bool = False
    keep_c_in: Path | None = None
    seed_valid: bool = False
    save_data: bool = False
    no_golden_cache: bool = False
    checks: bool = True
    strict: bool = False
    as_runtime: bool = False


@dataclass(frozen=True)
class DeviceOptions(ScriptOptions):
    """`tilelet profile`, and what `tilelet check` has in common with it."""

    target: Target = NO_TARGET
    platform: str | None = None
    platforms: tuple[str, ...] = ()
    period: str | None = None
    execute: bool = False
    files: bool = True
    as_runtime: bool = False
    html: Path | None = None
    open: bool = False

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines to model, by name."""
        return self.platforms or (self.platform or DEFAULT_MACHINE,)


@dataclass(frozen=True)
class CheckOptions(DeviceOptions):
    """`tilelet check`; `only` names the checks to make, none: all that are not opt-in."""

    memory: bool = False
    only: tuple[str, ...] = ()
    budget: float = 60.0
    portable: str | None = None


@dataclass(frozen=True)
class ExportOptions(ScriptOptions):
    """`tilelet export`."""

    target: Target = NO_TARGET
    dialect: str = "2026-08"
    output: Path | None = None
    program: str | None = None


@dataclass(frozen=True)
class DivergeOptions(ScriptOptions):
    """`tilelet diverge`; `budget` is in seconds, `html` a page to write."""

    target: Target = NO_TARGET
    budget: float = 12.0
    all_fp32: bool = False
    platform: str | None = None
    html: Path | None = None
    open: bool = False


@dataclass(frozen=True)
class CompareOptions(DeviceOptions):
    """`tilelet compare`: one side or two."""

    a: str = ""
    b: str | None = None


@dataclass(frozen=True)
class AdviseOptions(DeviceOptions):
    """`tilelet advise`."""

    fix: bool = False
    in_place: bool = False
    unproved: bool = False


@dataclass(frozen=True)
class VerdictOptions(DeviceOptions):
    """`tilelet verdict`; `strength` is in seconds, None: the golden is not tried."""

    strength: float | None = None


@dataclass(frozen=True)
class TuneOptions(DeviceOptions):
    """`tilelet tune`. The meaning of the fields is that of `tuning.tuner.Request`.

    budget  candidates and seconds
    """

    vary: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    objective: str = "us"
    budget: tuple[int, float] = (200, math.inf)
    method: str | None = None
    search_seed: int = 0
    jobs: int | None = None
    executor: str | None = None
    results: Path | None = None
    verify: int = 5


def taken(cls: type[T], namespace: argparse.Namespace, **more: Any) -> T:
    """What a parser found, as a `cls`: the fields it has options for, and those in `more`."""
    assert dataclasses.is_dataclass(cls)
    found = vars(namespace)
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: found[name] for name in names if name in found}, **more)
