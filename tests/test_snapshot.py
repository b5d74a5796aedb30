"""The snapshot tool writes the same tree twice, and its files show what changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.snapshot import Tree, generated


def snapshot(folder: Path, work: Path) -> dict[str, str]:
    generated(Tree(folder, work), 2)
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_two_snapshots_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    first, second = (snapshot(tmp_path / name, work) for name in ("first", "second"))
    assert first == second
    assert {Path(name).name for name in first} >= {"frontend.txt", "passes.txt", "tasks.txt"}
    assert str(tmp_path) not in "".join(first.values())
