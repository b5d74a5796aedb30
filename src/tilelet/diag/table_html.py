"""Tables and text as HTML for notebooks: plain markup, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tilelet.diag.tables import Table

MAX_ROWS = 24
MAX_CELL = 60


def parts_html(parts: Sequence[str | Table], max_rows: int = MAX_ROWS) -> str:
    """Render texts and tables in order, at most `max_rows` rows of each table."""
    return "".join(
        _table_html(part, max_rows) if isinstance(part, Table) else f"<pre>{escape(part)}</pre>"
        for part in parts
    )


def _table_html(table: Table, max_rows: int) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        sides = ("left" if i < table.left else "right" for i in range(len(row)))
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(shorten(str(cell)))}</{tag}>'
            for side, cell in zip(sides, row)
        )

    rows = "".join(f"<tr>{cells('td', row)}</tr>" for row in table.rows[:max_rows])
    more = len(table.rows) - max_rows
    notes = [*table.notes, *([f"and {more} more rows"] if more > 0 else [])]
    title = escape(table.title).replace("\n", "<br>")
    return (
        f'<table><caption style="text-align:left;caption-side:top">{title}</caption>'
        f"<thead><tr>{cells('th', table.heads)}</tr></thead><tbody>{rows}</tbody></table>"
        + "".join(f"<small>{escape(note)}</small><br>" for note in notes)
    )


def shorten(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
