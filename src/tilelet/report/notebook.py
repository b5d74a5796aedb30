"""The notebook view of a run: a small SVG timeline above the tables of the report.

Notebooks show HTML without running its scripts, so this is plain markup, with everything escaped.
"""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from tilelet.device.schedule.simulate import Timeline
from tilelet.diag.table_html import shorten
from tilelet.diag.tables import number

COLORS = ("#3568d4", "#d9822b", "#2f9e6e", "#b5478f", "#7a5cd0", "#c0392b", "#1f8fa8", "#8a7a1f")
OTHERS = "#8c96a5"
BINS = 240


def timeline_svg(timeline: Timeline) -> str:
    """Draw busy cores over time, AIC above AIV, stacked by kernel."""
    total = float(timeline.finish.max(initial=0.0))
    if not total:
        return ""
    spent = np.bincount(timeline.kernel, timeline.end - timeline.start, len(timeline.kernel_names))
    ranked: list[int] = np.argsort(-spent, kind="stable")[: len(COLORS)].tolist()
    cube = timeline.core < timeline.machine.cores.clusters
    cores = timeline.machine.cores
    rows = [("AIC", cube, cores.clusters, 0), ("AIV", ~cube, cores.vectors, 62)]
    shapes: list[str] = []
    for name, mine, count, top in rows:
        shapes.append(
            f'<text x="0" y="{top + 30}" font-size="11" fill="currentColor">{name}</text>'
        )
        base = np.zeros(BINS)
        for place, kernel in enumerate([*ranked, -1]):
            chosen = mine & (
                (timeline.kernel == kernel) if kernel >= 0 else ~np.isin(timeline.kernel, ranked)
            )
            if not chosen.any():
                continue
            busy = _busy(timeline.start[chosen], timeline.end[chosen], total) / count
            color = COLORS[place] if kernel >= 0 else OTHERS
            shapes.append(_area(base, base + busy, top, color))
            base = base + busy
    keys = "".join(
        f'<span style="margin-right:12px"><span style="background:{COLORS[i]};'
        'display:inline-block;width:10px;height:10px"></span> '
        f"{escape(shorten(timeline.kernel_names[k] or 'join'))}</span>"
        for i, k in enumerate(ranked)
        if spent[k] > 0
    )
    return (
        f'<svg viewBox="0 0 700 130" width="700" height="130" role="img" '
        f'aria-label="cores at work over {number(total)} us">{"".join(shapes)}'
        f'<text x="40" y="128" font-size="11" fill="currentColor">0</text>'
        f'<text x="700" y="128" font-size="11" text-anchor="end" fill="currentColor">'
        f"{number(total)} us</text></svg><br><small>{keys}</small>"
    )


def _busy(
    start: NDArray[np.float64], end: NDArray[np.float64], total: float
) -> NDArray[np.float64]:
    """Return the mean number of running records in each time bin."""
    edges = np.linspace(0.0, total, BINS + 1)

    def before(at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return, for each edge, the summed time since all earlier moments `at`."""
        ordered = np.sort(at)
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        count = np.searchsorted(ordered, edges)
        return edges * count - sums[count]

    return np.diff(before(start) - before(end)) / (total / BINS)


def _area(low: NDArray[np.float64], high: NDArray[np.float64], top: int, color: str) -> str:
    def points(values: NDArray[np.float64]) -> list[str]:
        x = 40 + (np.arange(BINS) + 0.5) * 660 / BINS
        y = top + 56 - np.minimum(values, 1.0) * 54
        return [f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist())]

    outline = " ".join([*points(high), *reversed(points(low))])
    return f'<polygon points="{outline}" fill="{color}"/>'
