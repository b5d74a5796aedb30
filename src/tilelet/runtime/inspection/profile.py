"""`tilelet.profile`: the modelled time of a call on an NPU, from Python.

p = tilelet.profile(softmax, x, out, platform="a2a3")
print(p)                       # the report that `tilelet profile` prints
p.total_us, p.tables           # the same as data
p.widget("memory")             # the page in a notebook, with `pip install "tilelet[notebook]"`
p.save_html("softmax.html")     # a page: timeline, source, memory, and what bounds each kernel
p.save_trace("softmax.json")   # for chrome://tracing or ui.perfetto.dev

with tilelet.profile(platform="a5") as p:   # everything that runs in the block
    softmax(x, out)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tilelet.diag.files import write_text
from tilelet.runtime import session
from tilelet.runtime.inspection.shown import NotebookResult

if TYPE_CHECKING:
    from typing_extensions import Self

    from tilelet.device.machine.description import Machine
    from tilelet.device.report.profile import Profile as Figures
    from tilelet.device.run import DeviceRun
    from tilelet.diag.tables import Table


def profile(
    function: Callable[..., object] | None = None,
    /,
    *args: object,
    platform: str | Path = "a2a3",
    **named: object,
) -> Profile:
    """Call `function` and model its programs on `platform`, a machine's name or file.

    Results are computed as in any other call. Without a function, return a context manager for
    all programs that run in its block.
    """
    from tilelet.device.machine.description import load_machine

    made = Profile(load_machine(platform))
    if function is None:
        return made
    with made:
        made.result = function(*args, **named)
    made.runs  # noqa: B018 - model them now: errors are raised here
    return made


class ProfiledRun:
    """One run of one program on the modelled machine."""

    def __init__(self, device_run: DeviceRun) -> None:
        self.device_run = device_run
        self.figures: Figures = device_run.profile  # everything in numbers

    @property
    def name(self) -> str:
        return self.device_run.run.name

    @property
    def total_us(self) -> float:
        """Modelled microseconds from the first task to the end of the last."""
        return self.figures.total_us

    @property
    def tables(self) -> list[Table]:
        """The tables of the report; `title`, `heads` and `rows` are plain text."""
        from tilelet.diag.tables import Table

        return [part for part in self.device_run.parts() if isinstance(part, Table)]

    def trace(self) -> str:
        """The timeline as a Chrome trace, in JSON."""
        from tilelet.device.report.trace import TimelineTrace

        return TimelineTrace(self.device_run.timeline).chrome()

    def __str__(self) -> str:
        from tilelet.diag.tables import as_text

        return "\n\n".join(as_text(self.device_run.parts()))

    def _repr_html_(self) -> str:
        """Return the notebook view: a small timeline and the tables."""
        from tilelet.diag.table_html import parts_html
        from tilelet.report.notebook import timeline_svg

        return timeline_svg(self.device_run.timeline) + parts_html(self.device_run.parts())


class Profile(AbstractContextManager["Profile"], NotebookResult):
    """The programs that ran inside the context, on the modelled machine.

    result  the return value of the profiled function
    """

    def __init__(self, machine: Machine) -> None:
        from tilelet.runtime.handlers.record import ExecuteAndRecord

        self._machine = machine
        self._stack = ExitStack()
        self._handler = ExecuteAndRecord(keep_arguments=False)
        self._modelled: list[ProfiledRun] = []
        self.result: Any = None

    def __enter__(self) -> Self:
        # other settings of the current session stay
        now = replace(session.current(), handler=self._handler, task_tables=[])
        self._stack.enter_context(session.active(now))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def runs(self) -> list[ProfiledRun]:
        """One entry for each run of a program so far, in order."""
        from tilelet.device.run import DeviceRun

        for run in self._handler.runs[len(self._modelled) :]:
            self._modelled.append(ProfiledRun(DeviceRun(run, self._machine)))
        return self._modelled

    @property
    def total_us(self) -> float:
        """Modelled microseconds of all runs, one after the other."""
        return sum(run.total_us for run in self.runs)

    @property
    def tables(self) -> list[Table]:
        """The tables of all runs."""
        return [table for run in self.runs for table in run.tables]

    def save_trace(self, path: str | Path) -> list[Path]:
        """Write the timeline for chrome://tracing or ui.perfetto.dev; return the paths.

        Several runs are several files: `name.json`, `name-2.json` and so on.
        """
        first = Path(path)
        written: list[Path] = []
        for number, run in enumerate(self.runs, 1):
            tail = f"-{number}" if number > 1 else ""
            target = first.with_name(f"{first.stem}{tail}{first.suffix}")
            write_text(target, run.trace(), make_folder=False)
            written.append(target)
        return written

    def save_html(self, path: str | Path) -> Path:
        """Write all runs as one page that opens offline (docs/page.md); return its path."""
        from tilelet.report.html import page_html

        target = Path(path)
        write_text(target, page_html(*self._page()), make_folder=False)
        return target

    def _page(self) -> tuple[str, bytes]:
        from tilelet.report.document import profile_document

        title = ", ".join(dict.fromkeys(run.name for run in self.runs)) or "no program ran"
        return title, profile_document([run.device_run for run in self.runs])

    def _repr_html_(self) -> str:
        from tilelet.diag.table_html import parts_html
        from tilelet.report.notebook import timeline_svg

        shown = [
            timeline_svg(run.device_run.timeline) + parts_html(run.device_run.parts())
            for run in self.runs
        ]
        return "".join(shown) or "no program ran"

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.runs)) or "no program ran"

    def __repr__(self) -> str:
        names = ", ".join(run.name for run in self.runs)
        return f"<profile of {names or 'nothing'} on {self._machine.name}: {self.total_us:.1f} us>"
