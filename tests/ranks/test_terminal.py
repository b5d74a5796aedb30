"""The process manager receives what a rank writes before it aborts."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tilelet.ranks import terminal


def test_waits_until_the_pipe_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort drops what is still in the pipe."""
    reader, writer = os.pipe()
    monkeypatch.setattr(terminal, "_stderr", writer)
    terminal.say("rank 1 has failed")
    taken: list[bytes] = []

    def read_late() -> None:
        time.sleep(0.1)
        taken.append(os.read(reader, 100))

    thread = threading.Thread(target=read_late)
    thread.start()
    assert terminal.unread_bytes() == len("rank 1 has failed")
    terminal.wait_until_read(60)
    assert terminal.unread_bytes() == 0
    thread.join()
    assert taken == [b"rank 1 has failed"]
    os.write(writer, b"!")
    terminal.wait_until_read(0)  # a closed reader blocks nothing
    os.close(reader)
    os.close(writer)


def test_a_file_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        monkeypatch.setattr(terminal, "_stderr", log.fileno())
        terminal.say("text")
        start = time.monotonic()
        terminal.wait_until_read(60)
        assert time.monotonic() - start < 30
