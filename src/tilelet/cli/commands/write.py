"""Commands for writing kernels: run, check, export, examples."""

from __future__ import annotations

from pathlib import Path

from tilelet.checks.registry import CHECKS
from tilelet.cli.declaration import Command, argument, option
from tilelet.cli.options import (
    JSON,
    TEXT,
    DeviceOptions,
    RunOptions,
    ScriptOptions,
    execute_option,
    format_option,
    html_option,
    open_option,
)
from tilelet.cli.values import (
    OneOf,
    engines,
    examples,
    folder,
    name_list,
    new_file,
    positive_number,
    seconds,
)
from tilelet.dataclasses import dataclass
from tilelet.runtime.gc_pause import no_garbage
from tilelet.scripts import interrupt

WRITE = "write kernels"


def run_script(options: RunOptions) -> int:
    with no_garbage(), interrupt.defer():
        # Imports that nearly every script needs too.
        import tilelet.language
        import tilelet.runtime.harness.runner  # noqa: F401
        from tilelet.cli.run import run_command

    return run_command(options)


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions, group=WRITE):
    """Run a script and report its verdict.

    Examples:
      tilelet run kernel.py
      tilelet run kernel.py -p a2a3sim --max-seq
      tilelet run -m kernels.softmax            a module of a package, as `python -m` takes it
      tilelet run --engine interp --dump-passes kernel.py
      tilelet run --keep-c kernel.py            and keep the C text it was compiled to
      tilelet run --format json kernel.py > report.json
      mpiexec -n 4 tilelet run --ranks mpi kernel.py

    Options of Tilelet may stand before or after SCRIPT. Other options after SCRIPT go to the script
    if it parses its arguments; after SCRIPT, an option that both declare goes to both. Everything
    after `--` goes to the script alone. An option that nobody reads is an error (exit code 2).

    The environment sets options too: TILELET_ENGINE, TILELET_FORMAT, TILELET_SEED,
    TILELET_DUMP_PASSES=1, TILELET_NO_CACHE=1, TILELET_BUILD_DIR, TILELET_CACHE_DIR.

    Programs are compiled to C; without a C compiler they are interpreted, which is slow.
    TILELET_THREADS sets the number of threads, TILELET_ISA=sse, avx2 or avx512 limits the
    instruction set, and TILELET_SANITIZE=1 compiles with address and undefined-behavior sanitizers.

    A script that prints SKIPPED and runs nothing ends with exit code 0.
    """

    engine: str | None = option(
        "engine that executes programs: cpu (native code, the default) or interp (the interpreter)",
        default=None,
        metavar="NAME",
        words=engines,
    )
    ranks: str = option(
        "where the ranks of a program run: here (this process) or mpi (one process each)",
        default="here",
        parse=OneOf("here", "mpi"),
    )
    keep_c: bool = option("keep the C text of programs in the run directory")
    keep_c_in: Path | None = option(
        "keep the C text in this folder", default=None, parse=folder, metavar="DIR"
    )
    keep_plan: bool = option("keep the C text and the plan of each kernel: its tiles in memory")
    seed_valid: bool = option(
        "drop `valid_shape` at the ops where the compilers of April 2026 dropped it"
    )
    save_data: bool = option("keep inputs and goldens as .npz")
    no_golden_cache: bool = option("compute goldens even if nothing changed")
    strict: bool = option("exit code 1 also if a check has findings")
    checks: bool = option("run only, without checks", "--no-checks", default=True)

    def run(self) -> int:
        return run_script(self)


@dataclass(frozen=True, kw_only=True)
class CheckCommand(DeviceOptions, group=WRITE):
    """Find races, undefined memory and tiles that do not fit.

    Examples:
      tilelet check kernel.py -p a2a3
      tilelet check kernel.py --only capacity,alignment
      tilelet check --memory kernel.py -p a5      with the address and size of every tile
      tilelet check kernel.py --format json       findings with their places, for programs
      tilelet check --portable 2026-08 kernel.py  what that release of PyPTO rejects

    Each check says how far its answer reaches: `proved` for all sizes and inputs, `found` (with a
    witness), `this run` for the sizes and inputs of the script, or `not checked` and why. Kernels
    are not executed unless a check needs it; docs/checks.md describes all checks. For a program of
    several ranks, schedules are explored (docs/ranks.md); each finding has a seed for `--replay`.
    Exit code 1: there are findings.
    """

    html: Path | None = html_option()
    open: bool = open_option()
    only: tuple[str, ...] = option(
        f"make only these checks: {', '.join(CHECKS)}", default=(), parse=name_list, metavar="A,B"
    )
    memory: bool = option("print the memory plan and the TILELET budget")
    budget: float = option(
        "work for `--only golden`, in nominal seconds: 60s (default) or 2m",
        default=60.0,
        parse=seconds,
        metavar="TIME",
    )
    portable: str | None = option(
        "list what a release of PyPTO rejects instead of checking: 2026-04 or 2026-08",
        default=None,
        metavar="DIALECT",
    )
    replay: str | None = option(
        "run only the schedule of this seed (programs of several ranks)",
        default=None,
        metavar="SEED",
    )
    clusters: int = option(
        "of a program of several ranks: clusters of each chip (as many as the machine has)",
        default=0,
        parse=positive_number,
        metavar="N",
    )
    execute: bool = execute_option()

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.check import check_command
            from tilelet.cli.portable import portable_command

        return check_command(self) if self.portable is None else portable_command(self)


@dataclass(frozen=True, kw_only=True)
class ExportCommand(ScriptOptions, group=WRITE):
    """Write a program as one script for a public release of PyPTO.

    Examples:
      tilelet export kernel.py -o portable.py
      tilelet export qwen3/decode:optimised --dialect 2026-08 -o layer.py
      tilelet export qwen3/scope3:tuned --hidden 1024 --intermediate 2048 -o small.py

    The script holds the kernels with all helpers inlined, inputs, golden and a comparison. It
    imports pypto and torch, and runs here as well as there: `tilelet run layer.py`. Exit code 1:
    that release rejects something in it; the messages say what. docs/portability.md has the rules.
    """

    dialect: str = option(
        "target release of PyPTO: 2026-08 (default) or 2026-04",
        default="2026-08",
        metavar="MONTH",
    )
    output: Path | None = option(
        "file to write (default: stdout)",
        "-o",
        "--output",
        default=None,
        parse=new_file,
        metavar="FILE",
    )
    program: str | None = option(
        "which program, if the script runs several", default=None, metavar="NAME"
    )

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.portable import export_command

        return export_command(self)


@dataclass(frozen=True, kw_only=True)
class ExamplesCommand(Command, group=WRITE):
    """List or copy example kernels; list the programs that ship with Tilelet.

    Examples:
      tilelet examples                      list all of them
      tilelet examples --copy .             copy the kernels here
      tilelet examples hello softmax --copy kernels
      tilelet run kernels/01_hello.py
      tilelet run qwen3/scope3:tuned        a program by name: nothing to copy

    An existing file is not overwritten.
    """

    format: str = format_option(TEXT, JSON)
    names: list[str] = argument(
        "such as hello or 01_hello (all)", "NAME", nargs="*", words=examples
    )
    copy: Path | None = option(
        "copy them to this folder", default=None, parse=folder, metavar="DIR"
    )

    def run(self) -> int:
        from tilelet.cli.examples import examples_command

        return examples_command(self.names, self.copy, self.format)
