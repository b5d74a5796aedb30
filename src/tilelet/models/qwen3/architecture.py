"""What distinguishes the architectures of the family: arrays and programs of layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby

from tilelet.ir.core import Program
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.models.qwen3.int8 import in_int8
from tilelet.models.qwen3.moe import build_sparse_decode, build_sparse_prefill, expert_columns
from tilelet.models.qwen3.published import Kind, LayerShape, build_decode, build_prefill
from tilelet.models.qwen3.sparse_parallel import make_overlapped_sparse
from tilelet.models.qwen3.tensor_parallel import SPLIT_AXIS, make_overlapped, rank_config
from tilelet.models.qwen3.weights import (
    LayerArray,
    Shard,
    attention_arrays,
    in_blocks,
    layer_arrays,
    sparse_layer_arrays,
)


@dataclass(frozen=True, eq=False)
class LayerKind:
    """A kind of layer: `arrays` are in the order in which the programs of `build` take them, after
    hidden states, lengths, starts, block table, rope tables and caches. Programs return caches and
    hidden states; those of sparse layers also return the experts of each row.
    """

    name: str
    arrays: Mapping[str, LayerArray]
    build: Callable[[Kind, LayerShape], Program]
    is_sparse: bool = False


@dataclass(frozen=True)
class LayerRun:
    """Consecutive layers of one kind, which one call can run."""

    kind: LayerKind
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count


@dataclass(frozen=True)
class Architecture:
    """The layers of a model, in `runs`; matrices in INT8 or as stored.

    columns  columns per block of a matrix, unless the size of a head determines them
             (`LayerShape.blocked` and `out_chunk`); 0 if matrices are not in blocks
    """

    name: str
    runs: tuple[LayerRun, ...]
    int8: bool = False
    columns: int = 0

    def run_of(self, layer: int) -> LayerRun:
        return next(run for run in self.runs if run.first <= layer < run.end)

    def arrays_of(self, layer: int) -> Mapping[str, LayerArray]:
        return self.run_of(layer).kind.arrays

    def first_layers(self, count: int) -> Architecture:
        """Return the architecture with only the first `count` layers."""
        runs = [
            LayerRun(run.kind, run.first, min(run.end, count) - run.first)
            for run in self.runs
            if run.first < count
        ]
        return dataclasses.replace(self, runs=tuple(runs))


def _build_dense(kind: Kind, shape: LayerShape) -> Program:
    return build_prefill(shape) if kind == "prefill" else build_decode(shape)


def _build_sparse(kind: Kind, shape: LayerShape) -> Program:
    return build_sparse_prefill(shape) if kind == "prefill" else build_sparse_decode(shape)


def _in_blocks(
    arrays: Mapping[str, LayerArray], config: Qwen3Config, output: int, mlp: int
) -> dict[str, LayerArray]:
    """Store every matrix in blocks of the columns of one task."""
    head = config.head_dim
    columns = {"wq": head, "wk": head, "wv": head, "wo": output}
    columns |= dict.fromkeys(("w_gate", "w_up", "w_down"), mlp)
    return {
        name: in_blocks(array, columns[name]) if name in columns else array
        for name, array in arrays.items()
    }


def _shards(
    arrays: Mapping[str, LayerArray], own: Mapping[str, LayerArray], rank: int, ranks: int
) -> dict[str, LayerArray]:
    """Return the arrays `own` of a rank, made from its parts of the tensors of `arrays`."""
    found: dict[str, LayerArray] = {}
    for name, array in own.items():
        if name in SPLIT_AXIS:
            shard = Shard(1 - SPLIT_AXIS[name], rank, ranks)  # tensors are stored `[out, in]`
            stored = arrays[name].stored
            array = dataclasses.replace(array, stored=stored, shard=shard, is_divided=True)
        found[name] = array
    return found


def rank_architecture(config: Qwen3Config, columns: int, rank: int, ranks: int) -> Architecture:
    """Return the architecture of one rank of several, with the programs of all."""
    own = rank_config(config, ranks)
    name, sparse = "qwen3", {}
    dense = _shards(layer_arrays(config), layer_arrays(own), rank, ranks)
    if isinstance(own, Qwen3MoeConfig):
        name = "qwen3_moe"
        attention = _shards(attention_arrays(config), attention_arrays(own), rank, ranks)
        sparse = {
            name: attention.get(name) or _own_experts(array, rank, ranks)
            for name, array in sparse_layer_arrays(own).items()
        }
        sparse = _in_blocks(sparse, own, columns, expert_columns(own))
    dense = _in_blocks(dense, own, columns, columns)
    kinds = {
        False: LayerKind(
            "dense", dense, lambda kind, shape: make_overlapped(shape, kind, ranks).specialize()
        ),
        True: LayerKind(
            "sparse",
            sparse,
            lambda kind, shape: make_overlapped_sparse(shape, kind, ranks).specialize(),
            is_sparse=True,
        ),
    }
    return Architecture(name, _runs(config, kinds), columns=columns)


def _own_experts(array: LayerArray, rank: int, ranks: int) -> LayerArray:
    """Return the matrices of one rank's experts; the router stays as it is."""
    if len(array.pieces) == 1:
        return array
    count = len(array.pieces) // ranks
    rows, columns = array.shape
    return dataclasses.replace(
        array,
        shape=(rows // ranks, columns),
        pieces=array.pieces[rank * count : (rank + 1) * count],
        is_divided=True,
    )


def _runs(config: Qwen3Config, kinds: Mapping[bool, LayerKind]) -> tuple[LayerRun, ...]:
    """Return consecutive layers of one kind; True is the kind with experts."""
    runs: list[LayerRun] = []
    for is_sparse, layers in groupby(range(config.num_hidden_layers), config.is_sparse):
        numbers = list(layers)
        runs.append(LayerRun(kinds[is_sparse], numbers[0], len(numbers)))
    return tuple(runs)


def architecture_of(config: Qwen3Config, *, int8: bool = False, columns: int = 0) -> Architecture:
    """Return the architecture of a configuration; `int8` and `columns` as in `Architecture`."""
    dense, sparse = layer_arrays(config), {}
    name = "qwen3"
    if isinstance(config, Qwen3MoeConfig):
        name, sparse = "qwen3_moe", sparse_layer_arrays(config)
    if columns:
        dense = _in_blocks(dense, config, columns, columns)
        if isinstance(config, Qwen3MoeConfig):
            sparse = _in_blocks(sparse, config, columns, expert_columns(config))
    if int8:
        dense, sparse = in_int8(dense), in_int8(sparse)
    kinds = {
        False: LayerKind("dense", dense, _build_dense),
        True: LayerKind("sparse", sparse, _build_sparse, is_sparse=True),
    }
    return Architecture(name, _runs(config, kinds), int8, columns)
