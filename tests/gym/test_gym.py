"""The gym: its tasks are references, and scores reward only correct kernels near the floor."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from tilelet.cli.main import main
from tilelet.gym.multi_kernel_bench import TileletBackend
from tilelet.gym.score import Board, Score, candidates, score_entry, score_text
from tilelet.gym.tasks import tasks
from tilelet.static.module import read_module

EXAMPLES = Path(__file__).parents[2] / "examples"
TASKS = tasks(EXAMPLES)


def test_there_are_60_tasks_in_three_levels() -> None:
    assert len(TASKS) == 60
    assert {t.level for t in TASKS.values()} == {1, 2, 3}
    for wanted in ("paged_decode_attention", "moe_layer", "chunked_scan", "int8_matmul", "topk"):
        assert TASKS[wanted].level == 3


@pytest.mark.parametrize("name", TASKS)
def test_every_naive_kernel_lowers_from_its_text(name: str) -> None:
    programs = read_module(TASKS[name].script, f"{name}.py").programs
    assert [p.build() for p in programs]


@pytest.mark.parametrize("name", ["row_sum", "rope"])
def test_naive_kernels_are_right(name: str) -> None:
    found = score_text(TASKS[name], TASKS[name].script, ("a2a3",))
    assert found.status == "right", found.why
    assert 0 < found.value < 0.5


def test_larger_tiles_score_more_and_wrong_kernels_nothing() -> None:
    task = TASKS["row_sum"]
    naive = score_text(task, task.script, ("a2a3",))
    tiled = score_text(task, task.script.replace("512, 1024, 1", "512, 1024, 16"), ("a2a3",))
    wrong = score_text(task, task.script.replace("pl.row_sum", "pl.row_max"), ("a2a3",))
    assert tiled.value > 5 * naive.value
    assert (wrong.status, wrong.value) == ("wrong", 0.0)


def test_a_folder_is_scored_in_parallel(tmp_path: Path) -> None:
    chosen = {n: TASKS[n] for n in ("rope", "topk", "row_max")}
    (tmp_path / "rope.py").write_text(TASKS["rope"].script)
    (tmp_path / "topk.py").write_text("import os\n")
    scores = score_entry(candidates(str(tmp_path), chosen), chosen, jobs=1, machines=("a2a3",))
    assert [s.status for s in scores] == ["right", "refused", "not tried"]
    board = Board({"mine": scores, "none": [Score(n, 1, "not tried") for n in chosen]})
    assert list(board.means()) == ["mine", "none"]
    data = json.loads(board.to_json())
    assert data["entries"]["mine"][0]["score"] == round(scores[0].value, 4)


MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + 2 * y

def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]

def get_init_inputs():
    return []
"""
KERNEL = """
import tilelet.language as pl

@pl.jit
def axpy(x: pl.Tensor[[64, 128], pl.FP32], y: pl.Tensor[[64, 128], pl.FP32],
         out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.add(x[r : r + 16, :], pl.mul(y[r : r + 16, :], 2.0))
    return out
"""


def test_the_backend_has_the_methods_that_the_benchmark_calls() -> None:
    """Names and parameters of the benchmark's `Backend` as published."""
    published = {"get_device": [], "get_hardware_name": [], "compile": ["generated_code", "op"],
                 "correctness_execution": ["ref_src"], "time_execution": ["eval_target"],
                 "detect_cheating": ["generated_code"], "cleanup": []}  # fmt: skip
    for name, parameters in published.items():
        assert list(inspect.signature(getattr(TileletBackend(), name)).parameters) == parameters


def test_the_backend_judges_generated_code() -> None:
    pytest.importorskip("torch")
    backend = TileletBackend()
    assert backend.compile(KERNEL, "axpy") == (True, None)
    assert backend.correctness_execution(MODEL) == (True, "")
    assert backend.detect_cheating(KERNEL) == (False, None)
    (ms,) = backend.time_execution()
    assert 0.001 < ms < 1
    assert backend.compile(KERNEL.replace("2.0", "3.0"), "axpy")[0]
    right, why = backend.correctness_execution(MODEL)
    assert not right
    assert "`out` differs" in (why or "")
    compiled, why = backend.compile(KERNEL.replace("pl.parallel", "range"), "axpy")
    assert not compiled
    assert "E0101" in (why or "")
    backend.cleanup()
    assert backend.time_execution() == []


WEIGHTED = """
import torch

class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(64, n))

    def forward(self, x):
        return x + self.weight

def get_input_groups():
    return [[torch.randn(64, 128)], [torch.randn(64, 128)]]

def get_init_inputs():
    return [128]
"""


def test_weights_of_a_model_are_parameters_and_unread_ones_are_named() -> None:
    pytest.importorskip("torch")
    backend = TileletBackend()
    assert backend.compile(KERNEL, "axpy")[0]
    assert backend.correctness_execution(WEIGHTED) == (True, "")  # 2 * 0 = 0
    lazy = KERNEL.replace("pl.add(x[r : r + 16, :], pl.mul(y[r : r + 16, :], 2.0))",
                          "x[r : r + 16, :]")  # fmt: skip
    assert backend.compile(lazy, "axpy")[0]
    assert backend.correctness_execution(WEIGHTED) == (True, "")
    assert backend.detect_cheating(lazy) == (True, "never read: `y`")


def test_an_output_that_is_not_written_does_not_pass_as_zeros() -> None:
    pytest.importorskip("torch")
    backend = TileletBackend()
    assert backend.compile(KERNEL.replace("(0, 64, 16)", "(0, 48, 16)"), "axpy")[0]
    zeros = MODEL.replace("x + 2 * y", "0 * x")
    right, why = backend.correctness_execution(zeros)
    assert not right
    assert "`out` differs" in (why or "")


def test_another_number_of_parameters_says_what_the_model_has() -> None:
    pytest.importorskip("torch")
    backend = TileletBackend()
    assert backend.compile(KERNEL, "axpy")[0]
    only = (
        MODEL.replace("x, y", "x")
        .replace("x + 2 * y", "x")
        .replace("[torch.randn(64, 128), torch.randn(64, 128)]", "[torch.randn(64, 128)]")
    )
    right, why = backend.correctness_execution(only)
    assert not right
    assert "3 parameters, the model 1 input and 1 output" in (why or "")


ENTRIES = Path(__file__).parents[2] / "gym"
PAGE = Path(__file__).parents[2] / "docs" / "leaderboard.md"


@pytest.mark.parametrize("entry", ["optimise", "hand"])
def test_entries_of_the_leaderboard_are_complete(entry: str) -> None:
    texts = candidates(str(ENTRIES / entry), TASKS)
    assert list(texts) == list(TASKS)
    for name, text in texts.items():
        assert [p.build() for p in read_module(text, f"{name}.py").programs], name


@pytest.mark.parametrize("name", ["row_sum", "rope"])
@pytest.mark.parametrize("entry", ["gym/optimise", "gym/hand"])
def test_the_leaderboard_has_the_scores_of_its_entries(entry: str, name: str) -> None:
    """A page that was not generated again after a change of the model is noticed."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines()]
    heads = next(row for row in rows if row[0] == "task")
    row = next(row for row in rows if row[0] == name)
    text = (ENTRIES.parent / entry / f"{name}.py").read_text()
    assert row[heads.index(entry)] == f"{score_text(TASKS[name], text).value:.3f}"


def test_naive_kernels_are_an_entry_and_others_are_read_by_name(tmp_path: Path) -> None:
    assert candidates("naive", TASKS)["topk"] == TASKS["topk"].script
    (tmp_path / "topk.py").write_text("x")
    (tmp_path / "other.py").write_text("x")
    assert candidates(str(tmp_path), TASKS) == {"topk": "x"}


def test_optimised_kernels_are_written_with_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gym", "optimise", str(tmp_path), "topk", "--jobs", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["tasks"][0]["task"] == "topk"
    assert data["median"] == data["tasks"][0]["ratio"] >= 1
    assert "def topk" in (tmp_path / "topk.py").read_text()
    assert main(["gym", "optimise", str(tmp_path), "none"]) == 2
