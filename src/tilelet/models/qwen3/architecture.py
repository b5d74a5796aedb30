"""What distinguishes one architecture of the family from another: a layer's arrays and programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tilelet.ir.core import Program
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.published import LayerShape, build_decode, build_prefill
from tilelet.models.qwen3.weights import LayerArray, layer_arrays

Kind = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Architecture:
    """`arrays` of a layer stand in the order in which the programs of `build` take them, after
    hidden states, lengths, starts, block table, rope tables and caches.
    """

    name: str
    arrays: Callable[[Qwen3Config], dict[str, LayerArray]]
    build: Callable[[Kind, LayerShape], Program]


def _build_dense(kind: Kind, shape: LayerShape) -> Program:
    return build_prefill(shape) if kind == "prefill" else build_decode(shape)


DENSE = Architecture("qwen3", layer_arrays, _build_dense)


def architecture_of(config: Qwen3Config) -> Architecture:
    """That of a model with this configuration."""
    return DENSE
