"""Machine descriptions: read from TOML, validated by field, with evidence for every number."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast, get_type_hints

from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.device import (
    MachineContradiction,
    MachineFieldMissing,
    MachineFieldUnknown,
    MachineFieldValue,
    MachineSyntax,
    UnknownMachine,
    UnknownPeriod,
)
from tilelet.dtypes import NARROW, DType
from tilelet.ir.types import Mem

T = TypeVar("T")

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")

BUILT_IN = Path(__file__).parent
EVIDENCE = ("C", "M", "F", "S", "D", "G")
"""Evidence tags: Constant of a public header, Measured, Fitted to a device, fitted to a Simulator,
Derived, Guess.
"""

WINDOWS = ("none", "all", "unread", "both")
GRAPHS = ("tasks", "whole")
RULES = ("kernel", "written", "loops", "params", "disjoint")
"""How the runtime treats written arguments; see `graph.py`."""


def _field(**checks: object) -> Any:
    return field(metadata=checks)


# Limits on any number. No machine comes near them, but times are summed and divided by, and the
# model keeps arrays with one entry per core.
_SMALLEST, _GREATEST, _MAX_CORES = 1e-6, 10**12, 4096
_MAX_SPREAD = 100.0  # a logarithm: a larger interval carries no information


def _positive_field() -> Any:
    return _field(least=_SMALLEST, most=_GREATEST)


def _natural_field() -> Any:
    return _field(least=0, most=_GREATEST)


def _count_field(most: int = 1 << 48) -> Any:
    return _field(least=1, most=most, integer=True)


def _share() -> Any:
    return _field(least=_SMALLEST, most=1)


@dataclass(frozen=True, slots=True)
class Cores:
    """Number of clusters; each has one AIC and `vectors_per_cluster` AIVs."""

    clusters: int = _count_field(_MAX_CORES)
    vectors_per_cluster: int = _count_field(64)
    clock_ghz: float = _positive_field()

    @property
    def vectors(self) -> int:
        return self.clusters * self.vectors_per_cluster


@dataclass(frozen=True, slots=True)
class Memory:
    """One on-chip memory: its size, and the part usable by a kernel."""

    bytes: int = _count_field()
    usable: int = _count_field()


@dataclass(frozen=True, slots=True)
class Gm:
    """Global memory.

    hbm_gbs      peak bandwidth, of which `efficiency` is sustained
    l2_bytes     size of the L2 cache, in lines of `l2_line` bytes, shared by all cores; its lines
                 are distributed over `l2_slices`, which together serve `l2_gbs`
    l2_sector    bytes of a line that a slice serves at once to cores that read rows of their own
    lockstep     share of simultaneous requests among cores that run the same kernel and ask for
                 different lines of the same slices
    serial_cycles  how long a line is busy with one core if several request parts of it at once
    granule      run length in bytes below which a transfer loses efficiency
    """

    hbm_gbs: float = _positive_field()
    efficiency: float = _share()
    l2_bytes: int = _count_field()
    l2_line: int = _count_field()
    l2_gbs: float = _positive_field()
    l2_slices: int = _count_field(1 << 16)
    l2_sector: int = _count_field()
    lockstep: float = _share()
    serial_cycles: float = _natural_field()
    granule: int = _count_field()


@dataclass(frozen=True, slots=True)
class DataPath:
    """One data path of a core.

    bytes_per_cycle, cold_bytes_per_cycle  rate if the data is in L2 (or on chip), and if not
    fixed_cycles    additional pipe time per transfer
    latency_cycles, cold_latency_cycles  delay until the data arrives, overlapped by later transfers
    row_cycles      additional time per contiguous run; out of L0C, the minimum per run
    """

    bytes_per_cycle: float = _positive_field()
    cold_bytes_per_cycle: float = _positive_field()
    fixed_cycles: float = _natural_field()
    latency_cycles: float = _natural_field()
    cold_latency_cycles: float = _natural_field()
    row_cycles: float = _natural_field()


@dataclass(frozen=True, slots=True)
class Cube:
    """The cube: rows and columns of an output block; `k_bytes` of K are consumed per cycle."""

    fractal: int = _count_field()
    k_bytes: int = _count_field()
    head_cycles: float = _natural_field()
    fp32_passes: float = _positive_field()


@dataclass(frozen=True, slots=True)
class VectorCost:
    """cycles = slope x repeats + constant; the constant applies only to a dependent instruction."""

    slope: float = _natural_field()
    constant: float = _natural_field()


@dataclass(frozen=True, slots=True)
class Body:
    """Costs of running a kernel that belong to no single instruction.

    start_cycles     from the kernel's entry to its first instruction, and from the last to its end
    issue_cycles     scalar unit time to issue one instruction
    mask_cycles      setting the vector mask before an op and resetting it afterwards, in the order
                     of the vector instructions
    sync_cycles      one pipe waiting for another
    exchange_cycles  signaling a tile between the AIC and an AIV of a cluster
    element_cycles   accessing a single element of GM whose line is in the scalar cache
    miss_cycles      additional cycles if it is not
    scalar_line      line size of that cache in bytes
    scalar_cache     size of that cache in bytes
    """

    start_cycles: float = _natural_field()
    issue_cycles: float = _natural_field()
    mask_cycles: float = _natural_field()
    sync_cycles: float = _natural_field()
    exchange_cycles: float = _natural_field()
    element_cycles: float = _natural_field()
    miss_cycles: float = _natural_field()
    scalar_line: int = _count_field()
    scalar_cache: int = _count_field()


@dataclass(frozen=True, slots=True)
class Runtime:
    """Costs of the runtime in one period; all times in microseconds.

    threads       scheduler threads; each owns an equal share of the clusters
    submit_us, submit_arg_us  orchestrator time per task, and per tensor argument
    graphs        how the tasks of a `pl.graph()` are submitted: individually ("tasks"), or all with
                  the first ("whole"), each further one taking node_us
    dispatch_us   scheduler time to dispatch a block to a core
    complete_us   scheduler time to retire a block and find newly ready tasks
    head_us       from dispatch to the start of the kernel; tail_us: from its end until visible
    poll_us       polling one busy core; a scheduler polls all of its cores in turn
    resolve_us    from retiring a task's last block until its consumers can be dispatched
    stagger_us    delay between consecutive scheduler threads entering their loops, once per run
    first_us      delay of the slowest core's first block, once per run; the delays of the other
                  cores are evenly distributed below it
    run_us        additional time of a standalone run, end to end
    record_us     time that recording a profile adds to each of head and tail
    slots         tasks that may wait at a busy core (0: none)
    rule          how written arguments are treated, see `schedule/callsites.py`
    windows       which of them are narrowed to the written window, see `schedule/windows.py`
    ring_slots, ring_slots_both  tiles in flight from one kind of core to the other inside a
                  kernel: if they pass in one direction, and if in both
    task_window, heap_bytes  limits of the runtime's rings
    """

    threads: int = _count_field()
    submit_us: float = _positive_field()
    submit_arg_us: float = _natural_field()
    dispatch_us: float = _positive_field()
    complete_us: float = _positive_field()
    head_us: float = _natural_field()
    tail_us: float = _natural_field()
    poll_us: float = _natural_field()
    resolve_us: float = _natural_field()
    stagger_us: float = _natural_field()
    first_us: float = _natural_field()
    run_us: float = _natural_field()
    record_us: float = _natural_field()
    slots: int = _field(least=0, most=1, integer=True)
    rule: str = _field(choices=RULES)
    windows: str = _field(choices=WINDOWS)
    graphs: str = _field(choices=GRAPHS)
    node_us: float = _natural_field()
    ring_slots: int = _count_field(1 << 10)
    ring_slots_both: int = _count_field(1 << 10)
    task_window: int = _count_field()
    heap_bytes: int = _count_field()


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of modelled totals for unseen programs.

    within  nine of ten published totals lie within this factor, as a logarithm
    rows    number of rows
    """

    within: float = _field(least=0, most=_MAX_SPREAD)
    rows: int = _count_field()


@dataclass(frozen=True, slots=True)
class PeriodSpread:
    """Errors of totals in one period of the runtime.

    factor  of `Spread.within`, for every cause
    rows    number of rows
    """

    factor: float = _positive_field()
    rows: int = _count_field()


@dataclass(frozen=True, slots=True)
class PairSpread:
    """Errors of modelled changes: the scale of the error of `log(after / before)` is `floor` for no
    change and grows by `slope` with the change, up to `ceiling`; all three are multiplied by the
    factor of the period. Nine of ten changes lie `within` so many scales. The other fields count
    the published changes by the cause of time that they are mostly in.
    """

    floor: float = _positive_field()
    slope: float = _natural_field()
    ceiling: float = _positive_field()
    within: float = _positive_field()
    rows: int = _count_field()
    dispatch: float = _natural_field()
    GM: float = _natural_field()
    cube: float = _natural_field()
    vector: float = _natural_field()
    waiting: float = _natural_field()


@dataclass(frozen=True, slots=True)
class Links:
    """Transfers between ranks.

    start_us, core_gbs  what one core takes for a transfer: a constant, and a rate
    link_gbs     limit of all transfers from one rank to one other
    rank_gbs     limit of all transfers out of one rank
    signal_us    from a notify to the wait that sees it
    start_skew_us  between the first and the last rank that starts
    """

    start_us: float = _natural_field()
    core_gbs: float = _positive_field()
    link_gbs: float = _positive_field()
    rank_gbs: float = _positive_field()
    signal_us: float = _natural_field()
    start_skew_us: float = _natural_field()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of a number: one of `EVIDENCE`, and a description."""

    tag: str
    source: str


@dataclass(frozen=True, eq=False)
class Machine:
    """A whole machine; `evidence` maps field names (`gm.hbm_gbs`) to their source.

    `narrow_types` are those of `dtypes.NARROW` that its instructions know.

    `errors` (by cause of time), `period_errors` and `pairs` describe the known errors of the
    model; they are empty for a machine without published comparisons.
    """

    name: str
    title: str
    cores: Cores
    buffers: Mapping[Mem, Memory]
    gm: Gm
    paths: Mapping[str, DataPath]
    cube: Cube
    vector_repeat: int
    vector: Mapping[str, VectorCost]
    body: Body
    runtime: Mapping[str, Runtime]
    default_period: str
    narrow_types: frozenset[DType]
    evidence: Mapping[str, Evidence]
    file: str
    errors: Mapping[str, Spread] = field(default_factory=dict[str, Spread])
    period_errors: Mapping[str, PeriodSpread] = field(default_factory=dict[str, PeriodSpread])
    pairs: PairSpread | None = None
    links: Links | None = None

    def period(self, name: str | None = None) -> Runtime:
        """Return the runtime of a period or date, by default the machine's own."""
        return self.runtime[self.period_name(name)]

    def period_name(self, asked: str | None = None) -> str:
        """Return the period that a name or a date refers to.

        Periods are named by the month or day they begin; a date refers to the last one that does
        not begin after it.
        """
        wanted = asked or self.default_period
        if wanted in self.runtime:
            return wanted
        begun = [name for name in self.runtime if name <= wanted]
        if not _DATE.fullmatch(wanted) or not begun:
            raise UnknownPeriod(wanted, self.name, sorted(self.runtime))
        return max(begun)

    @property
    def newest_period(self) -> str:
        """Return the last period named by a date; others are selected by name only."""
        return max((name for name in self.runtime if _DATE.fullmatch(name)), default="") or max(
            self.runtime
        )

    def us(self, cycles: float) -> float:
        """Convert core cycles to microseconds."""
        return cycles / (self.cores.clock_ghz * 1000.0)

    @property
    def hbm_bytes_per_us(self) -> float:
        """Return the sustained bandwidth of global memory."""
        return self.gm.hbm_gbs * self.gm.efficiency * 1000.0

    @property
    def granule_cycles(self) -> float:
        """Return how long a slice of L2 takes to serve a granule, whichever part is requested."""
        gm = self.gm
        return gm.l2_slices * gm.granule * self.cores.clock_ghz / gm.l2_gbs

    def has_path(self, name: str) -> bool:
        return name in self.paths


REQUIRED_PATHS = (
    "gm_to_ub",
    "gm_to_l1",
    "ub_to_gm",
    "l1_to_gm",
    "l0c_to_gm",
    "l0c_to_l1",
    "l1_to_l0a",
    "l1_to_l0b",
    "l1_to_bt",
)
OPTIONAL_PATHS = ("l0c_to_ub", "ub_to_l1")
"""Direct paths between the cube and the vector side; without them tiles go through GM."""

SPACES = (Mem.Vec, Mem.Mat, Mem.Left, Mem.Right, Mem.Acc, Mem.Bias)
_TOP = (
    "name",
    "title",
    "extends",
    "default_period",
    "narrow_types",
    "cores",
    "buffers",
    "gm",
    "paths",
    "cube",
    "vector",
    "body",
    "runtime",
    "errors",
    "period_errors",
    "pairs",
    "links",
)


def machine_names() -> list[str]:
    """Return the names of the built-in machines."""
    return sorted(p.stem for p in BUILT_IN.glob("*.toml"))


def load_machine(name_or_path: str | Path) -> Machine:
    """Load a built-in machine by name (a trailing `sim` is ignored), or one from a TOML file."""
    name = str(name_or_path)
    stem = name.removesuffix("sim")
    path = BUILT_IN / f"{stem}.toml" if stem in machine_names() else Path(name)
    try:
        found = path.suffix == ".toml" and path.is_file()
        modified = path.stat().st_mtime_ns if found else 0
    except OSError:  # the name is too long for a file name
        found, modified = False, 0
    if not found:
        raise UnknownMachine(name, machine_names())
    return _load(path, modified)


@functools.lru_cache(maxsize=32)
def _load(path: Path, _modified: int) -> Machine:
    return _Reader(path.name).machine(_merge_tables(path))


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """Parse TOML text into a dictionary."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also raised by Python for integers of thousands of digits
        raise MachineSyntax(file, str(error)) from None
    except RecursionError:
        raise MachineSyntax(file, "arrays or tables are nested too deeply") from None


def _merge_tables(path: Path, seen: tuple[str, ...] = ()) -> dict[str, object]:
    """Merge the file's tables over those of the machine that it extends."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MachineSyntax(path.name, str(error)) from None
    except OSError as error:
        raise MachineSyntax(path.name, error.strerror or str(error)) from None
    own = parse_toml(text, path.name)
    base = own.get("extends")
    if base is None:
        return own
    if not isinstance(base, str) or base not in machine_names() or base in seen:
        raise MachineFieldValue(path.name, "extends", base, f"one of {', '.join(machine_names())}")
    return _overlay(_merge_tables(BUILT_IN / f"{base}.toml", (*seen, base)), own)


def _overlay(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        there: Any = merged.get(key)
        is_group = all(isinstance(t, dict) and "value" not in t for t in (value, there))
        merged[key] = _overlay(there, value) if is_group else value
    return merged


class _Reader:
    """Converts tables into the classes above; errors give each field's full name."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.evidence: dict[str, Evidence] = {}

    def machine(self, data: Mapping[str, object]) -> Machine:
        self.known("", data, _TOP)
        vector = dict(self.table(data, "vector"))
        self.known("vector", vector, ("repeat_bytes", "costs"))
        costs = self.group(vector, "vector.costs", VectorCost)
        if "default" not in costs:
            raise MachineFieldMissing(self.file, "vector.costs.default", "a slope and a constant")
        runtime = self.group({"runtime": self.periods(data)}, "runtime", Runtime)
        period = self.text(data, "default_period")
        if period not in runtime:
            wanted = f"one of {', '.join(sorted(runtime))}"
            raise MachineFieldValue(self.file, "default_period", period, wanted)
        paths = self.group(data, "paths", DataPath, REQUIRED_PATHS, OPTIONAL_PATHS)
        spaces = [s.name for s in SPACES]
        buffers = self.group(data, "buffers", Memory, spaces, ())
        bounds = {"least": 32, "most": 1 << 20, "integer": True}
        repeat = self.number(vector, "vector.repeat_bytes", bounds)
        machine = Machine(
            name=self.text(data, "name"),
            title=self.text(data, "title"),
            cores=self.read(data, "cores", Cores),
            buffers=MappingProxyType({s: buffers[s.name] for s in SPACES}),
            gm=self.read(data, "gm", Gm),
            paths=MappingProxyType(paths),
            cube=self.read(data, "cube", Cube),
            vector_repeat=int(repeat),
            vector=MappingProxyType(costs),
            body=self.read(data, "body", Body),
            runtime=MappingProxyType(runtime),
            default_period=period,
            narrow_types=self.narrow_types(data),
            evidence=MappingProxyType(self.evidence),
            file=self.file,
            errors=MappingProxyType(self.group(data, "errors", Spread) if "errors" in data else {}),
            period_errors=MappingProxyType(
                self.group(data, "period_errors", PeriodSpread) if "period_errors" in data else {}
            ),
            pairs=self.read(data, "pairs", PairSpread) if "pairs" in data else None,
            links=self.read(data, "links", Links) if "links" in data else None,
        )
        self.check_consistency(machine)
        return machine

    def periods(self, data: Mapping[str, object]) -> dict[str, Any]:
        """Return the tables of all periods; one with `like` inherits missing fields from that
        period.
        """
        found: dict[str, Any] = {}
        for name, own in self.table(data, "runtime").items():
            table = own
            if isinstance(own, dict) and "like" in own:
                table = cast("dict[str, Any]", own)
                base = self.choice(table, f"runtime.{name}.like", tuple(found))
                table = {**found[base], **{k: v for k, v in table.items() if k != "like"}}
            found[name] = table
        return found

    def narrow_types(self, data: Mapping[str, object]) -> frozenset[DType]:
        known = {d.name: d for d in NARROW}
        given = cast("list[object]", data.get("narrow_types", []))
        if not isinstance(given, list) or not known.keys() >= {str(name) for name in given}:  # pyright: ignore[reportUnnecessaryIsInstance]
            wanted = f"a list of {', '.join(sorted(known))}"
            raise MachineFieldValue(self.file, "narrow_types", given, wanted)
        return frozenset(known[str(name)] for name in given)

    def check_consistency(self, m: Machine) -> None:
        for space, memory in m.buffers.items():
            where = f"buffers.{space.name}"
            self.at_most(f"{where}.usable", memory.usable, f"{where}.bytes", memory.bytes)
        for name, path in m.paths.items():
            self.at_most(
                f"paths.{name}.cold_bytes_per_cycle",
                path.cold_bytes_per_cycle,
                f"paths.{name}.bytes_per_cycle",
                path.bytes_per_cycle,
            )
            self.at_most(
                f"paths.{name}.latency_cycles",
                path.latency_cycles,
                f"paths.{name}.cold_latency_cycles",
                path.cold_latency_cycles,
            )
        self.at_most("gm.l2_line", m.gm.l2_line, "gm.l2_bytes", m.gm.l2_bytes)
        self.at_most("gm.hbm_gbs", m.gm.hbm_gbs, "gm.l2_gbs", m.gm.l2_gbs)
        for name, runtime in m.runtime.items():
            where = f"runtime.{name}.threads"
            self.at_most(where, runtime.threads, "cores.clusters", m.cores.clusters)

    def at_most(self, name: str, value: float, other: str, limit: float) -> None:
        if value > limit:
            raise MachineContradiction(self.file, name, value, other, limit)

    def known(self, where: str, data: Mapping[str, object], names: tuple[str, ...]) -> None:
        for key in data:
            if key not in names:
                full = f"{where}.{key}" if where else key
                raise MachineFieldUnknown(self.file, full, sorted(names))

    def table(self, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        key = name.rsplit(".", 1)[-1]
        if key not in data:
            raise MachineFieldMissing(self.file, name, "a table")
        if not isinstance(data[key], dict):
            raise MachineFieldValue(self.file, name, data[key], "a table")
        return data[key]

    def group(
        self,
        data: Mapping[str, object],
        name: str,
        cls: type[T],
        required: tuple[str, ...] | list[str] = (),
        optional: tuple[str, ...] | None = None,
    ) -> dict[str, T]:
        """Read a table of tables of one kind; with `optional`, only the given names may appear."""
        table = self.table(data, name)
        for wanted in required:
            if wanted not in table:
                raise MachineFieldMissing(self.file, f"{name}.{wanted}", "a table")
        if optional is not None:
            self.known(name, table, (*required, *optional))
        if not table:
            raise MachineFieldMissing(self.file, name, "at least one entry")
        return {key: self.read(table, f"{name}.{key}", cls) for key in table}

    def read(self, data: Mapping[str, object], name: str, cls: type[T]) -> T:
        table = self.table(data, name)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        self.known(name, table, tuple(f.name for f in fields))
        kinds = get_type_hints(cls)
        values: dict[str, object] = {}
        for f in fields:
            full = f"{name}.{f.name}"
            if kinds[f.name] is str:
                values[f.name] = self.choice(table, full, f.metadata["choices"])
            else:
                number = self.number(table, full, f.metadata)
                values[f.name] = int(number) if kinds[f.name] is int else float(number)
        return cls(**values)

    def text(self, data: Mapping[str, Any], name: str) -> str:
        if name not in data:
            raise MachineFieldMissing(self.file, name, "a text")
        if not isinstance(data[name], str):
            raise MachineFieldValue(self.file, name, data[name], "a text")
        return data[name]

    def choice(self, table: Mapping[str, Any], full: str, choices: tuple[str, ...]) -> str:
        wanted = f"one of {', '.join(choices)}"
        key = full.rsplit(".", 1)[-1]
        if key not in table:
            raise MachineFieldMissing(self.file, full, wanted)
        if table[key] not in choices:
            raise MachineFieldValue(self.file, full, table[key], wanted)
        return table[key]

    def number(self, table: Mapping[str, object], full: str, checks: Mapping[str, Any]) -> float:
        wanted = _expected_text(checks)
        key = full.rsplit(".", 1)[-1]
        if key not in table:
            raise MachineFieldMissing(self.file, full, wanted)
        value = self.with_evidence(table[key], full)
        ok = isinstance(value, (int, float)) and not isinstance(value, bool)
        if ok and checks.get("integer"):
            ok = isinstance(value, int)
        if ok:  # NaN is in no range
            ok = checks["least"] <= value <= checks["most"]
        if not ok:
            raise MachineFieldValue(self.file, full, value, wanted)
        return value

    def with_evidence(self, leaf: object, full: str) -> Any:
        """Return a plain number, or the value of `{ value = .., evidence = "M", source = ".." }`"""
        if not isinstance(leaf, dict):
            return leaf
        leaf = cast("dict[str, object]", leaf)
        self.known(full, leaf, ("value", "evidence", "source"))
        if "value" not in leaf:
            raise MachineFieldMissing(self.file, f"{full}.value", "a number")
        tag = leaf.get("evidence", "G")
        if tag not in EVIDENCE:
            wanted = f"one of {', '.join(EVIDENCE)}"
            raise MachineFieldValue(self.file, f"{full}.evidence", tag, wanted)
        self.evidence[full] = Evidence(tag, str(leaf.get("source", "")))
        return leaf["value"]


def _expected_text(checks: Mapping[str, object]) -> str:
    what = "a whole number" if checks.get("integer") else "a number"
    return f"{what} from {checks['least']:,} to {checks['most']:,}"


def with_fields(machine: Machine, changes: Mapping[str, float]) -> Machine:
    """Return the machine with some fields changed, by full name: `{"gm.efficiency": 0.8}`.

    For calibration and what-if analysis.
    """
    for name, value in changes.items():
        machine = _replace_field(machine, name.split("."), value)
    return machine


def _replace_field(node: Any, path: list[str], value: float) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, Mapping):
        table = cast("Mapping[Any, Any]", node)
        key = next(k for k in table if getattr(k, "name", k) == head)
        return MappingProxyType({**table, key: _replace_field(table[key], rest, value)})
    return dataclasses.replace(node, **{head: _replace_field(getattr(node, head), rest, value)})
