"""Generate docs/calibration.md (`page.md`, filled in) and its plot from the last full run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilelet.calibration.report import (
    RowFit,
    change_errors,
    changes_text,
    coverage,
    errors_text,
    left_out,
    load_outcomes,
    pair_coverage,
    pairs_of,
    period_factors,
    spreads,
    typical_width,
)

PAGE, PLOT = "calibration.md", "calibration.svg"


def page_text(outcomes: Sequence[RowFit]) -> str:
    """Fill in `page.md`."""
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        summary=_summary(outcomes),
        causes="\n".join(_causes(outcomes)),
        periods="\n".join(_periods(outcomes)),
        rows="\n".join(
            f"| {o.name} | {o.published:,.2f} | {o.modelled:,.2f} | {o.error:+.1%} | "
            f"{o.left_out_error:+.1%} | {o.bound} | {o.period} | {o.family} |"
            for o in outcomes
        ),
        changes="\n".join(
            f"| {p.name} | {p.published:.2f} | {p.modelled:.2f} | "
            f"{'' if not p.noticed else 'right' if p.right else 'wrong'} |"
            for p in pairs_of(outcomes)
        ),
    )


def _summary(outcomes: Sequence[RowFit]) -> str:
    pairs = pairs_of(outcomes)
    inside, width = pair_coverage(outcomes)
    return (
        f"{len(outcomes)} comparisons: {errors_text([o.error for o in outcomes])}. With each family "
        f"of programs left out of the fit: {errors_text([o.left_out_error for o in outcomes])}, and "
        f"{coverage(outcomes):.0%} of the published figures lie in the 90 % interval, whose median "
        f"width is x {typical_width(outcomes):.2f} each way. With each period "
        f"left out of what makes the interval, {coverage(outcomes, lambda o: o.period):.0%} lie in it, "
        f"as is to be expected of periods without rows.\n\n"
        f"Ratios of {len(pairs)} published changes: {errors_text([p.error for p in pairs])}; "
        f"{changes_text(pairs)}. With each family left out: {changes_text(left_out(pairs))}; "
        f"{inside:.0%} of the published ratios lie in the 90 % interval, whose median width is x "
        f"{width:.2f} each way."
    )


def _causes(outcomes: Sequence[RowFit]) -> Iterator[str]:
    """Yield the errors by cause; a row counts for a cause by its share of the time."""
    pairs = change_errors(outcomes)
    for cause, (limit, rows) in spreads(outcomes).items():
        yield f"| {cause} | {rows} | {pairs[cause]:.0f} | x {math.exp(limit):.2f} |"


def _periods(outcomes: Sequence[RowFit]) -> Iterator[str]:
    """Yield the errors by period of the runtime, for time spent on causes as all rows do."""
    by_cause = spreads(outcomes).values()
    limit = sum(own * rows for own, rows in by_cause) / sum(rows for _, rows in by_cause)
    for period, (factor, rows) in period_factors(outcomes).items():
        yield f"| {period} | {rows} | x {math.exp(limit * factor):.2f} |"


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
    errors = "".join(
        f"{cause} = {{ within = {limit}, rows = {rows} }}\n"
        for cause, (limit, rows) in spreads(outcomes).items()
    )
    periods = "".join(
        f'"{period}" = {{ factor = {factor}, rows = {rows} }}\n'
        for period, (factor, rows) in period_factors(outcomes).items()
    )
    text = machine_file
    for table, lines in (("errors", errors), ("period_errors", periods)):
        text = re.sub(rf"(?s)\[{table}\]\n.*?\n\n", f"[{table}]\n{lines}\n", text)
    fields = "".join(f"{name} = {value:g}\n" for name, value in change_errors(outcomes).items())
    return re.sub(r"(?s)\[pairs\]\n.*", f"[pairs]\n{fields}", text)


def write(folder: Path) -> list[Path]:
    """Write page and plot of the saved figures into `folder`."""
    outcomes = load_outcomes()
    texts = {PAGE: page_text(outcomes), PLOT: plot_text(outcomes)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


# ruff: noqa: E501

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
