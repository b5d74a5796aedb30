"""Answers of the language server, computed from an analysis."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from tilelet import language
from tilelet.device.report.profile import KernelRow, Profile
from tilelet.diag.core import Diagnostic, Loc
from tilelet.diag.tables import byte_text, number
from tilelet.diag.text import plural
from tilelet.frontend.functions import KernelFunction
from tilelet.ir.core import Value
from tilelet.ir.spec import spec_of
from tilelet.ir.types import TensorType, TileType
from tilelet.lsp.analysis import Analysis, Defined, Modelled, assigned_names

_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
SOURCE = "tilelet"
RUN_FOR_VALUES = "tilelet.runForValues"
OPEN_PAGE = "tilelet.openPage"
_WORD = re.compile(r"[A-Za-z_][\w.]*")


class Lines:
    """The lines of a text, for conversion between UTF-8 columns and those of the protocol."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")

    def position(self, line: int, column: int) -> lsp.Position:
        """Return a place given by a line from 1 and a column in UTF-8 bytes."""
        at = min(max(line - 1, 0), len(self.lines) - 1)
        before = self.lines[at].encode()[:column].decode(errors="ignore")
        return lsp.Position(at, len(before.encode("utf-16-le")) // 2)

    def range(self, loc: Loc) -> lsp.Range:
        start = self.position(loc.line, loc.col)
        if not loc.end_line:
            return lsp.Range(start, lsp.Position(start.line, start.character + 1))
        end = self.position(loc.end_line, loc.end_col)
        return lsp.Range(start, end if end != start else lsp.Position(end.line, end.character + 1))

    def word_at(self, position: lsp.Position) -> str:
        """Return the dotted name at a position, up to the part under the cursor."""
        if position.line >= len(self.lines):
            return ""
        line = self.lines[position.line]
        for found in _WORD.finditer(line):
            if found.start() <= position.character <= found.end():
                end = line.find(".", position.character, found.end())
                stop = end if end >= 0 else found.end()
                return line[found.start() : stop]
        return ""


def to_diagnostics(analysis: Analysis) -> list[lsp.Diagnostic]:
    """Return the messages located in the file."""
    lines = Lines(analysis.text)
    return [made for d in analysis.diagnostics if (made := _diagnostic(d, analysis.path, lines))]


def _diagnostic(d: Diagnostic, path: str, lines: Lines) -> lsp.Diagnostic | None:
    place = _place(d, path)
    if place is None:
        return None
    text = "\n".join(
        [d.message, *(f"note: {n}" for n in d.notes), *(f"help: {h}" for h in d.helps)]
    )
    related = [
        lsp.DiagnosticRelatedInformation(
            lsp.Location(Path(label.loc.file).absolute().as_uri(), lines.range(label.loc)),
            label.text or d.message,
        )
        for label in d.labels[1:]
        if label.loc.file == path
    ]
    return lsp.Diagnostic(
        lines.range(place),
        text,
        severity=_SEVERITY[d.severity],
        code=d.code,
        source=SOURCE,
        related_information=related or None,
    )


def _place(d: Diagnostic, path: str) -> Loc | None:
    """Return the place of a message in this file: its own, or the call that inlined it."""
    loc = d.loc
    while loc is not None and loc.file != path:
        loc = loc.caller
    return loc if loc is not None and loc.line > 0 else None


def hover(analysis: Analysis, text: str, position: lsp.Position) -> lsp.Hover | None:
    """Return the manual of an op, or type, shape, valid region and bytes of a value.

    text  what the editor shows, which may be newer than the analysis
    """
    word = Lines(text).word_at(position)
    if not word:
        return None
    shown = _manual(word) if "." in word else _value_text(analysis, word, position.line + 1)
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, shown)) if shown else None


def _manual(word: str) -> str:
    """Return the manual of a name of the language."""
    found = _look_up(word)
    doc = inspect.getdoc(found) if found is not None else None
    if doc is None or isinstance(found, (int, str)):
        return ""
    return f"```python\n{word}{_signature(found)}\n```\n\n{doc}"


def _look_up(word: str) -> object:
    head, *rest = word.split(".")
    found: Any = language if head in ("pl", "language") else None
    for part in rest:
        found = getattr(found, part, None) if not part.startswith("_") else None
    return found


def _signature(found: object) -> str:
    spec = spec_of(found)
    if spec is not None:
        return str(spec.signature)
    try:
        return str(inspect.signature(found)) if callable(found) else ""
    except (TypeError, ValueError):
        return ""


def _value_text(analysis: Analysis, name: str, line: int) -> str:
    found = analysis.value_at(name, line)
    if found is None:
        known = analysis.module.names.get(name) if analysis.module else None
        return f"`{name} = {known!r}`" if isinstance(known, (int, float, str, tuple)) else ""
    parts = [f"```python\n{name}: {found.value.type}\n```"]
    valid = _valid_region(found)
    if valid:
        parts.append(f"valid region: `{valid}`")
    if isinstance(found.value.type, TileType):
        parts.append(_on_chip(analysis, found.value, found.value.type))
    return "\n\n".join(parts)


def _valid_region(found: Defined) -> str:
    valid = found.op.args.get("valid_shape") if found.op is not None else None
    if not isinstance(valid, tuple) or not valid:
        return ""
    return f"[{', '.join(str(getattr(v, 'name', v)) for v in valid)}]"


def _on_chip(analysis: Analysis, value: Value, type_: TileType) -> str:
    """Return a tile's size in each memory, as the memory plan has it."""
    placed = [p for modelled in analysis.modelled for p in modelled.placements(value)]
    if not placed:
        nbytes = math.prod(type_.shape) * type_.dtype.itemsize
        return f"{byte_text(nbytes)} of elements; its memory is not modelled"
    sizes = (
        f"{p.tile.space.name} {byte_text(p.nbytes)}"
        + (f" ({p.tile.buffers} buffers)" if p.tile.buffers > 1 else "")
        for p in placed
    )
    return f"on chip: {', '.join(dict.fromkeys(sizes))}"


def inlay_hints(analysis: Analysis, wanted: lsp.Range) -> list[lsp.InlayHint]:
    """Return the shape and element type of each assigned tile."""
    lines = Lines(analysis.text)
    hints: list[lsp.InlayHint] = []
    for name in assigned_names(analysis):
        if not wanted.start.line <= name.lineno - 1 <= wanted.end.line:
            continue
        found = analysis.value_at(name.id, name.end_lineno or name.lineno)
        known = found.value if found is not None else None
        if known is None or not isinstance(known.type, (TileType, TensorType)):
            continue
        shape = ", ".join(str(getattr(d, "name", d)) for d in known.type.shape)
        at = lines.position(name.lineno, name.end_col_offset or 0)
        hints.append(lsp.InlayHint(at, f": [{shape}] {known.type.dtype}", lsp.InlayHintKind.Type))
    return hints


def code_lenses(analysis: Analysis) -> list[lsp.CodeLens]:
    """Return the figures of programs above their definitions, those of kernels above scopes."""
    lenses: list[lsp.CodeLens] = []
    for modelled in analysis.modelled:
        if modelled.program.source.path != analysis.path:
            continue
        profile = modelled.profile
        between = " to ".join(map(number, profile.interval))
        interval = f" ({between})" if between else ""
        tasks = plural(profile.tasks, "task")
        text = f"{tasks} · {number(profile.total_us)} us{interval} · bound by {profile.bound}"
        lenses.append(_lens(analysis, modelled.program.node.lineno, text))
        for _, line, kernel in modelled.kernels(analysis.path):
            used = [
                f"{space} {byte_text(n)} of {byte_text(profile.limits[space])}"
                for space, n in kernel.memory.items()
                if n and space in profile.limits
            ]
            parts = [*_executions(kernel, profile), f"bound by {kernel.bound}", ", ".join(used)]
            lenses.append(_lens(analysis, line, " · ".join(parts)))
    return lenses


def _executions(kernel: KernelRow, profile: Profile) -> Iterator[str]:
    """Yield the tasks of a kernel, their blocks if a task has several, and the time of one."""
    yield plural(kernel.tasks, "task")
    blocks = profile.blocks(kernel)
    if blocks not in (0, kernel.tasks):
        yield plural(blocks, "block")
    if blocks:
        yield f"{number(kernel.exec_us / blocks)} us each"


def _lens(analysis: Analysis, line: int, text: str) -> lsp.CodeLens:
    at = lsp.Position(line - 1, 0)
    uri = Path(analysis.path).absolute().as_uri()
    command = lsp.Command(text, OPEN_PAGE, arguments=[uri, line - 1])
    return lsp.CodeLens(lsp.Range(at, at), command)


@functools.cache
def _members(space: str) -> list[lsp.CompletionItem]:
    """Return the names of `pl`, or of a module in it, with their signatures."""
    base = _look_up(space)
    if base is None:
        return []
    items: list[lsp.CompletionItem] = []
    for name in dir(base):
        found = getattr(base, name, None) if not name.startswith("_") else None
        home = getattr(found, "__module__", "") or type(found).__module__
        if found is None or not str(home).startswith("tilelet"):
            continue
        doc = inspect.getdoc(found) if callable(found) else None
        kind = lsp.CompletionItemKind.Constant
        if callable(found):
            is_type = isinstance(found, type)
            kind = lsp.CompletionItemKind.Class if is_type else lsp.CompletionItemKind.Function
        manual = lsp.MarkupContent(lsp.MarkupKind.Markdown, doc) if doc else None
        items.append(
            lsp.CompletionItem(name, kind=kind, detail=_signature(found), documentation=manual)
        )
    return items


def completion(text: str, position: lsp.Position) -> list[lsp.CompletionItem]:
    """Complete `pl.` and the modules in it."""
    lines = text.split("\n")
    before = lines[position.line][: position.character] if position.line < len(lines) else ""
    found = re.search(r"\b(pl(?:\.\w+)*)\.\w*$", before)
    return _members(found.group(1)) if found else []


def definition(analysis: Analysis, text: str, position: lsp.Position) -> lsp.Location | None:
    """Return where a function, a value of a kernel, or a constant of the file is defined."""
    word = Lines(text).word_at(position)
    module = analysis.module
    if not word or module is None:
        return None
    value = module.names.get(word)
    function = getattr(value, "kernel_function", value)
    if isinstance(function, KernelFunction):
        return _location(function.loc(), function.source.text)
    found = analysis.value_at(word, position.line + 1)
    if found is not None:
        return _location(found.value.loc, analysis.text)
    node = getattr(value, "node", None)
    if node is not None:
        return _location(Loc(analysis.path, node.lineno, node.col_offset), analysis.text)
    return None


def _location(loc: Loc, text: str) -> lsp.Location:
    return lsp.Location(Path(loc.file).absolute().as_uri(), Lines(text).range(loc))


def code_actions(analysis: Analysis, wanted: lsp.Range, uri: str) -> Iterator[lsp.CodeAction]:
    """Yield fixes of messages, proved rewritings, and the run for values."""
    lines = Lines(analysis.text)
    for d in analysis.diagnostics:
        made = _diagnostic(d, analysis.path, lines)
        if made is None or not _overlap(made.range, wanted):
            continue
        here = [f for f in d.fixes if f.loc.file == analysis.path]
        if here:
            edits = [lsp.TextEdit(lines.range(f.loc), f.text) for f in here]
            title = d.helps[0] if d.helps else f"Fix {d.code}"
            yield lsp.CodeAction(
                title,
                lsp.CodeActionKind.QuickFix,
                diagnostics=[made],
                edit=lsp.WorkspaceEdit({uri: edits}),
                is_preferred=True,
            )
        if d.code == "E1801":
            yield lsp.CodeAction(
                "Run the script for the values of its names",
                lsp.CodeActionKind.QuickFix,
                diagnostics=[made],
                command=lsp.Command("Run for values", RUN_FOR_VALUES, arguments=[uri]),
            )
    for suggestion in analysis.suggestions:
        place = _place(suggestion.diagnostic, analysis.path)
        if place is None or not _overlap(lines.range(place), wanted):
            continue
        times = f"{number(suggestion.before_us)} to {number(suggestion.after_us)} us"
        yield lsp.CodeAction(
            f"{suggestion.diagnostic.message} ({times}, proved)",
            lsp.CodeActionKind.RefactorRewrite,
            edit=lsp.WorkspaceEdit({uri: list(edits_between(analysis.text, suggestion.text))}),
        )


def edits_between(old: str, new: str) -> Iterator[lsp.TextEdit]:
    """Yield the changed blocks of lines."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if tag != "equal":
            where = lsp.Range(lsp.Position(a, 0), lsp.Position(b, 0))
            yield lsp.TextEdit(where, "".join(after[c:d]))


def _overlap(a: lsp.Range, b: lsp.Range) -> bool:
    return a.start.line <= b.end.line and b.start.line <= a.end.line


def page_of(analysis: Analysis, line: int) -> tuple[str, str] | None:
    """Return the page of the program at a line, and the part of its address that selects it."""
    from tilelet.report.document import profile_document
    from tilelet.report.html import page_html

    shown = _program_at(analysis, line)
    if shown is None:
        return None
    kernels = [(at, n) for n, at, _ in shown.kernels(analysis.path) if at <= line]
    choice = f"#view=source&kernel={max(kernels)[1]}&line={line}" if kernels else ""
    return page_html(shown.program.name, profile_document([shown.run])), choice


def _program_at(analysis: Analysis, line: int) -> Modelled | None:
    inside = [
        m
        for m in analysis.modelled
        if m.program.node.lineno <= line <= (m.program.node.end_lineno or line)
    ]
    return (inside or analysis.modelled or [None])[0]
