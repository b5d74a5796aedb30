"""Diagnostics as JSON; SARIF is in `diag.sarif`.

The JSON layout is stable: fields may be added, but no field changes its meaning.

    {"version": 1,
     "tool": {"name": "tilelet", "version": "0.1.0"},
     "errors": 1, "warnings": 0,
     "diagnostics": [
       {"code": "E0301", "severity": "error", "message": "...",
        "labels": [{"primary": true, "text": "...", "file": "kernel.py",
                    "line": 3, "column": 9, "end_line": 3, "end_column": 12,
                    "called_from": [{"file": ..., "line": ..., ...}]}],
        "notes": ["..."], "helps": ["..."],
        "fixes": [{"text": "...", "file": ..., "line": ..., ...}]}]}

Lines and columns count from 1, columns in characters; the end is exclusive. The first label is the
primary one. `fixes`, if present, correct the mistake: each is replacement text for a span.
`called_from` is the inlining chain, innermost call first. A label without a known location has
line 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tilelet import __version__
from tilelet.diag.core import Diagnostic, Label, Loc
from tilelet.diag.json_types import JsonObject
from tilelet.diag.source import SourceReader, display_path, read_line, span_of


def to_data(diagnostics: Iterable[Diagnostic], sources: SourceReader = read_line) -> JsonObject:
    """Return the diagnostics as plain data (layout: see the module's docstring)."""
    shown = list(diagnostics)
    return {
        "version": 1,
        "tool": {"name": "tilelet", "version": __version__},
        "errors": sum(d.severity == "error" for d in shown),
        "warnings": sum(d.severity == "warning" for d in shown),
        "diagnostics": [
            {
                "code": d.code,
                "severity": d.severity,
                "message": d.message,
                "labels": [_label(i == 0, label, sources) for i, label in enumerate(d.labels)],
                "notes": list(d.notes),
                "helps": list(d.helps),
                **_fixes(d, sources),
            }
            for d in shown
        ],
    }


def to_json(diagnostics: Iterable[Diagnostic], sources: SourceReader = read_line) -> str:
    """Return the diagnostics as one JSON document (layout: see the module docstring)."""
    return json.dumps(to_data(diagnostics, sources), indent=2, ensure_ascii=False)


def _fixes(d: Diagnostic, sources: SourceReader) -> dict[str, object]:
    if not d.fixes:
        return {}
    return {"fixes": [{"text": fix.text, **_place(fix.loc, sources)} for fix in d.fixes]}


def _label(primary: bool, label: Label, sources: SourceReader) -> dict[str, object]:
    return {
        "primary": primary,
        "text": label.text,
        **_place(label.loc, sources),
        "called_from": [_place(call, sources) for call in label.loc.callers],
    }


def _place(loc: Loc, sources: SourceReader) -> dict[str, object]:
    if loc.line <= 0:
        return {
            "file": display_path(loc.file),
            "line": 0,
            "column": 0,
            "end_line": 0,
            "end_column": 0,
        }
    span = span_of(loc, sources)
    return {
        "file": display_path(span.file),
        "line": span.line,
        "column": span.col + 1,
        "end_line": span.end_line,
        "end_column": span.end_col + 1,
    }
