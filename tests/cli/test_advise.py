"""`tilelet advise` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.advice import scripts
from tests.advice.scripts import script
from tests.cli.conftest import Run


def test_the_finding_and_its_gain(tilelet: Run, tmp_path: Path) -> None:
    text = script(scripts.ROUND_TRIP)
    (tmp_path / "k.py").write_text(text)
    code, out, err = tilelet("advise", "k.py", "-p", "a2a3")
    assert code == 1
    assert "warning[W1301]: `middle` goes through global memory" in err
    assert "results equal, bit for bit" in err
    assert "applied by `advise --fix`" in out
    assert (tmp_path / "k.py").read_text() == text


def test_fix_shows_the_ladder_and_writes_only_if_asked(tilelet: Run, tmp_path: Path) -> None:
    text = script(scripts.ROUND_TRIP)
    (tmp_path / "k.py").write_text(text)
    code, out, _ = tilelet("advise", "--fix", "--format", "json", "k.py")
    document = json.loads(out)["advice"]
    assert code == 1
    assert document["steps"][-1]["costs"]["us"] < document["before"]["us"]
    assert document["diff"].startswith("--- k.py")
    assert (tmp_path / "k.py").read_text() == text
    code, out, _ = tilelet("advise", "k.py", "--fix", "--in-place")
    assert "round-trip + stored-and-loaded" in out
    assert (tmp_path / "k.py").read_text() != text


def test_a_script_keeps_its_encoding_and_line_ends(tilelet: Run, tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\n# caf\u00e9\n" + script(scripts.ROUND_TRIP)
    path = tmp_path / "k.py"
    path.write_text(text, encoding="latin-1", newline="\r\n")
    before = path.read_bytes()
    tilelet("advise", "k.py", "--fix", "--in-place")
    after = path.read_bytes()
    assert after != before
    assert after.startswith(b"# -*- coding: latin-1 -*-\r\n# caf\xe9\r\n")
    assert after.count(b"\n") == after.count(b"\r\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("k.py", "--in-place"), 2, "give both"),
        (("missing.py",), 3, "no file"),
        (("k.py", "-p", "a9"), 2, "a9"),
        (("qwen3/scope3", "--fix", "--in-place"), 2, "no file of yours"),
    ],
)
def test_bad_input(
    tilelet: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    (tmp_path / "k.py").write_text(script(scripts.NORM))
    given, out, err = tilelet("advise", *arguments)
    assert given == code
    assert text in err
    assert out == ""


ONE_SCOPE = """
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def kernel(x: pl.Tensor[[256, 4096], pl.FP32], out: pl.Out[pl.Tensor[[256, 4096], pl.FP32]]):
    kept = pl.create_tensor([8, 512], pl.FP32)
    for r in pl.range(0, 256, 8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="large"):
            out[r : r + 8, :] = pl.exp(x[r : r + 8, :])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="small"):
        kept[:, :] = pl.mul(x[0:8, 0:512], 2.0)
        out[0:8, 0:512] = pl.exp(kept[:, :])
    return out

run_jit(kernel, [
    TensorSpec("x", [256, 4096], pl.FP32, 0.5),
    TensorSpec("out", [256, 4096], pl.FP32, is_output=True),
])
"""


def test_a_change_that_saves_too_little_is_not_said_to_be_applied(tilelet: Run) -> None:
    Path("k.py").write_text(ONE_SCOPE)
    _, out, _ = tilelet("advise", "--format", "json", "k.py")
    found = {f["code"]: f for f in json.loads(out)["advice"]["findings"]}
    assert found["W1320"]["after"] is not None
    assert found["W1320"]["applied_by"] == ""
    _, out, err = tilelet("advise", "k.py")
    assert "`--fix` leaves it: it saves too little" in err
    assert "the same time" in err
