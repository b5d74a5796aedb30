"""Plot times on a logarithmic axis as SVG: one line per step, readable in light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 860
LEFT, RIGHT = 300, 110  # margins of the axis for names and for numbers
TOP, BOTTOM = 64, 34
LINE = 22
GAP = 14  # space before a group

_STYLE = """\
.page { fill: #ffffff; } text { font: 13px sans-serif; fill: #1f2328; }
.head { font-weight: bold; } .note { fill: #59636e; font-size: 12px; } .grid { stroke: #d1d9e0; }
.s0 { fill: #0969da; } .s1 { fill: #bc4c00; } .s2 { stroke: #8250df; stroke-width: 2.5; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } text { fill: #f0f6fc; } .note { fill: #9198a1; }
  .grid { stroke: #3d444d; } .s0 { fill: #4493f8; } .s1 { fill: #f0883e; } .s2 { stroke: #be8fff; }
}"""


@dataclass(frozen=True)
class PlotLine:
    """One line of the plot: a name, and a time for each series that has one."""

    name: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class PlotGroup:
    """Lines under a common heading."""

    title: str
    lines: Sequence[PlotLine]


class Plot:
    """Up to three series: circles, squares and crosses, so that color is not needed.

    Every line has a value of the first series, which is also written out.
    """

    def __init__(self, title: str, unit: str, series: Sequence[str], groups: Sequence[PlotGroup]):
        self.title = title
        self.unit = unit
        self.series = list(series)
        self.groups = groups
        values = [v for g in groups for line in g.lines for v in line.values.values()]
        self._low = math.floor(math.log10(min(values)))
        self._high = math.ceil(math.log10(max(values)))

    def _x(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def svg(self) -> str:
        """Return the whole file."""
        body: list[str] = []
        y = float(TOP)
        for group in self.groups:
            y += GAP + LINE
            body.append(_text(16, y, group.title, "head"))
            for line in group.lines:
                y += LINE
                body += self._line(line, y)
        height = y + BOTTOM
        size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
        frame = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f'<rect class="page" width="{WIDTH}" height="{height:g}" rx="6"/>',
            _text(16, 24, self.title, "head"),
            *self._legend(),
            *self._axis(y + 10),
            _text(WIDTH - 16, TOP + 6, self.series[0], "note", "end"),
        ]
        return "\n".join([*frame, *body, "</svg>", ""])

    def _legend(self) -> list[str]:
        found: list[str] = []
        x = 22.0
        for i, name in enumerate(self.series):
            found += [_mark(i, x, 44), _text(x + 12, 48, name)]
            x += 36 + 7.5 * len(name)
        return found

    def _axis(self, bottom: float) -> list[str]:
        """Draw a line per power of ten, labeled above and below."""
        found: list[str] = []
        for power in range(self._low, self._high + 1):
            x = self._x(10.0**power)
            found.append(
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 12}" y2="{bottom:g}"/>'
            )
            label = f"{10**power:,} {self.unit}"
            found += [_text(x, y, label, "note", "middle") for y in (float(TOP + 6), bottom + 16)]
        return found

    def _line(self, line: PlotLine, y: float) -> list[str]:
        middle = y - 4
        found = [
            _text(28, y, line.name),
            f'<path class="grid" d="M{LEFT} {middle:g}H{WIDTH - RIGHT}" stroke-dasharray="1 5"/>',
        ]
        for i, name in enumerate(self.series):
            if name in line.values:
                # The second series is drawn slightly lower, so that no mark hides another.
                beside = 3.5 if i == 1 else -3.5
                found.append(_mark(i, self._x(line.values[name]), middle + beside))
        first = line.values[self.series[0]]
        found.append(_text(WIDTH - 16, y, f"{first:,.0f}", anchor="end"))
        return found


def _mark(series: int, x: float, y: float) -> str:
    """Draw a circle, a square or a cross."""
    if series == 0:
        return f'<circle class="s0" cx="{x:.1f}" cy="{y:g}" r="4.5"/>'
    if series == 1:
        return f'<rect class="s1" x="{x - 3.5:.1f}" y="{y - 3.5:g}" width="7" height="7"/>'
    lines = f"M{x - 5:.1f} {y - 5:g}l10 10m0 -10l-10 10"
    return f'<path class="s2" d="{lines}" fill="none"/>'


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
