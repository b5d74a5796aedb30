"""Tensor-parallel layers: one rank's results, no finding, and faster if overlapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue.models import BadTile
from tilelet.models.qwen3 import ranks_page
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.published import Kind, LayerShape
from tilelet.models.qwen3.ranks_page import figures_markdown
from tilelet.models.qwen3.tensor_parallel import VARIANTS, golden, rank_shape, specs
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.explore import explore
from tilelet.ranks.host import plan_of
from tilelet.ranks.timing import model_ranks
from tilelet.runtime import RunConfig, run
from tilelet.runtime.programs import jit_call
from tilelet.tasks.arguments import bind_arguments

CONFIG = Qwen3Config(128, 16, 8, 256, 2, head_dim=16, vocab_size=512)


def shape(kind: Kind, layers: int = 1) -> LayerShape:
    """Sizes that are no multiple of a tile."""
    batch, tokens = (5, 0) if kind == "decode" else (1, 40)
    return LayerShape(
        CONFIG, batch, 64, tokens=tokens, layers=layers, seq_tile=32, k_chunk=32, out_chunk=32
    )


def config(ranks: int, engine: str | None = None) -> RunConfig:
    return RunConfig(engine=engine, distributed_config=DistributedConfig(device_ids=range(ranks)))


@pytest.mark.parametrize(
    ("kind", "variant", "ranks"),
    [
        ("decode", "obvious", 4),
        ("decode", "overlapped", 2),
        ("decode", "overlapped", 8),
        ("prefill", "obvious", 2),
        ("prefill", "overlapped", 4),
    ],
)
def test_it_computes_the_layer_of_one_rank(kind: Kind, variant: str, ranks: int) -> None:
    s = shape(kind)
    result = run(
        VARIANTS[variant](rank_shape(s, ranks), kind, ranks),
        specs(s, kind, ranks),
        golden_fn=golden(s, kind, ranks, engine="interp"),
        config=config(ranks, "interp"),
        rtol=1e-2,
        atol=1e-2,
    )
    assert result.passed, result.error


def test_both_versions_add_in_the_same_order() -> None:
    outputs = []
    for make in VARIANTS.values():
        tensors = {spec.name: spec.create_tensor() for spec in specs(shape("decode"), "decode", 4)}
        make(rank_shape(shape("decode"), 4), "decode", 4)(
            *tensors.values(), config=config(4, "interp")
        )
        outputs.append(tensors["states"])
    assert np.array_equal(*outputs)


def test_overlapping_is_clean_and_faster() -> None:
    machine, times = load_machine("a2a3"), {}
    for name, make in VARIANTS.items():
        tensors = {spec.name: spec.create_tensor() for spec in specs(shape("decode"), "decode", 2)}
        settings = config(2)
        host = make(rank_shape(shape("decode"), 2), "decode", 2)
        program = jit_call.compile(host, tuple(tensors.values()), settings).program
        plan = plan_of(program, bind_arguments(program, tensors, execute=True), 2)
        times[name] = model_ranks(name, program, plan, [machine])[0].total_us
        if name == "overlapped":
            found = explore(name, program, tensors, settings.distributed_config, covered=4)
            assert found.ok, found.diagnostics
    assert times["overlapped"] < times["obvious"]


@pytest.mark.parametrize("figure", [0, 1, -2], ids=["layer", "overlapped", "experts"])
def test_the_page_is_up_to_date(figure: int) -> None:
    text = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text(encoding="utf-8")
    _, _, row = figures_markdown([list(ranks_page.figures())[figure]]).splitlines()
    assert row in text, "run `python -m tilelet.models.qwen3.ranks_page docs/ranks.md`"


def test_heads_must_divide_among_ranks() -> None:
    with pytest.raises(BadTile, match="a divisor of `num_key_value_heads`, 8"):
        rank_shape(shape("decode"), 16)
