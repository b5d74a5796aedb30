"""Options that several commands have in common, as bases of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilelet.cli.declaration import Command, option, script
from tilelet.cli.values import (
    OneOf,
    folder,
    machines,
    name_list,
    new_file,
    periods,
    positive_number,
    whole_number,
)
from tilelet.dataclasses import dataclass
from tilelet.scripts.target import Target

TEXT, JSON, SARIF = FORMATS = ("text", "json", "sarif")
DEFAULT_MACHINE = "a2a3"


def format_option(*formats: str, about: str = "format of the answer") -> str:
    return option(about, default=TEXT, parse=OneOf(*formats), variable="TILELET_FORMAT")


def platform_option(
    about: str = "a2a3 (default), a5, or a machine file (.toml)", **more: object
) -> Any:
    settings: dict[str, Any] = {"default": None, "metavar": "NAME", "words": machines, **more}
    return option(about, "-p", "--platform", **settings)


def html_option() -> Path | None:
    return option(
        "write a page to look at: one file that needs no network",
        default=None,
        parse=new_file,
        metavar="FILE",
    )


def open_option() -> bool:
    return option("open the page in a browser")


def execute_option() -> bool:
    return option("run the kernels too: for programs whose results decide their tasks")


def as_runtime_option() -> bool:
    return option("count as the device's runtime does: allocations, both halves of mixed kernels")


def jobs_option() -> int | None:
    about = "processes (one per core)"
    return option(about, default=None, parse=positive_number, metavar="N", rivals="where")


def executor_option() -> str | None:
    about = "a dask scheduler whose workers do the work"
    return option(about, default=None, metavar="dask://HOST:PORT", rivals="where")


def engine_option(section: str) -> str | None:
    about, values = "engine that executes programs (cpu)", OneOf("cpu", "interp")
    return option(about, default=None, parse=values, section=section)


def dtype_option(section: str) -> str | None:
    values = OneOf("bfloat16", "float16", "float32")
    about = "element type of weights and states (as stored)"
    return option(about, default=None, parse=values, section=section)


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(Command):
    """Options for running a script, common to all commands that run one."""

    format: str = format_option(*FORMATS)
    build_dir: Path | None = option(
        "folder of run directories (build_output)", default=None, parse=folder, metavar="DIR"
    )
    seed: int = option(
        "draw other random inputs (default: 0)",
        default=0,
        parse=whole_number,
        metavar="N",
        variable="TILELET_SEED",
    )
    pypto: str = option(
        "what `import pypto` means (default: tilelet)",
        default="tilelet",
        parse=OneOf("tilelet", "installed"),
    )
    golden: str = option(
        "what `import golden` means: Tilelet's, or the script's own (default: tilelet)",
        default="tilelet",
        parse=OneOf("tilelet", "script"),
    )
    target: Target = script()


@dataclass(frozen=True, kw_only=True)
class RunOptions(ScriptOptions):
    """Options of `tilelet run`, and of `tilelet tasks`, which has only the first of these."""

    format: str = format_option(
        *FORMATS, about="format of messages; json and sarif go to stdout, all else to stderr"
    )
    platform: str | None = platform_option(
        "platform passed to the script, which runs on this CPU in any case",
        parse=OneOf("a2a3sim", "a2a3", "a5sim", "a5"),
    )
    dump_passes: bool = option(
        "write the program after every pass to the run directory", variable="TILELET_DUMP_PASSES"
    )
    engine: str | None = None
    ranks: str = "here"
    keep_c: bool = False
    keep_c_in: Path | None = None
    keep_plan: bool = False
    seed_valid: bool = False
    save_data: bool = False
    no_golden_cache: bool = False
    checks: bool = False
    strict: bool = False
    as_runtime: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ScriptOptions):
    """Options of commands that model a machine."""

    platform: str | None = platform_option(rivals="machine")
    platforms: tuple[str, ...] = option(
        "several machines, side by side",
        default=(),
        parse=name_list,
        metavar="A,B",
        rivals="machine",
        words=lambda: [",".join(machines())],
    )
    period: str | None = option(
        "runtime of this month or day, such as 2026-05-14",
        default=None,
        metavar="MONTH",
        words=periods,
    )
    execute: bool = False
    html: Path | None = None
    open: bool = False

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the names of the machines to model."""
        return self.platforms or (self.platform or DEFAULT_MACHINE,)


@dataclass(frozen=True, kw_only=True)
class PageOptions(Command):
    """Options of `tilelet view` and `tilelet report`."""

    html: Path | None = html_option()
    open: bool = open_option()
    platform: str | None = None
    perfetto: str | None = None
    directory: str = ""
