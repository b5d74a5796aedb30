"""The summary of a modelled run, from which reports, comparisons and `profile.json` are made.

`Profile` is plain data. `profile_of` builds it from a timeline; `Profile.to_json` and
`Profile.from_json` serialize it.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tilelet.dataclasses import dataclass, field
from tilelet.device.kernel.costs import macs_per_us
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.pipes import kernel_cost
from tilelet.device.kernel.view import Core, CubeWork, DeviceKernel, Transfer, VectorWork
from tilelet.device.machine.description import Machine, Runtime
from tilelet.device.memory.plan import plan_memory
from tilelet.device.report.critical import Path, critical_path
from tilelet.device.report.traffic import Bytes, Traffic, traffic
from tilelet.device.report.uncertainty import interval, pair_errors, time_shares
from tilelet.device.schedule.arrays import Stream
from tilelet.device.schedule.simulate import Timeline
from tilelet.diag.catalogue.device import BadProfile
from tilelet.diag.core import Loc
from tilelet.diag.json_types import JsonObject
from tilelet.ir.core import walk

VERSION = 1


@dataclass(frozen=True)
class FunctionRow:
    """A row of the per-function table: executions on one kind of core, times summed in us.

    A mixed kernel has a row for its AIC and one for its AIV part, as on the device.
    """

    func_id: int
    name: str
    core: str
    count: int
    exec_us: float
    latency_us: float
    head_us: float
    tail_us: float


@dataclass(frozen=True)
class KernelRow:
    """The model's figures for one kernel.

    where        file and line of its scope
    bound        what limits it: cube, vector, MTE, scalar, latency, GM or dispatch
    path_us      its time on the critical path; path_tasks is the number of its tasks there
    serialized_us  the part of `path_us` that its stages lose because their buffers do not fit
    read .. least_written  bytes of global memory (see `traffic`)
    flops        two per multiply-add of the cube; gflops: rate while any of its tasks runs
    roof_gflops  the roofline limit for the bytes that miss L2; an upper bound
    memory       bytes of each on-chip memory
    structure    its ops and how often each occurs: `{"exp": 1, "reads x": 1}`
    """

    name: str
    where: str
    cores: str
    tasks: int
    exec_us: float
    bound: str
    path_us: float
    path_tasks: int
    read: int
    written: int
    least_read: int
    least_written: int
    flops: int
    gflops: float
    roof_gflops: float
    serialized_us: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    structure: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def moved(self) -> int:
        return self.read + self.written

    @property
    def intensity(self) -> float:
        return self.flops / self.moved if self.moved else 0.0


@dataclass(frozen=True)
class TensorRow:
    """Bytes of global memory moved from and to one tensor (or all of one name)."""

    name: str
    origin: str
    size: int
    read: int
    written: int
    least_read: int
    least_written: int


@dataclass(frozen=True)
class Profile:
    """A modelled run; all times are in microseconds.

    path         time on the critical path by part, see `critical.PARTS`
    hbm_read, hbm_written  bytes that missed L2
    busy         share of the time in which each kind of core ran kernels
    findings     what the machine would reject
    guesses      assumptions of the model, with their locations
    bound        what bounds the run: memory, cores or waiting
    shares       share of each cause in the critical path, see `uncertainty.CAUSES`
    interval     the interval that would contain nine of ten published totals; empty if there are no
                 published comparisons for this machine
    pair         known errors of modelled changes, see `PairSpread`
    depends_on   the parameters that the total depends on most: percentage change per one per cent
    """

    program: str
    machine: str
    title: str
    period: str
    tasks: int
    total_us: float
    functions: tuple[FunctionRow, ...]
    kernels: tuple[KernelRow, ...]
    tensors: tuple[TensorRow, ...]
    path: Mapping[str, float]
    busy: Mapping[str, float]
    cores: Mapping[str, int]
    orchestrator_us: float
    window_stall_us: float
    heap_stall_us: float
    scheduler_busy: tuple[float, ...]
    hbm_read: int
    hbm_written: int
    hbm_gbs: float
    exchanged: int
    peak_gflops: float
    limits: Mapping[str, int]
    findings: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()
    bound: str = ""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    interval: tuple[float, ...] = ()
    pair: Mapping[str, float] = field(default_factory=dict[str, float])
    depends_on: Mapping[str, float] = field(default_factory=dict[str, float])
    read_stall_us: float = 0.0

    @property
    def moved(self) -> int:
        return sum(t.read + t.written for t in self.tensors)

    @property
    def least(self) -> int:
        return sum(t.least_read + t.least_written for t in self.tensors)

    @property
    def flops(self) -> int:
        return sum(k.flops for k in self.kernels)

    @property
    def memory(self) -> dict[str, int]:
        """Return the bytes of each memory used by the kernel that uses most of it."""
        most: dict[str, int] = {}
        for kernel in self.kernels:
            for space, used in kernel.memory.items():
                most[space] = max(most.get(space, 0), used)
        return most

    def blocks(self, kernel: KernelRow) -> int:
        """Return the number of executions that `exec_us` of a kernel sums up.

        A task of `pl.spmd` has several; a mixed kernel is counted on the cube's core.
        """
        names = (kernel.name, f"{kernel.name}_aic")
        return sum(row.count for row in self.functions if row.name in names)

    @property
    def label(self) -> str:
        return f"{self.program} on {self.machine} ({self.period})"

    def to_data(self) -> JsonObject:
        """Return the contents of `profile.json`, always the same for the same run."""
        return {"version": VERSION, "modelled": True, **_round_floats(dataclasses.asdict(self))}

    def to_json(self) -> str:
        """Return the text of `profile.json`."""
        return json.dumps(self.to_data(), indent=1, sort_keys=False) + "\n"

    @classmethod
    def from_json(cls, text: str, file: str) -> Profile:
        """Parse a profile from a file's text; raise `BadProfile` if it is not one."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # also integers of thousands of digits
            raise BadProfile(file, f"it is not JSON: {error}") from None
        data = cast("JsonObject", data) if isinstance(data, dict) else {}
        if data.get("version") != VERSION:
            raise BadProfile(file, f"it does not have `version: {VERSION}`")
        fields = {f.name for f in dataclasses.fields(cls)}
        missing = sorted(fields - set(data) - _OPTIONAL)
        if missing:
            raise BadProfile(file, f"it lacks `{missing[0]}`")
        rows = {"functions": FunctionRow, "kernels": KernelRow, "tensors": TensorRow}
        try:
            values = {name: _check_field(name, data[name], cls) for name in fields if name in data}
            for name, row in rows.items():
                values[name] = tuple(_row(row, item) for item in data[name])
            return cls(**values)
        except (TypeError, ValueError, KeyError) as error:
            raise BadProfile(file, str(error)) from None


_OPTIONAL = frozenset(
    {
        "findings",
        "guesses",
        "structure",
        "serialized_us",
        "bound",
        "shares",
        "interval",
        "pair",
        "depends_on",
    }
)
"""Fields that a saved profile may lack."""

_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
}


def _check_field(name: str, value: Any, cls: type) -> Any:
    kind = str(next(f.type for f in dataclasses.fields(cls) if f.name == name))
    wanted = _KINDS.get(kind, (dict,) if kind.startswith("Mapping") else (list, tuple))
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ValueError(f"`{name}` has the wrong type")
    if kind.startswith("Mapping") and not all(isinstance(v, (int, float)) for v in value.values()):
        raise ValueError(f"`{name}` has something other than numbers")
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _row(cls: type, data: object) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"a row of it is {type(data).__name__}")
    data = cast("JsonObject", data)
    wanted = {f.name for f in dataclasses.fields(cls)}
    if set(data) | _OPTIONAL & wanted != wanted:
        odd = sorted((set(data) ^ wanted) - _OPTIONAL)
        raise ValueError(f"a row lacks or has an unexpected `{odd[0]}`")
    return cls(**{name: _check_field(name, value, cls) for name, value in data.items()})


def _round_floats(value: object) -> Any:
    """Round floats to nanoseconds, so that files stay readable."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {k: _round_floats(v) for k, v in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_round_floats(v) for v in cast("Sequence[object]", value)]
    return value


# From a timeline


def profile_of(
    timeline: Timeline, program: str, findings: Sequence[str] = (), moved: Traffic | None = None
) -> Profile:
    """Summarize a modelled run; `moved` is its traffic, if already known."""
    return _Summary(timeline, program, moved).profile(tuple(findings))


class _Summary:
    def __init__(self, timeline: Timeline, program: str, moved: Traffic | None = None) -> None:
        self.timeline = timeline
        self.program = program
        self.traffic = moved or traffic(timeline.stream)
        self.machine: Machine = timeline.machine
        self.runtime: Runtime = timeline.runtime
        self.stream: Stream = timeline.stream
        self.path: Path = critical_path(timeline)
        self.is_aic = timeline.core < self.machine.cores.clusters

    def profile(self, findings: tuple[str, ...]) -> Profile:
        t, machine = self.timeline, self.machine
        total = self.path.total_us
        shares, period = time_shares(t, self.path), _period(machine, self.runtime)
        cores = {"AIC": machine.cores.clusters, "AIV": machine.cores.vectors}
        return Profile(
            program=self.program,
            machine=machine.name,
            title=machine.title,
            period=period,
            tasks=self.stream.tasks.total,
            total_us=total,
            functions=tuple(self.functions()),
            kernels=tuple(self.kernels()),
            tensors=tuple(self.tensors()),
            path=self.path.parts,
            busy=t.utilization(),
            cores=cores,
            orchestrator_us=t.orchestrator_end,
            window_stall_us=t.window_stall_us,
            heap_stall_us=t.heap_stall_us,
            read_stall_us=t.read_stall_us,
            scheduler_busy=tuple(float(b) / total if total else 0.0 for b in t.thread_busy_us),
            hbm_read=round(float(t.hbm_read.sum())),
            hbm_written=round(float(t.hbm_written.sum())),
            hbm_gbs=machine.hbm_bytes_per_us / 1000.0,
            exchanged=self.traffic.exchanged,
            peak_gflops=self.peak_gflops(self.stream.kernels),
            limits={s.name: m.usable for s, m in machine.buffers.items()},
            findings=findings,
            guesses=tuple(self.guesses()),
            bound=t.bound,
            shares=shares,
            interval=interval(machine, period, shares, total) or (),
            pair=pair_errors(machine, period),
        )

    def guesses(self) -> list[str]:
        """Return the assumptions: data-dependent control flow, external kernels without a time."""
        found: dict[str, None] = {}
        for view in filter(None, self.stream.kernels):
            for op in walk(view.function.body):
                if op.spec.external is not None and op.spec.external.us is None:
                    what = "is external; it is assumed to move its tensors once"
                    found.setdefault(f"{place(op.loc)}: `{view.name}` {what}")
        for cost, kernel in zip(self.stream.costs, self.stream.cost_kernel):
            for loc, assumed in cost.guesses:
                name = self.stream.kernel_names[kernel]
                found.setdefault(f"{place(loc)}: `{name}` depends on data; {assumed}")
        return sorted(found)

    def functions(self) -> list[FunctionRow]:
        t = self.timeline
        rows: list[FunctionRow] = []
        for number, name in enumerate(self.stream.kernel_names):
            mixed = len({bool(a) for a in self.is_aic[self.timeline.kernel == number]}) > 1
            for core in ("AIC", "AIV"):
                mine = (self.timeline.kernel == number) & (self.is_aic == (core == "AIC"))
                count = int(mine.sum())
                if not count:
                    continue
                dispatch, start = t.dispatch[mine], t.start[mine]
                end, finish = t.end[mine], t.finish[mine]
                rows.append(
                    FunctionRow(
                        func_id=len(rows),
                        name=f"{name}_{core.lower()}" if mixed else name,
                        core=core,
                        count=count,
                        exec_us=float((end - start).sum()),
                        latency_us=float((finish - dispatch).sum()),
                        head_us=float((start - dispatch).sum()),
                        tail_us=float((finish - end).sum()),
                    )
                )
        return rows

    def kernels(self) -> list[KernelRow]:
        counts = self.stream.tasks.counts()
        rows: list[KernelRow] = []
        for number, name in enumerate(self.stream.kernel_names):
            view = self.stream.kernels[number]
            if view is None:
                continue
            moved = self.traffic.kernels.get(name, Bytes())
            exec_us = self.main_exec(number, view)
            flops = 2 * self.sum_of_costs(number, "macs")
            roof, gflops = self.roof(number, view, flops)
            rows.append(
                KernelRow(
                    name=name,
                    where=place(view.function.loc),
                    cores=view.shape,
                    tasks=counts.get(name, 0),
                    exec_us=exec_us,
                    bound=self.bound(number, exec_us, roof, gflops),
                    path_us=self.path.kernel_us.get(name, 0.0),
                    path_tasks=self.path.kernel_tasks.get(name, 0),
                    read=moved.read,
                    written=moved.written,
                    least_read=moved.least_read,
                    least_written=moved.least_written,
                    flops=int(flops),
                    gflops=gflops,
                    roof_gflops=roof,
                    serialized_us=self.serialized(number, name, view),
                    memory=dict(plan_memory(view, self.machine).used),
                    structure=structure_of(view),
                )
            )
        return rows

    def serialized(self, number: int, name: str, view: DeviceKernel) -> float:
        """Return the time on the critical path that an ideal memory plan and long rings would save.

        Its share is that of the longest execution.
        """
        if not view.serialized and not view.rings:
            return 0.0
        stream = self.stream
        mine = [i for i, kernel in enumerate(stream.cost_kernel) if kernel == number]
        longest = max(mine, key=lambda i: stream.costs[i].exec_us)
        wanted = lower_kernel(view.function, self.machine)
        ideal = kernel_cost(wanted, self.machine, stream.signatures[longest]).exec_us
        lost = 1 - ideal / stream.costs[longest].exec_us
        return max(0.0, lost) * self.path.kernel_us.get(name, 0.0)

    def main_records(self, number: int, view: DeviceKernel) -> NDArray[np.bool_]:
        """Return the records of the kernel's blocks, excluding companion records of mixed ones."""
        wanted = self.is_aic if Core.AIC in view.cores else ~self.is_aic
        return (self.timeline.kernel == number) & wanted

    def main_exec(self, number: int, view: DeviceKernel) -> float:
        """Return the time of the kernel's blocks; the AIV lanes of a mixed one run concurrently."""
        mine = self.main_records(number, view)
        return float((self.timeline.end[mine] - self.timeline.start[mine]).sum())

    def elapsed(self, number: int, view: DeviceKernel) -> float:
        """Return how long at least one of the kernel's blocks was running."""
        mine = self.main_records(number, view)
        order = np.argsort(self.timeline.start[mine], kind="stable")
        start, end = self.timeline.start[mine][order], self.timeline.end[mine][order]
        latest = np.maximum.accumulate(end)
        before = np.concatenate([start[:1], latest[:-1]])
        return float((latest - np.maximum(start, before)).clip(min=0.0).sum())

    def sum_of_costs(self, number: int, what: str) -> float:
        each = np.array([float(getattr(c, what)) for c in self.stream.costs])
        return float(self.stream.total(each)[self.stream.kernel == number].sum())

    def bound(self, number: int, exec_us: float, roof: float, gflops: float) -> str:
        """Return what bounds a kernel.

        Its roof, if it is near that; the runtime, if dispatching takes longer than running; GM, if
        waiting for it stretches the run; otherwise the busiest pipe.
        """
        if roof and gflops >= _NEAR_ROOF * roof:
            peak = self.peak_gflops([self.stream.kernels[number]])
            return "cube" if roof >= peak else "GM"
        mine = self.stream.kernel == number
        blocks = float(self.stream.blocks[mine].sum())
        runtime = self.runtime
        overhead = runtime.dispatch_us + runtime.complete_us + runtime.head_us + runtime.tail_us
        if exec_us < blocks * overhead:
            return "dispatch"
        if exec_us > _STRETCHED * self.sum_of_costs(number, "exec_us"):
            return "GM"
        weights: dict[str, int] = {}
        for cost, count in zip(*np.unique(self.stream.first_cost[mine], return_counts=True)):
            name = self.stream.costs[int(cost)].bound
            weights[name] = weights.get(name, 0) + int(count)
        return max(sorted(weights), key=lambda name: weights[name], default="latency")

    def roof(self, number: int, view: DeviceKernel, flops: float) -> tuple[float, float]:
        """Return the machine's limit in Gflop/s for this kernel, and the rate it reaches.

        Only bytes that miss L2 count against global memory, and only time in which the kernel runs;
        otherwise it could exceed its own roof.
        """
        elapsed = self.elapsed(number, view)
        if not flops or not elapsed:
            return 0.0, 0.0
        peak = self.peak_gflops([view])
        mine = self.stream.kernel == number
        missed = float((self.timeline.hbm_read + self.timeline.hbm_written)[mine].sum())
        allowed = self.machine.hbm_bytes_per_us / 1000.0 * flops / missed if missed else peak
        return min(peak, allowed), flops / elapsed / 1000.0

    def peak_gflops(self, kernels: Sequence[DeviceKernel | None]) -> float:
        """Return the peak of all cubes in the fastest type that the kernels multiply."""
        dtypes = {
            step.work.dtype
            for kernel in kernels
            if kernel is not None
            for step in kernel.walk()
            if isinstance(step.work, CubeWork)
        }
        rates = [2 * macs_per_us(d, self.machine) * self.machine.cores.clusters for d in dtypes]
        return max(rates, default=0.0) / 1000.0

    def tensors(self) -> list[TensorRow]:
        rows = [
            TensorRow(
                name,
                origin,
                self.traffic.sizes[name, origin],
                b.read,
                b.written,
                b.least_read,
                b.least_written,
            )
            for (name, origin), b in self.traffic.tensors.items()
        ]
        return sorted(rows, key=lambda r: (-(r.read + r.written), r.name, r.origin))


def place(loc: Loc) -> str:
    """Format as `kernel.py:12`, without the folder, so that a profile is location-independent."""
    return f"{PurePath(loc.file).name}:{loc.line}" if loc.line > 0 else ""


def _period(machine: Machine, runtime: Runtime) -> str:
    return next((name for name, r in machine.runtime.items() if r is runtime), "")


def structure_of(kernel: DeviceKernel) -> dict[str, int]:
    """Return what a kernel does, independent of its name, tile sizes and enclosing loops.

    Kernels of different programs that do the same have (nearly) the same structure.
    """
    names = [p.name for p in kernel.function.params]
    found: Counter[str] = Counter()
    for step in kernel.walk():
        work = step.work
        if isinstance(work, CubeWork):
            found[f"matmul {work.dtype.name}"] += 1
        elif isinstance(work, VectorWork):
            found[step.what] += 1
        elif isinstance(work, Transfer) and work.param is not None:
            found[f"{'writes' if work.writes_gm else 'reads'} {names[work.param]}"] += 1
    return dict(sorted(found.items()))


_NEAR_ROOF = 0.8
"""A kernel this close to its roof is limited by it."""

_STRETCHED = 1.25
"""A kernel that takes this much longer than with everything in L2 waits for global memory."""
