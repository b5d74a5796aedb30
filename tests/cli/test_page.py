"""`--html`, `tilelet report` and `tilelet view`."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.conftest import Run
from tests.cli.test_profile import SCRIPT as LARGE
from tests.cli.test_profile import environment
from tests.limits import HUNG
from tests.report.runs import SLOW

from tilelet.report.columns import unpack

SCRIPT = LARGE.replace("default=16", "default=8")  # tiles that fit on chip


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "scale.py"
    path.write_text(SCRIPT)
    return path


def data_of(page: Path) -> dict:
    import base64

    text = page.read_text()
    (encoded,) = re.findall(r'<script type="application/octet-stream" id="data">([^<]*)<', text)
    return unpack(base64.b64decode(encoded))[0]


def test_profile_writes_a_page_wherever_the_option_stands(tilelet: Run, script: Path) -> None:
    for argv in (("--html", "a.html", "scale.py"), ("scale.py", "--html", "a.html")):
        code, _, err = tilelet("profile", "--no-files", *argv)
        assert code == 0
        assert "note: page in a.html" in err
        header = data_of(Path("a.html"))
        assert header["runs"][0]["name"] == "scale"
        assert header["runs"][0]["files"][0]["name"] == "scale.py"
        Path("a.html").unlink()


def test_several_machines_are_in_one_page(tilelet: Run, script: Path) -> None:
    tilelet("profile", "--no-files", "--platforms", "a2a3,a5", "--html", "a.html", "scale.py")
    assert [run["machine"] for run in data_of(Path("a.html"))["runs"]] == ["a2a3", "a5"]


def test_a_page_has_the_changes_that_help(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    tilelet("profile", "--no-files", "--html", "a.html", "slow.py")
    tilelet("advise", "--html", "b.html", "slow.py")
    advice, same = (data_of(Path(name))["advice"] for name in ("a.html", "b.html"))
    assert advice == same
    assert advice["script"] == "slow.py"
    (change, *_) = advice["changes"]
    assert change["after"]["us"] < change["before"]["us"]
    assert change["claim"] == "proved"
    assert change["place"] == [0, 8]
    assert "-    half = pl.create_tensor" in change["diff"]


def test_a_page_without_advice_is_made_at_once(tilelet: Run, script: Path) -> None:
    tilelet("profile", "--no-files", "--no-advice", "--html", "a.html", "scale.py")
    assert "advice" not in data_of(Path("a.html"))


def test_compare_and_check_write_pages(tilelet: Run, script: Path) -> None:
    code, _, _ = tilelet("compare", "scale.py", "scale.py --tile 4", "--html", "c.html")
    assert code == 0
    assert data_of(Path("c.html"))["comparison"]["verdict"]
    code, _, _ = tilelet("check", "scale.py", "--html", "k.html")
    assert code == 0
    header = data_of(Path("k.html"))
    assert header["kind"] == "check"
    assert {c["status"] for c in header["runs"][0]["checks"]} <= {
        "proved",
        "found",
        "this run",
        "not checked",
    }


def test_a_run_directory_has_its_page(tilelet: Run, script: Path) -> None:
    tilelet("profile", "--build-dir", "out", "scale.py")
    (directory,) = Path("out").iterdir()
    command = json.loads((directory / "command.json").read_text())
    assert command["profile"][-1] == "scale.py"
    code, _, err = tilelet("report", str(directory))
    assert code == 0, err
    assert data_of(directory / "report/page.html")["runs"][0]["name"] == "scale"
    code, _, _ = tilelet("report", str(directory), "--html", "deep/er/page.html")
    assert code == 0
    assert Path("deep/er/page.html").is_file()


def test_a_failed_run_shows_where_it_is_wrong(tilelet: Run, script: Path) -> None:
    wrong = SCRIPT.replace('t["x"] * np.exp', '2 * t["x"] * np.exp')
    script.write_text(wrong)
    code, _, _ = tilelet("run", "--build-dir", "out", "scale.py", "--enable-profiling")
    assert code == 1
    (directory,) = Path("out").iterdir()
    tilelet("report", str(directory))
    header = data_of(directory / "report/page.html")
    (output,) = header["numbers"]["outputs"]
    assert (output["name"], output["ok"]) == ("y", False)
    assert output["mismatched"] == output["total"] == 64 * 2048
    assert set(output["map"]["cells"]) == {1.0}
    assert sum(output["histogram"]["counts"]) == output["total"]
    assert any("looks like" in region["text"] for region in output["regions"])
    assert header["runs"][0]["profile"]["tasks"] == 8


def test_bad_input(tilelet: Run, script: Path, tmp_path: Path) -> None:
    assert tilelet("report", "nowhere")[0] == 2
    assert tilelet("view", "nowhere")[0] == 2
    (tmp_path / "empty").mkdir()
    code, _, err = tilelet("report", "empty")
    assert code == 2
    assert "E1601" in err
    (tmp_path / "old/report").mkdir(parents=True)
    (tmp_path / "old/report/page.data").write_bytes(b"TLPAGE00something")
    code, _, err = tilelet("report", "old")
    assert code == 3
    assert "version 00" in err
    assert len(err.strip().splitlines()) <= 2
    code, _, err = tilelet("view", "old", "--perfetto", "http://example.org/")
    assert code == 2
    assert "no address on this machine" in err
    Path("file").write_text("")
    code, _, err = tilelet("profile", "--no-files", "scale.py", "--html", "file/page.html")
    assert code in (2, 3)
    assert "file" in err


def test_without_a_browser_the_path_is_printed(
    tilelet: Run, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import webbrowser

    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    code, _, err = tilelet("profile", "--no-files", "--html", "a.html", "--open", "scale.py")
    assert code == 0
    assert "no browser here: open a.html yourself" in err


def test_a_page_to_open_has_a_place_without_a_name(
    tilelet: Run, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    tilelet("profile", "--no-files", "--build-dir", "out", "--open", "scale.py")
    assert opened == [Path("out/page.html").resolve().as_uri()]


def ask(address: str, path: str, method: str = "GET") -> str:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=HUNG)
    connection.request(method, f"{path}?{parts.query}")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_view_profiles_again_when_the_script_is_saved(
    script: Path, tmp_path: Path, own_cache: Path
) -> None:
    environ = {**environment(), "TILELET_CACHE_DIR": str(own_cache)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tilelet.cli", "view", "scale.py"],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert 'data-served="1"' in ask(address, "/")
        assert json.loads(ask(address, "/trace"))["traceEvents"]

        def wait(done: Callable[[dict[str, str]], bool]) -> dict[str, str]:
            for _ in range(1200):  # ends as soon as the page says so
                state = json.loads(ask(address, "/state"))
                if done(state):
                    return state
                time.sleep(0.1)
            raise AssertionError(state)

        def save(text: str, done: Callable[[dict[str, str]], bool]) -> dict[str, str]:
            stamp = script.stat().st_mtime_ns + 10**9
            script.write_text(text)
            os.utime(script, ns=(stamp, stamp))
            return wait(done)

        before = wait(lambda s: s["state"] == "live" and s["version"] == "2")["version"]
        (tmp_path / "advised.html").write_text(ask(address, "/"))
        assert data_of(tmp_path / "advised.html")["advice"]["script"] == "scale.py"
        ask(address, "/again", "POST")
        before = wait(lambda s: s["state"] == "live" and s["version"] == "4")["version"]

        failed = save(SCRIPT.replace("pl.mul", "pl.mull"), lambda s: s["state"].endswith("fails"))
        assert "no op `pl.mull`" in failed["message"] or "mull" in failed["message"]
        assert failed["version"] == before
        better = SCRIPT.replace("default=8", "default=4")
        assert save(better, lambda s: s["version"] != before)["message"] == ""
        (tmp_path / "new.html").write_text(ask(address, "/"))
        assert data_of(tmp_path / "new.html")["runs"][0]["profile"]["tasks"] == 16
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HUNG) == 0
