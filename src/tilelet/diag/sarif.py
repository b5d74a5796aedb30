"""Diagnostics as SARIF 2.1.0, in the form that code-scanning services accept.

They require a location for every result, and paths relative to the repository root. A message
without a location (a missing file, an unknown machine) is placed at the first line of the script.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from tilelet import __version__
from tilelet.diag.core import Diagnostic, Label, Loc
from tilelet.diag.source import SourceReader, read_line, span_of

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "SRCROOT"
_PACKAGES = Path(__file__).parents[2]
"""The folder that the package is in: for kernels that ship with it."""


def to_sarif(
    diagnostics: Iterable[Diagnostic], sources: SourceReader = read_line, script: str = ""
) -> str:
    """Return the diagnostics as one run; its rules are the catalogue classes that occur."""
    shown = list(diagnostics)
    codes = sorted({d.code for d in shown})
    results = _Results(sources, script)
    run = {
        "tool": {
            "driver": {
                "name": "tilelet",
                "semanticVersion": __version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "the root of the repository"}}},
        "results": [results.add(d, codes.index(d.code)) for d in shown],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _rule(code: str) -> dict[str, object]:
    # Imported here because the catalogue imports this package; a caller may report its own codes.
    from tilelet.diag.catalogue import classes, describe, explain

    cls = classes().get(code)
    if cls is None:
        return {"id": code}
    text = describe(cls)
    return {
        "id": code,
        "name": cls.__name__,
        "shortDescription": {"text": text.summary},
        "fullDescription": {"text": text.body},
        "help": {"text": explain(code)},
        "defaultConfiguration": {"level": cls.severity},
    }


class _Results:
    """The results of one run, with paths relative to the repository and stable fingerprints."""

    def __init__(self, sources: SourceReader, script: str) -> None:
        self.sources = sources
        self.script = Path(script or "unknown").absolute()
        self.root = _repository(self.script)
        self.seen: Counter[str] = Counter()

    def add(self, d: Diagnostic, rule: int) -> dict[str, object]:
        """Convert one diagnostic; locations outside the repository become text."""
        places = [label for label in d.labels if label.loc.line > 0]
        if places:
            places += [Label(call, "in this call") for call in places[0].loc.callers]
        inside = [place for place in places if self._relative(place.loc.file) is not None]
        outside = [place for place in places if place not in inside]
        told = [f"note: {p.loc.file}:{p.loc.line}: {p.text}".rstrip(" :") for p in outside]
        lines = [d.message, *dict.fromkeys(told)]
        lines += [*(f"note: {n}" for n in d.notes), *(f"help: {h}" for h in d.helps)]
        first = inside[0] if inside else Label(Loc(str(self.script), 0))
        result: dict[str, object] = {
            "ruleId": d.code,
            "ruleIndex": rule,
            "level": d.severity,
            "message": {"text": "\n".join(lines)},
            "locations": [self._location(first)],
            "partialFingerprints": {"primaryLocationLineHash": self._fingerprint(d, first.loc)},
        }
        related = [self._location(place) for place in inside[1:]]
        if related:  # SARIF requires unique entries
            result["relatedLocations"] = [r for i, r in enumerate(related) if r not in related[:i]]
        return result

    def _fingerprint(self, d: Diagnostic, loc: Loc) -> str:
        """Return a fingerprint that survives moving the line within the file."""
        line = (self.sources(loc.file, loc.line) or "") if loc.line > 0 else d.message
        digest = hashlib.sha256(f"{d.code}\n{line.strip()}".encode()).hexdigest()[:16]
        self.seen[digest] += 1
        return f"{digest}:{self.seen[digest]}"

    def _location(self, place: Label) -> dict[str, object]:
        region: dict[str, int] = {"startLine": 1}
        if place.loc.line > 0:
            span = span_of(place.loc, self.sources)
            region = {
                "startLine": span.line,
                "startColumn": span.col + 1,
                "endLine": span.end_line,
                "endColumn": span.end_col + 1,
            }
        uri = quote(self._relative(place.loc.file) or Path(place.loc.file).name)
        artifact = {"uri": uri, "uriBaseId": _ROOT}
        location: dict[str, object] = {
            "physicalLocation": {"artifactLocation": artifact, "region": region}
        }
        if place.text:
            location["message"] = {"text": place.text}
        return location

    def _relative(self, file: str) -> str | None:
        """Return the path relative to the repository root, or to the package root."""
        path = Path(file).absolute()
        for root in (self.root, _PACKAGES):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        return None


def _repository(file: Path) -> Path:
    """Return the root that a code-scanning service resolves paths against."""
    for folder in file.parents:
        if (folder / ".git").exists():
            return folder
    here = Path.cwd()
    return here if file.is_relative_to(here) else file.parent
