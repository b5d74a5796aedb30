"""`RunResult`, the return value of `run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilelet.diag.text import escape_controls
from tilelet.runtime.output.run_directory import RunDirectory

if TYPE_CHECKING:
    from tilelet.divergence.answer import Answer
    from tilelet.divergence.wrong_regions import Where


class RunResult:
    """Verdict of one run. `passed` is False on a mismatch and when the run failed."""

    def __init__(
        self,
        passed: bool,
        test_name: str = "",
        error: str | None = None,
        execution_time: float | None = None,
        profile: dict[str, Any] | None = None,
        work_dir: Path | RunDirectory | None = None,
        bench: Any = None,
    ) -> None:
        self.passed = passed
        self.test_name = test_name
        self.execution_time = execution_time
        self.profile = profile
        self.directory = work_dir
        self.bench = bench
        self.bench_stats = bench  # the name in the oldest era
        self.validated = False  # whether any output was compared
        self.could_run = True  # False: the failure is not a mismatch
        self.was_executed = True  # False: `tilelet tasks` only counted
        self.tasks: dict[str, int] = {}  # kernel -> number of tasks
        self.all_counted = True  # False: counting stopped early
        self.where: list[Where] = []  # wrong regions of each failed output
        self.answer: Answer | None = None  # what a short search found about them
        self.error_was_read = False
        self.error = error

    @property
    def work_dir(self) -> Path | None:
        """The output directory of the run, created on first access, because scripts pass it on."""
        return self.directory.root if isinstance(self.directory, RunDirectory) else self.directory

    @property
    def error(self) -> str | None:
        """The full report of a failure; None if passed.

        Scripts usually print it. Otherwise `tilelet run` prints it at the end.
        """
        self.error_was_read = True
        return self._error

    @error.setter
    def error(self, text: str | None) -> None:
        self._error = None if text is None else escape_controls(text)

    def __str__(self) -> str:
        if self.passed and not self.was_executed:
            # `tilelet check` of several ranks does not count tasks.
            if not self.tasks:
                return "not executed"
            first = "" if self.all_counted else "the first "
            return f"not executed: {first}{sum(self.tasks.values()):,} tasks counted"
        time = f" ({self.execution_time:.2f}s)" if self.execution_time is not None else ""
        return f"PASS{time}" if self.passed else f"FAIL: {self.error}{time}"

    def __repr__(self) -> str:
        return f"RunResult(passed={self.passed}, test_name={self.test_name!r})"
