"""`tilelet diverge`: each mistake is placed at its statement by one command."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.diverge.kernels import COLS, OUT, ROWS, X, cases, line_of, normal, twice, x_and_out

import tilelet
import tilelet.language as pl
from tilelet.cli.main import main
from tilelet.diag.core import UserError
from tilelet.report.columns import unpack
from tilelet.runtime import TensorSpec, run_jit

CASES = cases()


def script_of(folder: Path, name: str, golden: str = "golden") -> str:
    script = folder / "kernel_script.py"
    script.write_text(
        "from tests.diverge.kernels import cases\nfrom tilelet.runtime import run_jit\n"
        f"kernel, golden, specs, _ = cases()[{name!r}]\n"
        f"run_jit(kernel, specs, golden_fn={golden}, rtol=2e-3, atol=2e-3)\n"
    )
    return str(script)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main(["diverge", "--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", CASES)
def test_the_statement_is_found(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel, _, _, kind = CASES[name]
    code, found = document(capsys, script_of(tmp_path, name))
    assert code == 1
    wrong = line_of(kernel)
    program = found["programs"][0]
    kinds = {v["line"]: {v["kind"]} for v in program["violations"]}
    if program["divergence"] is not None:
        listed = [s["line"] for s in program["divergence"]["listed"]]
        assert wrong in listed
        assert len(listed) <= 5
        for repair in program["divergence"]["repairs"]:
            kinds.setdefault(repair["line"], set()).add(repair["kind"])
    assert kind in kinds[wrong]


@pytest.mark.parametrize(
    ("golden", "said"),
    [
        ("None", "there is no golden"),
        ("lambda tensors: 1 / 0", "nothing is compared with the golden"),
        ("lambda tensors: None", "nothing is compared with the golden"),
        ("lambda tensors: tensors.update(out=tensors['x'][:1])", "nothing is compared"),
        ("__import__('functools').partial(golden)", "Python source is not available"),
    ],
)
def test_what_was_not_compared_is_said(
    golden: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = document(capsys, script_of(tmp_path, "wrong offset", golden))
    assert said in " ".join(found["programs"][0]["notes"])
    assert code == (1 if "partial" in golden else 3)


def test_a_golden_that_is_no_function_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diverge", script_of(tmp_path, "wrong offset", "42")]) == 3
    assert "not a function" in capsys.readouterr().err


def test_two_programs_are_compared_tile_by_tile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    text = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def kernel(x: pl.Tensor[[32, 64], pl.FP32], out: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        e = pl.exp(x)
        s = pl.row_sum(e)
        out = pl.assemble(out, pl.row_expand_div(e, s), [0, 0])
    return out

x = TensorSpec("x", [32, 64], pl.FP32, lambda: np.random.default_rng(0).normal(size=(32, 64)))
run_jit(kernel, [x, TensorSpec("out", [32, 64], pl.FP32, is_output=True)])
"""
    right.write_text(text)
    wrong.write_text(text.replace("pl.row_sum(e)", "pl.row_max(e)"))
    code, found = document(capsys, str(right), str(wrong))
    assert code == 1
    assert found["diagnostics"][0]["labels"][0]["line"] == 10
    code, found = document(capsys, str(right), str(right))
    assert (code, found["diagnostics"]) == (0, [])
    wrong.write_text(text.replace("32, 64", "16, 64"))
    code, found = document(capsys, str(right), str(wrong))
    assert (code, found["diagnostics"]) == (3, [])
    note = found["programs"][0]["notes"][0]
    assert "`out` is not compared: it is [16, 64] here and [32, 64] in" in note


def test_from_python() -> None:
    kernel, golden, specs, _ = CASES["swapped operands"]
    found = tilelet.diverge(kernel, specs, golden, rtol=2e-3, atol=2e-3)
    assert not found.ok
    (first,) = found.diagnostics
    assert first.loc is not None
    assert first.loc.line == line_of(kernel)
    assert "swap `lhs` and `rhs`" in str(found)

    def script() -> None:
        run_jit(kernel, specs, golden_fn=golden, rtol=2e-3, atol=2e-3)

    assert tilelet.diverge(script).diagnostics == found.diagnostics
    with pytest.raises(UserError, match="nothing to look at"):
        tilelet.diverge(lambda: None)


@pl.jit
def racing(x: X, out: OUT):
    t = pl.create_tensor([ROWS, COLS], dtype=pl.FP32)
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            t[:, :] = pl.mul(x[:, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.mul(t[:, :], 1.0)  # wrong
    return out


@pytest.mark.parametrize("platform", ["a2a3", "a5"])
def test_a_stale_read_is_one_although_the_outputs_match(platform: str) -> None:
    found = tilelet.diverge(racing, x_and_out(), twice, platform=platform)
    assert found.agrees
    (first,) = found.diagnostics
    assert first.code == "E1157"
    assert first.loc is not None
    assert first.loc.line == line_of(racing)


@pl.jit
def summed_in_parts(x: X, out: pl.Out[pl.Tensor[[ROWS, 1], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.row_sum(x[:, :])  # wrong
    return out


def test_an_order_of_accumulation() -> None:
    """The logic is right: in double precision the sums match."""

    def golden(tensors: dict[str, Any]) -> None:
        tensors["out"][:] = tensors["x"].astype(np.float64).sum(1, keepdims=True)

    specs = [
        TensorSpec("x", [ROWS, COLS], pl.FP32, normal(9, ROWS, COLS, scale=1e4)),
        TensorSpec("out", [ROWS, 1], pl.FP32, is_output=True),
    ]
    found = tilelet.diverge(summed_in_parts, specs, golden, rtol=1e-9, atol=1e-9)
    (first,) = found.diagnostics
    assert first.code == "E1155"
    assert first.labels[0].text.startswith("accumulation order")
    assert first.labels[0].loc.line == line_of(summed_in_parts)


def test_the_page_shows_the_first_divergence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    script = script_of(tmp_path, "swapped operands")
    assert main(["diverge", "--html", str(page), script]) == 1
    capsys.readouterr()
    text = page.read_text()
    encoded = text.split('id="data">')[1].split("<")[0]
    header, _ = unpack(base64.b64decode(encoded))
    numbers = header["numbers"]
    assert [o["name"] for o in numbers["outputs"]] == ["out"]
    assert numbers["outputs"][0]["mismatched"] > 0
    diverged = numbers["divergence"]
    assert "swap `lhs` and `rhs`" in diverged["text"]
    file, line = diverged["place"]
    assert header["runs"][0]["files"][file]["name"] == "kernels.py"
    assert line == line_of(CASES["swapped operands"][0])


@pytest.mark.parametrize("time", ["", "0", "soon", "1h"])
def test_a_budget_is_a_time(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diverge", "--budget", time, "x.py"]) == 2
    assert "write 60s or 2m" in capsys.readouterr().err


SCALARS = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def normalize(x: pl.Tensor[[32, 64], pl.FP32], out: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
    scale = pl.create_tensor([1, 16], pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="measure"):
        t = x[:, :]
        total = pl.row_sum(pl.col_sum(pl.mul(t, t)))
        mean = pl.mul(pl.abs(total), 1.0 / (32 * 16))
        pl.write(scale, [0, 0], pl.read(pl.rsqrt(pl.add(mean, 0.3)), [0, 0]))
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="apply"):
        i = pl.read(scale, [0, 0])
        out[:, :] = pl.mul(x[:, :], i)
    return out

def golden(t):
    t["out"][:] = t["x"] / np.sqrt((t["x"].astype(np.float64) ** 2).mean() + 0.1)

run_jit(
    normalize,
    [
        TensorSpec("x", [32, 64], pl.FP32, np.random.default_rng(0).normal(size=(32, 64))),
        TensorSpec("out", [32, 64], pl.FP32, is_output=True),
    ],
    golden_fn=golden,
)
"""


def test_scalars_are_followed_to_the_tiles_they_were_read_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong constants reach the output through `pl.read` and `pl.write` only."""
    script = tmp_path / "k.py"
    script.write_text(SCALARS)
    _, found = document(capsys, "--budget", "2", str(script))
    divergence = found["programs"][0]["divergence"]
    assert divergence["grade"] == "bounded"
    wrong = {i for i, text in enumerate(SCALARS.splitlines(), 1) if "32 * 16" in text}
    assert wrong <= {statement["line"] for statement in divergence["listed"]}
