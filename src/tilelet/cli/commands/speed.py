"""Commands about modelled time: profile, advise, tune, compare, view, tasks."""

from __future__ import annotations

import math
from pathlib import Path

from tilelet.cli.declaration import argument, option
from tilelet.cli.options import (
    JSON,
    TEXT,
    DeviceOptions,
    PageOptions,
    RunOptions,
    as_runtime_option,
    execute_option,
    executor_option,
    format_option,
    html_option,
    jobs_option,
    open_option,
    platform_option,
)
from tilelet.cli.values import (
    OneOf,
    budget,
    local_address,
    new_file,
    positive_number,
    programs,
    variation,
    whole_number,
)
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import BadFlag
from tilelet.runtime.gc_pause import no_garbage
from tilelet.scripts import interrupt
from tilelet.scripts.target import Target

SPEED = "make them fast"


@dataclass(frozen=True, kw_only=True)
class ProfileCommand(DeviceOptions, group=SPEED):
    """Estimate a script's time on an NPU and break it down.

    Examples:
      tilelet profile kernel.py -p a2a3
      tilelet profile kernel.py -p my.toml --period 2026-06
      tilelet profile --platforms a2a3,a5 kernel.py --max-seq 4096
      tilelet profile --format json qwen3/scope3:baseline > profile.json
      tilelet profile kernel.py --html kernel.html      a page to look at and to send

    No device is needed and no kernel runs: the control program runs, its tasks are recorded, and a
    model of the machine simulates them. All figures are modelled. The run directory gets
    profile.json, report/ (memory plan, budget, hints) and dfx_outputs/ (a trace for Perfetto,
    records, dependencies). A page begins with the changes that help, each tried as `tilelet advise`
    does; that may take as long as everything else, and --no-advice leaves it out. Exit code 1: the
    machine would refuse the program, see the errors.
    """

    plan: str = option(
        "buffers of pipelined loops: those that fit, as the public compiler assigns them "
        "(default), or one for every stage",
        "--as",
        default="compiled",
        parse=OneOf("compiled", "ideal"),
    )
    as_runtime: bool = as_runtime_option()
    html: Path | None = html_option()
    open: bool = open_option()
    advice: bool = option(
        "with --html or --open: do not try changes to the script", "--no-advice", default=True
    )
    execute: bool = execute_option()
    files: bool = option("print the report, write nothing", "--no-files", default=True)

    def run(self) -> int:
        with no_garbage(), interrupt.defer():
            # Imports that are needed after the script has run.
            import tilelet.device.run
            import tilelet.report.document  # noqa: F401
            from tilelet.cli.profile import profile_command

        return profile_command(self)


@dataclass(frozen=True, kw_only=True)
class AdviseCommand(DeviceOptions, group=SPEED):
    """Suggest changes, each verified by the model.

    Examples:
      tilelet advise kernel.py -p a2a3
      tilelet advise kernel.py --fix                 the ladder of rewritings, and the diff
      tilelet advise kernel.py --fix --in-place      write it to the script
      tilelet advise kernel.py --fix --unproved      also what holds only for the inputs tried
      tilelet advise kernel.py --html kernel.html    a page that begins with the changes
      tilelet advise kernel.py --format json
      tilelet advise qwen3/scope3 --variant baseline --fix -p a2a3

    A finding names its lines and their present cost. If the fault has a rewriting, the rewritten
    program is checked, run on this CPU, compared with the outputs of the original, and modelled;
    rewritings that are wrong or do not help are not proposed. `--fix` applies what is proved for
    all inputs. Where inputs decide lengths, branches or offsets, these are varied; what holds for
    the inputs tried is applied with `--unproved` only. Without `--in-place` nothing is written.
    Comments and layout are kept. A shipped program is rewritten as the one file that `tilelet
    export` makes of it; findings name the original lines, and the diff applies to that file. Exit
    code 1: there is advice.
    """

    html: Path | None = html_option()
    open: bool = open_option()
    fix: bool = option("apply the rewritings one by one, and show the gain of each and the diff")
    in_place: bool = option("with --fix: write the result to the script")
    unproved: bool = option(
        "with --fix: also apply what holds for the inputs tried but is not proved"
    )

    def run(self) -> int:
        if self.in_place and not self.fix:
            raise BadFlag("`--in-place` writes what `--fix` makes: give both")
        if self.unproved and not self.fix:
            raise BadFlag("`--unproved` says what `--fix` may apply: give both")
        if self.in_place and self.target.is_model:
            raise BadFlag(
                f"`--in-place`: `{self.target.name}` is no file of yours; export it first"
            )
        with interrupt.defer():
            from tilelet.cli.advise import advise_command

        return advise_command(self)


@dataclass(frozen=True, kw_only=True)
class TuneCommand(DeviceOptions, group=SPEED):
    """Find better tile sizes with the model.

    Examples:
      tilelet tune kernel.py -p a2a3
      tilelet tune kernel.py --vary K_CHUNK=128,256,512 --vary chunk
      tilelet tune qwen3/scope3:refactored --budget 60s
      tilelet tune kernel.py --platforms a2a3,a5            best on both machines together
      tilelet tune kernel.py --objective cpu_ms             by time on this CPU
      tilelet tune kernel.py --results k.jsonl              if interrupted, the same command
      continues
      tilelet tune kernel.py --executor dask://host:8786    candidates on many machines

    The script is not edited. Numbers that it names at its top, defaults of its functions'
    parameters, `chunk=`, `stage=` and split modes are varied, unless that changes the program's
    parameters. Candidates whose tiles do not fit are dropped, the model scores the others, and the
    best are run on this CPU against the script's golden. The answer is the change to make, as a
    diff.
    """

    vary: list[tuple[str, tuple[int | str, ...]]] = option(
        "what to vary, and the values; may be repeated (default: whatever can be varied)",
        default=[],
        parse=variation,
        metavar="NAME=V,V",
        many=True,
    )
    objective: str = option(
        "what to minimize: modelled time (default), bytes, tasks, time on this CPU",
        default="us",
        parse=OneOf("us", "gm_bytes", "tasks", "cpu_ms"),
    )
    budget: tuple[int, float] = option(
        "number of candidates (200; probing every knob may take more), or a time: 60s, 5m",
        default=(200, math.inf),
        parse=budget,
        metavar="N|TIME",
    )
    method: str | None = option(
        "search method (default: exhaustive if the budget allows it, else descent)",
        default=None,
        parse=OneOf("exhaustive", "descent", "random"),
    )
    search_seed: int = option("search in another order", default=0, parse=whole_number, metavar="N")
    jobs: int | None = jobs_option()
    executor: str | None = executor_option()
    results: Path | None = option(
        "keep scores in this file, and continue from it",
        default=None,
        parse=new_file,
        metavar="FILE",
    )
    verify: int = option(
        "how many of the best to run on this CPU until one is right (5); 0: none",
        default=5,
        parse=whole_number,
        metavar="N",
    )

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.tune import tune_command

        return tune_command(self)


@dataclass(frozen=True, kw_only=True)
class OptimiseCommand(DeviceOptions, group=SPEED):
    """Search rewritings and tile sizes together, and keep what is proved.

    Examples:
      tilelet optimise kernel.py -p a2a3
      tilelet optimise kernel.py --in-place
      tilelet optimise kernel.py --candidates 200 --executor dask://host:8786

    `advise --fix` and `tune` take turns until neither makes the modelled time shorter. A step is
    taken only if it is proved to keep the results, but for rounding. The answer is the list of
    steps, the distance to the floor, and the change as a diff.
    """

    candidates: int = option(
        "sizes to try in each round (60)", default=60, parse=positive_number, metavar="N"
    )
    unproved: bool = option("also take steps that hold only for the inputs tried")
    in_place: bool = option("write the result to the script")
    jobs: int | None = jobs_option()
    executor: str | None = executor_option()

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.optimise import optimise_command

        return optimise_command(self)


@dataclass(frozen=True, kw_only=True)
class CompareCommand(DeviceOptions, group=SPEED):
    """Compare two modelled runs.

    Examples:
      tilelet compare before.py after.py
      tilelet compare qwen3/scope3:baseline qwen3/scope3:tuned -p a2a3
      tilelet compare "kernel.py --tile 64" "kernel.py --tile 128"
      tilelet compare kernel.py --platforms a2a3,a5      the same as kernel.py@a2a3 kernel.py@a5
      tilelet compare old/profile.json new/profile.json
      tilelet compare before.py after.py --html difference.html
    """

    format: str = format_option(TEXT, JSON)
    html: Path | None = html_option()
    open: bool = open_option()
    target: Target = Target("")  # unused: the targets are `a` and `b`
    a: str = argument("a script, a program's name, or a profile.json", "A", words=programs)
    b: str | None = argument("another, or the same with @machine", "B", nargs="?")

    def run(self) -> int:
        if len(self.platforms) > 2:
            count = len(self.platforms)
            raise BadFlag(f"`--platforms`: two machines can be compared, not {count}")
        with interrupt.defer():
            from tilelet.cli.profile import compare_command

        return compare_command(self)


@dataclass(frozen=True, kw_only=True)
class ViewCommand(PageOptions, group=SPEED):
    """Show a run in the browser, and update it when the script is saved.

    Examples:
      tilelet view kernel.py --open                 profile it, and again whenever it is saved
      tilelet view build_output/Softmax_20261116_101500
      tilelet view build_output/Softmax_20261116_101500 --html softmax.html   one file, no server
      tilelet view kernel.py --perfetto http://localhost:10000

    Serves the page on 127.0.0.1, on a port that the system chooses; the printed address has a token
    without which nothing is served. Every Python file beside the script is watched. With --html the
    page is written to a file that opens offline and can be sent. docs/page.md describes the page.
    """

    platform: str | None = platform_option("of a script: a2a3 (default), a5")
    perfetto: str | None = option(
        "a Perfetto on this machine, such as http://localhost:10000",
        default=None,
        parse=local_address,
        metavar="ADDRESS",
        variable="TILELET_PERFETTO",
    )
    directory: str = argument("a run directory, a script, or a program's name", "RUN_DIR")

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.view import view_command

        return view_command(self)


@dataclass(frozen=True, kw_only=True)
class TasksCommand(RunOptions, group=SPEED):
    """Count a script's tasks, kernel by kernel.

    Examples:
      tilelet tasks kernel.py
      tilelet tasks --format json kernel.py --batch 16

    The script runs as usual, but its kernels are only counted: results stay as they were. With
    --as-runtime the figures are those of a swimlane: allocations of tensors are tasks, and mixed
    kernels have a cube half and a vector half.
    """

    as_runtime: bool = as_runtime_option()

    def run(self) -> int:
        from tilelet.cli.commands.write import run_script

        return run_script(self)
