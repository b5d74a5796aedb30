"""`tilelet.profile`: a function of Python, and a context manager."""

import json

import numpy as np
import pytest

import tilelet
import tilelet.language as pl
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.device import UnknownMachine


@pl.jit
def double(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
            out[r : r + 16, :] = pl.add(x[r : r + 16, :], x[r : r + 16, :])
    return out


@pytest.fixture(params=["interp", "cpu"], autouse=True)
def engine(request, monkeypatch):
    monkeypatch.setenv("TILELET_ENGINE", request.param)


def ones():
    return np.ones((64, 128), np.float32)


def test_a_call(capsys):
    out = np.zeros((64, 128), np.float32)
    p = tilelet.profile(double, ones(), out, platform="a2a3")
    assert p.result is out
    np.testing.assert_array_equal(out, 2)
    (run,) = p.runs
    assert run.name == "double"
    assert p.total_us == run.total_us > 0
    assert sum(k.tasks for k in run.figures.kernels) == 4
    assert any("rows" in row[0] or "rows" in row[1] for t in p.tables for row in t.rows)
    assert "rows" in str(p)
    assert "double on a2a3" in repr(p)
    assert capsys.readouterr().out == ""


def test_it_says_what_the_command_says(monkeypatch):
    text = str(tilelet.profile(double, ones(), ones(), platform="a5"))
    assert text == str(tilelet.profile(double, 3 * ones(), ones(), platform="a5sim"))
    assert text != str(tilelet.profile(double, ones(), ones()))


def test_all_that_runs_in_a_block_and_nothing_after_it(tmp_path):
    double(ones(), ones())
    with tilelet.profile(platform="a2a3") as p:
        double(ones(), ones())
        double(ones(), ones())
    double(ones(), ones())
    assert len(p.runs) == 2
    assert p.total_us == 2 * p.runs[0].total_us
    paths = p.save_trace(tmp_path / "trace.json")
    assert [path.name for path in paths] == ["trace.json", "trace-2.json"]
    events = json.loads(paths[0].read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert sum(e["ph"] == "X" and "rows" in e["name"] for e in events) >= 4


def test_mistakes(tmp_path):
    with pytest.raises(UnknownMachine):
        tilelet.profile(double, ones(), ones(), platform="a9")
    p = tilelet.profile(double, ones(), ones())
    with pytest.raises(CannotWrite):
        p.save_trace(tmp_path / "missing" / "trace.json")
    with pytest.raises(ZeroDivisionError), tilelet.profile() as p:
        _ = 1 // 0
    assert str(p) == "no program ran"
