"""The same work in torch: products, attention, and a whole decode layer, each in several forms."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tilelet.bench.cases import BF16
from tilelet.dataclasses import dataclass
from tilelet.dtypes import Array

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 256  # rows of a weight widened at once
Linear = Callable[["Tensor", "Tensor"], "Tensor"]
Attention = Callable[["Tensor", "Tensor", "Tensor"], "Tensor"]


def is_installed() -> bool:
    return importlib.util.find_spec("torch") is not None


def use_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def tensor(array: Array) -> Tensor:
    """Return a tensor that shares memory."""
    import torch

    from_numpy = cast("Any", torch).from_numpy  # has no types
    if array.dtype == BF16:
        return from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return from_numpy(array)


def in_inference_mode(function: Callable[..., object]) -> Callable[[], object]:
    """Wrap `function` in inference mode."""
    import torch

    def run() -> object:
        with torch.inference_mode():
            return function()

    return run


# --- products of rows [m, in] with weights [out, in] ----------------------------------------------


def linear(x: Tensor, w: Tensor) -> Tensor:
    """One call; both have the same element type."""
    import torch

    return torch.nn.functional.linear(x, w)


def weight_first(x: Tensor, w: Tensor) -> Tensor:
    """One call with the weight on the left, which some libraries do faster."""
    return (w @ x.t()).t()


class Blocks:
    """Multiply block by block with the weight on the left; BF16 is widened to FP32."""

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        import torch

        columns = x.float().t().contiguous()
        out = torch.empty(w.shape[0], x.shape[0])
        is_narrow = w.dtype != torch.float32
        for start in range(0, w.shape[0], _BLOCK):
            block = w[start : start + _BLOCK]
            if is_narrow:
                block = self._buffer(w.shape[1])[: block.shape[0]].copy_(block)
            torch.mm(block, columns, out=out[start : start + _BLOCK])
        return out.t().to(x.dtype)

    def _buffer(self, columns: int) -> Tensor:
        """Return a cached buffer: fresh memory costs more than widening a block."""
        import torch

        if columns not in self._buffers:
            self._buffers[columns] = torch.empty(_BLOCK, columns)
        return self._buffers[columns]


def int8_linear(x: Tensor, w: Tensor, scale: Tensor) -> Callable[[], object] | None:
    """Return `x` times INT8 weights [out, in] with scales; None in a torch without that op.

    The op of torch 2.13 ends the process if an operand is not aligned to 64 bytes. Weights of the
    bench are; the others are copied to memory of torch.
    """
    import torch

    product: Any = getattr(torch, "_weight_int8pack_mm", None)
    x, scale = x.clone(), scale.clone()
    return None if product is None else in_inference_mode(lambda: product(x, w, scale))


def compiled_linear(x: Tensor, w: Tensor) -> Callable[[], object]:
    """Compile `F.linear` with autotuning; may raise."""
    import torch
    import torch._inductor.config as settings

    layer = torch.nn.Linear(1, 1, bias=False)
    layer.weight = torch.nn.Parameter(w, requires_grad=False)
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="tilelet-") as folder, contextlib.ExitStack() as stack:
        # its log is verbose
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(cast("Any", settings).patch(freezing=True, compile_threads=1))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            compiled = cast("Any", torch).compile(layer.eval(), mode="max-autotune-no-cudagraphs")
            in_inference_mode(lambda: compiled(x))()
        finally:
            if before is None:
                del os.environ["TORCHINDUCTOR_CACHE_DIR"]
            else:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
    return in_inference_mode(lambda: compiled(x))


# --- attention of one new query row per head over whole caches ------------------------------------
# q [batch, kv heads, query heads of one, head_dim], k and v [batch, kv heads, positions, head_dim]


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Torch's attention, with the query heads of a K/V head as rows of one query."""
    import torch

    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def fused_attention_by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Torch's attention, with grouped query heads."""
    import torch

    batch, kv_heads, group, width = q.shape
    rows = q.reshape(batch, kv_heads * group, 1, width)
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(rows, k, v, enable_gqa=True).reshape(q.shape)


def attention_by_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two products and a softmax."""
    import torch

    scores = torch.matmul(q, k.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    return torch.matmul(torch.softmax(scores, -1).to(v.dtype), v)


ATTENTION: dict[str, Attention] = {
    "SDPA": fused_attention,
    "SDPA by head": fused_attention_by_head,
    "two products": attention_by_products,
}


# --- a decode layer -------------------------------------------------------------------------------


@dataclass
class DecodeLayer:
    """The decode layer of the models. All sequences have full contexts.

    tensors  arguments by their names; the weights are [out, in]. Caches are rows as in the models.
    """

    tensors: Mapping[str, Tensor]
    kv_heads: int
    head_dim: int
    eps: float

    @property
    def dtype(self) -> Any:
        return self.tensors["wq"].dtype

    def __call__(self, project: Linear, attend: Attention) -> Tensor:
        """Return the output of the layer, and write new keys and values to the caches."""
        import torch

        t = self.tensors
        x = t["hidden_states"].float()
        normed = self._norm(x, "input_rms_weight")
        attended = attend(*self.attention_inputs(project, normed))
        context = attended.reshape(x.shape[0], -1).to(self.dtype)
        resid = project(context, t["wo"]).float() + x
        normed = self._norm(resid, "post_rms_weight")
        gate, up = project(normed, t["w_gate"]), project(normed, t["w_up"])
        mlp = torch.nn.functional.silu(gate.float()) * up.float()
        return (project(mlp.to(self.dtype), t["w_down"]).float() + resid).to(torch.bfloat16)

    def attention_inputs(self, project: Linear, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries and caches with the new position."""
        t = self.tensors
        batch = normed.shape[0]
        k_cache, v_cache = self.caches(batch)
        last = k_cache.shape[2] - 1
        cos, sin = t["rope_cos"][last], t["rope_sin"][last]
        q, k, v = (
            project(normed, t[w]).float().reshape(batch, self.kv_heads, -1, self.head_dim)
            for w in ("wq", "wk", "wv")
        )
        k_cache[:, :, last] = self._rotate(k, cos, sin)[:, :, 0].to(self.dtype)
        v_cache[:, :, last] = v[:, :, 0].to(self.dtype)
        return self._rotate(q, cos, sin).to(self.dtype), k_cache, v_cache

    def caches(self, batch: int) -> tuple[Tensor, Tensor]:
        k, v = (
            self.tensors[name].view(batch, self.kv_heads, -1, self.head_dim)
            for name in ("k_cache", "v_cache")
        )
        return k, v

    def _norm(self, x: Tensor, weight: str) -> Tensor:
        import torch

        gamma = self.tensors[weight][0]
        normed = torch.nn.functional.rms_norm(x, gamma.shape, gamma, self.eps)
        return normed.to(self.dtype)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        import torch

        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin
