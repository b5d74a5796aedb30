"""Commands for finding what is wrong: verdict, diverge, explain."""

from __future__ import annotations

from pathlib import Path

from tilelet.cli.declaration import Command, argument, option
from tilelet.cli.options import (
    JSON,
    TEXT,
    DeviceOptions,
    ScriptOptions,
    format_option,
    html_option,
    open_option,
    platform_option,
)
from tilelet.cli.values import codes, seconds
from tilelet.dataclasses import dataclass
from tilelet.scripts import interrupt

DEBUG = "find what is wrong"


@dataclass(frozen=True, kw_only=True)
class VerdictCommand(DeviceOptions, group=DEBUG):
    """Say in one answer whether a script is right, whether it fits, and what it costs.

    Examples:
      tilelet verdict kernel.py -p a2a3
      tilelet verdict kernel.py --json               for programs: docs/answers.md has the layout
      tilelet verdict kernel.py --strength 20s       and test whether its golden notices wrong ops
      tilelet verdict qwen3/scope3:tuned --platforms a2a3,a5
      tilelet verdict candidate.py --against reference.py  judge a kernel, never execute it

    The script runs once on this CPU. The answer says whether its outputs match its golden, and
    gives the first wrong statement if they do not, the findings of the checks, whether all tiles
    fit on chip, tasks, bytes, and the modelled time with the interval that holds for nine boards of
    ten. Exit code 0: right, and no finding; 1: wrong, or a finding; 3: it could not run.

    With --against, the script is a candidate: it is read, never executed. The reference script
    gives specs, inputs and golden. The candidate is run on these inputs and on further ones, within
    limits that count work and bytes, and its time is compared with the floor.
    """

    against: str | None = option(
        "judge the script by the specs and golden of this one, without executing its Python",
        default=None,
        metavar="REFERENCE",
    )

    strength: float | None = option(
        "also test whether the golden notices wrong ops, with this budget, such as 20s",
        default=None,
        parse=seconds,
        metavar="TIME",
    )

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.verdict import verdict_command

        return verdict_command(self)


@dataclass(frozen=True, kw_only=True)
class DivergeCommand(ScriptOptions, group=DEBUG):
    """Find the first statement that goes wrong.

    Examples:
      tilelet diverge kernel.py                  against its golden, and against double
      tilelet diverge kernel.py --budget 90s     try repairs for longer
      tilelet diverge kernel.py --html wrong.html  a page: timeline, wrong outputs, first statement
      tilelet diverge before.py after.py         against another program, tile by tile
      tilelet diverge qwen3/scope3 --variant tuned --hidden 256 --intermediate 384 --batch 4 ...

    The program is interpreted at the sizes that the script asks for: choose small ones. Its tiles
    are compared with the arrays that the golden computes. The ops between the last tile that agrees
    and the first that does not are changed, one by one, until the outputs match. docs/diverge.md
    describes the search. A second of the budget is a fixed amount of work: the answer does not
    depend on the load. Exit code 1: something was found; 3: there was nothing to compare with.
    """

    budget: float = option(
        "work for repairs, in nominal seconds: 90s (default: 40s)",
        default=40.0,
        parse=seconds,
        metavar="TIME",
    )
    all_fp32: bool = option(
        "compare with the same program in FP32 throughout: is it logic, or rounding?"
    )
    platform: str | None = platform_option(
        "machine for ordering rules and --html: a2a3 (default), a5, or a machine file"
    )
    html: Path | None = html_option()
    open: bool = open_option()

    def run(self) -> int:
        with interrupt.defer():
            from tilelet.cli.diverge import diverge_command

        return diverge_command(self)


@dataclass(frozen=True, kw_only=True)
class ExplainCommand(Command, group=DEBUG):
    """Explain an error code, or search the codes for words.

    Examples:
      tilelet explain E0203
      tilelet explain valid shape       codes whose title or text has these words
      tilelet explain --all             all codes, one line each
    """

    format: str = format_option(TEXT, JSON)
    asked: list[str] = argument("a code such as E0203, or words", "CODE", nargs="*", words=codes)
    all: bool = option("list all codes")

    def run(self) -> int:
        from tilelet.cli.pages import explain_command

        return explain_command(self.asked, every=self.all, formatted=self.format)
