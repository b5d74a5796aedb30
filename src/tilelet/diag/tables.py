"""Tables as data, printed as plain text or, on a terminal, by rich within its width."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.render import text_width, use_color
from tilelet.diag.text import escape_controls, wrap_lines

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass
class Table:
    """A title, column heads and rows of text; the first `left` columns are left-aligned."""

    title: str
    heads: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    left: int = 1
    notes: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        """Render as text: columns two spaces apart, a rule under the heads, no trailing blanks."""
        heads, *rows = [
            [escape_controls(str(cell)) for cell in row] for row in (self.heads, *self.rows)
        ]
        widths = self._widths()
        lines = [escape_controls(self.title)] if self.title else []
        lines.append(self._line(heads, widths))
        lines.append("  " + "  ".join("-" * w for w in widths))
        lines += [self._line(row, widths) for row in rows]
        lines += [f"  {escape_controls(note)}" for note in self.notes]
        return "\n".join(lines)

    def markdown(self) -> str:
        """Render as a Markdown table, followed by the notes."""
        rule = ["---" if i < self.left else "---:" for i in range(len(self.heads))]
        lines = [
            "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
            for row in (self.heads, rule, *self.rows)
        ]
        return "\n\n".join(["\n".join(lines), *self.notes])

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = [
            f"{cell:<{w}}" if i < self.left else f"{cell:>{w}}"
            for i, (cell, w) in enumerate(zip(row, widths))
        ]
        return ("  " + "  ".join(cells)).rstrip()

    def _widths(self) -> list[int]:
        return [
            max(len(escape_controls(str(row[i]))) for row in (self.heads, *self.rows))
            for i in range(len(self.heads))
        ]

    def fitted(self, width: int) -> Iterator[Table]:
        """Split a table that is too wide into several, each starting with the first column.

        Cells are never cut, because a truncated figure is misleading.
        """
        widths = [w + 2 for w in self._widths()]
        groups: list[list[int]] = [[0]]
        for column in range(1, len(widths)):
            if len(groups[-1]) > 1 and sum(widths[c] for c in [*groups[-1], column]) > width:
                groups.append([0])
            groups[-1].append(column)
        for group in groups:
            yield replace(
                self,
                title=self.title if group is groups[0] else "",
                heads=[self.heads[c] for c in group],
                rows=[[row[c] for c in group] for row in self.rows],
                left=sum(c < self.left for c in group),
                notes=self.notes if group is groups[-1] else [],
            )

    def rich(self) -> RichTable:
        from rich import box
        from rich.markup import escape as without_markup
        from rich.table import Table as RichTable

        def escape(text: str) -> str:
            return without_markup(escape_controls(text))

        shown = RichTable(
            title=escape(self.title),
            title_justify="left",
            box=box.SIMPLE_HEAD,
            caption="\n".join(escape(n) for n in self.notes) or None,
            caption_justify="left",
        )
        for i, head in enumerate(self.heads):
            shown.add_column(escape(head), justify="left" if i < self.left else "right")
        for row in self.rows:
            shown.add_row(*(escape(str(cell)) for cell in row))
        return shown


_UNLIMITED = 10_000
"""Columns where colors are wanted but there is no terminal."""


@dataclass
class WideTable(Table):
    """A table with a machine-readable text form, which is shown if it fits."""

    plain: str = ""

    def text(self) -> str:
        return escape_controls(self.plain)

    def fitted(self, width: int) -> Iterator[Table]:
        yield from Table(self.title, self.heads, self.rows, self.left, self.notes).fitted(width)


def show(parts: Sequence[str | Table], stream: TextIO | None = None) -> None:
    """Print texts and tables separated by blank lines: with rich on a terminal, plain otherwise."""
    out = stream or sys.stdout
    is_terminal, color = out.isatty(), use_color(out)
    if not is_terminal and not color:
        print("\n\n".join(as_text(parts)), file=out, flush=True)
        return
    from rich.console import Console

    width = text_width(out) if is_terminal else _UNLIMITED
    console = Console(
        file=out, highlight=False, width=width, force_terminal=color, no_color=not color
    )
    for part in parts:
        if isinstance(part, WideTable) and max(map(len, part.text().splitlines())) <= width:
            part = part.text()
        if isinstance(part, Table):
            for table in part.fitted(width):
                console.print(table.rich())
        else:
            console.print(wrap_lines(escape_controls(part), width), markup=False, soft_wrap=True)
            console.print()


def as_text(parts: Sequence[str | Table]) -> list[str]:
    return [p.text() if isinstance(p, Table) else escape_controls(p) for p in parts]


def number(value: float, digits: int = 2) -> str:
    """Format a number: `12,345.68`."""
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def byte_text(count: float) -> str:
    """Format bytes in decimal units, as memory traffic is counted: `786.4 MB`."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def times(value: float, base: float) -> str:
    """Format a ratio as `1.25x`, or a dash if there is nothing to compare with."""
    return f"{value / base:.2f}x" if base else "-"
