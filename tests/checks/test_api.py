"""`tilelet.check`, and what `tilelet run` reports for a program that passes but should not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.checks.test_race import ACC, X, across_iterations, atomic_blocks, without_dependency
from tests.cli.conftest import Run

import tilelet
from tilelet.checks.findings import Status
from tilelet.diag.catalogue.checks import UnknownCheck

SCRIPT = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run


@pl.jit
def total(x: pl.Tensor[[64, 128], pl.FP32], acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]):
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[acc]):
            acc[:, :] = pl.add(acc[:, :], x[i * 16 : i * 16 + 16, :])
    return acc


def golden(tensors):
    tensors["acc"][:] = tensors["x"].reshape(4, 16, 128).sum(0)


x = np.ones((64, 128), np.float32)
specs = [TensorSpec("x", (64, 128), pl.FP32, init_value=x)]
specs.append(TensorSpec("acc", (16, 128), pl.FP32, is_output=True))
assert run(total, specs=specs, golden_fn=golden).passed
"""


def test_findings_as_objects() -> None:
    before = ACC.copy()
    verdict = tilelet.check(without_dependency, X, ACC, only=["race"])
    assert not verdict.ok
    (finding,) = verdict.findings
    assert finding.code == "E1102"
    assert finding.witness is not None
    assert "race on `acc`" in str(verdict)
    assert np.array_equal(ACC, before)


def test_a_clean_program_needs_no_arguments() -> None:
    verdict = tilelet.check(atomic_blocks)
    assert verdict.ok, verdict
    by_name = {part.check: part.status for part in verdict.parts}
    assert by_name["capacity"] is Status.PROVED


def test_wrong_names() -> None:
    with pytest.raises(UnknownCheck):
        tilelet.check(across_iterations, only=["races"])


def test_run_says_what_a_board_would_do(tilelet: Run) -> None:
    Path("racing.py").write_text(SCRIPT)
    code, out, err = tilelet("run", "racing.py", "-p", "a2a3sim")
    assert code == 0, err
    assert "PASS on this CPU; 1 finding for a2a3" in out
    assert "error[E1102]: race on `acc`" in err
    code, _, _ = tilelet("run", "--strict", "racing.py")
    assert code == 1
    code, out, err = tilelet("run", "--no-checks", "racing.py")
    assert code == 0
    assert "finding" not in out + err
    code, out, _ = tilelet("run", "--format", "json", "racing.py")
    document = json.loads(out)
    assert code == 0
    (verdict,) = document["verdicts"]
    (race,) = [p for p in verdict["parts"] if p["check"] == "race"]
    assert race["status"] == "found"
    assert race["findings"][0]["witness"] is None  # `tilelet check` starts a search


def test_check_on_the_command_line(tilelet: Run) -> None:
    Path("racing.py").write_text(SCRIPT)
    code, out, err = tilelet("check", "racing.py", "--only", "race")
    assert code == 1
    assert out.splitlines()[0] == "total on a2a3: 1 finding (may give other results: 1)"
    assert "seed 1 runs tasks 0 and 1 concurrently" in err
    code, out, _ = tilelet("check", "racing.py", "--only", "race", "--format", "sarif")
    assert json.loads(out)["runs"][0]["results"][0]["ruleId"] == "E1102"
    code, _, err = tilelet("check", "racing.py", "--only", "rase")
    assert code == 2
    assert "did you mean `race`" in err


RAGGED = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run


@pl.jit
def ragged(
    x: pl.Tensor[[64, 128], pl.FP32],
    rows: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
):
    for r in pl.range(0, pl.read(rows, [0]), 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
    return out


def golden(tensors):
    tensors["out"][:WRITTEN] = np.exp(tensors["x"][:WRITTEN])


def same_rows(actual, expected, **_):
    return np.allclose(actual[:COMPARED], expected[:COMPARED]), "rows differ"


specs = [TensorSpec("x", (64, 128), pl.FP32, init_value=np.zeros((64, 128), np.float32))]
specs.append(TensorSpec("rows", (1,), pl.INT32, init_value=np.array([32], np.int32)))
specs.append(TensorSpec("out", (64, 128), pl.FP32, is_output=True))
run(ragged, specs=specs, golden_fn=golden, compare_fn={"out": same_rows})
"""


@pytest.mark.parametrize(
    ("golden", "compared", "missing"),
    [(32, 64, 0), (48, 64, 2048), (64, 32, 0), (64, 48, 4096)],
)
def test_elements_that_nothing_compares_are_a_remark(
    tilelet: Run, golden: int, compared: int, missing: int
) -> None:
    text = RAGGED.replace("WRITTEN", str(golden)).replace("COMPARED", str(compared))
    Path("ragged.py").write_text(text)
    code, out, _ = tilelet("check", "ragged.py", "--only", "init", "--format", "json")
    (verdict,) = json.loads(out)["verdicts"]
    (part,) = verdict["parts"]
    assert code == (1 if missing else 0)
    assert [f["code"] for f in part["findings"]] == (["E1110"] if missing else [])
    if missing:
        assert f"{missing} of 8192 elements" in part["findings"][0]["message"]
    ignored = 4096 - missing
    assert len(part["remarks"]) == bool(ignored)
    for remark in part["remarks"]:
        assert f"{ignored} of 8192 elements of `out` stay undefined" in remark
        assert f"nothing is compared there: out[{64 - ignored // 128}:64, 0:128]" in remark


def test_comparators_may_import_when_they_are_called(tilelet: Run) -> None:
    imports = "    import golden\n    from beside import COMPARED\n    return np.allclose("
    text = RAGGED.replace("WRITTEN", "64").replace("    return np.allclose(", imports)
    Path("scripts").mkdir()
    Path("scripts/beside.py").write_text("COMPARED = 32\n")
    Path("scripts/ragged.py").write_text(text)
    code, out, _ = tilelet("check", "scripts/ragged.py", "--only", "init")
    assert code == 0
    assert "4096 of 8192 elements of `out` stay undefined, and nothing is compared there" in out


PUBLIC = """
import pypto.language as pl
import torch
from golden import TensorSpec, run


window = pl.slice


@pl.program
class Program:
    @pl.function
    def copy(self, x: pl.Tensor[[64, 64], pl.FP32], out: pl.Tensor[[64, 64], pl.FP32]):
        with pl.auto_incore():
            for i in pl.parallel(0, 4, chunk=2):
                out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
        return out


specs = [TensorSpec("x", [64, 64], torch.float32, init_value=torch.randn)]
specs.append(TensorSpec("out", [64, 64], torch.float32, is_output=True))
run(Program, specs, golden_fn=lambda t: t["out"].copy_(t["x"]))
"""


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("", "", (0, 0)),  # accepted by April, not by August
        ("pl.slice(", "window(", (1, 0)),  # an alias of an op, which no release accepts
    ],
)
def test_a_public_script_is_refused_where_no_release_takes_it(
    tilelet: Run, old: str, new: str, counts: tuple[int, int]
) -> None:
    Path("april.py").write_text(PUBLIC.replace(old, new))
    code, out, err = tilelet("check", "april.py", "--format", "json")
    document = json.loads(out)
    found = [d["severity"] for d in document["diagnostics"] if d["code"].startswith(("E", "W12"))]
    assert (found.count("error"), found.count("warning")) == counts, err
    assert code == (1 if counts[0] else 0)
