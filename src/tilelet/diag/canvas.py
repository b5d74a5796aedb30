"""One row of terminal cells: wide characters take two, tabs four, colors are kept separately."""

from __future__ import annotations

import itertools
import unicodedata

TAB = 4

# Text styles and their terminal colors (SGR parameters).
PLAIN, BOLD, GUTTER, SECONDARY, HELP = "plain", "bold", "gutter", "secondary", "help"
PASS, FAIL = "pass", "fail"
_SGR = {
    BOLD: "1",
    GUTTER: "1;34",
    SECONDARY: "1;34",
    HELP: "1;36",
    "error": "1;31",
    "warning": "1;33",
    "note": "1;32",
    PASS: "1;32",
    FAIL: "1;31",
}


def paint(text: str, style: str, color: bool) -> str:
    """Return `text` in the color of `style`, or unchanged."""
    if not color or not text or style not in _SGR:
        return text
    return f"\x1b[{_SGR[style]}m{text}\x1b[0m"


def cells_of(text: str) -> tuple[list[str], list[int]]:
    """Return the terminal cells of `text`, and the cell where each character (and the end) starts.

    The second cell of a wide character is "", so that joining the cells restores the text.
    """
    cells: list[str] = []
    starts: list[int] = []
    for char in text:
        starts.append(len(cells))
        if char == "\t":
            cells += [" "] * TAB
        elif unicodedata.category(char) in ("Mn", "Me") or char == "\N{ZERO WIDTH JOINER}":
            if cells:
                cells[-1] += char
        elif unicodedata.category(char) in ("Cc", "Cf"):
            # Escape sequences and direction overrides must not reach the terminal.
            cells.append("\N{REPLACEMENT CHARACTER}")
        elif unicodedata.east_asian_width(char) in "WF":
            cells += [char, ""]
        else:
            cells.append(char)
    starts.append(len(cells))
    return cells, starts


def cut_cells(cells: list[str], start: int, width: int) -> list[str]:
    """Return `width` cells from `start`, with `...` where text was cut off."""
    part = cells[start : start + width]
    if start > 0:
        part[: min(3, width)] = list("...")[:width]
        if len(part) > 3 and part[3] == "":
            part[3] = " "
    if start + width < len(cells) and width >= 3:
        if len(part) > 3 and part[-3] == "":
            part[-4] = " "
        part[-3:] = list("...")
    return part


class CanvasRow:
    """A row that can be written at any column, in any order."""

    def __init__(self) -> None:
        self._cells: list[str] = []
        self._styles: list[str] = []

    def put(self, col: int, text: str, style: str = PLAIN) -> None:
        self.put_cells(col, cells_of(text)[0], style)

    def put_cells(self, col: int, cells: list[str], style: str = PLAIN) -> None:
        missing = col + len(cells) - len(self._cells)
        if missing > 0:
            self._cells += [" "] * missing
            self._styles += [PLAIN] * missing
        self._cells[col : col + len(cells)] = cells
        self._styles[col : col + len(cells)] = [style] * len(cells)

    def is_blank(self, col: int) -> bool:
        return col >= len(self._cells) or self._cells[col] == " "

    def text(self, color: bool) -> str:
        while self._cells and self._cells[-1] == " ":
            self._cells.pop()
            self._styles.pop()
        runs = itertools.groupby(zip(self._styles, self._cells), key=lambda pair: pair[0])
        return "".join(paint("".join(c for _, c in run), style, color) for style, run in runs)
