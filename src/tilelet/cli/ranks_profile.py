"""`tilelet profile` of programs of several ranks: what each rank does, and what it waits for."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.diag.json_types import JsonObject
from tilelet.diag.tables import Table
from tilelet.runtime.handlers.base import Explore, RanksRun
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.device.machine.description import Machine
    from tilelet.ranks.timing import RanksTimeline

_MAX_WAITS = 12
_MAX_DRAWN = 5000


def ranks_modeller(machines: Sequence[Machine], found: list[RanksTimeline]) -> Explore:
    """Return a handler that models programs of several ranks into `found`."""

    def model(run: RanksRun) -> bool:
        from tilelet.ranks.config import DistributedConfig
        from tilelet.ranks.engine import native_kernels
        from tilelet.ranks.host import plan_of
        from tilelet.ranks.timing import model_ranks
        from tilelet.runtime.programs.engines import runs_natively
        from tilelet.tasks.arguments import bind_arguments

        world = (run.config or DistributedConfig()).world
        bound = bind_arguments(run.program, run.arguments, execute=True)
        native = native_kernels(run.program) if runs_natively(run.program) else None
        with progress(f"modelling the ranks of {run.name}"):
            plan = plan_of(run.program, bound, world)
            if run.kept is not None:
                run.kept.use(run.program.name, plan)
            found.extend(model_ranks(run.name, run.program, plan, machines, native))
        return False  # the script's arrays have their results

    return model


def ranks_tables(timeline: RanksTimeline) -> list[str | Table]:
    """Return tables of the ranks and of their longest waits."""
    title = f"{timeline.name} on {timeline.world} x {timeline.machine}: {timeline.total_us:.1f} us"
    heads = ("rank", "begin us", "end us", "in waits us", "sent bytes", "messages", "signals")
    ranks = Table(f"{title}, modelled", heads)
    for rank in sorted(timeline.ends):
        sent = [m for m in timeline.messages if m.source == rank]
        data = [m for m in sent if m.nbytes > 4]
        ranks.rows.append(
            (
                str(rank),
                f"{timeline.begins[rank]:.1f}",
                f"{timeline.ends[rank]:.1f}",
                f"{timeline.waited_us(rank):.1f}",
                f"{sum(m.nbytes for m in data):,}",
                str(len(data)),
                str(len(sent) - len(data)),
            )
        )
    waits = Table("What the ranks wait for", ("rank", "kernel", "line", "for rank", "us"), left=2)
    by_place: dict[tuple[int, str, int, int], float] = defaultdict(float)
    for wait in timeline.waits:
        by_place[wait.rank, wait.kernel, wait.loc.line, wait.source] += wait.end - wait.start
    longest = sorted(by_place.items(), key=lambda item: (-item[1], item[0]))
    for (rank, kernel, line, source), us in longest[:_MAX_WAITS]:
        waits.rows.append((str(rank), kernel, str(line), str(source), f"{us:.1f}"))
    if len(longest) > _MAX_WAITS:
        waits.notes.append(f"and {len(longest) - _MAX_WAITS} more")
    return [ranks, waits] if waits.rows else [ranks]


def ranks_data(timeline: RanksTimeline) -> JsonObject:
    """Return the data for `--format json`."""
    return {
        "program": timeline.name,
        "machine": timeline.machine,
        "total_us": timeline.total_us,
        "ranks": [
            {
                "rank": rank,
                "begin_us": timeline.begins[rank],
                "end_us": end,
                "waited_us": timeline.waited_us(rank),
            }
            for rank, end in sorted(timeline.ends.items())
        ],
        "messages": [
            {
                "source": m.source, "target": m.target, "bytes": m.nbytes,
                "start_us": m.start, "end_us": m.end, "line": m.loc.line,
            }
            for m in timeline.messages
        ],
        "waits": [
            {
                "rank": w.rank, "kernel": w.kernel, "source": w.source,
                "start_us": w.start, "end_us": w.end, "line": w.loc.line,
            }
            for w in timeline.waits
        ],
    }  # fmt: skip


def page_data(timeline: RanksTimeline) -> JsonObject:
    """Return the data for the page: with tasks, and at most as many records as a browser draws."""
    drawn = dataclasses.replace(
        timeline, messages=timeline.messages[:_MAX_DRAWN], waits=timeline.waits[:_MAX_DRAWN]
    )
    lists = (timeline.spans, timeline.messages, timeline.waits)
    return {
        **ranks_data(drawn),
        "spans": [
            {"rank": s.rank, "kernel": s.kernel, "start_us": s.start, "end_us": s.end}
            for s in timeline.spans[:_MAX_DRAWN]
        ],
        "left_out": sum(max(0, len(found) - _MAX_DRAWN) for found in lists),
    }


def write_trace(timeline: RanksTimeline, file: Path) -> None:
    """Write lanes by rank with arrows for messages, in the format of chrome://tracing."""
    events: list[JsonObject] = []
    for rank in sorted(timeline.ends):
        name = {"name": f"rank {rank}"}
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": name})
    for span in timeline.spans:
        name, length = span.kernel, span.end - span.start
        events.append(_event("X", name, span.rank, span.block, span.start) | {"dur": length})
    for wait in timeline.waits:
        name = f"wait for rank {wait.source}, line {wait.loc.line}"
        lane, length = "waits", wait.end - wait.start
        events.append(_event("X", name, wait.rank, lane, wait.start) | {"dur": length})
    for number, m in enumerate(timeline.messages):
        name = "signal" if m.nbytes == 4 else f"{m.nbytes} bytes"
        length = {"dur": m.end - m.start}
        events.append(
            _event("X", f"{name} to rank {m.target}", m.source, "links", m.start) | length
        )
        flow = {"id": number, "cat": "message"}
        events.append(_event("s", name, m.source, "links", m.start) | flow)
        events.append(_event("f", name, m.target, "links", m.end) | flow | {"bp": "e"})
    file.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


def _event(kind: str, name: str, rank: int, lane: str | int, at: float) -> JsonObject:
    return {"ph": kind, "name": name, "pid": rank, "tid": lane, "ts": at}
