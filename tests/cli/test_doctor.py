"""`tilelet doctor`: what it reports, and what it calls broken."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilelet import __version__
from tilelet.bench import host
from tilelet.cli.main import main

SOURCES = Path(__file__).parent.parent.parent / "src"
Doctor = Callable[[], tuple[int, dict[str, Any]]]


@pytest.fixture
def doctor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Doctor:
    """Return exit code and checks by topic, with an environment that sets only a cache."""
    for name in [n for n in os.environ if n.startswith("TILELET_") or n == "CC"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "cache"))

    def call() -> tuple[int, dict[str, Any]]:
        code = main(["doctor", "--json"])
        document = json.loads(capsys.readouterr().out)
        assert document["sound"] == (code == 0)
        return code, {check["topic"]: check for check in document["checks"]}

    return call


def compiler(folder: Path, text: str) -> Path:
    """A stand-in for a compiler."""
    script = folder / "fakecc"
    script.write_text(f"#!{sys.executable}\n{text}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_a_sound_machine(doctor: Doctor, tmp_path: Path) -> None:
    code, checks = doctor()
    assert code == 0
    assert checks["versions"]["facts"]["tilelet"] == __version__
    assert checks["compiler"]["facts"]["vector_bytes"] in (4, 16, 32, 64)
    assert checks["cores"]["facts"]["threads"] == checks["cores"]["facts"]["usable"]
    assert checks["packages"]["facts"]["versions"]["numpy"]
    cache = checks["cache"]["facts"]
    assert cache["folder"] == str(tmp_path / "cache" / "cpu")
    assert (cache["mode"], cache["is_writable"], cache["cap"]) == ("drwx------", True, 1 << 30)
    assert checks["environment"]["facts"]["variables"]["TILELET_CACHE_DIR"]


def test_the_text_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ok +compiler +\S+: ", out, re.MULTILINE)
    assert "builds for" in out
    assert out.endswith("everything that runs need is here\n")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    assert "tilelet doctor --format json" in capsys.readouterr().out.split("Examples:")[1]


def test_no_compiler_is_broken_and_has_two_ways_out(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    code, checks = doctor()
    assert code == 1
    assert checks["compiler"]["state"] == "broken"
    assert any("pip install 'tilelet[cc]'" in text for text in checks["compiler"]["helps"])
    assert any("--engine interp" in text for text in checks["compiler"]["helps"])


REFUSES = "import sys\nsys.exit('--version' not in sys.argv)\n"
MAKES_WHAT_DOES_NOT_RUN = """\
import os, sys
if '-o' in sys.argv:
    name = sys.argv[sys.argv.index('-o') + 1]
    open(name, 'w').write('#!/bin/sh\\nexit 7\\n')
    os.chmod(name, 0o700)
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (REFUSES, "it refuses a tiny program (code 1)"),
        (MAKES_WHAT_DOES_NOT_RUN, "a tiny program did not run (code 7)"),
    ],
)
def test_a_compiler_that_does_not_work_is_broken(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str
) -> None:
    monkeypatch.setenv("CC", str(compiler(tmp_path, text)))
    code, checks = doctor()
    assert code == 1
    assert message in checks["compiler"]["text"]


@pytest.mark.parametrize(
    ("name", "value", "topic"),
    [("TILELET_THREADS", "many", "cores"), ("TILELET_ENGINE", "warp", "engine")],
)
def test_a_setting_that_no_run_accepts_is_broken(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, name: str, value: str, topic: str
) -> None:
    monkeypatch.setenv(name, value)
    code, checks = doctor()
    assert code == 1
    assert checks[topic]["state"] == "broken"
    assert value in checks[topic]["text"]


def test_a_misspelled_variable_is_noted(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_THREDS", "2")
    code, checks = doctor()
    assert code == 0
    assert checks["environment"]["state"] == "note"
    assert "did you mean `TILELET_THREADS`?" in checks["environment"]["helps"][0]


def test_too_many_threads_are_noted(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_THREADS", "1000")
    code, checks = doctor()
    assert code == 0
    assert checks["cores"]["state"] == "note"
    monkeypatch.delenv("TILELET_THREADS")
    monkeypatch.setattr(host, "_cpu_quota", lambda: 0.5)
    _, checks = doctor()
    assert "more than the 0.5 cores this process gets" in checks["cores"]["text"]
    assert checks["cores"]["helps"] == ["`TILELET_THREADS=1` may be faster"]


def test_a_cache_that_is_off_or_cannot_be_had_is_noted(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    code, checks = doctor()
    assert code == 0
    assert checks["cache"]["state"] == "note"
    assert checks["cache"]["text"].startswith(f"none: `{tmp_path / 'file' / 'cache'}` cannot")
    monkeypatch.setenv("TILELET_NO_CACHE", "1")
    _, checks = doctor()
    assert checks["cache"]["text"] == "none: `TILELET_NO_CACHE` turns it off"


def test_every_variable_that_the_code_reads_is_known() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"\bTILELET_[A-Z_]+[A-Z]\b", text)}
    assert found == set(host.VARIABLES)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_quotas_of_control_groups(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], quota: float | None
) -> None:
    monkeypatch.setattr(host, "_read", lambda p: files.get(p.removeprefix("/sys/fs/cgroup/"), ""))
    assert host.cores().quota == quota


def test_instruction_sets_and_huge_pages_are_read_from_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "/proc/cpuinfo": "model name\t: Some CPU\nflags\t\t: sse2 avx avx2 fma\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
    }
    monkeypatch.setattr(host, "_read", lambda p: files.get(p, ""))
    monkeypatch.setattr(host.platform, "machine", lambda: "x86_64")
    assert host.cpu_name() == "Some CPU"
    assert host.cpu_isas() == ["AVX2", "AVX", "SSE2"]
    assert host.huge_pages() == "never"
    monkeypatch.setattr(host.platform, "machine", lambda: "aarch64")
    assert host.cpu_isas() == ["NEON"]
