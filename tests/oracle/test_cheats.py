"""60 honest kernels are accepted; cheats that pass a weak reference are named."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from tests.oracle.families import CHEATS, FAMILIES, HONEST, Cheat, candidate, kernel, reference

from tilelet.device.machine.description import load_machine
from tilelet.oracle.judgement import CandidateVerdict, judge_candidate
from tilelet.oracle.reference import Reference, load_reference

MACHINES = [load_machine("a2a3")]
MIN_CAUGHT = 0.95


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory):
    """References by family and data, each run once."""
    folder = tmp_path_factory.mktemp("references")

    @functools.cache
    def made(family: str, a: str, b: str, tol: float) -> Reference:
        path = folder / f"{family}_{abs(hash((a, b, tol)))}.py"
        path.write_text(reference(FAMILIES[family], a, b, tol))
        return load_reference(path)

    return made


def verdict(text: str, against: Reference, folder: Path) -> CandidateVerdict:
    path = folder / "candidate.py"
    path.write_text(candidate(text))
    return judge_candidate(path, against, MACHINES)


def test_there_are_enough() -> None:
    assert len(HONEST) >= 60
    assert len(CHEATS) >= 60


@pytest.mark.parametrize(
    ("family", "tile", "loop", "style"), [h[1:] for h in HONEST], ids=[h[0] for h in HONEST]
)
def test_honest_kernels_are_right(
    family: str, tile: int, loop: str, style: str, references, tmp_path: Path
) -> None:
    text = kernel(FAMILIES[family], FAMILIES[family].body, tile, loop, style)
    found = verdict(text, references(family, "", "", 1e-4), tmp_path)
    assert found.ok, (found.status, found.why, found.findings)
    assert 0 < found.share <= 1


def _judged(cheat: Cheat, references, folder: Path) -> CandidateVerdict:
    text = kernel(FAMILIES[cheat.family], cheat.body, cheat.tile)
    return verdict(text, references(cheat.family, cheat.a, cheat.b, cheat.tol), folder)


def test_cheats_are_named(references, tmp_path: Path) -> None:
    """All cheats in one test, because the share that is caught counts."""
    missed: dict[str, str] = {}
    for cheat in CHEATS:
        found = _judged(cheat, references, tmp_path)
        kinds = {e.kind for e in found.evidence}
        assert found.status != "refused", (cheat.name, found.why)
        if found.status == "right" or not kinds & set(cheat.kinds):
            missed[cheat.name] = f"{found.status} {found.why} {sorted(kinds)}"
    caught = 1 - len(missed) / len(CHEATS)
    assert caught >= MIN_CAUGHT, f"{caught:.1%} caught; missed: {missed}"
