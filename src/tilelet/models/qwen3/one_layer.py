"""Run one layer of a checkpoint at full size, and compare it with a golden of its own weights.

    found = run_layer("Qwen3-32B", 17, LayerInput(positions=16, capture=True))
    print(found.passed, found.checks)

Activations are random or captured: tokens go through the embedding and all preceding layers, one of
which is in memory at a time. All but the last position are prefilled, the last is a decode step;
both are compared with a layer in double precision that reads the files independently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilelet.checkpoint.safetensors import write_header
from tilelet.diag.catalogue.checkpoint import BadLayerRequest
from tilelet.diag.catalogue.generate import UnknownToken
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3.architecture import Kind, LayerKind, architecture_of
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.layer_golden import LayerGolden
from tilelet.models.qwen3.loading import check_memory, empty_layers, layer_bytes
from tilelet.models.qwen3.published import LayerShape, rope_tables
from tilelet.models.qwen3.weights import Checkpoint
from tilelet.runtime import CompiledProgram, RunConfig, compile_program
from tilelet.runtime.progress import progress

_ROW_TILE = 16
_SEQ_TILE = 64
# Relative bounds on the error of what a layer adds to its input (sums of many rounded products),
# and of its output, which is rounded once more.
BOUNDS = {"FP32": (2e-5, 2.0**-23), "FP16": (4e-3, 2.0**-11), "BF16": (2e-2, 2.0**-8)}


@dataclass(frozen=True)
class LayerInput:
    """The input of a layer: `positions` rows.

    capture  states that the layers before compute from `tokens`, or random ones; else random
    """

    positions: int = 17
    capture: bool = False
    tokens: Sequence[int] | None = None
    seed: int = 0


@dataclass(frozen=True)
class LayerCheck:
    """One comparison: the relative L2 error of what the layer adds, and its limit.

    near_ties  positions left out because rounding decides which experts they go to
    """

    name: str
    error: float
    bound: float
    near_ties: int = 0

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


@dataclass(frozen=True, eq=False)
class LayerResult:
    """States in and out of a layer `[positions, hidden]`, and the expected output.

    int8_error  relative L2 distance, of what the layer adds, from the stored weights
    """

    layer: int
    kind: str
    dtype: DType
    states: Array
    out: Array
    golden: Array
    checks: tuple[LayerCheck, ...]
    int8_error: float | None = None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def save(self, path: str | Path) -> None:
        """Save `states`, `out` and `golden` to a file for `TensorSpec(checkpoint=)`."""
        target = saving_place(path)
        arrays = {"states": self.states, "out": self.out, "golden": self.golden}
        with target.open("wb") as file:
            places = write_header(file, {n: (a.shape, a.dtype) for n, a in arrays.items()})
            for name, array in arrays.items():
                file.seek(places[name])
                file.write(np.ascontiguousarray(array).view(np.uint8).data)


def saving_place(path: str | Path) -> Path:
    """Check that a result may be saved here."""
    target = Path(path)
    if target.suffix != ".safetensors":
        raise BadLayerRequest("the file", target.name, "a name that ends in `.safetensors`")
    return target


class LayerRunner:
    """Runs layers of a checkpoint one by one, each loaded on demand.

    positions  rows of a layer's input: the last is decoded, those before it are prefilled
    """

    def __init__(
        self,
        directory: str | Path,
        positions: int,
        *,
        dtype: DType | None = None,
        int8: bool = False,
        engine: str | None = None,
    ) -> None:
        if positions < 1:
            raise BadLayerRequest("the number of positions", positions, "at least 1")
        self.config = Qwen3Config.read(directory)
        self.architecture = architecture_of(self.config, int8=int8)
        self.checkpoint = Checkpoint(directory, self.config, self.architecture.arrays_of)
        self.dtype = dtype or self.checkpoint.dtype
        self.positions = positions
        self._max_seq = math.ceil(positions / _SEQ_TILE) * _SEQ_TILE
        self._rope = rope_tables(self.config, self._max_seq)
        self._settings = RunConfig(engine=engine)
        self._programs: dict[tuple[str, str], CompiledProgram] = {}
        self._room: tuple[LayerKind | None, dict[str, Array]] = (None, {})

    def check_memory(self, layer: int) -> None:
        """Reject a layer that does not fit; the golden works on blocks of the mapped files."""
        size = layer_bytes(self.architecture.arrays_of(layer), self.dtype)
        check_memory({f"layer {layer}": size})

    def embed(self, tokens: Sequence[int]) -> Array:
        """Return the rows of the embedding."""
        c = self.config
        for place, token in enumerate(tokens):
            if not 0 <= token < c.vocab_size:
                raise UnknownToken(0, place, token, c.vocab_size)
        table = self.checkpoint.whole("embed_tokens.weight", (c.vocab_size, c.hidden_size))
        return table[np.asarray(tokens, np.int64)].astype(self.dtype.numpy)

    def arrays(self, layer: int) -> dict[str, Array]:
        """Return the weights of a layer, reusing the memory of the last one."""
        self.checkpoint.check_layer(layer)
        kind = self.architecture.run_of(layer).kind
        if self._room[0] is not kind:
            self._room = (None, {})
            self._room = (kind, empty_layers(kind.arrays, 1, self.dtype))
        self.checkpoint.fill_layer(layer, self._room[1])
        return self._room[1]

    def run(self, layer: int, states: Array) -> Array:
        """Return the output of a layer."""
        weights = self.arrays(layer)
        kind = self.architecture.run_of(layer).kind
        cache = self._shape("prefill").cache_rows, self.config.head_dim
        caches = [np.zeros(cache, self.dtype.numpy) for _ in range(2)]
        before = self.positions - 1
        out = np.empty_like(states)
        if before:
            rows = np.zeros((self._shape("prefill").tokens, states.shape[1]), states.dtype)
            rows[:before] = states[:before]
            self._call("prefill", kind, rows, 0, before, caches, weights)
            out[:before] = rows[:before]
        row = states[before:].copy()
        self._call("decode", kind, row, before, before + 1, caches, weights)
        out[before:] = row
        return out

    def _call(
        self,
        which: Kind,
        kind: LayerKind,
        rows: Array,
        start: int,
        length: int,
        caches: list[Array],
        weights: dict[str, Array],
    ) -> None:
        key = (which, kind.name)
        if key not in self._programs:
            with progress(f"compiling {which}"):
                self._programs[key] = compile_program(
                    kind.build(which, self._shape(which)), config=self._settings
                )
        starts, lengths = (np.array([n], np.int32) for n in (start, length))
        table = np.zeros((1, 1), np.int32)
        self._programs[key](
            rows, lengths, starts, table, *self._rope, *caches, *weights.values(),
            config=self._settings,
        )  # fmt: skip

    def _shape(self, which: Kind) -> LayerShape:
        rows = math.ceil(max(1, self.positions - 1) / _ROW_TILE) * _ROW_TILE
        return LayerShape(
            self.config,
            1,
            self._max_seq,
            dtype=self.dtype,
            tokens=rows,
            int8=self.architecture.int8,
            row_tile=1 if which == "decode" else _ROW_TILE,
            seq_tile=_SEQ_TILE,
        )


def run_layer(
    directory: str | Path,
    layer: int,
    given: LayerInput | None = None,
    *,
    dtype: DType | None = None,
    int8: bool = False,
    engine: str | None = None,
) -> LayerResult:
    """Run one layer of the model in a directory, and compare it."""
    given = given or LayerInput()
    positions = len(given.tokens) if given.tokens is not None else given.positions
    runner = LayerRunner(directory, positions, dtype=dtype, int8=int8, engine=engine)
    runner.checkpoint.check_layer(layer)
    runner.check_memory(layer)
    states = _capture_states(runner, layer, given) if given.capture else _random(runner, given)
    with progress(f"layer {layer}"):
        out = runner.run(layer, states)
    golden = LayerGolden(runner.checkpoint, layer, int8=int8)
    with progress(f"golden of layer {layer}, in double"):
        wanted = golden(states)
    near = golden.near_ties(BOUNDS[runner.dtype.name][0])
    int8_error = None
    if int8:
        with progress(f"golden of layer {layer}, weights as they are stored"):
            stored = LayerGolden(runner.checkpoint, layer)(states)
        int8_error = _distance(wanted, stored, stored - states.astype(np.float64))
    checks = tuple(_checks(runner.dtype, states, out, wanted, near))
    kind = runner.architecture.run_of(layer).kind.name
    narrow = wanted.astype(np.float32)
    return LayerResult(layer, kind, runner.dtype, states, out, narrow, checks, int8_error)


def _random(runner: LayerRunner, given: LayerInput) -> Array:
    """Return rows of about the magnitude of embeddings and residuals in trained models: one."""
    rng = np.random.default_rng(given.seed)
    shape = (runner.positions, runner.config.hidden_size)
    return rng.standard_normal(shape, np.float32).astype(runner.dtype.numpy)


def _capture_states(runner: LayerRunner, layer: int, given: LayerInput) -> Array:
    tokens = given.tokens
    if tokens is None:
        rng = np.random.default_rng(given.seed)
        tokens = [int(t) for t in rng.integers(0, runner.config.vocab_size, runner.positions)]
    states = runner.embed(tokens)
    for before in range(layer):
        with progress(f"layer {before} of the {layer} before"):
            states = runner.run(before, states)
    return states


def _checks(
    dtype: DType, states: Array, out: Array, wanted: Array, near: Array
) -> list[LayerCheck]:
    """Check the prefilled positions, and the decoded one."""
    last = len(states) - 1
    parts = {"prefill": np.arange(last), "decode": np.array([last])}
    added = wanted - states.astype(np.float64)
    of_added, of_output = BOUNDS[dtype.name]
    found: list[LayerCheck] = []
    for name, rows in parts.items():
        kept = rows[~near[rows]]
        if not len(kept):
            continue
        size = np.linalg.norm(added[kept])
        bound = of_added + of_output * float(np.linalg.norm(wanted[kept]) / size)
        error = _distance(out[kept], wanted[kept], added[kept])
        found.append(LayerCheck(name, error, bound, len(rows) - len(kept)))
    return found


def _distance(found: Array, wanted: Array, added: Array) -> float:
    """Return the L2 distance relative to what the layer adds; infinite if not finite."""
    distance = float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(added))
    return distance if math.isfinite(distance) else math.inf
