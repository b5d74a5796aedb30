"""Every public name and parameter of the language, and its status."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import tilelet.language as pl
from tilelet.compat.compatibility import (
    NO_EFFECT,
    REFUSED,
    SUPPORTED,
    Support,
    compatibility_markdown,
    findings,
    look_up,
    names,
)
from tilelet.diag.catalogue import classes
from tilelet.ir.spec import spec_of
from tilelet.ops import spellings

FINDINGS = list(findings())
DOCS = Path(__file__).parents[2] / "docs"


def test_every_name_has_an_answer() -> None:
    assert {f.name for f in FINDINGS} == set(names())
    counts = Counter(f.state for f in FINDINGS)
    assert set(counts) == {SUPPORTED, NO_EFFECT, REFUSED}
    assert all(f.why for f in FINDINGS if f.state != SUPPORTED)


@pytest.mark.parametrize("finding", [f for f in FINDINGS if f.state == REFUSED], ids=str)
def test_refusals_are_errors_of_the_catalogue(finding: Support) -> None:
    assert finding.why in classes()


@pytest.mark.parametrize(
    "name", [f.name for f in FINDINGS if not f.parameter and "." not in f.name]
)
def test_supported_names_are_there(name: str) -> None:
    supported = look_up(name)[1] is None
    assert hasattr(pl, name) if supported else True


def test_parameters_stand_where_the_language_has_them() -> None:
    """Ops whose parameter order depends on the arguments are left out."""
    wrong: list[str] = []
    for name, text in names().items():
        spec = spec_of(look_up(name)[0])
        if spec is None or spec.name in ("load", "store", "gather", "scatter", "rsqrt"):
            continue
        wanted = [spellings.parameter_of_keyword(spec, p) for p in text.partition("|")[0].split()]
        if any(p.startswith("*") for p in wanted):
            continue
        given = spellings.order(spec, name, [None] * len(wanted)) or tuple(
            p.name for p in spec.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY
        )
        known = [p for p in wanted if p in given]
        if list(given[: len(known)]) != known:
            wrong.append(f"{name}: {wanted}, here {given}")
    assert not wrong, "\n".join(wrong)


def test_the_page_is_up_to_date() -> None:
    assert (DOCS / "compatibility.md").read_text(encoding="utf-8") == compatibility_markdown()
