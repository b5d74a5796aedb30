"""Experts on several ranks: one rank's results, even for a rank without tokens, and no finding."""

from __future__ import annotations

import numpy as np
import pytest

from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue.models import BadTile
from tilelet.models.qwen3.config import Qwen3MoeConfig
from tilelet.models.qwen3.expert_parallel import VARIANTS, ExchangeShape, golden, specs
from tilelet.models.qwen3.published import LayerShape
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.explore import explore
from tilelet.ranks.host import plan_of
from tilelet.ranks.timing import model_ranks
from tilelet.runtime import RunConfig, run
from tilelet.runtime.programs import jit_call
from tilelet.tasks.arguments import bind_arguments

CONFIG = Qwen3MoeConfig(
    64, 4, 2, 128, 2, head_dim=16, vocab_size=128,
    num_experts=16, num_experts_per_tok=4, moe_intermediate_size=32, norm_topk_prob=True,
)  # fmt: skip


def shape(ranks: int, tokens: int = 8) -> ExchangeShape:
    return ExchangeShape(LayerShape(CONFIG, 1, 8, row_tile=16, seq_tile=8), tokens, ranks)


def config(ranks: int) -> RunConfig:
    world = DistributedConfig(device_ids=range(ranks))
    return RunConfig(engine="interp", distributed_config=world)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_computes_the_experts_of_one_rank(variant: str, ranks: int) -> None:
    x = shape(ranks)
    result = run(
        VARIANTS[variant](x),
        specs(x),
        golden_fn=golden(x, "interp"),
        config=config(ranks),
        rtol=1e-2,
        atol=1e-2,
    )
    assert result.passed, result.error


@pytest.mark.parametrize("idle", [0, 1])
def test_a_rank_without_tokens(idle: int) -> None:
    x = shape(2)
    outputs = []
    for make in VARIANTS.values():
        tensors = {spec.name: np.asarray(spec.create_tensor()) for spec in specs(x)}
        tensors["count"][idle] = 0
        make(x)(*tensors.values(), config=config(2))
        outputs.append(tensors["out"][1 - idle])
    assert np.array_equal(*outputs)
    assert outputs[0].astype(np.float32).any()


def test_no_schedule_of_the_overlapped_version_is_wrong() -> None:
    x = shape(2, 3)
    tensors = {spec.name: np.asarray(spec.create_tensor()) for spec in specs(x)}
    program = jit_call.compile(
        VARIANTS["overlapped"](x), tuple(tensors.values()), config(2)
    ).program
    world = config(2).distributed_config
    found = explore("overlapped", program, tensors, world, covered=4)
    assert found.ok, found.diagnostics


def test_overlapping_is_faster_also_where_control_depends_on_data() -> None:
    x, machine, times = shape(4), load_machine("a2a3"), {}
    for name, make in VARIANTS.items():
        tensors = {spec.name: np.asarray(spec.create_tensor()) for spec in specs(x)}
        program = jit_call.compile(make(x), tuple(tensors.values()), config(4)).program
        plan = plan_of(program, bind_arguments(program, tensors, execute=True), 4)
        timeline = model_ranks(name, program, plan, [machine])[0]
        assert timeline.total_us >= max(timeline.chip_us.values()) - 1
        times[name] = timeline.total_us
    assert times["overlapped"] < times["obvious"]


def test_experts_must_divide_among_ranks() -> None:
    with pytest.raises(BadTile, match="a divisor of `num_experts`, 16"):
        shape(3)
