"""Diagnostics as JSON."""

from __future__ import annotations

import json

from tests.diag.samples import FILE, build, reader, source_of

from tilelet import __version__
from tilelet.diag import UNKNOWN, Diagnostic, Label, Loc, to_json
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
