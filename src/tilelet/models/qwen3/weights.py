"""Load the weights of Qwen3 layers from a model directory in the programs' layout."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from tilelet import dtypes
from tilelet.checkpoint.files import open_files
from tilelet.checkpoint.safetensors import TensorEntry
from tilelet.diag.catalogue.models import (
    ExtraTensors,
    MissingTensors,
    NoSuchLayer,
    UnsupportedModelSetting,
    WrongTensorDType,
    WrongTensorShape,
)
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig

_ACCEPTED = {"BF16": dtypes.BF16, "F16": dtypes.FP16, "F32": dtypes.FP32}

ROUTER = "w_router"

# Rows and columns of a weight transposed at a time: both sides stay in cache.
_BLOCK = 256
_LINE = 64  # cache line size in bytes


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer: matrices `[in, out]` in one dtype, norms `[1, n]` in FP32.

    The fields are in the parameter order of the layer programs.
    """

    input_norm: Array
    wq: Array
    wk: Array
    wv: Array
    q_norm: Array
    k_norm: Array
    wo: Array
    post_norm: Array
    w_gate: Array
    w_up: Array
    w_down: Array

    @property
    def dtype(self) -> DType:
        return dtypes.from_numpy(self.wq.dtype)

    def arrays(self) -> dict[str, Array]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


Fill = Callable[[Array, Sequence[Array]], None]


def fill_transposed(out: Array, stored: Sequence[Array]) -> None:
    """Store matrices `[out, in]` as `[in, out]`, one below the other; vectors as rows.

    If `out` has fewer columns than a matrix, the blocks of its columns are one below the other.
    """
    rows = len(out) // len(stored)
    for i, piece in enumerate(stored):
        part = out[i * rows : (i + 1) * rows]
        if piece.ndim == 1:
            part[:] = piece
        else:
            for block, outputs in column_blocks(part, piece):
                _transpose(outputs, block[:, : len(outputs)])
                block[:, len(outputs) :] = 0


def column_blocks(out: Array, stored: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the column blocks in `out` of a matrix stored `[out, in]`, with the outputs of each."""
    width = out.shape[1]
    count = math.ceil(len(stored) / width)
    rows = len(out) // count
    for i in range(count):
        yield out[i * rows : (i + 1) * rows], stored[i * width : (i + 1) * width]


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count` equal parts of a tensor along an axis."""

    axis: int
    number: int
    count: int

    def of(self, tensor: Array) -> Array:
        size = tensor.shape[self.axis] // self.count
        own = slice(self.number * size, (self.number + 1) * size)
        return tensor[own] if self.axis == 0 else tensor[:, own]


@dataclass(frozen=True)
class LayerArray:
    """An array of a layer in the programs' layout, and the tensors it is made from.

    pieces  names of the tensors in the files that `fill` uses, without `layers.N.`
    stored  the shape of each of them
    dtype   of the elements; None for that of the model
    shard   the part of each tensor that is used; None for all of it
    is_divided  each rank has its own part
    """

    shape: tuple[int, int]
    pieces: tuple[str, ...]
    stored: tuple[int, ...]
    dtype: DType | None = None
    fill: Fill = fill_transposed
    shard: Shard | None = None
    is_divided: bool = False

    def element(self, model: DType) -> DType:
        return self.dtype or model


def matrix(name: str, inputs: int, outputs: int) -> LayerArray:
    """A weight `[outputs, inputs]` of the files, transposed."""
    return LayerArray((inputs, outputs), (name,), (outputs, inputs))


def in_blocks(array: LayerArray, columns: int) -> LayerArray:
    """The same matrices in blocks of `columns` columns, one below the other."""
    rows, outputs = array.shape
    return dataclasses.replace(array, shape=(outputs // columns * rows, columns))


def norm(name: str, size: int) -> LayerArray:
    """The weight of an RMSNorm, in FP32."""
    return LayerArray((1, size), (name,), (size,), dtypes.FP32)


def attention_arrays(config: Qwen3Config) -> dict[str, LayerArray]:
    """Return the arrays of the attention part of a layer."""
    hidden, head = config.hidden_size, config.head_dim
    return {
        "input_norm": norm("input_layernorm.weight", hidden),
        "wq": matrix("self_attn.q_proj.weight", hidden, config.q_width),
        "wk": matrix("self_attn.k_proj.weight", hidden, config.kv_width),
        "wv": matrix("self_attn.v_proj.weight", hidden, config.kv_width),
        "q_norm": norm("self_attn.q_norm.weight", head),
        "k_norm": norm("self_attn.k_norm.weight", head),
        "wo": matrix("self_attn.o_proj.weight", config.q_width, hidden),
        "post_norm": norm("post_attention_layernorm.weight", hidden),
    }


def layer_arrays(config: Qwen3Config) -> dict[str, LayerArray]:
    """Return the arrays of a layer of the dense models, as in `LayerWeights`."""
    hidden, inter = config.hidden_size, config.intermediate_size
    return {
        **attention_arrays(config),
        "w_gate": matrix("mlp.gate_proj.weight", hidden, inter),
        "w_up": matrix("mlp.up_proj.weight", hidden, inter),
        "w_down": matrix("mlp.down_proj.weight", inter, hidden),
    }


def sparse_layer_arrays(config: Qwen3MoeConfig) -> dict[str, LayerArray]:
    """Return the arrays of a layer with experts, whose matrices are concatenated."""
    hidden, width, experts = config.hidden_size, config.moe_intermediate_size, config.num_experts

    def matrices(name: str, inputs: int, outputs: int) -> LayerArray:
        pieces = tuple(f"mlp.experts.{e}.{name}.weight" for e in range(experts))
        return LayerArray((experts * inputs, outputs), pieces, (outputs, inputs))

    return {
        **attention_arrays(config),
        ROUTER: matrix("mlp.gate.weight", hidden, experts),
        "w_gate": matrices("gate_proj", hidden, width),
        "w_up": matrices("up_proj", hidden, width),
        "w_down": matrices("down_proj", width, hidden),
    }


def layer_shapes(config: Qwen3Config) -> dict[str, tuple[int, int]]:
    """Return the shape of every array of `LayerWeights`."""
    return {name: array.shape for name, array in layer_arrays(config).items()}


def load_layer(
    path: str | Path, index: int, config: Qwen3Config | None = None, dtype: DType | None = None
) -> LayerWeights:
    """Load layer `index` of the model in directory `path`; matrices in `dtype`, or as stored.

    `config` is that of the directory unless given.
    """
    config = config or Qwen3Config.read(path)
    return Checkpoint(path, config).layer(index, dtype)


class Checkpoint:
    """The mapped weight files of a model directory, with their tensor names checked.

    `arrays_of` returns the arrays of a layer by its index; by default those of dense models.
    """

    def __init__(
        self,
        path: str | Path,
        config: Qwen3Config,
        arrays_of: Callable[[int], Mapping[str, LayerArray]] | None = None,
    ) -> None:
        self.config = config
        if arrays_of is None:
            if isinstance(config, Qwen3MoeConfig):
                supported = "layers without experts here; `tilelet.models.qwen3.load` runs all"
                raise UnsupportedModelSetting("num_experts", config.num_experts, supported)
            dense = layer_arrays(config)
            self.arrays_of: Callable[[int], Mapping[str, LayerArray]] = lambda layer: dense
        else:
            self.arrays_of = arrays_of
        self._files = open_files(Path(path))
        self._prefix = "model." if any(n.startswith("model.") for n in self._files) else ""
        self._pieces = [
            {piece for array in self.arrays_of(layer).values() for piece in array.pieces}
            for layer in range(config.num_hidden_layers)
        ]
        extra = sorted(name for name in self._files if not self._is_expected(name))
        if extra:
            raise ExtraTensors(extra)

    @property
    def files(self) -> list[Path]:
        return sorted({file.path for file in self._files.values()})

    @property
    def dtype(self) -> DType:
        """Return the dtype of the first layer's matrices, and so of the model."""
        return self._dtype_of(0)

    def layer(self, index: int, dtype: DType | None = None) -> LayerWeights:
        """Return the weights of one layer, each checked before any is converted."""
        self.check_layer(index)
        common = dtype or self._dtype_of(index)
        found = {
            name: empty_in_lines(array.shape, array.element(common))
            for name, array in self.arrays_of(index).items()
        }
        self.fill_layer(index, found)
        return LayerWeights(**found)

    def layers(self, dtype: DType | None = None) -> Iterator[LayerWeights]:
        """Yield all layers in order, each loaded on demand."""
        return (self.layer(i, dtype) for i in range(self.config.num_hidden_layers))

    def check_layer(self, index: int) -> None:
        """Check that all tensors of a layer exist with the right shape and dtype."""
        if not 0 <= operator.index(index) < self.config.num_hidden_layers:
            raise NoSuchLayer(index, self.config.num_hidden_layers)
        arrays = self.arrays_of(index).values()
        self._present([n for array in arrays for n in self._names(index, array)])
        for array in arrays:
            for name in self._names(index, array):
                _check_entry(name, self._files[name].entries[name], array.stored)

    def fill_layer(
        self,
        index: int,
        into: Mapping[str, Array],
        arrays: Mapping[str, LayerArray] | None = None,
    ) -> None:
        """Fill the arrays of a layer, by default those of the checked layer `index`."""
        for name, array in (arrays or self.arrays_of(index)).items():
            stored = [self._files[n].tensor(n) for n in self._names(index, array)]
            array.fill(into[name], [array.shard.of(t) if array.shard else t for t in stored])

    def whole(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return a tensor that belongs to no layer, as a view of its file."""
        full = name if name.startswith("lm_head") else f"{self._prefix}{name}"
        self._present([full])
        _check_entry(full, self._files[full].entries[full], shape)
        return self._files[full].tensor(full)

    def _present(self, names: list[str]) -> list[str]:
        missing = [n for n in names if n not in self._files]
        if missing:
            raise MissingTensors(missing, self._files)
        return names

    def _names(self, index: int, array: LayerArray) -> list[str]:
        return [f"{self._prefix}layers.{index}.{piece}" for piece in array.pieces]

    def _dtype_of(self, index: int) -> DType:
        (name,) = self._present(self._names(index, self.arrays_of(index)["wq"]))
        return _ACCEPTED[_check_dtype(name, self._files[name].entries[name])]

    def _is_expected(self, name: str) -> bool:
        """Return whether a model of this configuration may have a tensor of that name."""
        whole = (f"{self._prefix}embed_tokens.weight", f"{self._prefix}norm.weight")
        if name in whole or name == "lm_head.weight":  # tied embeddings may be stored twice
            return True
        inside = re.fullmatch(r"layers\.(0|[1-9][0-9]{0,8})\.(.+)", name.removeprefix(self._prefix))
        if inside is None or not name.startswith(self._prefix):
            return False
        layer = int(inside[1])
        return layer < self.config.num_hidden_layers and inside[2] in self._pieces[layer]


def _check_entry(name: str, entry: TensorEntry, shape: tuple[int, ...]) -> None:
    if entry.shape != shape:
        raise WrongTensorShape(name, entry.shape, shape)
    _check_dtype(name, entry)


def _check_dtype(name: str, entry: TensorEntry) -> str:
    if entry.dtype not in _ACCEPTED:
        raise WrongTensorDType(name, entry.dtype, list(_ACCEPTED))
    return entry.dtype


def transpose_matrix(stored: Array, dtype: DType, columns: int = 0) -> Array:
    """Convert a `[out, in]` matrix to a new `[in, out]` one in `dtype`, in blocks of `columns`."""
    outputs, inputs = stored.shape
    width = columns or outputs
    out = empty_in_lines((math.ceil(outputs / width) * inputs, width), dtype)
    fill_transposed(out, [stored])
    return out


def empty_in_lines(shape: tuple[int, ...], dtype: DType) -> Array:
    """Allocate an array aligned to a cache line, which is faster to read."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(dtype.numpy).reshape(shape)


def _transpose(stored: Array, out: Array) -> None:
    rows, columns = stored.shape
    for c in range(0, columns, _BLOCK):
        for r in range(0, rows, _BLOCK):
            out[c : c + _BLOCK, r : r + _BLOCK] = stored[r : r + _BLOCK, c : c + _BLOCK].T
