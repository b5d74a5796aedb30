"""The torch versions compute what the programs compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilelet.bench import torch_forms
from tilelet.bench.cases import BF16
from tilelet.models import registry
from tilelet.runtime.data.inputs import initial_array

torch = pytest.importorskip("torch")

SIZES = {
    "batch": 4,
    "batch_tile": 4,
    "hidden": 256,
    "kv_heads": 2,
    "head_dim": 32,
    "intermediate": 512,
    "max_seq": 64,
    "k_chunk": 64,
    "q_out_chunk": 32,
    "kv_out_chunk": 32,
    "mlp_out_chunk": 32,
    "seq_tile": 16,
    "q_head_batch": 4,
}
LINEAR = {
    "linear": torch_forms.linear,
    "weight_first": torch_forms.weight_first,
    "blocks": torch_forms.Blocks(),
}


@pytest.fixture(scope="module")
def layer() -> tuple[dict[str, Any], Any]:
    """Return the arguments of a decode layer with full contexts, and its output in double."""
    model, variant = registry.resolve("qwen3/decode:baseline")
    shape = model.shape_for(variant, **SIZES)
    arguments = {spec.name: initial_array(spec) for spec in model.specs(shape)}
    arguments["seq_lens"][:] = shape.max_seq
    # Scores differ, but no head is as peaked as in real models, because torch rounds queries twice.
    weights = np.random.default_rng(1).standard_normal((shape.hidden, shape.hidden))
    arguments["wq"] = (weights * 10 * shape.hidden**-0.5).astype(BF16)
    golden = {name: array.copy() for name, array in arguments.items()}
    model.golden(shape)(golden)
    return arguments, golden


@pytest.mark.parametrize("way", LINEAR)
@pytest.mark.parametrize("attention", torch_forms.ATTENTION)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_layer_is_the_layer(
    layer: tuple[dict[str, Any], Any], way: str, attention: str, dtype: Any
) -> None:
    arguments, golden = layer
    tensors: dict[str, Any] = {}
    for name, array in arguments.items():
        found = torch_forms.tensor(array).clone()
        if name.startswith("w"):
            found = found.t().contiguous()
        is_large = name.startswith("w") or name.endswith("_cache")
        tensors[name] = found.to(dtype) if is_large else found
    decode = torch_forms.DecodeLayer(tensors, SIZES["kv_heads"], SIZES["head_dim"], 1e-6)
    out = decode(LINEAR[way], torch_forms.ATTENTION[attention]).float().numpy()
    np.testing.assert_allclose(out, golden["out"].astype(np.float32), atol=0.02)
    for name in ("k_cache", "v_cache"):
        ours = tensors[name].float().numpy()
        np.testing.assert_allclose(ours, golden[name].astype(np.float32), atol=0.02)


@pytest.mark.parametrize("way", LINEAR)
def test_products_of_odd_sizes(way: str) -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((5, 48)).astype(np.float32)).bfloat16()
    w = torch.from_numpy(rng.standard_normal((300, 48)).astype(np.float32)).bfloat16()
    wanted = x.double() @ w.double().t()
    found = LINEAR[way](x, w).double()
    torch.testing.assert_close(found, wanted, rtol=0.01, atol=0.05)


def test_tensors_share_the_memory_of_arrays() -> None:
    array = np.zeros((2, 3), BF16)
    torch_forms.tensor(array)[1, 2] = 1.5
    assert array[1, 2] == 1.5


def test_operands_of_the_int8_product_may_lie_anywhere() -> None:
    """The op requires aligned operands."""
    x, scale = (torch.ones(n + 1, dtype=torch.bfloat16)[1:] for n in (64, 32))
    run = torch_forms.int8_linear(x.view(1, 64), torch.ones(32, 64, dtype=torch.int8), scale)
    if run is not None:
        assert torch.equal(run(), torch.full((1, 32), 64.0, dtype=torch.bfloat16))
