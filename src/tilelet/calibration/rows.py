"""The comparisons: a published number, and the same quantity of the modelled device.

`rows.json` has the published rows. A row with two numbers (before and after) gives two lines.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

from tilelet.calibration import programs
from tilelet.calibration.published import PublicProgram, Published, Recorder
from tilelet.dataclasses import dataclass
from tilelet.device import Machine, Timeline, simulate
from tilelet.device.machine.description import with_fields
from tilelet.device.report.critical import critical_path
from tilelet.device.report.uncertainty import time_shares
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.models.qwen3.scope1 import build_scope1
from tilelet.models.qwen3.scope3 import build_scope3
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.stream import TaskStream

PUBLISHED = {
    row["id"]: row for row in json.loads(Path(__file__).with_name("rows.json").read_text())
}
Builder = Callable[..., Program]
Measure = Callable[[Machine, str], float]


@dataclass(frozen=True)
class Line:
    """One comparison; lines of one `family` are left out together in validation.

    period  of the runtime, or the date of the measurement
    bound   what bounds the program (`Timeline.bound`)
    shares  share of each cause in its time (`uncertainty.time_shares`)
    weight  how much it counts in intervals (`Published.weight`)
    """

    name: str
    family: str
    published: float
    unit: str
    predict: Measure
    period: str = "2026-04"
    tasks: int | None = None
    bound: Callable[[Machine, str], str] = lambda _machine, _period: "cores"
    shares: Callable[[Machine, str], dict[str, float]] = lambda _machine, _period: {"waiting": 1.0}
    weight: float = 1.0


@functools.cache
def record_program(builder: Builder, *args: object) -> tuple[TaskStream, Program]:
    program = run_passes(builder(*args))
    return Interpreter().run(program, {}, execute=False).tasks, program


def timeline(
    machine: Machine, period: str, recording: bool, builder: Builder, *args: object
) -> Timeline:
    tasks, program = record_program(builder, *args)
    return simulate(tasks, program, machine, period=period, recording=recording)


def bound_of(builder: Builder, *args: object) -> Callable[[Machine, str], str]:
    return lambda m, period: timeline(m, period, True, builder, *args).bound


def shares(builder: Builder, *args: object) -> Callable[[Machine, str], dict[str, float]]:
    return lambda m, period: shares_of(timeline(m, period, True, builder, *args))


def shares_of(line: Timeline) -> dict[str, float]:
    return time_shares(line, critical_path(line))


def total_us(builder: Builder, *args: object) -> Measure:
    return lambda m, period: timeline(m, period, True, builder, *args).total_us


def effective_us(builder: Builder, *args: object) -> Measure:
    return lambda m, period: timeline(m, period, False, builder, *args).effective_us


def latency(builder: Builder, *args: object) -> Measure:
    return lambda m, period: timeline(m, period, True, builder, *args).average_latency_us


def cold_kernel(*shape: int) -> Measure:
    """A single kernel, run once, with nothing in L2; the part has a 1.8 GHz clock."""

    def measure(machine: Machine, period: str) -> float:
        slower = with_fields(machine, {"cores.clock_ghz": 1.8})
        line = timeline(slower, period, False, programs.build_one_matmul, *shape)
        return line.average_exec_us

    return measure


def launch(size: int) -> Measure:
    """One launch on all cores: from the first block's start to the last one's end."""

    def measure(machine: Machine, period: str) -> float:
        line = timeline(machine, period, False, programs.build_gemm, size)
        return float(line.end.max() - line.start.min())

    return measure


def warm_kernel(builder: Builder, *args: object) -> Callable[[Machine], float]:
    """A kernel in the middle of a program, with its data in L2."""

    def measure(machine: Machine) -> float:
        tasks, program = record_program(builder, *args)
        return simulate(tasks, program, machine).cost_of(0).exec_us

    return measure


def per_iteration(pipelined: bool) -> Measure:
    def measure(machine: Machine, _: str) -> float:
        few, many = (warm_kernel(programs.build_stream_loop, n, pipelined) for n in (32, 64))
        return (many(machine) - few(machine)) / 32

    return measure


def row_width_ratio(machine: Machine, _: str) -> float:
    narrow, wide = (warm_kernel(programs.build_row_width, n) for n in (64, 128))
    return narrow(machine) / wide(machine)


def lines() -> list[Line]:
    """Return all comparisons with Tilelet's own programs."""

    def line(row: str, of: Callable[..., Measure], builder: Builder, *args: object) -> Line:
        source = PUBLISHED[row]
        period = source["period"] if source["period"] != "2026" else "2026-04"
        return Line(
            row,
            source["family"],
            float(source["total_us"]),
            "us",
            of(builder, *args),
            period,
            source["tasks"],
            bound_of(builder, *args),
            shares(builder, *args),
        )

    def kernel(row: str, predict: Measure) -> Line:
        source = PUBLISHED[row]
        return Line(row, source["family"], float(source["total_us"]), "us", predict)

    before, after = (build_scope3, "baseline"), (build_scope3, "refactored")
    return [
        line("scope3-before", total_us, *before),
        line("scope3-after", total_us, *after),
        line("scope1-before", total_us, build_scope1, "per_block"),
        line("scope1-after", total_us, build_scope1, "chunked"),
        line("matmul-add", effective_us, programs.build_matmul_add),
        line("matmul-add-july", effective_us, programs.build_matmul_add),
        line("bgemm", effective_us, programs.build_bgemm),
        line("bgemm-july", effective_us, programs.build_bgemm),
        kernel("mm64", cold_kernel(64, 64, 64)),
        kernel("mm128", cold_kernel(128, 128, 128)),
        kernel("mm256", cold_kernel(256, 64, 256)),
        kernel("gemm1536", launch(1536)),
        kernel("gemm3072", launch(3072)),
        kernel("gemm6144", launch(6144)),
        Line("stream-loop range", "stream-loop", 0.65, "us", per_iteration(False)),
        Line("stream-loop pipeline", "stream-loop", 0.49, "us", per_iteration(True)),
        Line("row-width 256/512", "row-width", 9.9 / 7.9, "x", row_width_ratio),
        line("decode14b-traffic", total_us, programs.build_decode_14b),
        Line("scope3-before latency", "scope3", 3.93, "us", latency(*before)),
        Line("scope3-after latency", "scope3", 44.58, "us", latency(*after)),
    ]


def public_rows() -> list[Published]:
    """Return the rows that were measured with public programs."""
    return [Published.of_row(row) for row in PUBLISHED.values() if "rev" in row]


def public_lines(recorded_by: Recorder) -> tuple[list[Line], list[str]]:
    """Return comparisons with public programs, and the rows whose program is missing or fails."""
    found: list[Line] = []
    missing: list[str] = []
    for row in public_rows():
        run = recorded_by(row)
        if run is None:
            missing.append(row.id)
            continue
        program = PublicProgram(row, run)
        found.append(
            Line(
                row.id,
                row.family,
                row.total_us,
                "us",
                program.predict,
                row.measured,
                row.tasks,
                lambda m, period, p=program: p.timeline(m, period).bound,
                lambda m, period, p=program: shares_of(p.timeline(m, period)),
                row.weight,
            )
        )
    return found, missing
