"""Run directories: contents are restored, and other directories are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.device.recording import elementwise
from tests.report.runs import device_run

from tilelet.diag.catalogue.page import DamagedRun, NoRunDirectory
from tilelet.report.columns import unpack
from tilelet.report.run_directory import read_command, read_data, write_data

NUMBERS = {
    "outputs": [
        {
            "name": "y",
            "ok": False,
            "total": 10,
            "mismatched": 4,
            "where": {
                "writers": [
                    {"file": "/x/recording.py", "line": 3, "kernel": "k", "task": 1}
                    | {"written": 2000, "wrong": 1000}
                ],
                "shape": {"text": "a factor of 2"},
            },
        }
    ]
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    def path(*parts: str) -> Path:
        inside = tmp_path.joinpath(*parts)
        inside.parent.mkdir(exist_ok=True)
        return inside

    write_data([device_run(elementwise())], path)
    return tmp_path


def test_what_was_written_is_read(directory: Path) -> None:
    header = unpack(read_data(directory))[0]
    assert header["runs"][0]["name"] == "Elementwise"
    assert "numbers" not in header


def test_outputs_that_differ_join_the_page(directory: Path) -> None:
    (directory / "report/numbers.json").write_text(json.dumps(NUMBERS))
    header = unpack(read_data(directory))[0]
    (output,) = header["numbers"]["outputs"]
    writer, shape = output["regions"]
    assert writer["text"] == "1,000 of 2,000 elements written by k are wrong"
    files = [f["name"] for f in header["runs"][0]["files"]]
    assert writer["place"] == [files.index("recording.py"), 3]
    assert shape["text"] == "It looks like a factor of 2"


def test_a_failed_run_without_a_profile_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report/numbers.json").write_text(json.dumps(NUMBERS))
    header = unpack(read_data(tmp_path))[0]
    assert header["kind"] == "run"
    assert header["numbers"]["outputs"][0]["name"] == "y"


def test_what_is_no_run_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoRunDirectory, match="no such folder"):
        read_data(tmp_path / "none")
    with pytest.raises(NoRunDirectory, match=r"no report/page\.data"):
        read_data(tmp_path)


def test_damage_is_said(directory: Path) -> None:
    file = directory / "report/page.data"
    whole = file.read_bytes()
    for text, why in ((b"", "does not begin"), (b"TLPAGE07", "version 07"), (whole[:500], "damag")):
        file.write_bytes(text)
        with pytest.raises(DamagedRun, match=why):
            read_data(directory)
    file.write_bytes(whole)
    for text in ("", "[]", '{"outputs": 3}', '{"outputs": [3]}', '{"outputs": [{"where": 3}]}'):
        (directory / "report/numbers.json").write_text(text)
        with pytest.raises(DamagedRun, match="not what `tilelet run` writes"):
            read_data(directory)


def test_commands_are_remembered_or_not_known(tmp_path: Path) -> None:
    assert read_command(tmp_path) is None
    for text in ("", "[]", '{"profile": 3}', "\x00"):
        (tmp_path / "command.json").write_text(text)
        assert read_command(tmp_path) is None
    (tmp_path / "command.json").write_text('{"profile": ["-p", "a5", "k.py"]}')
    assert read_command(tmp_path) == ["-p", "a5", "k.py"]
