"""Programs and data of the bench."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tilelet.bench import data as data_module
from tilelet.bench import programs
from tilelet.bench.cases import BF16, FP32, matmul_case, model_case, one_thread, vector_case
from tilelet.bench.data import Data
from tilelet.bench.peaks import Machine
from tilelet.bench.sizes import SMALL, SMALL_PREFILL

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 16, 64


def softmax(a: dict[str, Array]) -> Array:
    powers = np.exp(a["x"] - a["x"].max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


EXPECTED = {
    "softmax": softmax,
    "rmsnorm": lambda a: a["x"] / np.sqrt(np.mean(a["x"] ** 2, 1, keepdims=True)) * a["weight"],
    "add": lambda a: a["x"] + a["y"],
    "cast": lambda a: a["x"],
}


@pytest.mark.parametrize("op", EXPECTED)
def test_programs_that_move_memory_compute_what_they_say(op: str) -> None:
    case = vector_case(Data(), op, ROWS, COLUMNS)
    assert case.run() == ROWS // 8
    wanted = EXPECTED[op]({name: a.astype(np.float64) for name, a in case.arguments.items()})
    tolerance = 2.0**-8 if op == "cast" else 1e-5
    np.testing.assert_allclose(case.arguments["out"].astype(np.float64), wanted, rtol=tolerance)
    assert case.work.nbytes == sum(a.nbytes for a in case.arguments.values())


def test_the_product_is_a_product() -> None:
    case = matmul_case(Data(), 32, 256, 512)
    assert case.run() == 4
    x, w = (case.arguments[name].astype(np.float64) for name in "xw")
    np.testing.assert_allclose(case.arguments["out"], x @ w, atol=1e-4)
    assert case.work.flops == 2 * 32 * 256 * 512


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("scope1:per_block", ("wq", "wk", "wv")),
        ("scope3:baseline", ("wo", "w_gate", "w_up", "w_down")),
    ],
)
def test_flops_of_scopes_are_those_of_their_weights(name: str, weights: tuple[str, ...]) -> None:
    case = model_case(Data(), name, f"qwen3/{name}", SMALL)
    elements = sum(case.arguments[weight].size for weight in weights)
    assert case.work.flops == 2 * 16 * elements


def test_flops_of_a_layer_are_those_of_its_parts() -> None:
    data = Data()
    parts = ("scope1:per_block", "scope2:staged", "scope3:baseline")
    flops = [model_case(data, name, f"qwen3/{name}", SMALL).work.flops for name in parts]
    layer = model_case(data, "layer", "qwen3/decode:baseline", SMALL)
    assert layer.work.flops == sum(flops)
    # Every query head meets every position twice: for the scores and for the values.
    assert flops[1] == 2 * 2 * 16 * SMALL["hidden"] * SMALL["max_seq"]


def test_flops_of_prefill_count_what_causal_attention_sees() -> None:
    case = model_case(Data(), "prefill", "qwen3/prefill:tuned", SMALL_PREFILL)
    weights = sum(a.size for name, a in case.arguments.items() if name.startswith("w"))
    tokens, length = 2 * 128, 128
    seen = sum(range(1, length + 1)) * 2
    assert case.work.flops == 2 * tokens * weights + 2 * 2 * seen * SMALL_PREFILL["hidden"]


def test_without_kernels_all_tasks_are_submitted_and_nothing_is_computed() -> None:
    case = vector_case(Data(), "add", ROWS, COLUMNS)
    run = case.runtime_alone(Machine(1, 1))
    assert [run(), run()] == [ROWS // 8] * 2
    assert not case.arguments["out"].any()
    case.run()
    assert case.arguments["out"].any()


def test_repeated_calls_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    case = vector_case(Data(), "add", ROWS, COLUMNS)
    case.call()
    wanted = case.arguments["out"].copy()
    assert wanted.any()
    case.arguments["out"][:] = 0
    monkeypatch.setattr(case.compiled, "run_tasks", None)  # the general path
    case.call_alone()
    assert (case.arguments["out"] == wanted).all()


def test_one_thread_is_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_THREADS", "3")
    with one_thread():
        assert os.environ["TILELET_THREADS"] == "1"
    assert os.environ["TILELET_THREADS"] == "3"
    monkeypatch.delenv("TILELET_THREADS")
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 // 0
    assert "TILELET_THREADS" not in os.environ


def test_smaller_arrays_of_a_name_use_its_memory() -> None:
    data = Data()
    large = data.normal("w", (64, 64), BF16)
    small = data.normal("w", (32, 32), BF16)
    assert np.shares_memory(large, small)
    assert large.ctypes.data % 64 == 0
    assert data.normal("w", (32, 32), FP32).dtype == FP32
    assert not data.normal("out", (4, 4), FP32, 0.0).any()


def test_large_arrays_are_normal_numbers() -> None:
    array = Data().normal("x", (3, 1 << 20), FP32, 2.0)
    assert abs(array.mean()) < 0.01
    assert abs(array.std() - 2.0) < 0.01


def test_memory_that_is_not_there_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_module, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="`w` needs 1 MiB, 1000 bytes are free"):
        Data().normal("w", (512, 1024), BF16)
    Data().normal("w", (10, 10), BF16)


def test_contexts_are_full() -> None:
    case = model_case(Data(), "attention", "qwen3/scope2:fused", SMALL)
    assert (case.arguments["seq_lens"] == SMALL["max_seq"]).all()


def test_programs_are_found_by_name() -> None:
    assert programs.build("bench/add", {"rows": 8, "columns": 8}).name == "Add"
    assert programs.build("qwen3/scope3:tuned", {}).name == "Qwen3Scope3"
