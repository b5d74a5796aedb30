"""The mixture of experts as tile programs, compared with the reference implementation's block."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.models.programs import every_engine
from tests.models.real.tiny import relative, torch, transformers

import tilelet.language as pl
from tilelet.device import load_machine, machine_names
from tilelet.device.memory.limits import program_findings
from tilelet.models.qwen3.config import MOE_PRESETS, Qwen3MoeConfig
from tilelet.models.qwen3.moe import build_moe
from tilelet.models.qwen3.published import LayerShape
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import RunConfig, compile_program
from tilelet.runtime.data.arrays import as_array

Array = np.ndarray[Any, np.dtype[Any]]

USUAL = Qwen3MoeConfig(
    hidden_size=48,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=64,
    num_hidden_layers=1,
    num_experts=7,
    num_experts_per_tok=3,
    moe_intermediate_size=24,
    norm_topk_prob=True,
)


class Block:
    """The reference block with its norm and residual, and its weights as the program takes them."""

    def __init__(self, config: Qwen3MoeConfig, dtype: str = "float32", seed: int = 0) -> None:
        self.config = config
        fields = dataclasses.asdict(config)
        del fields["rope_theta"], fields["torch_dtype"], fields["mlp_only_layers"]
        theirs = transformers.Qwen3MoeConfig(**fields, experts_implementation="eager")
        # Imported here: it takes seconds, which every test process would pay.
        modeling = importlib.import_module("transformers.models.qwen3_moe.modeling_qwen3_moe")
        self.block = modeling.Qwen3MoeSparseMoeBlock(theirs)
        self.norm = modeling.Qwen3MoeRMSNorm(config.hidden_size, config.rms_norm_eps)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.block.parameters():
                weight.normal_(0, weight.shape[-1] ** -0.5, generator=generator)
            self.norm.weight.uniform_(0.5, 1.5, generator=generator)
        for module in (self.block, self.norm):
            module.to(getattr(torch, dtype))

    def weights(self) -> list[Array]:
        gate_up = as_array(self.block.experts.gate_up_proj.detach())
        width = self.config.moe_intermediate_size
        router = as_array(self.block.gate.weight.detach())
        return [
            as_array(self.norm.weight.detach()).astype(np.float32)[None],
            np.ascontiguousarray(router.T),
            below(gate_up[:, :width]),
            below(gate_up[:, width:]),
            below(as_array(self.block.experts.down_proj.detach())),
        ]

    def __call__(self, residual: Array) -> Array:
        """In FP32."""
        with torch.no_grad():
            x = torch.from_numpy(residual)
            out = x + self.block.float()(self.norm.float()(x)[None])[0]
        return out.numpy()


def below(experts: Array) -> Array:
    """Return matrices `[out, in]` as `[in, out]`, stacked vertically."""
    return np.concatenate([np.ascontiguousarray(matrix.T) for matrix in experts])


def run(block: Block, residual: Array, count: int, dtype: Any, engine: str, **sizes: Any) -> Array:
    shape = LayerShape(block.config, 1, 64, dtype=dtype, **{"row_tile": 8, **sizes})
    settings = RunConfig(engine=engine)
    program = compile_program(build_moe(shape, len(residual)), config=settings)
    out = np.full(residual.shape, 77, dtype.numpy)
    program(residual, np.array([count], np.int32), *block.weights(), out, config=settings)
    return out


def rows(count: int, hidden: int = 48) -> Array:
    return np.random.default_rng(count).standard_normal((count, hidden)).astype(np.float32)


CASES = {
    "one row": (1, 1, {}),
    "a tile": (8, 8, {}),
    "ragged": (21, 13, {}),
    "not normalised": (9, 9, {"norm_topk_prob": False}),
    "one expert each": (9, 9, {"num_experts_per_tok": 1}),
    "all experts": (17, 17, {"num_experts_per_tok": 7}),
    "a group of several tiles": (40, 37, {"num_experts": 2, "num_experts_per_tok": 2}),
    "one expert": (5, 5, {"num_experts": 1, "num_experts_per_tok": 1}),
    "twenty of forty": (2, 2, {"num_experts": 40, "num_experts_per_tok": 20}),
}

COMPILED = ("ragged",)


@every_engine
@pytest.mark.parametrize("case", CASES)
def test_fp32_block(case: str, engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough and case not in COMPILED:
        pytest.skip("compiles for seconds")
    total, count, changes = CASES[case]
    block = Block(dataclasses.replace(USUAL, **changes))
    residual = rows(total)
    residual[count:] = np.nan  # must not be read
    out = run(block, residual, count, pl.FP32, engine)
    assert relative(out[:count], block(residual[:count])) < 1e-6
    assert (out[count:] == 77).all()


@every_engine
def test_bf16_block(engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    block = Block(USUAL, "bfloat16", seed=3)
    residual = rows(20)
    out = run(block, residual, 20, pl.BF16, engine)
    assert out.dtype == ml_dtypes.bfloat16
    # Eight bits, and a choice of experts that rounding may change in a near-tie.
    assert relative(out, block(residual)) < 1e-2


@every_engine
def test_all_tokens_choose_the_same_experts(engine: str, thorough: bool) -> None:
    """The first experts are taken if all probabilities are equal; the others are not read."""
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    block = Block(USUAL)
    with torch.no_grad():
        block.block.gate.weight.zero_()
        block.block.experts.down_proj[3:] = np.nan
    residual = rows(20)
    out = run(block, residual, 20, pl.FP32, engine)
    x = block.norm(torch.from_numpy(residual)).detach()
    wanted = residual.copy()
    for e in range(3):
        gate, up = (x @ block.block.experts.gate_up_proj[e].T).chunk(2, dim=-1)
        product = (torch.nn.functional.silu(gate) * up) @ block.block.experts.down_proj[e].T
        wanted += product.detach().numpy() / 3
    assert relative(out, wanted) < 1e-6


@pytest.mark.parametrize("name", MOE_PRESETS)
@pytest.mark.parametrize(("rows", "int8"), [(16, False), (16, True), (256, False)])
def test_published_sizes_fit_on_every_machine(name: str, rows: int, int8: bool) -> None:
    shape = LayerShape(MOE_PRESETS[name], 16, 4096, row_tile=min(rows, 64), int8=int8)
    program = run_passes(build_moe(shape, rows))
    for machine in machine_names():
        findings = program_findings(program, load_machine(machine))
        assert not findings, "\n\n".join(map(str, findings))
