"""`tilelet demo` at its small size: its output for success and for failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilelet.cli.main import main
from tilelet.diag.catalogue.command import NoCompiler
from tilelet.models import measure
from tilelet.models.qwen3 import decode
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.native import toolchain

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")


def test_both_versions_pass_and_the_table_compares_them(capsys: Output) -> None:
    assert main(["demo", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "hidden 2048, 16 query and 2 K/V heads" in out
    for name, count in (("out", 16 * 2048), ("k_cache", 16 * 2 * 512 * 128)):
        assert len(re.findall(rf"{name} +PASS  {count}/{count} match", out)) == 2
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("  ")}
    for variant in ("baseline", "optimised"):
        assert rows[variant][1] == "PASS"
    before, after = (int(rows[v][2].replace(",", "")) for v in ("baseline", "optimised"))
    assert rows["less"][2] == f"{before / after:.2f}x"
    assert float(rows["optimised"][5].replace(",", "")) < float(
        rows["baseline"][5].replace(",", "")
    )
    assert list(Path().iterdir()) == []


def test_a_mismatch_is_shown_and_is_1(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    solve = measure.ProgramData.solve

    def wrong(self: measure.ProgramData) -> None:
        solve(self)
        self.expected["out"][3, 7] += 1

    monkeypatch.setattr(measure.ProgramData, "solve", wrong)
    assert main(["demo", "--quick"]) == 1
    out, err = capsys.readouterr()
    assert out.count("out      FAIL  32767/32768 match") == 2
    assert re.search(r"baseline +FAIL", out)
    assert "[3, 7]: actual" in err


def test_without_a_compiler_nothing_long_is_started(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> toolchain.Compiler:
        raise NoCompiler

    monkeypatch.setattr(toolchain, "find_compiler", none)
    assert main(["demo"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "error[E0713]: no C compiler" in err
    assert "pip install 'tilelet[cc]'" in err


def test_too_little_memory_is_said_before_it_is_taken(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "available_memory", lambda: 2 << 30)
    assert main(["demo"]) == 3
    assert "error[E0607]: `decode: all arguments together` needs" in capsys.readouterr().err


def test_an_unknown_machine_is_refused(capsys: Output) -> None:
    assert main(["demo", "--quick", "-p", "a9"]) == 2
    assert "a9" in capsys.readouterr().err


def test_full_size_is_qwen3_32b_and_both_versions_have_the_same_inputs() -> None:
    s = DecodeShape()
    assert (s.hidden, s.batch, s.max_seq, s.heads, s.kv_heads) == (8192, 16, 4096, 64, 8)
    base, fast = (decode.MODEL.shape_for(v) for v in ("baseline", "optimised"))
    for one, other in zip(decode.specs(base), decode.specs(fast)):
        assert (one.name, one.shape, one.dtype) == (other.name, other.shape, other.dtype)
    lengths = [next(x for x in decode.specs(s) if x.name == "seq_lens") for s in (base, fast)]
    assert lengths[0].init_value().tolist() == lengths[1].init_value().tolist()
