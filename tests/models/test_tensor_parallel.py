"""Scope 3 of a decode layer on several ranks: right, clean, and faster if overlapped."""

from __future__ import annotations

import numpy as np
import pytest

from tilelet.device.machine.description import load_machine
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.models.qwen3.tensor_parallel import VARIANTS, golden, specs
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.explore import explore
from tilelet.ranks.host import plan_of
from tilelet.ranks.timing import model_ranks
from tilelet.runtime import RunConfig, run
from tilelet.runtime.programs import jit_call
from tilelet.tasks.arguments import bind_arguments

SMALL = DecodeShape(hidden=512, intermediate=512, k_chunk=64, mlp_out_chunk=64)


def config(ranks: int) -> RunConfig:
    return RunConfig(distributed_config=DistributedConfig(device_ids=range(ranks)))


def drawn(ranks: int) -> dict[str, np.ndarray]:
    return {spec.name: np.asarray(spec.create_tensor()) for spec in specs(SMALL, ranks)}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_computes_the_single_rank_layer(variant: str, ranks: int) -> None:
    result = run(
        VARIANTS[variant](SMALL, ranks),
        specs(SMALL, ranks),
        golden_fn=golden(SMALL),
        config=config(ranks),
        rtol=3e-3,
        atol=3e-3,
    )
    assert result.passed, result.error


def test_both_versions_add_in_the_same_order() -> None:
    outputs = []
    for make in VARIANTS.values():
        tensors = drawn(4)
        make(SMALL, 4)(*tensors.values(), config=config(4))
        outputs.append(tensors["out"])
    assert np.array_equal(*outputs)


def test_overlapping_is_clean_and_faster() -> None:
    machine, times = load_machine("a2a3"), {}
    for name, make in VARIANTS.items():
        tensors = drawn(2)
        program = jit_call.compile(make(SMALL, 2), tuple(tensors.values()), config(2)).program
        plan = plan_of(program, bind_arguments(program, tensors, execute=True), 2)
        times[name] = model_ranks(name, program, plan, [machine])[0].total_us
        if name == "overlapped":
            found = explore(name, program, tensors, config(2).distributed_config, covered=4)
            assert found.ok, found.diagnostics
    assert times["overlapped"] < times["obvious"]
