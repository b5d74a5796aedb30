"""Findings as the page shows them, whoever made them.

One form for what a machine would refuse, for the checks, and for messages on the way: the layout of
a check's `to_data()`, with places given as file numbers of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from tilelet.diag.core import Diagnostic
from tilelet.report.source import SourceFiles


def finding_data(diagnostic: Diagnostic, files: SourceFiles, check: str = "") -> dict[str, Any]:
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


def checked_data(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A finding from a check's JSON; `names` are the files that the page has, by number."""
    numbers = {name: number for number, name in enumerate(names)}

    def place(at: Mapping[str, Any]) -> list[int] | None:
        file = str(at.get("file", ""))
        number = numbers.get(file, numbers.get(PurePath(file).name))
        line = at.get("line")
        return [number, line] if number is not None and isinstance(line, int) and line else None

    places = [
        {
            "place": place(at),
            "text": " ".join(str(at[k]) for k in ("role", "kernel") if at.get(k)),
            "task": at.get("task"),
            "iteration": at.get("iteration") or {},
        }
        for at in found.get("places") or ()
        if isinstance(at, Mapping)
    ]
    return {
        **{key: found.get(key) for key in ("check", "code", "status", "message", "region")},
        "severity": str(found.get("severity") or "error"),
        "places": places,
        "notes": [w for w in [(found.get("witness") or {}).get("text")] if w],
        "helps": [w for w in [found.get("remedy")] if w],
    }
