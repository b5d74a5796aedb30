"""Scripts of several files are exported as one that runs without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilelet.cli.main import main

pytest.importorskip("torch")

NEIGHBOUR = """
import pypto.language as pl

SCALE = 0.5


@pl.inline
def halved(t):
    return pl.mul(t, SCALE)
"""
SCRIPT = """
import torch
import pypto.language as pl
from golden import TensorSpec, run_jit
import neighbor_of_export as neighbor

WIDE = True


@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    for r in pl.parallel(0, 64, 16 if WIDE else 8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint=f"rows_{16}"):
            tile = neighbor.halved(x[r : r + 16, :])
            out[r : r + 16, :] = tile
    return out


def golden(tensors):
    tensors["out"][:] = tensors["x"] * neighbor.SCALE


specs = [
    TensorSpec("x", [64, 64], torch.float32, init_value=torch.randn),
    TensorSpec("out", [64, 64], torch.float32, is_output=True),
]
run_jit(fn=kernel, specs=specs, golden_fn=golden, rtol=1e-3, atol=1e-3)
"""


def test_what_neighbors_define_is_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "neighbor_of_export.py").write_text(NEIGHBOUR)
    (tmp_path / "script.py").write_text(SCRIPT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["export", "script.py", "-o", "elsewhere/exported.py"]) == 0
    text = (elsewhere / "exported.py").read_text()
    assert "neighbor" not in text
    assert 'name_hint="rows_16"' in text
    monkeypatch.chdir(elsewhere)
    assert main(["run", "exported.py"]) == 0
    assert "out: PASS (4096/4096" in capsys.readouterr().out


WINDOW = """
import torch
import pypto.language as pl
from golden import TensorSpec, run


@pl.jit
def KERNEL(x: pl.Tensor[[4, 16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    for i in pl.range(1):
        with pl.at(level=pl.Level.CORE_GROUP):
            t = pl.slice(x, [1, 16, 64], [i, 0, 0], valid_shape=[1, 8, 64], drop_dims=[0])
            out[:, :] = pl.mul(t, 2.0)
    return out


def expected(tensors):
    tensors["out"][:8] = tensors["x"][0, :8] * 2
    tensors["out"][8:] = 0


specs = [
    TensorSpec("x", [4, 16, 64], torch.float32, init_value=torch.randn),
    TensorSpec("out", [16, 64], torch.float32, is_output=True),
]
run(KERNEL, specs, golden_fn=expected)
"""


@pytest.mark.parametrize("name", ["kernel", "main", "tensor", "inputs", "torch", "golden"])
def test_a_kernel_may_have_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of the exported script are its own. The window drops an axis and is partially valid."""
    monkeypatch.chdir(tmp_path)
    text = WINDOW.replace("import torch\n", "import torch as t_\n") if name == "torch" else WINDOW
    if name == "torch":
        text = text.replace("torch.float32", "t_.float32").replace("torch.randn", "t_.randn")
    Path("script.py").write_text(text.replace("KERNEL", name))
    assert main(["check", "--portable", "2026-08", "script.py"]) == 0
    assert main(["export", "script.py", "-o", "exported.py"]) == 0
    assert main(["run", "exported.py"]) == 0
    assert "PASS (1024/1024 elements matched)" in capsys.readouterr().out
    # Nothing runs if only the text is judged, so nothing can fail.
    assert main(["check", "--portable", "2026-08", "exported.py"]) == 0
    out, err = capsys.readouterr()
    assert "FAIL" not in out + err


def test_external_kernels_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = (
        '@pl.jit.extern(source="k.cpp")\n'
        "def double(x: pl.Tensor[[4, 16, 64], pl.FP32], y: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):"
        " ...\n\n\n@pl.jit\n"
    )
    body = WINDOW[WINDOW.index("    for i") : WINDOW.index("    return out")]
    text = WINDOW.replace(body, "    out = double(x, out)\n").replace("@pl.jit\n", stub)
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(text.replace("KERNEL", "kernel"))
    assert main(["export", "script.py", "-o", "exported.py"]) != 0
    assert "the external kernel `extern.double` cannot be written" in capsys.readouterr().err
    assert main(["profile", "--no-files", "script.py"]) == 0
    assert "`double` is external" in capsys.readouterr().out
