"""Diagnostics for programs: JSON of our own, and SARIF 2.1.0.

The JSON layout is stable; a field may be added, none changes its meaning:

    {"version": 1,
     "tool": {"name": "tilelet", "version": "0.1.0"},
     "errors": 1, "warnings": 0,
     "diagnostics": [
       {"code": "E0301", "severity": "error", "message": "...",
        "labels": [{"primary": true, "text": "...", "file": "kernel.py",
                    "line": 3, "column": 9, "end_line": 3, "end_column": 12,
                    "called_from": [{"file": ..., "line": ..., ...}]}],
        "notes": ["..."], "helps": ["..."]}]}

Lines and columns count from 1, columns in characters; the end is exclusive. The first label is the
primary one. `called_from` is the inlining chain, innermost call first. A label without a known
place has line 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from tilelet import __version__
from tilelet.diag.core import Diagnostic, Label, Loc
from tilelet.diag.source import SourceReader, display_path, read_line, span_of

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_json(diagnostics: Iterable[Diagnostic], sources: SourceReader = read_line) -> str:
    """The diagnostics as one JSON document (layout: see the module's docstring)."""
    shown = list(diagnostics)
    document = {
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
            }
            for d in shown
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


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


def to_sarif(diagnostics: Iterable[Diagnostic], sources: SourceReader = read_line) -> str:
    """The diagnostics as one SARIF 2.1.0 run; the rules are the catalogue's classes that occur."""
    shown = list(diagnostics)
    codes = sorted({d.code for d in shown})
    run = {
        "tool": {
            "driver": {
                "name": "tilelet",
                "semanticVersion": __version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, codes.index(d.code), sources) for d in shown],
    }
    document = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _rule(code: str) -> dict[str, object]:
    # The catalogue imports this package; and a caller may report a code of its own.
    from tilelet.diag.catalogue import classes, describe

    cls = classes().get(code)
    if cls is None:
        return {"id": code}
    text = describe(cls)
    return {
        "id": code,
        "name": cls.__name__,
        "shortDescription": {"text": text.summary},
        "fullDescription": {"text": text.body},
        "defaultConfiguration": {"level": cls.severity},
    }


def _result(d: Diagnostic, rule: int, sources: SourceReader) -> dict[str, object]:
    text = "\n".join(
        [d.message, *(f"note: {n}" for n in d.notes), *(f"help: {h}" for h in d.helps)]
    )
    placed = [label for label in d.labels if label.loc.line > 0]
    result: dict[str, object] = {
        "ruleId": d.code,
        "ruleIndex": rule,
        "level": d.severity,
        "message": {"text": text},
        "locations": [_location(label.loc, label.text, sources) for label in placed[:1]],
    }
    related = [_location(label.loc, label.text, sources) for label in placed[1:]]
    if placed:
        related += [_location(call, "in this call", sources) for call in placed[0].loc.callers]
    if related:  # SARIF wants each only once
        result["relatedLocations"] = [r for i, r in enumerate(related) if r not in related[:i]]
    return result


def _location(loc: Loc, text: str, sources: SourceReader) -> dict[str, object]:
    span = span_of(loc, sources)
    location: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(loc.file)},
            "region": {
                "startLine": span.line,
                "startColumn": span.col + 1,
                "endLine": span.end_line,
                "endColumn": span.end_col + 1,
            },
        }
    }
    if text:
        location["message"] = {"text": text}
    return location


def _uri(file: str) -> str:
    path = Path(display_path(file))
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
