"""Diagnostics as text, in rustc's layout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TextIO

from tilelet.diag.canvas import BOLD, GUTTER, HELP, paint
from tilelet.diag.core import Diagnostic, Label, Loc
from tilelet.diag.snippet import SnippetFrame, snippet
from tilelet.diag.source import SourceReader, display_path, read_line, span_of
from tilelet.diag.text import escape_controls, plural

DEFAULT_WIDTH = 120
# Long inlining chains show only the innermost and outermost calls.
_CHAIN_HEAD, _CHAIN_TAIL = 3, 1


def render_text(
    diagnostic: Diagnostic,
    color: bool,
    sources: SourceReader = read_line,
    width: int = DEFAULT_WIDTH,
) -> str:
    """Render the message with source lines, notes, helps and inlining chain; no final newline."""
    calls = diagnostic.loc.callers if diagnostic.loc else []
    labels = [label for label in diagnostic.labels if label.loc.line > 0]
    frame = SnippetFrame(
        digits=_digits([label.loc for label in labels] + calls, sources),
        severity=diagnostic.severity,
        color=color,
        sources=sources,
        width=width,
    )
    first, *more = escape_controls(diagnostic.message).split("\n")
    head = paint(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity, color)
    lines = [head + paint(f": {first}", BOLD, color), *(f"  {text}" for text in more)]
    lines += snippet(labels, frame)
    remarks = [("note", text) for text in _unplaced_texts(diagnostic.labels, sources)]
    remarks += [("note", text) for text in diagnostic.notes]
    remarks += [("help", text) for text in diagnostic.helps]
    if remarks and any(sources(label.loc.file, label.loc.line) is not None for label in labels):
        lines.append(frame.bar())
    for kind, text in remarks:
        lines += _remark(kind, text, frame)
    lines += _chain(calls, frame)
    return "\n".join(lines)


def render_line(diagnostic: Diagnostic, color: bool = False) -> str:
    """Render the message on one line, without source: `kernel.py:3:5: note[W0101]: ...`."""
    head = paint(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity, color)
    text = f"{head}: {diagnostic.message}"
    loc = diagnostic.loc
    if loc is None or loc.line <= 0:
        return escape_controls(text)
    return escape_controls(f"{display_path(loc.file)}:{loc.line}:{loc.col + 1}: {text}")


def render_all(
    diagnostics: Iterable[Diagnostic],
    color: bool,
    sources: SourceReader = read_line,
    width: int = DEFAULT_WIDTH,
    truncated: bool = False,
) -> str:
    """Render all messages, separated by blank lines, and a closing line that counts them."""
    shown = list(diagnostics)
    parts = [render_text(d, color, sources, width) for d in shown]
    errors = sum(d.severity == "error" for d in shown)
    warnings = sum(d.severity == "warning" for d in shown)
    counts = [plural(n, noun) for n, noun in ((errors, "error"), (warnings, "warning")) if n]
    if counts:
        severity = "error" if errors else "warning"
        stopped = " (stopped here: there may be more)" if truncated else ""
        total = paint(severity, severity, color)
        parts.append(total + paint(f": {', '.join(counts)}{stopped}", BOLD, color))
    return "\n\n".join(parts)


def use_color(stream: TextIO) -> bool:
    """Use color only on a terminal, unless NO_COLOR or FORCE_COLOR overrides it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def text_width(stream: TextIO) -> int:
    """Return the terminal width, or the default if there is no terminal."""
    return (
        shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns if stream.isatty() else DEFAULT_WIDTH
    )


def _digits(locs: list[Loc], sources: SourceReader) -> int:
    """Return the width of the widest line number shown."""
    last_lines = [span_of(loc, sources).end_line for loc in locs]
    return len(str(max(last_lines, default=0)))


def _unplaced_texts(labels: Iterable[Label], sources: SourceReader) -> list[str]:
    """Return the texts of labels whose source line cannot be shown, so that none is lost."""
    texts: list[str] = []
    for label in labels:
        if not label.text:
            continue
        if label.loc.line <= 0:
            texts.append(label.text)
        elif sources(label.loc.file, label.loc.line) is None:
            texts.append(f"{display_path(label.loc.file)}:{label.loc.line}: {label.text}")
    return texts


def _remark(kind: str, text: str, frame: SnippetFrame) -> list[str]:
    """Render `= note: ...`, with further lines aligned under the first."""
    first, *more = escape_controls(text).split("\n")
    margin = " " * (frame.digits + 1)
    style = HELP if kind == "help" else BOLD
    equals, name = paint("=", GUTTER, frame.color), paint(kind, style, frame.color)
    indent = margin + " " * len(f"= {kind}: ")
    return [f"{margin}{equals} {name}: {first}", *((indent + line).rstrip() for line in more)]


def _chain(calls: list[Loc], frame: SnippetFrame) -> list[str]:
    """Render one `note: in this call` per inlining step."""
    hidden = len(calls) - _CHAIN_HEAD - _CHAIN_TAIL
    lines: list[str] = []
    for depth, call in enumerate(calls):
        if hidden > 1 and _CHAIN_HEAD <= depth < len(calls) - _CHAIN_TAIL:
            if depth == _CHAIN_HEAD:
                lines.append(_note(f"... {hidden} calls not shown", frame))
            continue
        lines.append(_note("in this call", frame))
        lines += snippet([Label(call)], frame.as_note())
    return lines


def _note(text: str, frame: SnippetFrame) -> str:
    return paint("note", "note", frame.color) + paint(f": {text}", BOLD, frame.color)
