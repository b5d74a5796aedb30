"""Generate docs/calibration.md and its plot from the figures of the last full run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from tilelet.calibration.report import (
    NOTICED,
    RowFit,
    coverage,
    errors_text,
    load_outcomes,
    pair_spread,
    pairs_of,
    ranks_of,
    spreads,
    typical_width,
)

PAGE, PLOT = "calibration.md", "calibration.svg"


def page_text(outcomes: Sequence[RowFit]) -> str:
    """Return the page."""
    pairs = pairs_of(outcomes)
    noticed = [p for p in pairs if p.noticed]
    right = sum(p.right for p in noticed)
    parts = [
        _HEAD,
        (
            f"{len(outcomes)} comparisons: {errors_text([o.error for o in outcomes])}. With each "
            f"family of programs left out of the fit: "
            f"{errors_text([o.left_out_error for o in outcomes])}, and {coverage(outcomes):.0%} of the "
            f"published figures lie in the 90 % interval, whose median width is "
            f"x {typical_width(outcomes):.2f} each way.\n\n"
            f"Ratios of {len(pairs)} published changes: {errors_text([p.error for p in pairs])}. Of "
            f"{len(noticed)} changes of {NOTICED:.0%} or more, {right} have the right direction; rank "
            f"correlation of these: {ranks_of(noticed):.2f}, of all: {ranks_of(pairs):.2f}."
        ),
        "![modelled against published](calibration.svg)",
        "## Errors by cause of time",
        _causes(outcomes),
        "## Every row",
        _rows(outcomes),
        "## Changes",
        "| change | published | modelled | |\n|---|---|---|---|\n"
        + "\n".join(
            f"| {p.name} | {p.published:.2f} | {p.modelled:.2f} | "
            f"{'' if not p.noticed else 'right' if p.right else 'wrong'} |"
            for p in pairs
        ),
        _NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def _causes(outcomes: Sequence[RowFit]) -> str:
    """Tabulate the errors by cause; a row counts for a cause by its share of the time."""
    pairs = pair_spread(pairs_of(outcomes))
    lines = ["| cause | rows | changes | nine of ten within |", "|---|---|---|---|"]
    lines += [
        f"| {cause} | {rows} | {pairs[cause]:.0f} | x {math.exp(limit):.2f} |"
        for cause, (limit, rows) in spreads(outcomes).items()
    ]
    return "\n".join(lines)


def _rows(outcomes: Sequence[RowFit]) -> str:
    lines = [
        "| row | published | modelled | error | left out | bound | period | family |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {o.name} | {o.published:,.2f} | {o.modelled:,.2f} | {o.error:+.1%} | "
        f"{o.left_out_error:+.1%} | {o.bound} | {o.period} | {o.family} |"
        for o in outcomes
    ]
    return "\n".join(lines)


def plot_text(outcomes: Sequence[RowFit]) -> str:
    """Plot modelled against published figures, both axes logarithmic, by bound."""
    times = [o for o in outcomes if o.unit == "us"]
    low = math.floor(math.log10(min(min(o.published, o.modelled) for o in times)))
    high = math.ceil(math.log10(max(max(o.published, o.modelled) for o in times)))
    size, edge = 520.0, 60.0

    def at(us: float) -> float:
        return (math.log10(us) - low) / (high - low) * (size - 2 * edge)

    shapes: list[str] = []
    for power in range(low, high + 1):
        x, y = edge + at(10.0**power), size - edge - at(10.0**power)
        across = f"M{x:.1f} {edge}V{size - edge}M{edge} {y:.1f}H{size - edge}"
        shapes.append(f'<path class="g" d="{across}"/>')
        label = f"{10.0**power:,g}"
        shapes.append(f'<text x="{x:.1f}" y="{size - edge + 18}" class="m">{label}</text>')
        shapes.append(f'<text x="{edge - 8}" y="{y + 4:.1f}" class="e">{label}</text>')
    for factor, kind in ((1.0, "one"), (1.3, "f"), (1 / 1.3, "f")):
        shift = math.log10(factor) / (high - low) * (size - 2 * edge)
        line = f"M{edge} {size - edge - shift:.1f}L{size - edge} {edge - shift:.1f}"
        shapes.append(f'<path class="{kind}" d="{line}"/>')
    for o in times:
        x, y = edge + at(o.published), size - edge - at(o.modelled)
        title = f"{o.name}: {o.published:,.1f} us published, {o.modelled:,.1f} modelled"
        place = f'class="{o.bound}" cx="{x:.1f}" cy="{y:.1f}" r="4"'
        shapes.append(f"<circle {place}><title>{title}</title></circle>")
    for i, bound in enumerate(("memory", "cores", "waiting")):
        y = edge + 14 + 18 * i
        shapes.append(f'<circle class="{bound}" cx="{edge + 14}" cy="{y - 4}" r="4"/>')
        shapes.append(f'<text x="{edge + 24}" y="{y}">{bound}</text>')
    shapes.append(f'<text x="{size / 2}" y="{size - 16}" class="m">published, us</text>')
    shapes.append(
        f'<text class="m" transform="translate(16 {size / 2}) rotate(-90)">modelled, us</text>'
    )
    return _SVG.format(size=size, shapes="\n".join(shapes))


def with_errors(machine_file: str, outcomes: Sequence[RowFit]) -> str:
    """Return the text of a machine file with the error spreads that follow from the rows."""
    pairs = pairs_of(outcomes)
    errors = "".join(
        f"{cause} = {{ within = {limit}, rows = {rows} }}\n"
        for cause, (limit, rows) in spreads(outcomes).items()
    )
    text = re.sub(r"(?s)\[errors\]\n.*?\n\n", f"[errors]\n{errors}\n", machine_file)
    fields = "".join(f"{name} = {value:g}\n" for name, value in pair_spread(pairs).items())
    return re.sub(r"(?s)\[pairs\]\n.*", f"[pairs]\n{fields}", text)


def write(folder: Path) -> list[Path]:
    """Write page and plot of the saved figures into `folder`."""
    outcomes = load_outcomes()
    texts = {PAGE: page_text(outcomes), PLOT: plot_text(outcomes)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


# ruff: noqa: E501
# Texts of the page and the plot.

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size:.0f} {size:.0f}" font-family="sans-serif" font-size="12">
<style>
.g {{ stroke: #ddd; fill: none }} .one {{ stroke: #333; fill: none }}
.f {{ stroke: #999; fill: none; stroke-dasharray: 4 3 }} .m {{ text-anchor: middle }}
.e {{ text-anchor: end }} .memory {{ fill: #4477aa }} .cores {{ fill: #ee6677 }} .waiting {{ fill: #ccbb44 }}
circle {{ fill-opacity: 0.8 }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
{shapes}
</svg>
"""

_HEAD = """\
# The model against published measurements

Generated by `make calibrate PROGRAMS=DIR ARGS=--write`; do not edit. The rows are published figures;
most were measured with public programs, which are not part of Tilelet and are run unmodified.

To get them, clone the repository named in the rows of `src/tilelet/calibration/rows.json`, and for
each of its revisions REV run `git worktree add --detach DIR/REV REV`. Rows whose program is not in
DIR are listed as not run. The programs need torch.

The dashed lines mark errors of 30 %. [ADR 3](adr/0003-device-model.md) describes the model. To
calibrate it to your own board, use `tilelet calibrate kit` and `tilelet calibrate fit`; see
[the tutorial](tutorial.md)."""

_NOTES = """\
## Rows with large errors, and measurements that would explain them

| rows | discrepancy | what to measure |
|---|---|---|
| projections of compressors (pl359), indexers after their changes (pl343, pl358) | two products of 64 or 128 tokens seem to take 200 us where 15 to 40 are modelled. For blocks of one task, shared lines explain it (pl580); these are separate tasks | `cube_loads` of the kit with 16 and with 128 rows of the left operand; `shared_1`, `shared_8`, `shared_24` |
| projections of 128 tokens (pl480, pl620, pl662) | a quarter to a third too fast; a cost of 20 cycles per row would fix them but not programs of April; double-buffering all loads would fix neither | `cube_loads`, by row length and pitch |
| indexers before their changes (pl343, pl358, pl401) | chains of small tasks advance every 2 us there, every 4 us in the model; tasks of April took 3.9. Half the scheduler time per block would give +57 to +92 %, and 2 to 5 % less for decode layers of the same weeks | `chain` of the kit with the runtime of May; deps.json of one such run |
| chains of fused kernels (pl401, pl415 after) | by the rules of those weeks their tasks write one tensor sequentially; each seems to take 14 to 18 us where 29 are modelled, most of it exchange between cube and vector | `handover` of the kit |
| row gathers (pl486, pl509 before) | a row takes 0.44 us according to a published note, 0.5 to 0.6 in the model if it comes from memory | `rows` with data-dependent rows of 1 KB |
| hc_pre (pl533, pl545), rotations, top-k | after its products one block spends 55 us on tiles of 16 x 8 and 16 x 256, 45 are modelled; each iteration of its loop of products takes 0.45 us, 0.32 are modelled | `small_ops` and `reductions` of the kit |
| LM head (pl.ac5eedca) | all cores together read 1.27 TB/s there, but the model sustains 1.12, which fits decode layers of the same weeks | `stream` with cubes instead of vector cores |
| single kernels, run once (mm64, mm128, mm256); a loop that stores products (pl741, stream-loop) | one-shot kernels store products at 18 B/cycle, the loop at 44. That the runtime's heap is in L2 and the caller's memory is not is inferred from these rows | `fixpipe` into both, first and later iterations |
| a projection with and without a split (pl547) | modelled the same: 24 cores wait for L2 slices, and a slow block is slow as a whole, including its vector part; the published gain of 38 us exceeds the time of that part (5 us per block, two blocks per core) | `handover` together with `cube_loads` on all cores |
| two versions of one prefill (pl505), one of three sizes (pl509.r4) | pl505: most of the program was rewritten between the two figures, with other tiles. pl509: rows of zeros became stores of 128 rows at once; published, that saves 14 and 10 % with two kinds of indices and nothing with the third | kernel times of both runs |
| one indexer (pl343) | a change from 2,370 tasks to 1,056 is reported to have saved 3 %: nothing in the program explains the 2,116 us afterwards; the next version has 1,495 tasks and took 1,293 us | kernel times of that run |
| decode layers with counters on (pl349) | the published runs counted hardware events; the model includes that no block then waits at a busy core (4,650 us), but not the time of counting itself | the same without counters |"""
