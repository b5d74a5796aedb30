"""All weights of a model in its programs' layout, and the memory they take.

Files store matrices as `[out, in]`; programs take `[in, out]`, in blocks of the columns of one task
(which then reads memory sequentially), with blocks and layers one below the other.
Weights are converted once, into memory or into a file that is then mapped, or streamed: converted
layer by layer whenever needed. The embedding is not converted: few rows of a mapped file are used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tilelet.checkpoint.safetensors import SafetensorsFile, write_header
from tilelet.diag.catalogue.generate import BadGenerateSetting, ModelTooLarge, WeightsNotCached
from tilelet.diag.catalogue.models import BadWeightFile
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3.architecture import (
    Architecture,
    LayerRun,
    architecture_of,
    rank_architecture,
)
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.ends import EndShape
from tilelet.models.qwen3.published import fitting_divisor
from tilelet.models.qwen3.tensor_parallel import rank_config
from tilelet.models.qwen3.weights import Checkpoint, LayerArray, empty_in_lines, transpose_matrix
from tilelet.native.memory import available_memory
from tilelet.runtime.progress import progress

_HEAD = "head"
# Maximum columns of a block.
_COLUMNS = 256


class LayerSource(Protocol):
    """The source of the arrays of layers."""

    def layers(self, first: int, count: int) -> dict[str, Array]:
        """Return the arrays of `count` layers from `first` on, concatenated over layers."""
        ...


@dataclass(frozen=True)
class ModelWeights:
    """embedding  `[vocabulary, hidden]`, in the dtype of the model
    final_norm    `[1, hidden]`, FP32
    head          `[hidden, vocabulary]`, in blocks of columns one below the other
    """

    embedding: Array
    final_norm: Array
    head: Array
    source: LayerSource

    def head_column(self, token: int) -> Array:
        """Return the weights of one token's logit."""
        hidden = self.final_norm.shape[1]
        block, column = divmod(token, self.head.shape[1])
        return self.head[block * hidden : (block + 1) * hidden, column]


@dataclass(frozen=True)
class _Stacked:
    """Layers of one kind from `first` on, in memory or in a mapped file."""

    arrays: Mapping[str, Array]
    first: int
    count: int

    def layers(self, first: int, count: int) -> dict[str, Array]:
        found: dict[str, Array] = {}
        begin = first - self.first
        for name, array in self.arrays.items():
            rows = len(array) // self.count
            found[name] = array[begin * rows : (begin + count) * rows]
        return found


@dataclass(frozen=True)
class _Runs:
    """All layers, those of each run of the architecture together."""

    architecture: Architecture
    stacks: Sequence[_Stacked]

    def layers(self, first: int, count: int) -> dict[str, Array]:
        run = self.architecture.run_of(first)
        return self.stacks[self.architecture.runs.index(run)].layers(first, count)


@dataclass(frozen=True)
class _Shards:
    """All layers of several ranks: `[ranks, rows, columns]`, or what all ranks have alike.

    If only one rank's part is here, it stands at the place of every rank.
    """

    architecture: Architecture
    stacks: Sequence[_Stacked]
    ranks: int

    def layers(self, first: int, count: int) -> dict[str, Array]:
        run = self.architecture.run_of(first)
        stack = self.stacks[self.architecture.runs.index(run)]
        found: dict[str, Array] = {}
        for name, array in stack.arrays.items():
            rows = array.shape[1] // stack.count
            begin = (first - stack.first) * rows
            part = array[:, begin : begin + count * rows]
            is_divided = run.kind.arrays[name].is_divided
            found[name] = (
                np.broadcast_to(part, (self.ranks, *part.shape[1:])) if is_divided else part[0]
            )
        return found


class _Streamed:
    """Layers that are read and converted on demand, with memory for one call's layers."""

    def __init__(self, checkpoint: Checkpoint, dtype: DType) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._kind: Mapping[str, LayerArray] = {}
        self._room = _Stacked({}, 0, 0)

    def layers(self, first: int, count: int) -> dict[str, Array]:
        kind = self._checkpoint.arrays_of(first)
        if kind is not self._kind or count > self._room.count:
            self._room = _Stacked({}, 0, 0)  # released before more is allocated
            self._room = _Stacked(empty_layers(kind, count, self._dtype), 0, count)
            self._kind = kind
        for i in range(count):
            self._checkpoint.fill_layer(first + i, self._room.layers(i, 1))
        return self._room.layers(0, count)


def empty_layers(arrays: Mapping[str, LayerArray], count: int, dtype: DType) -> dict[str, Array]:
    return {
        name: empty_in_lines((count * array.shape[0], array.shape[1]), array.element(dtype))
        for name, array in arrays.items()
    }


def layer_bytes(arrays: Mapping[str, LayerArray], dtype: DType) -> int:
    """Return the bytes of the arrays of one layer."""
    return sum(
        array.shape[0] * array.shape[1] * array.element(dtype).itemsize for array in arrays.values()
    )


@dataclass(frozen=True)
class LoadSettings:
    """How the weights of a model directory are loaded.

    dtype          of matrices and hidden states; None for as stored
    streamed       nothing of the layers is kept between passes
    weights_cache  a folder for the converted weights
    layers         number of layers to load, from the first; 0 for all
    int8           matrices of layers in INT8
    ranks          number of ranks among which the layers are divided
    rank           the only one whose part is loaded; None for all
    """

    dtype: DType | None = None
    streamed: bool = False
    weights_cache: Path | None = None
    layers: int = 0
    int8: bool = False
    ranks: int = 1
    rank: int | None = None

    @property
    def own_ranks(self) -> list[int]:
        return list(range(self.ranks)) if self.rank is None else [self.rank]


class Loader:
    """The checkpoint of a model directory, checked before anything is converted."""

    def __init__(self, directory: str | Path, settings: LoadSettings) -> None:
        self.directory = Path(directory)
        self.settings = settings
        config = Qwen3Config.read(directory)
        ranks = settings.ranks
        self.layer_config = rank_config(config, ranks) if ranks > 1 else config
        sizes = math.gcd(config.hidden_size, self.layer_config.intermediate_size)
        columns = fitting_divisor(sizes, _COLUMNS)
        architecture = architecture_of(config, int8=settings.int8, columns=columns)
        self.checkpoint = Checkpoint(directory, config, architecture.arrays_of)
        self.shards: list[Architecture] = []
        if ranks > 1:
            own = settings.own_ranks
            self.shards = [rank_architecture(config, columns, rank, ranks) for rank in own]
            architecture = self.shards[0]
        if settings.layers:
            if not 0 < settings.layers <= config.num_hidden_layers:
                wanted = f"at most {config.num_hidden_layers}, which the model has"
                raise BadGenerateSetting("layers", settings.layers, wanted)
            config = dataclasses.replace(config, num_hidden_layers=settings.layers)
            architecture = architecture.first_layers(settings.layers)
            self.shards = [shard.first_layers(settings.layers) for shard in self.shards]
        self.architecture: Architecture = architecture
        self.config = config
        self.dtype = settings.dtype or self.checkpoint.dtype
        for layer in range(config.num_hidden_layers):
            self.checkpoint.check_layer(layer)
        table = (config.vocab_size, config.hidden_size)
        self._embedding = self.checkpoint.whole("embed_tokens.weight", table)
        self._norm = self.checkpoint.whole("norm.weight", (config.hidden_size,))
        self._head = (
            self._embedding
            if config.tie_word_embeddings
            else self.checkpoint.whole("lm_head.weight", table)
        )

    def memory(self, layers_per_call: int) -> dict[str, int]:
        """Return the bytes that the weights will take, by use."""
        c, size = self.config, self.dtype.itemsize
        copies = len(self.settings.own_ranks)
        runs = [
            (r.count, copies * layer_bytes(r.kind.arrays, self.dtype))
            for r in self.architecture.runs
        ]
        found: dict[str, int] = {}
        if self._embedding.dtype != self.dtype.numpy:
            found["embedding"] = c.vocab_size * c.hidden_size * size
        if self.settings.weights_cache is None:
            if self.settings.streamed:
                found["layers"] = max(min(n, layers_per_call) * each for n, each in runs)
            else:
                found["layers"] = sum(n * each for n, each in runs)
            rows, columns = self._head_shape
            found["output head"] = rows * columns * size
        return found

    @property
    def _head_shape(self) -> tuple[int, int]:
        ends = EndShape(self.config, 1)
        return ends.blocks * self.config.hidden_size, ends.columns

    def _head_in_blocks(self) -> Array:
        return transpose_matrix(self._head, self.dtype, self._head_shape[1])

    def load(self) -> ModelWeights:
        """Load and convert everything."""
        embedding = self._embedding
        if embedding.dtype != self.dtype.numpy:
            embedding = embedding.astype(self.dtype.numpy)
        norm = self._norm.astype(np.float32).reshape(1, -1)
        folder = self.settings.weights_cache
        if folder is not None:
            head, source = self._mapped(folder)
            return ModelWeights(embedding, norm, head, source)
        with progress("loading the output head"):
            head = self._head_in_blocks()
        if self.settings.streamed:
            return ModelWeights(embedding, norm, head, _Streamed(self.checkpoint, self.dtype))
        if self.shards:
            return ModelWeights(embedding, norm, head, self._sharded())
        count = self.config.num_hidden_layers
        stacks: list[_Stacked] = []
        for run in self.architecture.runs:
            room = empty_layers(run.kind.arrays, run.count, self.dtype)
            stacks.append(_Stacked(room, run.first, run.count))
            for layer in range(run.first, run.end):
                with progress(f"loading layer {layer + 1} of {count}"):
                    self.checkpoint.fill_layer(layer, stacks[-1].layers(layer, 1))
        return ModelWeights(embedding, norm, head, _Runs(self.architecture, stacks))

    def _sharded(self) -> LayerSource:
        """Load the parts of the ranks that this process has."""
        count = self.config.num_hidden_layers
        stacks: list[_Stacked] = []
        for i, run in enumerate(self.architecture.runs):
            room = {
                name: empty_in_lines(
                    (len(self.shards), run.count * array.shape[0], array.shape[1]),
                    array.element(self.dtype),
                )
                for name, array in run.kind.arrays.items()
            }
            for number, shard in enumerate(self.shards):
                own = _Stacked({n: a[number] for n, a in room.items()}, run.first, run.count)
                arrays = shard.runs[i].kind.arrays
                for layer in range(run.first, run.end):
                    with progress(f"loading layer {layer + 1} of {count}"):
                        self.checkpoint.fill_layer(layer, own.layers(layer, 1), arrays)
            stacks.append(_Stacked(room, run.first, run.count))
        return _Shards(self.architecture, stacks, self.settings.ranks)

    # --- a file of converted weights --------------------------------------------------------------

    def _mapped(self, folder: Path) -> tuple[Array, LayerSource]:
        file = self._file(folder / f"{self._key()}.safetensors")
        stacks = [
            _Stacked(
                {n: file.tensor(_stored_name(run, n)) for n in run.kind.arrays},
                run.first,
                run.count,
            )
            for run in self.architecture.runs
        ]
        return file.tensor(_HEAD), _Runs(self.architecture, stacks)

    def _file(self, path: Path) -> SafetensorsFile:
        """Return the file of an earlier run, if it exists and is complete."""
        shapes = {name: shape for name, (shape, _) in self._shapes().items()}
        with suppress(BadWeightFile):
            file = SafetensorsFile(path)
            if {name: entry.shape for name, entry in file.entries.items()} == shapes:
                return file
        self._write(path)
        return SafetensorsFile(path)

    def _key(self) -> str:
        """Return what the file depends on: the configuration, the files, the target format."""
        stats = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in self.checkpoint.files]
        described = [
            2,
            self.architecture.name,
            dataclasses.asdict(self.config),
            self.dtype.name,
            self.architecture.int8,
            [(n, shape, dtype.name) for n, (shape, dtype) in self._shapes().items()],
            stats,
        ]
        text = json.dumps(described, sort_keys=True)
        return f"{self.directory.resolve().name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def _shapes(self) -> dict[str, tuple[tuple[int, int], DType]]:
        found = {_HEAD: (self._head_shape, self.dtype)}
        for run in self.architecture.runs:
            for name, array in run.kind.arrays.items():
                rows, columns = array.shape
                found[_stored_name(run, name)] = (
                    (run.count * rows, columns),
                    array.element(self.dtype),
                )
        return found

    def _write(self, path: Path) -> None:
        """Write with ordinary writes: on a full disk those fail, whereas mapped writes crash."""
        shapes = self._shapes()
        size = sum(r * c * dtype.itemsize for (r, c), dtype in shapes.values())
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                places = write_header(file, {n: (s, d.numpy) for n, (s, d) in shapes.items()})
                for name, at, array in self._pieces(places):
                    with progress(f"converting {name}"):
                        file.seek(at)
                        file.write(array.view(np.uint8).data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError as error:
            why = error.strerror or str(error)
            raise WeightsNotCached(str(path.parent), why, size) from error
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def _pieces(self, places: Mapping[str, int]) -> Iterator[tuple[str, int, Array]]:
        """Yield every converted part of the file with its name and position."""
        yield "the output head", places[_HEAD], self._head_in_blocks()
        count = self.config.num_hidden_layers
        streamed = _Streamed(self.checkpoint, self.dtype)
        for run in self.architecture.runs:
            for layer in range(run.first, run.end):
                for name, array in streamed.layers(layer, 1).items():
                    at = places[_stored_name(run, name)] + (layer - run.first) * array.nbytes
                    yield f"layer {layer + 1} of {count}", at, array


def _stored_name(run: LayerRun, name: str) -> str:
    """Return the name of an array of a run in a file of converted weights."""
    return f"{run.first}.{name}"


def check_memory(parts: Mapping[str, int]) -> None:
    """Raise an error if the weights do not fit into free memory."""
    available = available_memory()
    if available is not None and sum(parts.values()) > available:
        raise ModelTooLarge(parts, available)
