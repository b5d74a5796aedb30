"""What the command line asked for, and what happened: state shared by the runs of one process.

Without a command line there is a default session, so the harness has one code path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tilelet.diag.canvas import paint
from tilelet.diag.core import Diagnostic
from tilelet.diag.render import render_line, render_text, text_width, use_color
from tilelet.diag.text import printable
from tilelet.ir.core import Program
from tilelet.runtime.harness.result import RunResult

DEFAULT_ENGINE = "cpu"


def environment_wants_only_results() -> bool:
    """As `Session.wants_only_results`: whether no variable asks for another way to run."""
    get = os.environ.get
    return get("TILELET_ENGINE") in (None, "", DEFAULT_ENGINE) and not get("TILELET_SCHEDULE_SEED")


def is_on(variable: str) -> bool:
    """Whether a variable of the environment is set, and not to 0."""
    return os.environ.get(variable, "0") not in ("", "0")


@dataclass(frozen=True)
class TaskTable:
    """How many tasks each kernel of a program has, and how many blocks if `pl.spmd` runs it."""

    program: str
    tasks: Mapping[str, int]
    blocks: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.tasks.values())


OnRanks = Callable[[str, Program, Mapping[str, Any], Any], bool]
"""Gets a program of several ranks (name, passed program, arguments, its `DistributedConfig`), and
says whether it can also be run: one that deadlocks cannot."""


@dataclass
class Session:
    """Options of `tilelet run` and `tilelet tasks`, and the results so far."""

    count_only: bool = False  # `tilelet tasks`: count tasks, execute nothing
    as_runtime: bool = False  # count tasks as the device's runtime does
    engine: str | None = None  # None: nobody has chosen one here
    seed_valid: bool = False  # track valid regions as the first compilers did
    platform: str | None = None  # what the script's own `-p` says
    dump_passes: bool = False
    keep_c: bool = False  # keep the C text of programs, in `keep_c_in` or the run directory
    keep_c_in: Path | None = None
    save_data: bool = False
    golden_cache: bool = field(default_factory=lambda: not is_on("TILELET_NO_CACHE"))
    build_dir: Path | None = None
    seed: int = 0
    # Machine formats keep stdout for the document: messages are collected, not printed.
    quiet_diagnostics: bool = False

    checks: bool = False  # `tilelet run`: make the cheap checks after a program has run
    strict: bool = False  # their findings count for the exit code
    verdicts: list[Any] = field(default_factory=list[Any])  # `checks.verdict.Verdict`s
    checked: dict[int, Program] = field(default_factory=dict[int, Program])

    results: list[RunResult] = field(default_factory=list[RunResult])
    programs_seen: int = 0  # compiled or run, by whatever call
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    task_tables: list[TaskTable] = field(default_factory=list["TaskTable"])
    profiles: list[Any] = field(default_factory=list[Any])  # `device.profile.Profile`s
    # Gets every recorded run (name, passed program, tasks, arguments, and how its outputs are
    # compared: a `checks.comparison.Comparison` or None) instead of a table.
    recorder: Callable[[str, Program, Any, Mapping[str, Any], Any], None] | None = None
    most_tasks: int | None = None  # how many are recorded, if none is executed; None: all
    # `tilelet diverge`: gets every case (name, `divergence.locate.Case`), and no engine runs.
    examiner: Callable[[str, Any], None] | None = None
    # `tilelet export`: gets every case (program as written, its specs, the case), nothing runs.
    on_case: Callable[[Program, list[Any], Any], None] | None = None
    on_ranks: OnRanks | None = None  # `tilelet check`: explores programs of several ranks
    imports_pypto: bool = False  # whether the script is written for PyPTO
    _said: set[str] = field(default_factory=set[str])

    @property
    def chosen_engine(self) -> str | None:
        """What the command line or `TILELET_ENGINE` names; None if they leave it open."""
        return self.engine or os.environ.get("TILELET_ENGINE") or None

    @property
    def looks_at_tasks(self) -> bool:
        """Whether programs are recorded, counted or taken apart, as only those of one chip can."""
        hooks = (self.recorder, self.examiner, self.on_case)
        return self.count_only or any(hook is not None for hook in hooks)

    @property
    def wants_only_results(self) -> bool:
        """Whether programs are just to be run, by the engine that does so fastest."""
        return (
            not (self.count_only or self.seed_valid or self.dump_passes or self.keep_c)
            and self.recorder is None
            and self.engine in (None, DEFAULT_ENGINE)
        )

    def say_once(self, text: str, stream: TextIO | None = None) -> None:
        """Print a line, unless this session printed it before."""
        if text not in self._said:
            self._said.add(text)
            text = printable(text)
            out = stream or sys.stderr
            if text.startswith("note: "):
                text = paint("note", "note", use_color(out)) + text.removeprefix("note")
            print(text, file=out, flush=True)

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Show cautions, each once: notes in one line, warnings with their source."""
        for diagnostic in diagnostics:
            if any(_same(diagnostic, seen) for seen in self.diagnostics):
                continue
            self.diagnostics.append(diagnostic)
            if self.quiet_diagnostics:
                continue
            if diagnostic.severity == "note":
                print(render_line(diagnostic, use_color(sys.stderr)), file=sys.stderr, flush=True)
            else:
                color = use_color(sys.stderr)
                text = render_text(diagnostic, color, width=text_width(sys.stderr))
                print(text, file=sys.stderr, flush=True)

    def add_errors(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Keep errors for the machine formats; the text is in the result."""
        self.diagnostics += [d for d in diagnostics if d not in self.diagnostics]

    @property
    def exit_code(self) -> int:
        """0 pass, 1 mismatch (or finding, if those count), 3 could not run: the worst of all."""
        if any(not r.could_run for r in self.results):
            return 3
        findings = self.strict and any(not verdict.ok for verdict in self.verdicts)
        return int(findings or any(not r.passed for r in self.results))


def _same(a: Diagnostic, b: Diagnostic) -> bool:
    """Whether one of them is enough: a note says the same of all lines of a file."""
    if a.severity != "note" or a.loc is None or b.loc is None:
        return a == b
    return (a.code, a.message, a.loc.file) == (b.code, b.message, b.loc.file)


_default = Session()
_active: list[Session] = []


def current() -> Session:
    """The session in force."""
    return _active[-1] if _active else _default


@contextmanager
def active(session: Session) -> Generator[Session]:
    """Make `session` the one in force."""
    _active.append(session)
    try:
        yield session
    finally:
        _active.remove(session)
