"""Waiting users are told what a script is busy with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tilelet.runtime.progress import progress
from tilelet.scripts.waiting import notes_on_stderr


def text_of(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the messages, after waiting for them."""
    for _ in range(2000):
        found = capsys.readouterr().err
        if found:
            return found
        time.sleep(0.005)
    pytest.fail("nothing was said")


def test_the_scripts_own_code_has_a_name_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with notes_on_stderr(__file__, first=0.01):
        found = text_of(capsys)
    assert f"in the script's own code in text_of, {Path(__file__).name}:" in found


def test_what_tilelet_does_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    with notes_on_stderr(__file__, first=0.01), progress("making the input weights"):
        assert "s: making the input weights\n" in text_of(capsys)


def test_nothing_is_said_early(capsys: pytest.CaptureFixture[str]) -> None:
    with notes_on_stderr(__file__):
        time.sleep(0.02)
    assert not capsys.readouterr().err
