"""The session: settings of a command, its program handler, and results so far.

Entry points use the current session, because a script cannot pass one; other code gets it as an
argument. Without a command line there is a default session.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tilelet.dataclasses import dataclass, field
from tilelet.diag.canvas import paint
from tilelet.diag.catalogue.command import CannotWrite, NoBoard
from tilelet.diag.core import Diagnostic
from tilelet.diag.render import render_line, render_text, text_width, use_color
from tilelet.diag.text import escape_controls
from tilelet.runtime.config import DEFAULT_PLATFORM, RunConfig
from tilelet.runtime.harness.result import RunResult
from tilelet.runtime.output.run_directory import RunDirectory
from tilelet.runtime.output.task_table import TaskTable

if TYPE_CHECKING:
    from tilelet.checks.verdict import Verdict
    from tilelet.device.report.profile import Profile
    from tilelet.runtime.handlers.base import ProgramHandler

DEFAULT_ENGINE = "cpu"


def environment_wants_only_results() -> bool:
    """Whether no environment variable requests more than results; see `wants_only_results`."""
    get = os.environ.get
    return get("TILELET_ENGINE") in (None, "", DEFAULT_ENGINE) and not get("TILELET_SCHEDULE_SEED")


def is_on(variable: str) -> bool:
    """Whether an environment variable is set to a value other than 0."""
    return os.environ.get(variable, "0") not in ("", "0")


def _execute() -> ProgramHandler:
    from tilelet.runtime.handlers.execute import Execute

    return Execute()


@dataclass
class Session:
    """The handler of programs, the settings of a command, and the results so far."""

    handler: ProgramHandler = field(default_factory=_execute)
    engine: str | None = None  # None: no engine was chosen
    over_mpi: bool = False  # this process is one rank of several, started by mpiexec
    seed_valid: bool = False  # track valid regions as the first compilers did
    platform: str | None = None  # the script's own `-p`
    dump_passes: bool = False
    keep_c: bool = False  # keep the C text of programs, in `keep_c_in` or the run directory
    keep_c_in: Path | None = None
    keep_plan: bool = False  # keep the plans of kernels beside the C text
    save_data: bool = False
    golden_cache: bool = field(default_factory=lambda: not is_on("TILELET_NO_CACHE"))
    build_dir: Path | None = None
    seed: int = 0
    # Machine formats keep stdout for the document: messages are collected, not printed.
    quiet_diagnostics: bool = False
    strict: bool = False  # findings of the checks count for the exit code

    results: list[RunResult] = field(default_factory=list[RunResult])
    verdicts: list[Verdict] = field(default_factory=list["Verdict"])
    # Checks of each program that were not run or not finished, with the reason.
    unchecked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    programs_seen: int = 0  # compiled or run, by whatever call
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    task_tables: list[TaskTable] = field(default_factory=list[TaskTable])
    profiles: list[Profile] = field(default_factory=list["Profile"])
    imports_pypto: bool = False  # whether the script is written for PyPTO
    _said: set[str] = field(default_factory=set[str])

    @property
    def chosen_engine(self) -> str | None:
        """The engine of the command line or `TILELET_ENGINE`, or None."""
        return self.engine or os.environ.get("TILELET_ENGINE") or None

    @property
    def wants_only_results(self) -> bool:
        """Whether calls only compute results, on the default engine."""
        return (
            self.handler.only_results
            and not (self.seed_valid or self.dump_passes or self.keep_c)
            and self.engine in (None, DEFAULT_ENGINE)
        )

    def platform_of(self, config: RunConfig) -> str:
        """The platform of the configuration, else of the script's command line."""
        return config.platform or self.platform or DEFAULT_PLATFORM

    def announce(self, config: RunConfig) -> None:
        """Print once which requests of a script have no effect on a CPU."""
        platform = self.platform_of(config)
        if not platform.endswith("sim"):
            self.report([NoBoard(platform).diagnostic])
        if config.board_records:
            records = ", ".join(config.board_records)
            self.say_once(f"note: only a board makes the records of {records}")

    def run_directory(self, name: str, config: RunConfig | None = None) -> RunDirectory:
        """Return the run directory of a program, created on first write."""
        return RunDirectory(name, root=self.build_dir, exact=config.directory if config else None)

    def dump_folder(self, directory: RunDirectory, config: RunConfig | None = None) -> Path | None:
        """Return the folder of pass dumps if they are requested."""
        if not self.dump_passes and not (config and config.dump_passes):
            return None
        try:
            folder = directory.path("passes_dump")
            folder.mkdir(exist_ok=True)
        except OSError as error:
            self.cannot_dump(CannotWrite.of(error))
            return None
        if self.dump_passes:
            self.say_once(f"note: the program after every pass is in {folder}")
        return folder

    def cannot_dump(self, error: CannotWrite) -> None:
        """Raise if the command line requested dumps; for a script's own request, print a note."""
        if self.dump_passes:
            raise error
        self.say_once(f"note: no pass dumps: {error.diagnostic.message}")

    def say_once(self, text: str, stream: TextIO | None = None) -> None:
        """Print a line, unless this session printed it before."""
        if text not in self._said:
            self._said.add(text)
            text = escape_controls(text)
            out = stream or sys.stderr
            if text.startswith("note: "):
                text = paint("note", "note", use_color(out)) + text.removeprefix("note")
            print(text, file=out, flush=True)

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Show cautions, each once: notes in one line, warnings with their source."""
        for diagnostic in diagnostics:
            if any(_are_same(diagnostic, seen) for seen in self.diagnostics):
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
        """Collect errors for machine formats; the text is in the result."""
        self.diagnostics += [d for d in diagnostics if d not in self.diagnostics]

    @property
    def exit_code(self) -> int:
        """The worst exit code: 0 pass, 1 mismatch (or finding, if those count), 3 not run."""
        if any(not r.could_run for r in self.results):
            return 3
        findings = self.strict and any(not verdict.ok for verdict in self.verdicts)
        return int(findings or any(not r.passed for r in self.results))


def _are_same(a: Diagnostic, b: Diagnostic) -> bool:
    """Whether two cautions are equal; notes are compared by file instead of line."""
    if a.severity != "note" or a.loc is None or b.loc is None:
        return a == b
    return (a.code, a.message, a.loc.file) == (b.code, b.message, b.loc.file)


_active: list[Session] = []


@functools.cache
def _default() -> Session:
    return Session()


def current() -> Session:
    """Return the current session, for entry points."""
    return _active[-1] if _active else _default()


@contextmanager
def active(session: Session) -> Generator[Session]:
    """Make `session` the current one."""
    _active.append(session)
    try:
        yield session
    finally:
        _active.remove(session)
