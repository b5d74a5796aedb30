"""Source excerpts with marked spans: the part of a message between its first line and its notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.canvas import GUTTER, SECONDARY, CanvasRow, cells_of, cut_cells
from tilelet.diag.core import Label
from tilelet.diag.source import CharacterSpan, SourceReader, display_path, span_of
from tilelet.diag.text import escape_controls

# A span over more lines than this shows only its first and last line.
_WHOLE_SPAN_LINES = 4
_MIN_SOURCE_WIDTH = 24


@dataclass(frozen=True)
class SnippetFrame:
    """State shared by all rows of one message."""

    digits: int  # width of the line numbers
    severity: str
    color: bool
    sources: SourceReader
    width: int

    @property
    def margin(self) -> int:
        """The column where source text starts, after `12 | `."""
        return self.digits + 3

    def as_note(self) -> SnippetFrame:
        return replace(self, severity="note")

    def row(self, number: int | None = None) -> CanvasRow:
        """A row that holds only the gutter."""
        row = CanvasRow()
        if number is not None:
            row.put(0, str(number).rjust(self.digits), GUTTER)
        row.put(self.digits + 1, "|", GUTTER)
        return row

    def bar(self) -> str:
        return self.row().text(self.color)


@dataclass(frozen=True)
class _Mark:
    """One label with its resolved span; a multi-line span is drawn in column `lane` at the left."""

    span: CharacterSpan
    text: str
    style: str
    char: str
    lane: int = -1

    @property
    def primary(self) -> bool:
        return self.char == "^"

    @property
    def multiline(self) -> bool:
        return self.span.end_line > self.span.line


def snippet(labels: Sequence[Label], frame: SnippetFrame) -> list[str]:
    """Render the source lines of `labels`, one block per file; the first label is primary."""
    marks = [
        _Mark(
            span_of(label.loc, frame.sources),
            " ".join(label.text.split("\n")),
            SECONDARY if index else frame.severity,
            "-" if index else "^",
        )
        for index, label in enumerate(labels)
    ]
    files = list(dict.fromkeys(mark.span.file for mark in marks))
    lines: list[str] = []
    for index, file in enumerate(files):
        here = [mark for mark in marks if mark.span.file == file]
        if index and lines[-1] != frame.bar():
            lines.append(frame.bar())
        arrow = CanvasRow()
        arrow.put(frame.digits, ":::" if index else "-->", GUTTER)
        arrow.put(frame.digits + 4, _place(here[0].span))
        lines.append(arrow.text(frame.color))
        readable = [m for m in here if frame.sources(file, m.span.line) is not None]
        if readable:
            lines.append(frame.bar())
            lines += _FileBlock(file, readable, frame).render()
    return lines


def _place(span: CharacterSpan) -> str:
    return escape_controls(f"{display_path(span.file)}:{span.line}:{span.col + 1}")


def _with_lanes(marks: Iterable[_Mark]) -> list[_Mark]:
    """Assign each multi-line mark the leftmost lane that is free over its lines."""
    busy_until: list[int] = []
    placed: list[_Mark] = []
    for mark in sorted(marks, key=lambda m: (m.span.line, -m.span.end_line)):
        if not mark.multiline:
            placed.append(mark)
            continue
        free = [lane for lane, last in enumerate(busy_until) if last < mark.span.line]
        lane = free[0] if free else len(busy_until)
        busy_until[lane : lane + 1] = [mark.span.end_line]
        placed.append(replace(mark, lane=lane))
    return placed


class _FileBlock:
    """The source lines shown for one file."""

    def __init__(self, file: str, marks: list[_Mark], frame: SnippetFrame) -> None:
        self.file = file
        self.frame = frame
        self.marks = _with_lanes(marks)
        lanes = 1 + max(mark.lane for mark in self.marks)
        self.body = frame.margin + (lanes + 1 if lanes else 0)  # where source text starts
        self.open: set[int] = set()  # lanes that run through the current row

    def render(self) -> list[str]:
        out: list[str] = []
        for number in self._numbers():
            rows = [self._gap()] if number is None else self._line(number)
            out += [row.text(self.frame.color) for row in rows]
        return out

    def _numbers(self) -> Iterator[int | None]:
        """Yield the line numbers to show, and None for a gap; a gap of one line is shown."""
        wanted: set[int] = set()
        for mark in self.marks:
            first, last = mark.span.line, mark.span.end_line
            wanted |= {first, last}
            if last - first < _WHOLE_SPAN_LINES:
                wanted.update(range(first, last + 1))
        previous = 0
        for number in sorted(wanted):
            if previous and number == previous + 2:
                yield number - 1
            elif previous and number > previous + 2:
                yield None
            yield number
            previous = number

    def _row(self, number: int | None = None) -> CanvasRow:
        """Return a row with its gutter and the lanes that pass through it."""
        row = self.frame.row(number)
        for mark in self.marks:
            if mark.lane in self.open and mark.multiline:
                row.put(self.frame.margin + mark.lane, "|", self._lane_style(mark.lane))
        return row

    def _lane_style(self, lane: int) -> str:
        owners = [m.style for m in self.marks if m.lane == lane]
        return owners[0]

    def _gap(self) -> CanvasRow:
        row = CanvasRow()
        row.put(0, "...", GUTTER)
        for lane in self.open:
            row.put(self.frame.margin + lane, "|", self._lane_style(lane))
        return row

    def _line(self, number: int) -> list[CanvasRow]:
        text = self.frame.sources(self.file, number) or ""
        cells, starts = cells_of(text)
        indent = len(text) - len(text.lstrip())

        def cell(col: int) -> int:
            past_end = max(0, col - len(text))  # a caret may be just past the end of the line
            return starts[min(col, len(text))] + past_end

        single = [m for m in self.marks if not m.multiline and m.span.line == number]
        opening = [m for m in self.marks if m.multiline and m.span.line == number]
        closing = [m for m in self.marks if m.multiline and m.span.end_line == number]
        extents = [(cell(m.span.col), cell(m.span.end_col)) for m in single]
        extents += [(cell(m.span.col), cell(m.span.col) + 1) for m in opening]
        extents += [(cell(m.span.end_col) - 1, cell(m.span.end_col)) for m in closing]
        room = max(self.frame.width - self.body, _MIN_SOURCE_WIDTH)
        start = _scroll(len(cells), extents, room)

        def column(col: int) -> int:
            """Map to a screen column, clamped to the visible part of the line."""
            return self.body + min(max(cell(col) - start, 0), room)

        source = self._row(number)
        source.put_cells(self.body, cut_cells(cells, start, room))
        rows = [source]
        inline = [m for m in opening if m.span.col <= indent]
        for mark in inline:  # at the start of the line: a slash instead of a separate row
            source.put(self.frame.margin + mark.lane, "/", mark.style)
            self.open.add(mark.lane)
        rows += self._underlines(
            [_Placed(column(m.span.col), column(m.span.end_col), m) for m in single]
        )
        for mark in opening:
            if mark not in inline:
                rows.append(self._reach(mark, column(mark.span.col)))
                self.open.add(mark.lane)
        for mark in closing:
            rows.append(self._reach(mark, column(mark.span.end_col) - 1))
            self.open.discard(mark.lane)
            if mark.text:
                rows[-1].put(column(mark.span.end_col) + 1, mark.text, mark.style)
        return rows

    def _reach(self, mark: _Mark, column: int) -> CanvasRow:
        """Return the row that connects a lane with the first or last character of its span."""
        row = self._row()
        for between in range(self.frame.margin + mark.lane + 1, column):
            if row.is_blank(between):
                row.put(between, "_", mark.style)
        row.put(column, mark.char, mark.style)
        return row

    def _underlines(self, placed: list[_Placed]) -> list[CanvasRow]:
        """Draw the underlines: the last label next to its own, the others stacked below, right to
        left.
        """
        if not placed:
            return []
        row = self._row()
        for p in sorted(placed, key=lambda p: p.mark.primary):  # draw the primary mark last, on top
            row.put(p.start, p.mark.char * max(p.end - p.start, 1), p.mark.style)
        texts = sorted((p for p in placed if p.mark.text), key=lambda p: (p.start, p.mark.primary))
        rows = [row]
        if texts and all(p is texts[-1] or p.end <= texts[-1].start for p in placed):
            last = texts.pop()
            row.put(max(last.end, last.start + 1) + 1, last.mark.text, last.mark.style)
        if texts:
            rows.append(self._connectors(texts))
        while texts:
            p = texts.pop()
            rows.append(self._connectors([t for t in texts if t.start < p.start]))
            rows[-1].put(p.start, p.mark.text, p.mark.style)
        return rows

    def _connectors(self, placed: Iterable[_Placed]) -> CanvasRow:
        row = self._row()
        for p in placed:
            row.put(p.start, "|", p.mark.style)
        return row


@dataclass(frozen=True)
class _Placed:
    """A single-line mark and its screen columns."""

    start: int
    end: int
    mark: _Mark


def _scroll(length: int, extents: list[tuple[int, int]], room: int) -> int:
    """Return the first cell to show so that the marked cells of an overlong line are visible."""
    if length <= room or not extents:
        return 0
    first = min(start for start, _ in extents)
    last = max(end for _, end in extents)
    to_show_end = min(last + room // 4, length) - room
    to_keep_start = max(first - room // 8 - 3, 0)
    return max(min(to_show_end, to_keep_start), 0)
