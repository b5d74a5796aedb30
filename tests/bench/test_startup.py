"""Cold and warm starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilelet.bench import startup


def test_a_second_start_finds_what_the_first_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_WARM_STARTS", 1)
    monkeypatch.setenv("TILELET_NO_CACHE", "1")  # the measurement has a cache of its own
    found = startup.measure("bench/add", {"rows": 8, "columns": 8})
    assert 0 < found.warm < found.cold
    assert found.import_seconds > 0


def test_bytecode_is_kept_with_the_compiled_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    startup._child("bench/add", {"rows": 8, "columns": 8}, str(tmp_path))
    kept = {path.name.split(".")[0] for path in (tmp_path / "bytecode").rglob("*.pyc")}
    assert {"programs", "pipeline"} <= kept  # modules of the package, needed at once and later


def test_a_program_that_cannot_be_built_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="unexpected keyword"):
        startup.measure("bench/add", {"length": 8})
