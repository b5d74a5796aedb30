"""The modelled report: the per-function table of the device's own tools, then explanations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelet.device.report.critical import PARTS
from tilelet.device.report.profile import FunctionRow, KernelRow, Profile
from tilelet.diag.tables import (
    Table,
    WideTable,
    as_text,
    byte_text,
    number,
    percent,
    times,
)

MODELLED = "[modelled]"
MAX_ROWS = 12
"""Row limit of tables that could have hundreds."""


def report_parts(profile: Profile) -> list[str | Table]:
    """Return the parts of the report in reading order."""
    parts: list[str | Table] = [
        function_table(profile),
        path_table(profile),
        kernel_table(profile),
        tensor_table(profile),
        summary_table(profile),
    ]
    trust = trust_text(profile)
    if trust:
        parts.append(trust)
    if profile.guesses:
        shown = _first_lines(profile.guesses)
        parts.append("\n".join(["Assumed, because the deciding inputs are unknown:", *shown]))
    return parts


def trust_text(profile: Profile) -> str:
    """Describe the accuracy of the total, and what it depends on most."""
    lines: list[str] = []
    if profile.interval:
        low, high = profile.interval
        lines.append(
            f"Total {number(profile.total_us)} us, 90 % interval {number(low)} to {number(high)} "
            f"us, by the errors of each cause of time for unseen published programs"
        )
    elif profile.bound:
        lines.append(
            f"No interval for {profile.machine}: there are no published figures to compare with"
        )
    if profile.depends_on:
        each = [f"{name} ({change:+.2f})" for name, change in profile.depends_on.items()]
        lines.append(f"Most sensitive to: {', '.join(each)}   [% per % of each]")
    return "\n".join(lines)


def report_text(profile: Profile) -> str:
    """Return the report as plain text."""
    return "\n\n".join(as_text(report_parts(profile))) + "\n"


def _first_lines(lines: Sequence[str]) -> list[str]:
    """Return the first lines, indented, and the number left out."""
    more = len(lines) - MAX_ROWS
    rest = [f"  and {more} more"] if more > 0 else []
    return [*(f"  {line}" for line in lines[:MAX_ROWS]), *rest]


# Per function


def function_table(profile: Profile) -> WideTable:
    """Return the per-function table; other programs parse its TOTAL and Total Test Time lines."""
    heads = ("function", "count", "avg exec us", "avg latency us", "exec", "avg head us")
    table = WideTable(
        f"{_function_title(profile)}\nTotal Test Time: {profile.total_us:.2f} us {MODELLED}",
        (*heads, "avg tail us"),
        plain=_function_text(profile),
    )
    for r in profile.functions:
        each = [us / r.count for us in (r.exec_us, r.latency_us, r.head_us, r.tail_us)]
        share = percent(r.exec_us / r.latency_us)
        cells = (number(each[0]), number(each[1]), share, number(each[2]), number(each[3]))
        table.rows.append((r.name, f"{r.count:,}", *cells))
    return table


def _function_title(profile: Profile) -> str:
    return (
        f"Task Statistics by Function {MODELLED}: {profile.program} on {profile.machine} "
        f"({profile.title}), runtime of {profile.period}"
    )


def _function_text(profile: Profile) -> str:
    rows = profile.functions
    width = max(12, *(len(r.name) for r in rows)) if rows else 12
    heads = f"{'Func_ID':<8} {'Func_Name':<{width}} {'Count':>5}   {'Avg Exec(us)':>12}  "
    heads += f"{'Avg Latency(us)':>15}  {'Exec_%':>6}   {'Avg Head OH(us)':>15}  "
    heads += f"{'Avg Tail OH(us)':>15}  {'Avg Prop(us)':>12}  {'Avg Local(us)':>13}"
    rule = "-" * len(heads)
    count = sum(r.count for r in rows)
    exec_us, latency_us = sum(r.exec_us for r in rows), sum(r.latency_us for r in rows)
    wall = f"Total Test Time: {profile.total_us:.2f} us "
    wall += f"(from earliest dispatch to latest finish) {MODELLED}"
    lines = [
        "=" * len(heads),
        _function_title(profile),
        "=" * len(heads),
        heads,
        rule,
        *(_function_line(r, width) for r in rows),
        rule,
        f"{'TOTAL':<{9 + width}} {count:>5}   {exec_us:>12.2f}  {latency_us:>15.2f}   {MODELLED}",
        "",
        wall,
    ]
    if count and latency_us:
        averages = f"  Per-task (all):  Avg Exec = {exec_us / count:.2f} us,  "
        averages += f"Avg Latency (dispatch->finish) = {latency_us / count:.2f} us,  "
        averages += f"Exec/Latency = {100 * exec_us / latency_us:.2f}%   {MODELLED}"
        lines += ["", "--- Task execution vs Scheduler overhead ---", averages]
    lines.append("=" * len(heads))
    return "\n".join(lines)


def _function_line(r: FunctionRow, width: int) -> str:
    n = r.count
    # The model does not divide head time into transport and set-up.
    return (
        f"{r.func_id:<8} {r.name:<{width}} {n:>5}   {r.exec_us / n:>12.2f}  "
        f"{r.latency_us / n:>15.2f}  {100 * r.exec_us / r.latency_us:>5.1f}%   "
        f"{r.head_us / n:>15.2f}  {r.tail_us / n:>15.2f}  {'-':>12}  {'-':>13}"
    )


# Explanations


def path_table(profile: Profile) -> Table:
    """Return the critical path by kernel, and the rest of its time."""
    total = profile.total_us or 1.0
    table = Table(f"Critical path {MODELLED}", ("what", "tasks", "us", "share"))
    on_path = [k for k in profile.kernels if k.path_tasks]
    for k in _largest(on_path, lambda k: k.path_us):
        share = percent(k.path_us / total)
        table.rows.append((k.name, str(k.path_tasks), number(k.path_us), share))
    for part, words in PARTS.items():
        us = profile.path.get(part, 0.0)
        if part != "exec" and us >= 0.005:
            table.rows.append((words, "", number(us), percent(us / total)))
    table.rows.append(("total", "", number(profile.total_us), percent(1.0)))
    return table


def kernel_table(profile: Profile) -> Table:
    """Return what limits each kernel, its traffic against the minimum, and the roofline."""
    heads = (
        "kernel",
        "scope",
        "cores",
        "bound",
        "exec us",
        "read",
        "written",
        "of least",
        "flop/B",
        "Gflop/s",
        "of roof",
    )
    table = Table(f"Kernels {MODELLED}", heads, left=4)
    for k in _largest(profile.kernels, lambda k: k.exec_us):
        table.rows.append(_kernel_cells(k))
    hidden = len(profile.kernels) - len(table.rows)
    if hidden > 0:
        table.notes.append(f"and {hidden} more kernels with less time")
    table.notes.append(
        "bound: what limits it; of least: bytes relative to accessing each byte once; of roof: "
        "relative to the limit of all cubes or global memory while it runs"
    )
    return table


def _kernel_cells(k: KernelRow) -> tuple[str, ...]:
    least = k.least_read + k.least_written
    flops = (
        (f"{k.intensity:.1f}", number(k.gflops, 0), percent(k.gflops / k.roof_gflops))
        if k.flops and k.roof_gflops
        else ("-", "-", "-")
    )
    moved = (byte_text(k.read), byte_text(k.written), times(k.moved, least))
    return (k.name, k.where, k.cores, k.bound, number(k.exec_us), *moved, *flops)


def tensor_table(profile: Profile) -> Table:
    """Return the bytes of each tensor against compulsory traffic."""
    heads = ("tensor", "kind", "size", "read", "written", "compulsory", "ratio")
    table = Table(f"Global memory {MODELLED}", heads, left=2)
    for t in profile.tensors[:MAX_ROWS]:
        least = t.least_read + t.least_written
        table.rows.append(
            (
                t.name,
                {"param": "argument", "temp": "own"}.get(t.origin, t.origin),
                byte_text(t.size),
                byte_text(t.read),
                byte_text(t.written),
                byte_text(least),
                times(t.read + t.written, least),
            )
        )
    hidden = profile.tensors[MAX_ROWS:]
    if hidden:
        moved = byte_text(sum(t.read + t.written for t in hidden))
        table.notes.append(f"and {len(hidden)} more tensors with {moved}")
    read, written = (sum(getattr(t, w) for t in profile.tensors) for w in ("read", "written"))
    least = profile.least
    cells = (byte_text(read), byte_text(written), byte_text(least), times(read + written, least))
    table.rows.append(("total", "", "", *cells))
    table.notes.append("compulsory: arguments once; temporary tensors could stay on chip")
    return table


def summary_table(profile: Profile) -> Table:
    """Return cores, schedulers, memory and the roofline of the whole program."""
    total = profile.total_us or 1.0
    table = Table(f"Machine {MODELLED}", ("what", "value"), left=2)
    add = table.rows.append
    for kind, share in profile.busy.items():
        add((f"{kind} busy ({profile.cores.get(kind, 0)} cores)", percent(share)))
    schedulers = ", ".join(percent(s) for s in profile.scheduler_busy)
    add(("schedulers busy", schedulers or "-"))
    add(("orchestrator done after", f"{number(profile.orchestrator_us)} us"))
    for what, stall in (
        ("orchestrator stalled: task window", profile.window_stall_us),
        ("orchestrator stalled: heap", profile.heap_stall_us),
        ("orchestrator reads results of tasks", profile.read_stall_us),
    ):
        if stall:
            add((what, f"{number(stall)} us"))
    missed = profile.hbm_read + profile.hbm_written
    rate = missed / total / 1000.0
    add(("bytes that missed L2", byte_text(missed)))
    add(("rate of memory", f"{rate:,.0f} GB/s, {percent(rate / profile.hbm_gbs)} of sustained"))
    if profile.exchanged:
        add(("exchanged between AIC and AIV through GM", byte_text(profile.exchanged)))
    if profile.flops:
        add(("roofline", roofline_text(profile)))
    return table


def roofline_text(profile: Profile) -> str:
    """Describe the program's roofline: which roof limits it, and how far below it runs."""
    reached = profile.flops / (profile.total_us or 1.0) / 1000.0
    moved = profile.hbm_read + profile.hbm_written
    intensity = profile.flops / moved if moved else 0.0
    memory_roof = intensity * profile.hbm_gbs
    roof = min(profile.peak_gflops, memory_roof) if moved else profile.peak_gflops
    side = "memory" if roof < profile.peak_gflops else "cube"
    return (
        f"{intensity:.1f} flop/B, {reached:,.0f} Gflop/s: "
        f"{percent(reached / roof if roof else 0.0)} of the {side} roof ({roof:,.0f})"
    )


def _largest(rows: Sequence[KernelRow], key: Callable[[KernelRow], float]) -> list[KernelRow]:
    return sorted(rows, key=lambda k: (-key(k), k.name))[:MAX_ROWS]


def side_by_side(profiles: Sequence[Profile]) -> Table:
    """Return the main figures of one program on several machines."""
    table = Table(f"Side by side {MODELLED}", ("", *(p.machine for p in profiles)))

    def row(name: str, cells: Sequence[str]) -> None:
        table.rows.append((name, *cells))

    row("runtime of", [p.period for p in profiles])
    row("tasks", [f"{p.tasks:,}" for p in profiles])
    row("Total Test Time us", [number(p.total_us) for p in profiles])
    row("GM bytes", [byte_text(p.moved) for p in profiles])
    for kind in profiles[0].busy:
        row(f"{kind} busy", [percent(p.busy.get(kind, 0.0)) for p in profiles])
    spaces = dict.fromkeys(s for p in profiles for s in p.memory)
    for space in spaces:
        row(f"{space} used", [_share_of_limit(p, space) for p in profiles])
    names = dict.fromkeys(k.name for p in profiles for k in p.kernels)
    for name in list(names)[:MAX_ROWS]:
        found = [next((k for k in p.kernels if k.name == name), None) for p in profiles]
        row(f"{name} us", [number(k.exec_us) if k else "-" for k in found])
    row("errors", [str(len(p.findings)) for p in profiles])
    return table


def _share_of_limit(profile: Profile, space: str) -> str:
    used, limit = profile.memory.get(space, 0), profile.limits.get(space, 0)
    return f"{used / 1024:,.1f} of {limit / 1024:,.0f} KB"
