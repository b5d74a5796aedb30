"""One run of the bench, which turns cases into rows."""

from __future__ import annotations

import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from tilelet.bench import host, startup
from tilelet.bench.cases import BenchCase, UsefulWork
from tilelet.bench.data import Data
from tilelet.bench.peaks import Machine
from tilelet.bench.report import Goal, Report, Row
from tilelet.bench.timing import (
    Effort,
    Form,
    Missing,
    Timing,
    extra_memory,
    in_turn,
    quartiles,
    run_once,
)
from tilelet.cpu.run.engine import thread_count
from tilelet.diag.core import UserError, UserErrors
from tilelet.native.toolchain import find_compiler

_RUNTIME_RUNS = 5
_MIN_TASKS = 1000  # with fewer, the cost of a run dominates that of a task
_NO_GOALS: Mapping[str, Goal] = MappingProxyType({})
ONE_THREAD = "one thread"

# Goals of the engine in all sections; sections add their own.
MEMORY = Goal("extra_bytes", 200e6, is_upper=True)


class Bench:
    """Machine, data and rows of one run. `say` is called with each measured case."""

    def __init__(self, report: Report, is_quick: bool, say: Callable[[str], None]) -> None:
        self.report = report
        self.is_quick = is_quick
        self.say = say
        self.threads = thread_count()
        self.data = Data()
        self.effort = Effort(2, 2.0, fewest=1) if is_quick else Effort(7, 20.0)
        self.section = ""
        say("what this machine can do")
        self.machine = Machine(self.threads, 16 if is_quick else 128)
        report.machine = self._machine_facts()

    def _machine_facts(self) -> dict[str, object]:
        compiler = find_compiler()
        peaks = self.machine.measure()
        return {
            "cpu": host.cpu_name(),
            "isa": host.probe_compiler(compiler).isa,
            "cores": asdict(host.cores()),
            "threads": self.threads,
            "compiler": f"{compiler.name}: {compiler.version}",
            "huge_pages": host.huge_pages(),
            "packages": host.package_versions(),
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "fma_peak": peaks.flops,
            "read_bandwidth": peaks.read,
            "read_streams_bandwidth": peaks.read_streams,
            "copy_bandwidth": peaks.copy,
        }

    def run(self, section: str, work: Callable[[Bench], None]) -> None:
        """Measure one section, then release its data."""
        self.section = section
        before, begin = host.busy(), time.perf_counter()
        try:
            work(self)
        finally:
            self.data.clear()
            after, seconds = host.busy(), time.perf_counter() - begin
            if before and after:
                others = after.others_since(before) / (seconds * host.cores().present)
                self.report.other_work[section] = others

    def add(self, name: str, note: str = "", **more: Any) -> Row:
        row = Row(self.section, name, note=note, **more)
        self.report.rows.append(row)
        return row

    @contextmanager
    def guard(self, name: str) -> Generator[None]:
        """A case that cannot be measured becomes a row that says why."""
        try:
            yield
        except MemoryError as error:
            self.add(name, f"left out: {str(error) or 'not enough memory'}")
        except UserError as error:
            self.add(name, f"failed: {error.diagnostic.message}", failed=True)
        except UserErrors as errors:
            self.add(name, f"failed: {errors.diagnostics[0].message}", failed=True)
        except Exception as error:
            print("".join(traceback.format_exception(error)), file=sys.stderr)
            first = str(error).strip().split("\n")[0]
            self.add(name, f"failed: {type(error).__name__}: {first}", failed=True)

    def measure(
        self,
        cases: Sequence[BenchCase],
        goals: Sequence[Goal] = (),
        others: Sequence[Form | Missing] = (),
        other_goals: Mapping[str, Goal] = _NO_GOALS,
        effort: Effort | None = None,
    ) -> None:
        """Add rows of our programs for one work, and of its other forms."""
        names = ", ".join(case.label for case in cases)
        self.say(f"{self.section}: {names}")
        forms = [Form(case.label, case.call) for case in cases]
        alone = [Form(f"{c.label}, {ONE_THREAD}", c.call_alone) for c in cases if self.threads > 1]
        present = [form for form in others if isinstance(form, Form)]
        timings = in_turn([*forms, *alone, *present], self.machine, effort or self.effort)
        for case in cases:
            row = self.add(case.label, goals=self._goals(*goals, MEMORY))
            self._speed(row, case.work, timings[case.label])
            single = timings.get(f"{case.label}, {ONE_THREAD}")
            if single:
                row.figures["scaling"] = _ratio(single, timings[case.label])
            self._costs(row, case)
        # The other forms are compared with the last of ours.
        self._others(others, cases[-1].work, timings, cases[-1].label, other_goals)

    def measure_form(
        self,
        form: Form,
        work: UsefulWork,
        goals: Sequence[Goal] = (),
        others: Sequence[Form | Missing] = (),
        other_goals: Mapping[str, Goal] = _NO_GOALS,
    ) -> None:
        """Add rows of work that takes several of our programs, and of its other forms."""
        self.say(f"{self.section}: {form.name}")
        present = [other for other in others if isinstance(other, Form)]
        timings = in_turn([form, *present], self.machine, self.effort)
        row = self.add(form.name, form.note, goals=self._goals(*goals))
        self._speed(row, work, timings[form.name])
        self._others(others, work, timings, form.name, other_goals)

    def _others(
        self,
        others: Sequence[Form | Missing],
        work: UsefulWork,
        timings: Mapping[str, Timing],
        ours: str,
        goals: Mapping[str, Goal],
    ) -> None:
        """Add rows of other forms, compared with the form `ours`."""
        for form in others:
            row = self.add(form.name, form.note)
            if form.name in timings:
                self._speed(row, work, timings[form.name])
                self._compare(row, timings[form.name], timings[ours])
            if form.name in goals:
                row.goals = self._goals(goals[form.name])

    def _compare(self, row: Row, theirs: Timing, ours: Timing) -> None:
        """Add the time ratio with its quartiles, and the ratio of processor times."""
        pairs = list(zip(theirs.times, ours.times))
        low, median, high = quartiles([t.clock / o.clock for t, o in pairs])
        row.figures["ours_is_faster"] = median
        row.figures["ours_is_faster_low"], row.figures["ours_is_faster_high"] = low, high
        ratios = [t.processor / o.processor for t, o in pairs]
        row.figures["ours_is_faster_by_processor_time"] = statistics.median(ratios)

    def _goals(self, *goals: Goal) -> list[Goal]:
        """Return the goals that apply: none at small sizes, scaling only on two threads."""
        if self.is_quick:
            return []
        return [goal for goal in goals if goal.figure != "scaling" or self.threads == 2]

    def _speed(self, row: Row, work: UsefulWork, timing: Timing) -> None:
        """Add times and rates of one form to its row."""
        seconds = timing.seconds
        row.figures["seconds"] = seconds
        row.figures["processor_seconds"] = timing.processor_seconds
        row.figures["runs"] = len(timing.times)
        if work.flops:
            row.figures["flops"] = work.flops
            row.figures["gflops"] = work.flops / seconds / 1e9
            row.figures["fma_share"] = timing.share(work.flops, lambda p: p.flops)
            row.figures["fma_share_by_processor_time"] = timing.processor_share(
                work.flops, self.threads
            )
        else:
            row.figures["copy_share"] = timing.share(work.nbytes, lambda p: p.copy)
        row.figures["nbytes"] = work.nbytes
        row.figures["gigabytes"] = work.nbytes / seconds / 1e9
        row.figures["read_share"] = timing.share(work.nbytes, lambda p: p.read)
        row.figures["read_streams_share"] = timing.share(work.nbytes, lambda p: p.read_streams)

    def _costs(self, row: Row, case: BenchCase) -> None:
        """Add the overhead of the engine besides the kernels' time."""
        tasks = case.run()
        runtime = Form("", case.runtime_alone(self.machine))
        runs = [run_once(runtime).clock for _ in range(_RUNTIME_RUNS)]
        row.figures["tasks"] = tasks
        row.figures["runtime_seconds"] = statistics.median(runs)
        if tasks >= _MIN_TASKS:
            row.figures["runtime_per_task"] = row.figures["runtime_seconds"] / tasks
        extra = extra_memory(case.run)
        if extra is not None:
            row.figures["extra_bytes"] = extra
        if not self.is_quick:
            self.say(f"{self.section}: compiling {case.label}")
            found = startup.measure(case.name, case.sizes)
            row.figures["cold_seconds"] = found.cold
            row.figures["warm_seconds"] = found.warm
            row.figures["import_seconds"] = found.import_seconds


def _ratio(slow: Timing, fast: Timing) -> float:
    """Return the time ratio of two forms from adjacent runs."""
    pairs = zip(slow.times, fast.times)
    return statistics.median(s.clock / f.clock for s, f in pairs)


def machine_text(facts: dict[str, Any]) -> str:
    """Return the line above all tables."""
    load = facts["load"]
    busy = f"; other work is running (load {load:.1f})" if load and load > 0.5 else ""
    return (
        f"{facts['cpu']}, {facts['threads']} threads: FMA peak {facts['fma_peak'] / 1e9:.0f} "
        f"GFLOP/s, reading {facts['read_bandwidth'] / 1e9:.1f} GB/s (in four streams "
        f"{facts['read_streams_bandwidth'] / 1e9:.1f}), "
        f"copying {facts['copy_bandwidth'] / 1e9:.1f} GB/s{busy}"
    )
