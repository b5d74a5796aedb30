"""Write modelled figures into a page, between its marks."""

from __future__ import annotations

from pathlib import Path

_BEGIN, _END = "<!-- modelled: begin -->", "<!-- modelled: end -->"


def write_figures(page: Path, figures: str) -> None:
    """Replace the figures of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{figures}\n\n{_END}{after}", encoding="utf-8")
