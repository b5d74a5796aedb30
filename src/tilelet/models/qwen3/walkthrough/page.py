"""Generate the page from measured programs: text, tables and the plot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilelet.device.report.profile import Profile
from tilelet.diag.tables import byte_text, number, percent
from tilelet.models import registry
from tilelet.models.measure import MeasuredRun, MeasuredVariant, ProgramData
from tilelet.models.qwen3.script import ShippedModel
from tilelet.models.qwen3.walkthrough.plot import Plot, PlotGroup, PlotLine
from tilelet.models.qwen3.walkthrough.text import (
    APRIL,
    COLUMNS,
    FAULTS,
    INTRO,
    SECTIONS,
    TextSection,
    WalkthroughStep,
)

MACHINES = ("a2a3", "a5")
PUBLISHED = "published, a2a3"
BYTES_PER_US = 1e6  # 1.0 TB/s: what streaming programs reach on an a2a3
PLOT = "qwen3.svg"
_PROCESSOR = "CPU times: "
Say = Callable[[str], None]


class GoldenFailedError(Exception):
    """A program's results did not match its golden, so there is no walkthrough."""


@dataclass(frozen=True)
class Figures:
    """The figures that a text can use for a step; bytes and rates are those on an a2a3."""

    profiles: Mapping[str, Profile]
    cpu: str

    @property
    def _a2a3(self) -> Profile:
        return self.profiles["a2a3"]

    @property
    def microseconds(self) -> dict[str, float]:
        return {name: profile.total_us for name, profile in self.profiles.items()}

    @property
    def tasks(self) -> str:
        return f"{self._a2a3.tasks:,}"

    @property
    def gm(self) -> str:
        """Bytes moved."""
        return byte_text(self._a2a3.moved)

    @property
    def least(self) -> str:
        """Bytes that must move."""
        return byte_text(self._a2a3.least)

    @property
    def ratio(self) -> str:
        return f"{self._a2a3.moved / self._a2a3.least:.2f}"

    @property
    def bound(self) -> str:
        """Lower bound in microseconds, from the bytes."""
        return number(self._a2a3.least / BYTES_PER_US, 0)

    @property
    def us(self) -> str:
        return number(self._a2a3.total_us, 0)

    @property
    def a5(self) -> str:
        return number(self.profiles["a5"].total_us, 0)

    @property
    def latency(self) -> str:
        """Average time of a task."""
        rows = self._a2a3.functions
        return number(sum(r.latency_us for r in rows) / sum(r.count for r in rows), 1)

    @property
    def busy(self) -> str:
        """Share of the time in which the cube cores ran kernels."""
        return percent(self._a2a3.busy["AIC"])

    @property
    def handing(self) -> str:
        """Share of the critical path in which no kernel ran."""
        path = self._a2a3.path
        return percent(1 - path["exec"] / sum(path.values()))


class Chapter:
    """A section with the figures of its steps."""

    def __init__(self, section: TextSection, say: Say) -> None:
        self.section = section
        self._say = say
        self._data: tuple[Mapping[str, object], ProgramData] | None = None
        self._cpu = ["0 ms"] * len(section.steps)

    @cached_property
    def _model(self) -> ShippedModel:
        return registry.models()[f"qwen3/{self.section.model}"]

    @cached_property
    def _measured(self) -> list[MeasuredVariant]:
        return [MeasuredVariant(self._model, s.variant, s.sizes) for s in self.section.steps]

    @cached_property
    def _profiles(self) -> list[dict[str, Profile]]:
        found: list[dict[str, Profile]] = []
        for measured in self._measured:
            self._say(f"{measured.name}: modelled")
            found.append({name: measured.profile(name) for name in MACHINES})
        return found

    def run(self) -> None:
        """Run and check every step on this CPU, drawing inputs once per size."""
        order = sorted(range(len(self.section.steps)), key=self._sizes_key)
        for i in order:
            data = self._data_for(self.section.steps[i])
            measured = self._measured[i]
            self._say(f"{measured.name}: run and compared")
            run = measured.run(data)
            if not run.passed:
                reports = [j.report for j in run.judgements if not j.ok]
                raise GoldenFailedError("\n".join([f"{measured.name} fails its golden", *reports]))
            self._cpu[i] = _milliseconds(run)
        self._data = None

    def keep_cpu(self, page: str) -> bool:
        """Take the CPU times from an older page; return False if it has other steps."""
        found = re.findall(
            r"\| ([\d.,]+ ms) \|$", section_of(page, self.section.title), re.MULTILINE
        )
        if len(found) == len(self._cpu):
            self._cpu = found
        return len(found) == len(self._cpu)

    def _sizes_key(self, index: int) -> str:
        return repr(sorted(self.section.steps[index].sizes.items()))

    def _data_for(self, step: WalkthroughStep) -> ProgramData:
        if self._data is None or self._data[0] != step.sizes:
            self._data = None  # release the old inputs before drawing new ones
            self._say(f"{self._model.name}: inputs and golden")
            data = ProgramData(self._model, step.sizes)
            data.solve()
            self._data = step.sizes, data
        return self._data[1]

    @cached_property
    def figures(self) -> list[Figures]:
        return [Figures(p, cpu) for p, cpu in zip(self._profiles, self._cpu)]

    def markdown(self) -> str:
        """Return the section as Markdown."""
        section, figures = self.section, self.figures
        names = {"first": figures[0], "last": figures[-1], "faults": _fault_table()}
        parts = [f"## {section.title}", _fill_template(section.intro, **names), self._table()]
        for i, step in enumerate(section.steps):
            was = figures[step.was if step.was is not None else max(i - 1, 0)]
            now, a2a3 = figures[i], "a2a3"
            text = _fill_template(
                step.text,
                **names,
                now=now,
                was=was,
                gain=_times(was.microseconds[a2a3] / now.microseconds[a2a3]),
                total_gain=_times(figures[0].microseconds[a2a3] / now.microseconds[a2a3]),
                bound_ratio=f"{now.microseconds[a2a3] / self._bound:.2f}",
            )
            parts.append(f"**{i + 1}. `{step.variant}`: {step.title}.** {text}")
        return "\n\n".join(parts)

    @property
    def _bound(self) -> float:
        return self.figures[0].profiles["a2a3"].least / BYTES_PER_US

    def _table(self) -> str:
        has_published = any(step.published for step in self.section.steps)
        heads = ["", "step", "tasks", "GM", "a2a3 us", "a5 us"]
        heads += ["published us", "CPU"] if has_published else ["CPU"]
        rows: list[list[str]] = []
        for i, (step, f) in enumerate(zip(self.section.steps, self.figures)):
            row = [str(i + 1), f"`{step.variant}`: {step.title}", f.tasks, f.gm, f.us, f.a5]
            if has_published:
                row.append(number(step.published[1], 0) if step.published else "")
            rows.append([*row, f.cpu])
        return _rows(heads, rows, left=2)

    def group(self) -> PlotGroup:
        """Return the section's group in the plot."""
        lines: list[PlotLine] = []
        for step, f in zip(self.section.steps, self.figures):
            values = dict(f.microseconds)
            if step.published:
                values[PUBLISHED] = step.published[1]
            suffix = "" if step.sizes.get("hidden", 8192) == 8192 else f" ({step.sizes['hidden']})"
            lines.append(PlotLine(f"{step.variant}{suffix}", values))
        return PlotGroup(self.section.title.partition(":")[0], lines)


def _fill_template(template: str, **values: object) -> str:
    """Fill in the figures; each paragraph becomes one line, since widths differ from run to run.

    Lines of a table stay separate.
    """
    paragraphs = template.format(**values).split("\n\n")
    joined = [p if p.startswith("|") else " ".join(p.split("\n")) for p in paragraphs]
    return "\n\n".join(joined)


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 9) -> str:
    """Return a table; columns after the first `left` are right-aligned."""
    marks = ["---" if i < left else "---:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, marks, *rows))


def _fault_table() -> str:
    numbered = [(str(i), *fault) for i, fault in enumerate(FAULTS, 1)]
    return _rows(["", "fault in the baseline", "gone with"], numbered)


def section_of(page: str, title: str) -> str:
    """Return the section of a page with this title, or nothing."""
    _, found, rest = page.partition(f"## {title}\n")
    own, _, _ = rest.partition("\n## ")
    return f"{found}{own}"


def _milliseconds(run: MeasuredRun) -> str:
    return f"{number(run.milliseconds, 1 if run.milliseconds < 100 else 0)} ms"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:.0f} times"


def plot(chapters: Sequence[Chapter]) -> str:
    """Return the SVG of all sections."""
    groups = [chapter.group() for chapter in chapters]
    title = "Modelled time of every step, in microseconds"
    return Plot(title, "us", [*MACHINES, PUBLISHED], groups).svg()


def head(chapters: Sequence[Chapter], processor: str) -> str:
    """Return the text before the first section."""
    return "\n\n".join(
        [
            "# Qwen3 on tiles, step by step",
            _fill_template(
                INTRO,
                columns=_rows(["column", "what it is"], COLUMNS),
                april=", ".join(f"`{name}`" for name in APRIL),
            ),
            f"{_PROCESSOR}{processor}.",
            _published_table(chapters),
            f"![Modelled time of every step on a logarithmic axis]({PLOT})",
        ]
    )


def _published_table(chapters: Sequence[Chapter]) -> str:
    """Return the programs with published figures, next to ours."""
    heads = ["program", "published tasks", "tasks here", "published us", "modelled us", "error"]
    rows: list[list[str]] = []
    for chapter in chapters:
        for step, f in zip(chapter.section.steps, chapter.figures):
            if step.published:
                tasks, us = step.published
                modelled = f.microseconds["a2a3"]
                name = f"{chapter.section.model} `{step.variant}`, hidden {step.sizes['hidden']}"
                change = f"{100 * (modelled / us - 1):+.1f} %"
                cells = [f"{tasks:,}", f.tasks, number(us, 0), number(modelled, 0), change]
                rows.append([name, *cells])
    table = _rows(heads, rows, left=1)
    return f"Published and modelled figures of these programs on an a2a3:\n\n{table}"


def _say_nothing(_: str) -> None:
    """Print nothing, for checks that take seconds."""


def chapters_of(names: Sequence[str], say: Say | None = None) -> list[Chapter]:
    """Return the sections about the named programs; all of them if none is named."""
    return [Chapter(s, say or _say_nothing) for s in SECTIONS if not names or s.model in names]


def page(chapters: Sequence[Chapter], processor: str) -> str:
    """Return the whole page."""
    return "\n\n".join([head(chapters, processor), *(c.markdown() for c in chapters)]) + "\n"


def processor_of(text: str) -> str:
    """Return what an older page says about the CPU."""
    found = re.search(rf"^{_PROCESSOR}(.*)\.$", text, re.MULTILINE)
    return found.group(1) if found else ""


_CPU = re.compile(rf"\| [\d.,]+ ms \|$|^{_PROCESSOR}.*$", re.MULTILINE)


def without_cpu(text: str) -> str:
    """Return the text without machine-dependent parts."""
    return _CPU.sub("", text)
