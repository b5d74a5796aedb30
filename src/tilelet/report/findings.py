"""Findings on the page, from all sources.

Refusals by the machine, check findings and other diagnostics have one form: that of a check's
`to_data()`, with locations given as file numbers of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tilelet.diag.core import Diagnostic, Loc
from tilelet.diag.json_types import JsonObject
from tilelet.report.source import SourceFiles


def finding_data(diagnostic: Diagnostic, files: SourceFiles, check: str = "") -> JsonObject:
    """A message with its places."""
    return {
        "check": check or "device",
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "status": "found",
        "message": diagnostic.message,
        "places": [
            {"place": files.place(label.loc), "text": label.text, "task": None}
            for label in diagnostic.labels
        ],
        "notes": list(diagnostic.notes),
        "helps": list(diagnostic.helps),
    }


def checked_data(verdict: Mapping[str, object], files: SourceFiles) -> JsonObject:
    """Return the results and findings of the checks from their JSON."""
    parts = _tables(verdict.get("parts"))
    return {
        "checks": [{key: p.get(key) for key in ("check", "status", "summary")} for p in parts],
        "findings": [_finding_entry(f, files) for p in parts for f in _tables(p.get("findings"))],
    }


def _finding_entry(found: JsonObject, files: SourceFiles) -> JsonObject:
    places: list[JsonObject] = [
        {
            "place": _place(at, files),
            "text": " ".join(str(at[k]) for k in ("role", "kernel") if at.get(k)),
            "task": at.get("task"),
            "iteration": at.get("iteration") or {},
        }
        for at in _tables(found.get("places"))
    ]
    witness: Mapping[str, object] = found.get("witness") or {}
    return {
        **{key: found.get(key) for key in ("check", "code", "status", "message", "region")},
        "severity": "warning" if str(found.get("code")).startswith("W") else "error",
        "places": places,
        "notes": [str(text) for text in (witness.get("text"),) if text],
        "helps": [str(text) for text in (found.get("remedy"),) if text],
    }


def _place(at: Mapping[str, object], files: SourceFiles) -> list[int] | None:
    line = at.get("line")
    return files.place(Loc(str(at.get("file", "")), line)) if isinstance(line, int) else None


def _tables(value: object) -> Sequence[JsonObject]:
    items = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else ()
    return [cast("JsonObject", item) for item in items if isinstance(item, Mapping)]
