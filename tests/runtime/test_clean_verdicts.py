"""Checks of an unchanged program are not repeated; after any change they are."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from tilelet.checks import verdict
from tilelet.ir.core import Program
from tilelet.language.text import parse
from tilelet.runtime.handlers import clean_verdicts
from tilelet.runtime.handlers.cheap_checks import cheap_verdict

TEXT = """
import tilelet.language as pl

@pl.program
class P:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        n: pl.Scalar[pl.INDEX],
        out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            {first}
        with pl.at(level=pl.Level.CORE_GROUP):
            {second}
        return out
"""
LEFT = "out[0:16, 0:16] = pl.add(x[0:16, 0:16], 1.0)"
RIGHT = "out[0:16, 16:32] = pl.add(x[0:16, 16:32], 1.0)"
X = np.ones((16, 32), np.float32)
ARGUMENTS = {"x": X, "n": 3, "out": X}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILELET_NO_CACHE", raising=False)


def program(first: str = LEFT, second: str = RIGHT) -> Program:
    from tilelet.passes.pipeline import run_passes

    return run_passes(parse(textwrap.dedent(TEXT).format(first=first, second=second)))


def racing() -> Program:
    """Unordered iterations that write one window."""
    from tilelet.passes.pipeline import run_passes

    before, _, after = TEXT.partition("        with pl.at")
    loop = "        for i in pl.parallel(2):\n            with pl.at(level=pl.Level.CORE_GROUP):\n"
    store = "                out[0:16, 0:16] = pl.add(x[0:16, 0:16], i)\n        return out\n"
    assert after
    return run_passes(parse(textwrap.dedent(before + loop + store)))


def checks_made(p: Program, monkeypatch: pytest.MonkeyPatch, **arguments: object) -> bool:
    """Whether a run of `p` in a new process would repeat the checks."""
    made: list[object] = []
    real = verdict.verdict_on

    def spy(subject: verdict.Subject, checks: object) -> verdict.Verdict:
        made.append(subject)
        return real(subject, checks)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(verdict, "verdict_on", spy)
        given = {**ARGUMENTS, **arguments}
        cheap_verdict("P", p, given, "a2a3", {"k": 2})
    return bool(made)


def test_a_clean_program_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks_made(program(), monkeypatch)
    assert not checks_made(program(), monkeypatch)


def test_what_it_is_called_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    checks_made(program(), monkeypatch)
    assert checks_made(program(), monkeypatch, n=4)
    assert checks_made(program(second=LEFT.replace("1.0", "2.0")), monkeypatch)


def test_findings_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks_made(racing(), monkeypatch)
    assert checks_made(racing(), monkeypatch)


def test_data_that_decides_is_looked_at_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = program(second=RIGHT.replace("1.0", "pl.read(x, [0, 0])"))
    assert clean_verdicts.key_of(reading, ARGUMENTS, "a2a3") is None
    assert checks_made(reading, monkeypatch)
    assert checks_made(reading, monkeypatch)


def test_changed_checks_check_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checks_made(program(), monkeypatch)
    monkeypatch.setattr(clean_verdicts, "_stamp", lambda: [("race.py", 1, 1)])
    assert checks_made(program(), monkeypatch)


def test_an_entry_that_somebody_else_made_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = clean_verdicts.key_of(program(), ARGUMENTS, "a2a3")
    assert key is not None
    folder = tmp_path / "cache" / "checked"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder / key).write_text("0" * 64)
    assert checks_made(program(), monkeypatch)
    assert clean_verdicts.find(key) is not None
    (folder / key).chmod(0o666)
    assert clean_verdicts.find(key) is None


def test_a_disk_that_cannot_be_written_to_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert checks_made(program(), monkeypatch)
    assert checks_made(program(), monkeypatch)
