"""Commands about this machine and modelled machines: doctor, bench, calibrate, completion."""

from __future__ import annotations

from pathlib import Path

from tilelet.cli.declaration import Command, argument, option
from tilelet.cli.options import DEFAULT_MACHINE, JSON, TEXT, format_option
from tilelet.cli.values import OneOf, folder, machines, new_file, periods, sections
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import BadFlag
from tilelet.scripts import exit_codes, interrupt

MACHINE = "know the machine"
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, kw_only=True)
class DoctorCommand(Command, group=MACHINE):
    """Report the compiler, CPU and cache that native runs use.

    Examples:
      tilelet doctor
      tilelet doctor --format json

    Exit code 1: something that native runs need is broken.
    """

    format: str = format_option(TEXT, JSON)

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.doctor import doctor_command

        return doctor_command(as_json=self.format == JSON)


@dataclass(frozen=True, kw_only=True)
class BenchCommand(Command, group=MACHINE):
    """Measure the native engine on this machine.

    Examples:
      tilelet bench                      all sections: some ten minutes on two cores
      tilelet bench matmul decode        two sections
      tilelet bench --quick              small shapes: does it work?
      tilelet bench --list               the sections
      tilelet bench vector --json v.json
      tilelet bench --against v0.3.0     this checkout and that revision in turn

    Everything is measured in one run, the machine's peaks first and then again beside each figure.
    Exit code 1: something failed or gave wrong results; a missed target is not an error.
    """

    sections: list[str] = argument("what to measure (all)", "SECTION", nargs="*", words=sections)
    list: bool = option("list the sections")
    quick: bool = option("small shapes, few runs")
    against: str | None = option(
        "compare with a git revision, source folder, sdist or wheel; exit code 1 if slower",
        default=None,
        metavar="TREE",
    )
    json: Path | None = option(
        "file for the figures (build_output/bench_*.json)",
        default=None,
        parse=new_file,
        metavar="FILE",
    )

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli import bench

        if self.list:
            return bench.list_sections()
        if self.against is not None:
            return bench.against_command(self.against, self.sections, self.quick, self.json)
        return bench.bench_command(self.sections, self.quick, self.json)


@dataclass(frozen=True, kw_only=True)
class CalibrateCommand(Command, group=MACHINE):
    """Compare the model with published figures, or fit it to a board of yours.

    Examples:
      tilelet calibrate kit kit                       write small scripts, to run on a board
      tilelet calibrate fit results -o my_board.toml  a machine file from what the board measured
      tilelet profile kernel.py -p my_board.toml      and its use
      tilelet calibrate report                        the model against published figures
      tilelet calibrate report --programs public      with public programs, at DIR/REVISION/PATH

    `fit` reports the factor and the standard error of each parameter, and the parameters that the
    measurements do not determine; those stay as in the machine of `--like`. docs/calibration.md has
    the report, and how to fetch the public programs.
    """

    action: str = argument("kit, fit or report", "ACTION")
    path: Path | None = argument(
        "folder of the kit, or of its results", "DIR", nargs="?", parse=folder
    )
    like: str = option(
        "fit: the machine to start from", default=DEFAULT_MACHINE, metavar="NAME", words=machines
    )
    period: str | None = option(
        "fit: the runtime of the board", default=None, metavar="MONTH", words=periods
    )
    output: Path | None = option(
        "fit: the machine file to write", "-o", default=None, parse=new_file, metavar="FILE"
    )
    programs: Path | None = option(
        "report: public programs, by revision", default=None, parse=folder, metavar="DIR"
    )
    write: bool = option("report: write docs/calibration.md and its data")
    format: str = format_option(TEXT, JSON)

    def run(self) -> int:
        if self.action not in ("kit", "fit", "report"):
            raise BadFlag(f"`calibrate {self.action}`: an action is kit, fit or report")
        with interrupt.defer():
            from tilelet.cli import calibrate

        if self.action == "report":
            return calibrate.report_command(self.programs, write=self.write, formatted=self.format)
        if self.path is None:
            raise BadFlag(f"`calibrate {self.action}` needs a folder")
        if self.action == "kit":
            return calibrate.kit_command(self.path, self.format)
        return calibrate.fit_command(self.path, self.like, self.period, self.output, self.format)


@dataclass(frozen=True, kw_only=True)
class CompletionCommand(Command, group=MACHINE):
    """Print a script that completes these commands in your shell.

    Examples:
      tilelet completion bash > ~/.local/share/bash-completion/completions/tilelet
      tilelet completion zsh > ~/.zfunc/_tilelet     with ~/.zfunc in $fpath before compinit
      tilelet completion fish > ~/.config/fish/completions/tilelet.fish
      source <(tilelet completion bash)              for this shell only
    """

    shell: str = argument("bash, zsh or fish", "SHELL", parse=OneOf(*SHELLS))

    def run(self) -> int:
        from tilelet.cli.commands import listed_commands
        from tilelet.cli.completion import completion_script

        print(completion_script(self.shell, listed_commands()))
        return exit_codes.PASSED
