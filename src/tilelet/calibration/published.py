"""Rows measured with public programs, which are run unmodified if available.

They are not part of Tilelet. A folder of programs has `REVISION/PATH` for each row.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Machine, with_fields
from tilelet.device.run import Recorded
from tilelet.device.schedule.simulate import Timeline, replay, simulate
from tilelet.diag.json_types import JsonObject
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.target import Target

Recorder = Callable[["Published"], Recorded | None]

COUNTERS = 10
"""Registers that are read for each block when events are counted: eight events, and the 64-bit
total of cycles in two.
"""

LAG = timedelta(days=2)
"""Delay until a change of compiler or runtime reaches those who measure and publish."""


@dataclass(frozen=True)
class Published:
    """One row of a public program.

    rev, path, arguments  the program, and the options it is run with here
    metric  what was measured: `total_test_time` and the like, a kernel's time, or a stage
    kernel, of  the kernel, and the statistic: the `mean` or `max` of its executions, or the `span`
                from the first to the last
    runs    number of such runs that the published figure sums up
    counters  hardware events were counted, which takes time (`_counting`)
    stated  the publication states the arguments, or describes the run
    """

    id: str
    family: str
    date: str
    rev: str
    path: str
    arguments: tuple[str, ...]
    metric: str
    total_us: float
    tasks: int | None
    kernel: str
    of: str
    runs: int
    counters: bool
    stated: bool

    @classmethod
    def of_row(cls, row: JsonObject) -> Published:
        return cls(
            id=row["id"],
            family=row["family"],
            date=row["date"],
            rev=row["rev"],
            path=row["path"],
            arguments=tuple(row["arguments"]),
            metric=row["metric"],
            total_us=float(row["total_us"]),
            tasks=row["tasks"],
            kernel=row.get("kernel", ""),
            of=row.get("of", ""),
            runs=row.get("runs", 1),
            counters="--enable-pmu" in row.get("given", ""),
            stated=row["args_basis"] != "assumed",
        )

    @property
    def weight(self) -> float:
        """Weight of the row: smaller if counting took time, or if its arguments are assumed."""
        return 0.25 if self.counters else 1.0 if self.stated else 0.5

    @property
    def measured(self) -> str:
        """The date of the compiler and runtime behind a figure published on `date`."""
        return (date.fromisoformat(self.date) - LAG).isoformat()

    @property
    def recording(self) -> bool:
        """Whether a profile was recorded, which takes time itself."""
        return self.metric not in ("effective", "device_wall")

    def measure(self, line: Timeline) -> float:
        """Return the published quantity for a modelled run."""
        if self.kernel:
            return self._of_kernel(line)
        if not self.recording:
            return line.effective_us * self.runs
        fixed = line.runtime.run_us if self.metric == "e2e" else 0.0
        return (line.total_us + fixed) * self.runs

    def _of_kernel(self, line: Timeline) -> float:
        mine = line.kernel == line.kernel_names.index(self.kernel)
        if self.of == "span":
            return float(line.finish[mine].max() - line.dispatch[mine].min())
        spent = line.end[mine] - line.start[mine]
        return float(spent.max() if self.of == "max" else spent.mean())


class PublicProgram:
    """A row with its recorded program, for any machine.

    The first machine is simulated; others, which differ only in parameters, replay it.
    """

    def __init__(self, row: Published, run: Recorded) -> None:
        self.row, self.run = row, run
        self._first: Timeline | None = None

    def timeline(self, machine: Machine, period: str) -> Timeline:
        if self.row.counters:
            machine = _counting_machine(machine, machine.period_name(period))
        if self._first is None:
            self._first = simulate(
                self.run.tasks,
                self.run.program,
                machine,
                period=period,
                recording=self.row.recording,
            )
        return self._first if machine is self._first.machine else replay(self._first, machine)

    def predict(self, machine: Machine, period: str) -> float:
        return self.row.measure(self.timeline(machine, period))


@functools.lru_cache(maxsize=4)
def _counting_machine(machine: Machine, period: str) -> Machine:
    """Return the machine while it counts events: no block waits at a core, and a scheduler reads
    the counters of each block, as registers of its core.
    """
    runtime = machine.runtime[period]
    complete = runtime.complete_us + COUNTERS * runtime.poll_us
    where = f"runtime.{period}"
    return with_fields(machine, {f"{where}.slots": 0, f"{where}.complete_us": complete})


def recorder(programs: Path) -> Recorder:
    """Return a recorder that runs each program once, unloading its modules afterwards."""
    known: dict[tuple[str, str, tuple[str, ...]], Recorded | None] = {}

    def recorded(row: Published) -> Recorded | None:
        key = (row.rev, row.path, row.arguments)
        if key not in known:
            known[key] = _record(programs / row.rev, row)
        return known[key]

    return recorded


def _record(root: Path, row: Published) -> Recorded | None:
    script = root / row.path
    if not script.is_file():
        return None
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(root))
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            found = record(
                Target(str(script), row.arguments), RecordingOptions(platform="a2a3", quiet=True)
            )
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and file.startswith(str(root)):
                del sys.modules[name]
    return max(found.runs, key=lambda run: run.tasks.total) if found.runs else None
