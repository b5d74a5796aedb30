"""Run directories are made on demand, never shared, and complete."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from tilelet.runtime.data.array_files import BadFileError, load_array
from tilelet.runtime.output.run_directory import RunDirectory, build_root


def test_nothing_exists_before_something_is_written(tmp_path: Path) -> None:
    directory = RunDirectory("Program", root=tmp_path)
    assert not directory.exists
    assert list(tmp_path.iterdir()) == []
    path = directory.write_text("hello", "report", "mismatch.txt")
    assert path.read_text() == "hello"
    assert directory.exists
    assert path.parent.parent.name.startswith("Program_")


def test_two_runs_in_one_second_do_not_share_one(tmp_path: Path) -> None:
    roots = {RunDirectory("P", root=tmp_path).root for _ in range(5)}
    assert len(roots) == 5


def test_names_that_are_no_file_names(tmp_path: Path) -> None:
    assert RunDirectory("../a b/c", root=tmp_path).root.parent == tmp_path


def test_where_runs_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILELET_BUILD_DIR", raising=False)
    monkeypatch.delenv("PYPTO_PROG_BUILD_DIR", raising=False)
    assert build_root() == Path("build_output")
    monkeypatch.setenv("PYPTO_PROG_BUILD_DIR", "there")
    assert build_root() == Path("there")
    monkeypatch.setenv("TILELET_BUILD_DIR", "here")
    assert build_root() == Path("here")


def test_arrays_come_back_in_all_formats(tmp_path: Path) -> None:
    directory = RunDirectory("P", exact=tmp_path)
    array = np.array([[1.5], [2.5]], ml_dtypes.bfloat16)
    directory.save_array("in", "x", array)
    folder = tmp_path / "data" / "in"
    loaded = load_array(folder, "x")
    assert loaded is not None
    assert loaded.dtype == array.dtype
    assert loaded.tolist() == array.tolist()
    np.save(folder / "y.npy", np.arange(3))
    assert load_array(folder, "y").tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert load_array(folder, "nothing") is None


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "z.pt")
    with pytest.raises(BadFileError, match="pickle"):
        load_array(tmp_path, "z")


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"junk")
    np.save(tmp_path / "y.npy", np.array([{}], object))
    (tmp_path / "z.pt").write_bytes(b"junk")
    for name in "xyz":
        with pytest.raises(BadFileError, match=name):
            load_array(tmp_path, name)
