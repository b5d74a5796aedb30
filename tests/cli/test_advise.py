"""`tilelet advise` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.advice import scripts
from tests.advice.scripts import script
from tests.cli.conftest import Run


def test_the_finding_and_its_gain(tilelet: Run, tmp_path: Path) -> None:
    text = script(scripts.ROUND_TRIP)
    (tmp_path / "k.py").write_text(text)
    code, out, err = tilelet("advise", "k.py", "-p", "a2a3")
    assert code == 1
    assert "warning[W1301]: `middle` goes through global memory" in err
    assert "results equal, bit for bit" in err
    assert "with a rewriting that was run" in out
    assert (tmp_path / "k.py").read_text() == text


def test_fix_shows_the_ladder_and_writes_only_if_asked(tilelet: Run, tmp_path: Path) -> None:
    text = script(scripts.ROUND_TRIP)
    (tmp_path / "k.py").write_text(text)
    code, out, _ = tilelet("advise", "--fix", "--format", "json", "k.py")
    document = json.loads(out)["advice"]
    assert code == 1
    assert document["steps"][-1]["costs"]["us"] < document["before"]["us"]
    assert document["diff"].startswith("--- k.py")
    assert (tmp_path / "k.py").read_text() == text
    code, out, _ = tilelet("advise", "k.py", "--fix", "--in-place")
    assert "round-trip + stored-and-loaded" in out
    assert (tmp_path / "k.py").read_text() != text


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("k.py", "--in-place"), 2, "give both"),
        (("missing.py",), 3, "no file"),
        (("k.py", "-p", "a9"), 2, "a9"),
        (("qwen3/scope3", "--fix", "--in-place"), 2, "no file of yours"),
    ],
)
def test_bad_input(
    tilelet: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    (tmp_path / "k.py").write_text(script(scripts.NORM))
    given, out, err = tilelet("advise", *arguments)
    assert given == code
    assert text in err
    assert out == ""
