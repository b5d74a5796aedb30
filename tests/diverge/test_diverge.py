"""`tilelet diverge`: each mistake is placed at its statement by one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.diverge.kernels import cases, line_of

from tilelet.cli.main import main

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
    first = found["diagnostics"][0]
    lines = {label["line"] for label in first["labels"]}
    wrong = line_of(kernel)
    if kind == "missing write":
        assert first["code"] == "E1152"
        assert wrong + 3 in lines  # who writes the elements beside
    else:
        assert wrong in lines, first
    program = found["programs"][0]
    kinds = [v["kind"] for v in program["violations"]]
    if program["divergence"] is not None:
        kinds.append(program["divergence"]["kind"])
    assert kind in kinds


@pytest.mark.parametrize(
    ("golden", "said"),
    [
        ("None", "there is no golden"),
        ("lambda tensors: 1 / 0", "nothing is compared with the golden"),
        ("lambda tensors: None", "nothing is compared with the golden"),
        ("lambda tensors: tensors.update(out=tensors['x'][:1])", "nothing is compared"),
        ("__import__('functools').partial(golden)", "Python text is not at hand"),
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


@pytest.mark.parametrize("time", ["", "0", "soon", "1h"])
def test_a_budget_is_a_time(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["diverge", "--budget", time, "x.py"])
    assert stop.value.code == 2
    assert "write 60s or 2m" in capsys.readouterr().err
