"""Findings of a check, with certainty, places, region, remedy and witness."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from tilelet.analysis.union_find import UnionFind
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.core import Consequence, Diagnostic, Loc, UserError
from tilelet.diag.json_types import JsonObject
from tilelet.diag.text import plural

MAX_SHOWN_OF_CAUSE = 8
"""Limit on the findings of one cause that its message lists."""


class Status(enum.Enum):
    """The scope of an answer."""

    PROVED = "proved"  # for all sizes and inputs
    FOUND = "found"  # there is a finding
    THIS_RUN = "this run"  # nothing found for the inputs and sizes of this run
    NOT_CHECKED = "not checked"  # the part says why


@dataclass(frozen=True)
class Place:
    """A statement, and the task that executed it.

    role       what it does here: "writes", "reads"
    task       index in the recorded stream; None if no single task is meant
    block      block index of an spmd task
    iteration  the loops around it, outermost first: variable and value
    """

    loc: Loc
    role: str = ""
    kernel: str = ""
    task: int | None = None
    block: int | None = None
    iteration: tuple[tuple[str, int], ...] = ()

    @property
    def where(self) -> str:
        """Format the task: `task 7 of `scale` (r = 16)`."""
        parts = [f"task {self.task}" if self.task is not None else ""]
        parts.append(f"`{self.kernel}`" if self.kernel else "")
        text = " of ".join(p for p in parts if p)
        if self.block is not None:
            text += f", block {self.block}"
        if self.iteration:
            text += f" ({', '.join(f'{name} = {value}' for name, value in self.iteration)})"
        return text

    def to_data(self) -> JsonObject:
        return {
            "file": self.loc.file,
            "line": self.loc.line,
            "column": self.loc.col + 1,
            "role": self.role,
            "kernel": self.kernel,
            "task": self.task,
            "block": self.block,
            "iteration": dict(self.iteration),
        }


@dataclass(frozen=True)
class Box:
    """A part of a tensor: from `start` up to `stop` on every axis, every `step`-th element."""

    tensor: str
    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...] = ()

    def __str__(self) -> str:
        steps = self.step or (1,) * len(self.start)
        axes = [
            f"{a}" if b == a + 1 else f"{a}:{b}" if s == 1 else f"{a}:{b}:{s}"
            for a, b, s in zip(self.start, self.stop, steps)
        ]
        return f"{self.tensor}[{', '.join(axes)}]"

    def to_data(self) -> JsonObject:
        return {
            "tensor": self.tensor,
            "start": list(self.start),
            "stop": list(self.stop),
            "step": list(self.step or (1,) * len(self.start)),
        }


@dataclass(frozen=True)
class Witness:
    """A reproducible execution that demonstrates the finding.

    text  description for people
    seed  seed of the order or the inputs; None if there is no choice
    data  the same for machines
    """

    text: str
    seed: int | None = None
    data: tuple[tuple[str, Any], ...] = ()

    def to_data(self) -> JsonObject:
        return {"text": self.text, "seed": self.seed, **dict(self.data)}


@dataclass(frozen=True)
class Finding:
    """One problem; `diagnostic` is its message, built by a catalogue class."""

    check: str
    diagnostic: Diagnostic
    places: tuple[Place, ...] = ()
    region: Box | None = None
    remedy: str = ""
    witness: Witness | None = None
    status: Status = Status.FOUND
    consequence: Consequence | None = None
    causes: tuple[Hashable, ...] = ()

    @property
    def code(self) -> str:
        return self.diagnostic.code

    @property
    def message(self) -> str:
        return self.diagnostic.message

    @property
    def loc(self) -> Loc | None:
        return self.diagnostic.loc

    def __str__(self) -> str:
        from tilelet.diag.render import render_text

        return render_text(self.diagnostic, color=False)

    def to_data(self) -> JsonObject:
        """Return the JSON fields that the diagnostic does not have."""
        return {
            "check": self.check,
            "code": self.code,
            "status": self.status.value,
            "consequence": self.consequence.value if self.consequence else None,
            "message": self.message,
            "places": [place.to_data() for place in self.places],
            "region": self.region.to_data() if self.region else None,
            "remedy": self.remedy or (self.diagnostic.helps[0] if self.diagnostic.helps else ""),
            "witness": self.witness.to_data() if self.witness else None,
        }


def make_finding(check: str, problem: UserError, **fields: Any) -> Finding:
    """Build a finding from a catalogue class."""
    return Finding(
        check,
        problem.diagnostic,
        consequence=problem.consequence,
        causes=problem.causes,
        **fields,
    )


def merge_causes(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings of one cause into the first of them, which lists the others.

    Causes are shared transitively; repetitions of one message for one statement are dropped.
    """
    groups: UnionFind[Hashable] = UnionFind()
    kept: dict[Hashable, Finding] = {}
    for finding in findings:
        key = (finding.code, finding.message, finding.loc)
        kept.setdefault(key, finding)
        for cause in finding.causes:
            groups.join(key, cause)
    merged: dict[Hashable, list[Finding]] = {}
    for key, finding in kept.items():
        merged.setdefault(groups.find(key), []).append(finding)
    return [_with_others(first, others) for first, *others in merged.values()]


def _with_others(first: Finding, others: Sequence[Finding]) -> Finding:
    if not others:
        return first
    lines = [f"line {f.loc.line}: {f.message}" if f.loc else f.message for f in others]
    listed = lines[:MAX_SHOWN_OF_CAUSE]
    if len(lines) > len(listed):
        listed.append(f"and {len(lines) - len(listed)} more")
    note = "\n".join([f"{plural(len(others), 'more finding')} of the same cause:", *listed])
    diagnostic = replace(first.diagnostic, notes=(*first.diagnostic.notes, note))
    places = dict.fromkeys(place for f in (first, *others) for place in f.places)
    return replace(first, diagnostic=diagnostic, places=tuple(places))
