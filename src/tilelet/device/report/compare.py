"""Compare two modelled runs, and explain the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilelet.dataclasses import dataclass
from tilelet.device.report.profile import KernelRow, Profile
from tilelet.device.report.text import MODELLED
from tilelet.device.report.uncertainty import (
    TIE,
    in_words,
    likelihood,
    main_cause,
    ratio_interval,
)
from tilelet.diag.json_types import JsonObject
from tilelet.diag.table_html import parts_html
from tilelet.diag.tables import Table, byte_text, number, percent, times
from tilelet.diag.text import plural

MAX_KERNELS = 16
MAX_CAUSES = 3
MIN_US = 0.005
"""Smaller differences are not listed."""

RUNTIME_PARTS = ("head", "tail", "scheduler")
"""Parts of the critical path that are overhead per task."""


@dataclass(frozen=True)
class Cause:
    """One cause of the difference: the microseconds that it adds to B, and a description."""

    us: float
    text: str


@dataclass(frozen=True)
class ProfileComparison:
    """Two profiles; B is the later version."""

    a: Profile
    b: Profile

    @property
    def difference_us(self) -> float:
        return self.b.total_us - self.a.total_us

    def causes(self) -> list[Cause]:
        """Return the causes, largest first; together they are the difference."""
        found = [self._runtime(), self._orchestrator(), *self._kernels()]
        return sorted((c for c in found if abs(c.us) >= MIN_US), key=lambda c: (-abs(c.us), c.text))

    def _runtime(self) -> Cause:
        a, b = (sum(p.path.get(part, 0.0) for part in RUNTIME_PARTS) for p in (self.a, self.b))
        on_path = [sum(k.path_tasks for k in p.kernels) for p in (self.a, self.b)]
        return Cause(
            b - a,
            f"dispatching and completing tasks: {_change(a, b)} on the critical path, which has "
            f"{_task_change(*on_path)} (of {_task_change(self.a.tasks, self.b.tasks)} in all)",
        )

    def _orchestrator(self) -> Cause:
        a, b = (p.path.get("orchestrator", 0.0) for p in (self.a, self.b))
        tasks = _task_change(self.a.tasks, self.b.tasks)
        return Cause(
            b - a,
            f"waiting for the orchestrator, which submits {tasks}: {_change(a, b)} on the critical "
            "path",
        )

    def _kernels(self) -> list[Cause]:
        found: list[Cause] = []
        for a, b in self.kernel_pairs():
            if a and b:
                found.append(Cause(b.path_us - a.path_us, self._same_kernel(a, b)))
            elif a:
                found.append(Cause(-a.path_us, self._only(a, "A")))
            elif b:
                found.append(Cause(b.path_us, self._only(b, "B")))
        return found

    @staticmethod
    def _same_kernel(a: KernelRow, b: KernelRow) -> str:
        each = [k.path_us / k.path_tasks if k.path_tasks else 0.0 for k in (a, b)]
        before = f" (`{a.name}` in A)" if a.name != b.name else ""
        text = f"kernel `{b.name}`{before}: {_change(a.path_us, b.path_us)} on the critical path"
        if a.path_tasks != b.path_tasks:
            text += f", {b.path_tasks:,} instead of {plural(a.path_tasks, 'execution')}"
        if a.path_tasks and b.path_tasks and abs(each[1] - each[0]) > 0.05 * each[0]:
            text += f", {each[1]:.2f} instead of {each[0]:.2f} us each (bound: {b.bound})"
        if abs(b.moved - a.moved) > 0.05 * max(a.moved, 1):
            text += f"; it moves {byte_text(b.moved)} instead of {byte_text(a.moved)}"
        if abs(b.serialized_us - a.serialized_us) >= MIN_US:
            lost = _change(a.serialized_us, b.serialized_us)
            text += f"; stages whose buffers do not fit cost {lost} of it"
        return text

    @staticmethod
    def _only(kernel: KernelRow, side: str) -> str:
        return (
            f"kernel `{kernel.name}` ({kernel.where}) is only in {side}: "
            f"{plural(kernel.path_tasks, 'execution')} with {number(kernel.path_us)} us on the "
            f"critical path, bound: {kernel.bound}"
        )

    def kernel_pairs(self) -> list[tuple[KernelRow | None, KernelRow | None]]:
        """Match the kernels of both runs; unmatched ones stay alone.

        Kernels match by name and source location, then by name if they do about the same work, then
        by structure: a kernel that was renamed, moved or turned into one `spmd` task is still the
        same.
        """
        found: dict[int, int] = {}
        for score in (_same_place, _same_name, _same_structure):
            ranked = sorted(
                (-score(a, b), i, j)
                for i, a in enumerate(self.a.kernels)
                for j, b in enumerate(self.b.kernels)
                if i not in found and j not in found.values() and score(a, b) > 0
            )
            for _, i, j in ranked:
                if i not in found and j not in found.values():
                    found[i] = j
        pairs: list[tuple[KernelRow | None, KernelRow | None]] = [
            (a, self.b.kernels[found[i]] if i in found else None)
            for i, a in enumerate(self.a.kernels)
        ]
        used = set(found.values())
        return [*pairs, *((None, b) for j, b in enumerate(self.b.kernels) if j not in used)]

    # Text

    def parts(self) -> list[str | Table]:
        return [self.table(), self.kernel_table(), self.why()]

    def _repr_html_(self) -> str:
        """Render for a notebook."""
        return parts_html(self.parts())

    def table(self) -> Table:
        title = f"A: {self.a.label}\nB: {self.b.label}"
        table = Table(f"{title}   {MODELLED}", ("", "A", "B", "B / A"))
        rows: list[tuple[str, Callable[[Profile], float], Callable[[float], str]]] = [
            ("tasks", lambda p: p.tasks, lambda n: f"{n:,.0f}"),
            ("Total Test Time us", lambda p: p.total_us, number),
            ("average exec us", _average("exec_us"), number),
            ("average latency us", _average("latency_us"), number),
            ("GM bytes", lambda p: p.moved, byte_text),
            ("compulsory traffic", lambda p: p.least, byte_text),
            ("bytes that missed L2", lambda p: p.hbm_read + p.hbm_written, byte_text),
        ]
        for name, value, shown in rows:
            a, b = value(self.a), value(self.b)
            table.rows.append((name, shown(a), shown(b), times(b, a)))
        for kind in dict.fromkeys((*self.a.busy, *self.b.busy)):
            a, b = self.a.busy.get(kind, 0.0), self.b.busy.get(kind, 0.0)
            table.rows.append((f"{kind} busy", percent(a), percent(b), times(b, a)))
        for space in dict.fromkeys((*self.a.memory, *self.b.memory)):
            a, b = self.a.memory.get(space, 0), self.b.memory.get(space, 0)
            cells = (f"{a / 1024:,.1f} KB", f"{b / 1024:,.1f} KB", times(b, a))
            table.rows.append((f"peak {space}", *cells))
        return table

    def kernel_table(self) -> Table:
        heads = ("kernel", "tasks A", "B", "exec us A", "B", "bytes A", "B", "bound A", "B")
        table = Table(f"Kernels {MODELLED}", heads)
        pairs = sorted(
            self.kernel_pairs(),
            key=lambda p: -abs((p[1].exec_us if p[1] else 0.0) - (p[0].exec_us if p[0] else 0.0)),
        )
        shown: tuple[Callable[[KernelRow], str], ...] = (
            lambda k: f"{k.tasks:,}",
            lambda k: number(k.exec_us),
            lambda k: byte_text(k.moved),
            lambda k: k.bound,
        )
        for a, b in pairs[:MAX_KERNELS]:
            either = b or a
            assert either is not None
            cells: list[str] = []
            for show in shown:
                cells += [show(k) if k else "-" for k in (a, b)]
            name = f"{a.name} -> {b.name}" if a and b and a.name != b.name else either.name
            table.rows.append((name, *cells))
        if len(pairs) > MAX_KERNELS:
            table.notes.append(f"and {len(pairs) - MAX_KERNELS} more that differ less")
        return table

    def why(self, names: tuple[str, str] = ("A", "B")) -> str:
        """Describe the difference and its largest causes; `names` begin the sentences."""
        lines = [self.verdict(names)]
        causes = self.causes()[:MAX_CAUSES]
        lines += [f"  {i}. {_signed_text(c.us)} us  {c.text}" for i, c in enumerate(causes, 1)]
        lines += [f"  note: {note}" for note in self.notes()]
        if self.b.moved != self.a.moved:
            lines.append(
                f"  global memory: {byte_text(self.b.moved)} instead of {byte_text(self.a.moved)}"
            )
        return "\n".join(lines)

    def notes(self) -> list[str]:
        """Return notes on what the totals alone would hide."""
        found: list[str] = []
        sizes = [sum(t.size for t in p.tensors if t.origin == "param") for p in (self.a, self.b)]
        if abs(sizes[1] - sizes[0]) > 0.01 * max(sizes):
            a, b = map(byte_text, sizes)
            found.append(f"different work: arguments of {a} in A and {b} in B")
        cause = main_cause(self.a.shares, self.a.total_us, self.b.shares, self.b.total_us)
        if self.pair and self.a.shares and not self.pair.get(cause, 0.0):
            found.append(
                f"no published change is mostly in {cause} time, as this one is: the interval of "
                "the ratio is that of other changes"
            )
        return found

    @property
    def ratio(self) -> tuple[float, float] | None:
        """Return the interval of B / A that would contain nine of ten published changes."""
        return ratio_interval(self.pair, self.a.total_us, self.b.total_us)

    @property
    def pair(self) -> Mapping[str, float]:
        """Return the known errors of such changes; empty across machines and periods."""
        alike = (self.a.machine, self.a.period) == (self.b.machine, self.b.period)
        return self.b.pair if alike else {}

    def verdict(self, names: tuple[str, str] = ("A", "B")) -> str:
        a, b = self.a.total_us, self.b.total_us
        if abs(self.difference_us) < MIN_US:
            return f"Both take {number(a)} us {MODELLED}."
        faster, ratio = (names[1], a / b) if b < a else (names[0], b / a)
        words = in_words(self.pair, a, b)
        judged = (
            f" {names[1]} is {words}."
            if words and words != TIE
            else f" That is {words}." * bool(words)
        )
        between = ""
        if self.ratio is not None:
            low, high = self.ratio
            over = f"{names[1]} / {names[0]}"
            between = f" {over} is {b / a:.2f}, 90 % interval {low:.2f} to {high:.2f}."
        return (
            f"{faster} is {ratio:.2f}x faster: {number(b)} instead of {number(a)} us {MODELLED}."
            f"{judged}{between} Largest causes, by the critical paths:"
        )

    # Data

    def to_data(self) -> JsonObject:
        def side(p: Profile) -> JsonObject:
            return {
                "program": p.program,
                "machine": p.machine,
                "period": p.period,
                "tasks": p.tasks,
                "total_us": round(p.total_us, 4),
                "interval_us": [round(us, 4) for us in p.interval],
                "gm_bytes": p.moved,
                "compulsory_bytes": p.least,
                "memory": p.memory,
            }

        likely = likelihood(self.pair, self.a.total_us, self.b.total_us)
        return {
            "modelled": True,
            "a": side(self.a),
            "b": side(self.b),
            "difference_us": round(self.difference_us, 4),
            "ratio_interval": None if self.ratio is None else [round(r, 4) for r in self.ratio],
            "likelihood": None if likely is None else round(likely, 4),
            "verdict": in_words(self.pair, self.a.total_us, self.b.total_us),
            "causes": [{"us": round(c.us, 4), "text": c.text} for c in self.causes()[:MAX_CAUSES]],
            "kernels": [
                {
                    "name": (b or a).name,  # type: ignore[union-attr]
                    **{
                        side: {
                            "name": k.name,
                            "tasks": k.tasks,
                            "exec_us": round(k.exec_us, 4),
                            "bytes": k.moved,
                            "bound": k.bound,
                        }
                        for side, k in (("a", a), ("b", b))
                        if k
                    },
                }
                for a, b in self.kernel_pairs()
            ],
        }


def _same_place(a: KernelRow, b: KernelRow) -> float:
    return float((a.name, a.where) == (b.name, b.where))


def _same_name(a: KernelRow, b: KernelRow) -> float:
    """Score kernels of the same name that move about as much on the same cores."""
    alike = a.cores == b.cores and a.moved <= 2 * b.moved and b.moved <= 2 * a.moved
    return float(a.name == b.name and alike)


def _same_structure(a: KernelRow, b: KernelRow) -> float:
    """Return the share of structure common to both, or 0 if less than half."""
    parts = {*a.structure, *b.structure}
    common = sum(min(a.structure.get(p, 0), b.structure.get(p, 0)) for p in parts)
    either = sum(max(a.structure.get(p, 0), b.structure.get(p, 0)) for p in parts)
    return common / either if either and 2 * common >= either else 0.0


def _average(what: str) -> Callable[[Profile], float]:
    def value(p: Profile) -> float:
        count = sum(f.count for f in p.functions)
        return sum(getattr(f, what) for f in p.functions) / count if count else 0.0

    return value


def _task_change(a: int, b: int) -> str:
    return f"{b:,} instead of {plural(a, 'task')}" if a != b else plural(b, "task")


def _change(a: float, b: float) -> str:
    return f"{number(b)} instead of {number(a)} us"


def _signed_text(us: float) -> str:
    return f"{us:+,.2f}"
