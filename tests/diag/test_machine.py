"""JSON and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.diag.samples import FILE, SAMPLES, build, reader, source_of

from tilelet import __version__
from tilelet.diag import UNKNOWN, Diagnostic, Label, Loc, to_json, to_sarif
from tilelet.diag.catalogue import classes
from tilelet.diag.catalogue.cautions import ImplicitScope
from tilelet.diag.catalogue.ops import ShapeMismatch

SAMPLE = build(ShapeMismatch).diagnostic
SOURCES = reader({FILE: source_of(ShapeMismatch), "wide.py": '"層" + x\n'})


def test_json_layout(golden) -> None:
    golden("diag/shape_mismatch.json", to_json([SAMPLE], SOURCES).replace(__version__, "VERSION"))


def test_json_counts_and_order() -> None:
    caution = build(ImplicitScope).diagnostic
    document = json.loads(to_json([SAMPLE, caution, SAMPLE], SOURCES))
    assert (document["errors"], document["warnings"]) == (2, 1)
    assert [d["code"] for d in document["diagnostics"]] == ["E0306", "W0401", "E0306"]
    assert json.loads(to_json([]))["diagnostics"] == []


def test_json_columns_count_characters_from_one() -> None:
    label = Label(Loc("wide.py", 1, 8, 1, 9))
    shown = json.loads(to_json([Diagnostic("E0999", "error", "oh", (label,))], SOURCES))
    place = shown["diagnostics"][0]["labels"][0]
    assert (place["column"], place["end_column"]) == (7, 8)


def test_json_shows_the_inlining_chain_and_unknown_places() -> None:
    loc = Loc("a.py", 3, 4, 3, 8).called_from(Loc("b.py", 5, 0, 5, 2)).called_from(Loc("c.py", 7))
    labels = (Label(loc, "here"), Label(UNKNOWN, "there"))
    shown = json.loads(to_json([Diagnostic("E0999", "error", "oh", labels)], SOURCES))
    first, second = shown["diagnostics"][0]["labels"]
    assert [(c["file"], c["line"]) for c in first["called_from"]] == [("b.py", 5), ("c.py", 7)]
    assert (first["primary"], second["primary"]) == (True, False)
    assert second["line"] == 0


def test_sarif_layout(golden) -> None:
    golden("diag/shape_mismatch.sarif", to_sarif([SAMPLE], SOURCES).replace(__version__, "VERSION"))


def test_sarif_of_every_message_has_the_required_shape() -> None:
    document = json.loads(to_sarif([build(cls).diagnostic for cls in SAMPLES]))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(classes())
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert len(rule["fullDescription"]["text"]) > len(rule["shortDescription"]["text"])
    assert len(run["results"]) == len(SAMPLES)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        for location in result["locations"] + result.get("relatedLocations", []):
            region = location["physicalLocation"]["region"]
            assert region["startLine"] >= 1
            assert region["startColumn"] >= 1
            start = (region["startLine"], region["startColumn"])
            assert (region["endLine"], region["endColumn"]) > start


def test_sarif_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    caller = Loc("/elsewhere/b.py", 5, 0, 5, 2)
    loc = Loc(str(tmp_path / "my kernels.py"), 3, 4, 3, 8).called_from(caller).called_from(caller)
    labels = (Label(loc, "here"), Label(UNKNOWN, "there"))
    document = json.loads(to_sarif([Diagnostic("X1", "note", "oh", labels, ("n",), ("h",))]))
    run = document["runs"][0]
    (result,) = run["results"]
    uris = [
        place["physicalLocation"]["artifactLocation"]["uri"]
        for place in result["locations"] + result["relatedLocations"]
    ]
    assert uris == ["my%20kernels.py", "file:///elsewhere/b.py"]
    assert result["message"]["text"] == "oh\nnote: n\nhelp: h"
    assert run["tool"]["driver"]["rules"] == [{"id": "X1"}]


def test_sarif_of_nothing_is_an_empty_run() -> None:
    assert json.loads(to_sarif([]))["runs"][0]["results"] == []
