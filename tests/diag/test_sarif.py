"""Diagnostics as SARIF: the format itself, and the requirements of code scanning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.diag.samples import FILE, SAMPLES, build, reader, source_of
from tests.diag.sarif_rules import BrokenSarifError, check_sarif

from tilelet import __version__
from tilelet.diag import UNKNOWN, Diagnostic, Label, Loc, to_sarif
from tilelet.diag.catalogue import classes
from tilelet.diag.catalogue.ops import ShapeMismatch

SAMPLE = build(ShapeMismatch).diagnostic
SOURCES = reader({FILE: source_of(ShapeMismatch)})


def test_sarif_layout(golden) -> None:
    golden("diag/shape_mismatch.sarif", to_sarif([SAMPLE], SOURCES).replace(__version__, "VERSION"))


def test_sarif_of_every_message_has_the_required_shape() -> None:
    document = json.loads(to_sarif([build(cls).diagnostic for cls in SAMPLES], script="k.py"))
    check_sarif(document)
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
            if "startColumn" not in region:
                assert region == {"startLine": 1}
                continue
            start = (region["startLine"], region["startColumn"])
            assert (region["endLine"], region["endColumn"]) > start


def places_of(document: dict) -> list[str]:
    (result,) = document["runs"][0]["results"]
    return [
        place["physicalLocation"]["artifactLocation"]["uri"]
        for place in result["locations"] + result.get("relatedLocations", [])
    ]


def test_sarif_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    caller = Loc(str(tmp_path / "b.py"), 5, 0, 5, 2)
    loc = Loc(str(tmp_path / "my kernels.py"), 3, 4, 3, 8).called_from(caller).called_from(caller)
    labels = (Label(loc, "here"), Label(UNKNOWN, "there"))
    document = json.loads(to_sarif([Diagnostic("X1", "note", "oh", labels, ("n",), ("h",))]))
    check_sarif(document)
    assert places_of(document) == ["my%20kernels.py", "b.py"]
    run = document["runs"][0]
    assert run["results"][0]["message"]["text"] == "oh\nnote: n\nhelp: h"
    assert run["tool"]["driver"]["rules"] == [{"id": "X1"}]


def test_places_are_relative_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service resolves paths against the root of the checkout, not the working directory."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "kernels"
    folder.mkdir()
    monkeypatch.chdir(folder)
    here = Diagnostic("X1", "error", "oh", (Label(Loc("k.py", 3, 4, 3, 8)),))
    assert places_of(json.loads(to_sarif([here], script="k.py"))) == ["kernels/k.py"]
    monkeypatch.chdir("/")
    there = Diagnostic("X1", "error", "oh", (Label(Loc(str(folder / "k.py"), 3)),))
    document = json.loads(to_sarif([there], script=str(folder / "k.py")))
    assert places_of(document) == ["kernels/k.py"]


def test_what_is_outside_the_repository_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = Label(Loc("/elsewhere/b.py", 5, 0, 5, 2), "here")
    document = json.loads(to_sarif([Diagnostic("X1", "error", "oh", (elsewhere,))], script="k.py"))
    check_sarif(document)
    assert places_of(document) == ["k.py"]
    text = document["runs"][0]["results"][0]["message"]["text"]
    assert text == "oh\nnote: /elsewhere/b.py:5: here"


def test_a_message_without_a_place_stands_at_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.loads(to_sarif([Diagnostic("X1", "error", "no machine")], script="k.py"))
    check_sarif(document)
    (result,) = document["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"]["region"] == {"startLine": 1}
    assert places_of(document) == ["k.py"]


def test_the_same_line_twice_has_two_fingerprints() -> None:
    results = json.loads(to_sarif([SAMPLE, SAMPLE], SOURCES))["runs"][0]["results"]
    one, two = (r["partialFingerprints"]["primaryLocationLineHash"] for r in results)
    assert one.endswith(":1")
    assert two == one[:-1] + "2"


def test_sarif_of_nothing_is_an_empty_run() -> None:
    document = json.loads(to_sarif([]))
    check_sarif(document)
    assert document["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), "2.0.0"),
        (("runs", 0, "tool"), {}),
        (("runs", 0, "results", 0, "level"), "fatal"),
        (("runs", 0, "results", 0, "message"), {}),
        (("runs", 0, "results", 0, "locations"), []),
        (("runs", 0, "results", 0, "color"), "red"),
        (("runs", 0, "results", 0, "ruleIndex"), -2),
        (("runs", 0, "results", 0, "ruleId"), "E0000"),
    ],
)
def test_the_checker_finds_what_is_wrong(path: tuple[str | int, ...], value: object) -> None:
    document = json.loads(to_sarif([SAMPLE], SOURCES))
    check_sarif(document)
    *way, last = path
    place = document
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(BrokenSarifError):
        check_sarif(document)
