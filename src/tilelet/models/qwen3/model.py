"""A whole Qwen3 model as tile programs: tokens in, logits and tokens out.

    model = tilelet.models.qwen3.load("Qwen3-0.6B")
    for token in model.generate(prompt, max_new_tokens=32):
        ...
    logits = model.forward(tokens)

A pass is the embedding, the layers and the output head: one call of each, or one call per layer if
layers are streamed or observed. Prompts are processed in chunks; after that, sequences step
together, each at its own position. Programs are compiled on first use, for batches of 1, 2, 4, ...
rows; unused rows are computed and ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tilelet.diag.catalogue.generate import (
    BadGenerateSetting,
    BadTokens,
    ModelTooLarge,
    NothingToGenerate,
    PromptTooLong,
    UnknownToken,
)
from tilelet.dtypes import Array, DType
from tilelet.ir.core import Program
from tilelet.models.qwen3.architecture import Architecture, Kind, LayerKind
from tilelet.models.qwen3.cache import CachedSequence, CacheSize, PagedCache
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.ends import EndShape, build_embedding, build_head
from tilelet.models.qwen3.loading import Loader, LoadSettings, ModelWeights, check_memory
from tilelet.models.qwen3.published import LayerShape, fitting_divisor, rope_tables
from tilelet.models.qwen3.tensor_parallel import rank_config
from tilelet.native.memory import available_memory
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import CompiledProgram, RunConfig, compile_program
from tilelet.runtime.data.arrays import as_array, as_tensor, dtype_of, is_array, is_tensor
from tilelet.runtime.programs.ranks_worker import DistributedWorker, StackedDeviceTensor

# Maximum rows of one product of a step; larger batches use several.
_MAX_ROWS = 64
# Rows of one product of a prompt: weights are prepared once for all of them.
_PROMPT_ROWS = 128
# Maximum keys of a block of attention.
_KEYS = 128
# Positions of a context that one task attends to. Not a setting: bits depend on it.
_CONTEXT_PART = 1024
# Maximum inputs of a product at a time, since no on-chip memory limits them on a CPU.
# INT8 weights are widened first, and stay in cache if there are few.
_INPUTS = 1024
_MIN_PAGE = 16
_DEFAULT_MAX_SEQ = 4096

# Called with a layer's index, its hidden states, and the experts of every row, if any.
Observer = Callable[[int, Array, Array | None], None]


@dataclass(frozen=True)
class ModelSizes:
    """The sizes that a model's programs and caches are built for.

    max_seq  maximum positions of a sequence
    batch    sequences at a time
    page     positions per page of the caches
    pages    number of pages; 0 for as many as `batch` sequences of `max_seq` positions need
    chunk    maximum tokens of a prompt that go through the layers together; whole pages
    """

    max_seq: int
    batch: int = 16
    page: int = 128
    pages: int = 0
    chunk: int = 256

    def __post_init__(self) -> None:
        for name in ("max_seq", "batch", "page", "chunk"):
            if getattr(self, name) < 1:
                raise BadGenerateSetting(name, getattr(self, name), "at least 1")
        if self.pages < 0:
            raise BadGenerateSetting("pages", self.pages, "at least 1")
        if self.page % _MIN_PAGE:
            raise BadGenerateSetting("page", self.page, f"a multiple of {_MIN_PAGE}")
        if self.chunk % self.page:
            wanted = f"a multiple of `page`, {self.page}"
            raise BadGenerateSetting("chunk", self.chunk, wanted)
        object.__setattr__(self, "chunk", min(self.chunk, self._pages_of_one * self.page))

    @property
    def _pages_of_one(self) -> int:
        return -(-self.max_seq // self.page)

    def cache_size(self, config: Qwen3Config, dtype: DType) -> CacheSize:
        pages = self.pages or self.batch * self._pages_of_one
        return CacheSize(config, dtype, self._pages_of_one * self.page, self.page, pages)


class Model:
    """A model; `dtype` is that of hidden states and logits, `memory` lists bytes by use."""

    def __init__(
        self,
        config: Qwen3Config,
        architecture: Architecture,
        weights: ModelWeights,
        sizes: ModelSizes,
        *,
        dtype: DType,
        layers_per_call: int = 0,
        engine: str | None = None,
        ranks: int = 1,
        rank: int = 0,
    ) -> None:
        """`rank` is that of this process if it has one of the `ranks`."""
        self.config = config
        self._layer_config = rank_config(config, ranks) if ranks > 1 else config
        self.dtype = dtype
        self.sizes = sizes
        self.architecture = architecture
        self.weights = weights
        self.cache = PagedCache(sizes.cache_size(self._layer_config, dtype), ranks)
        self._layers_per_call = layers_per_call or config.num_hidden_layers
        self._rope = rope_tables(config, self.cache.size.max_seq)
        self.engine = engine
        world = DistributedConfig(device_ids=range(ranks)) if ranks > 1 else None
        self._settings = RunConfig(engine=engine, distributed_config=world)
        self._ranks, self._rank = ranks, rank
        self._programs: dict[tuple[str, ...], CompiledProgram] = {}

    # --- public methods ---------------------------------------------------------------------------

    def forward(self, tokens: object) -> Any:
        """Return the logits of every position, in the dtype of the model.

        `[tokens]` gives `[tokens, vocabulary]`, `[batch, tokens]` one dimension more; a torch
        tensor gives a torch tensor. The caches of `generate` are not affected.
        """
        found = token_array(tokens)
        batch = found[None] if found.ndim == 1 else found
        if found.ndim not in (1, 2):
            raise BadTokens(f"an array of {found.ndim} dimensions", "`[tokens]`, `[batch, tokens]`")
        rows = [self.logits_of(self.states_of(i, row)) for i, row in enumerate(batch)]
        logits = np.stack(rows) if found.ndim == 2 else rows[0]
        return as_tensor(logits) if is_tensor(tokens) else logits

    def generate(self, tokens: Any, **options: Any) -> Iterator[int]:
        """Yield new tokens after those of one prompt, one by one.

        `options` are those of `generate.generate`: `max_new_tokens`, `stop`, `sampling`.
        """
        from tilelet.models.qwen3.generate import generate

        for new in generate(self, [tokens], **options):
            yield new.token

    # --- passes -----------------------------------------------------------------------------------

    def states_of(self, number: int, tokens: Array, observe: Observer | None = None) -> Array:
        """Return the hidden states of a sequence after the last layer, `[tokens, hidden]`.

        `observe` is called after each layer, chunk by chunk.
        """
        self.check_prompt(number, tokens)
        sequence = CachedSequence()
        try:
            return np.concatenate(list(self.prefill(sequence, tokens, observe)))
        finally:
            self.cache.release(sequence)

    def prefill(
        self, sequence: CachedSequence, tokens: Array, observe: Observer | None = None
    ) -> Iterator[Array]:
        """Put the tokens of a new sequence into the caches; yield hidden states chunk by chunk."""
        chunk = self.sizes.chunk
        self.cache.reserve(sequence, len(tokens))
        for first in range(0, len(tokens), chunk):
            yield self.extend(sequence, tokens[first : first + chunk], observe)

    def extend(
        self, sequence: CachedSequence, tokens: Array, observe: Observer | None = None
    ) -> Array:
        """Process at most a chunk of tokens after whole chunks; return their hidden states."""
        rows = np.zeros(self.sizes.chunk, np.int32)
        rows[: len(tokens)] = tokens
        states = self._embed(rows)
        self._run_layers("prefill", states, [sequence], len(tokens), observe)
        sequence.length += len(tokens)
        return states[: len(tokens)]

    def step(
        self,
        sequences: Sequence[CachedSequence],
        tokens: Sequence[int],
        observe: Observer | None = None,
    ) -> tuple[Array, Array]:
        """Process one more token per sequence; return logits `[sequences, vocabulary]` and tokens.

        The sequences must have the pages for it.
        """
        rows = np.zeros(self.rows_for(len(sequences)), np.int32)
        rows[: len(tokens)] = tokens
        states = self._embed(rows)
        self._run_layers("decode", states, sequences, 1, observe)
        for sequence in sequences:
            sequence.length += 1
        logits, best = self.head(states)
        return logits[: len(sequences)], best[: len(sequences)]

    def head(self, states: Array) -> tuple[Array, Array]:
        """Return logits and best tokens of rows of hidden states."""
        program = self._end("head", len(states))
        logits, best = program(states, self.weights.final_norm, self.weights.head)
        return logits, best[0]

    def logits_of(self, states: Array) -> Array:
        """Return the logits of any number of rows of hidden states."""
        found = np.empty((len(states), self.config.vocab_size), self.dtype.numpy)
        for first in range(0, len(states), _MAX_ROWS):
            part = states[first : first + _MAX_ROWS]
            rows = np.zeros((self.rows_for(len(part)), part.shape[1]), part.dtype)
            rows[: len(part)] = part
            found[first : first + len(part)] = self.head(rows)[0][: len(part)]
        return found

    def check_prompt(self, number: int, tokens: Array) -> None:
        """Reject a prompt that has no tokens, unknown ones, or too many for the caches."""
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            found = f"{tokens.dtype} {list(tokens.shape)}"
            raise BadTokens(found, "integers, one dimension for a prompt")
        if not len(tokens):
            raise NothingToGenerate(f"prompt {number} has no tokens")
        check_tokens(number, tokens, self.config.vocab_size)
        if len(tokens) > self.longest:
            raise PromptTooLong(number, len(tokens), self.longest)

    @property
    def longest(self) -> int:
        """Maximum positions of one sequence in the caches."""
        size = self.cache.size
        return min(self.sizes.max_seq, size.pages * size.page)

    # --- programs ---------------------------------------------------------------------------------

    def rows_for(self, count: int) -> int:
        """Return the row count of the smallest program that fits."""
        if count > _MAX_ROWS:
            return -(-count // _MAX_ROWS) * _MAX_ROWS
        return 1 << (count - 1).bit_length()

    def _embed(self, tokens: Array) -> Array:
        return self._end("embedding", len(tokens))(tokens, self.weights.embedding)

    def _run_layers(
        self,
        kind: Kind,
        states: Array,
        sequences: Sequence[CachedSequence],
        new: int,
        observe: Observer | None,
    ) -> None:
        """Run all layers on `new` more positions of every sequence, in place."""
        batch = len(states) if kind == "decode" else 1
        starts, lengths = np.zeros(batch, np.int32), np.ones(batch, np.int32)
        for row, sequence in enumerate(sequences):
            starts[row], lengths[row] = sequence.length, sequence.length + new
        table = self.cache.table(sequences, batch)
        together = 1 if observe else self._layers_per_call
        for run in self.architecture.runs:
            for first in range(run.first, run.end, together):
                count = min(together, run.end - first)
                weights = self.weights.source.layers(first, count)
                program = self._layers(kind, run.kind, len(states), count)
                caches = self.cache.of_layers(first, count)
                given = (lengths, starts, table, *self._rope)
                chosen = self._call(program, states, given, caches, [*weights.values()])
                if observe:
                    observe(first, states, chosen if run.kind.is_sparse else None)

    def _call(
        self,
        program: CompiledProgram,
        states: Array,
        given: Sequence[Array],
        caches: Sequence[Array],
        weights: Sequence[Array],
    ) -> Any:
        """Run layers on hidden states, in place; on ranks, each works on a copy."""
        if self._ranks == 1:
            return program(states, *given, *caches, *weights)
        copies = np.repeat(states[None], self._ranks, 0)
        owners = tuple(range(self._ranks))
        stacks = [StackedDeviceTensor(array, owners) for array in (copies, *caches)]
        worker = DistributedWorker(program)
        chosen = worker.run(program, stacks[0], *given, *stacks[1:], *weights)
        states[:] = copies[self._rank]
        return chosen

    def layer_shape(self, kind: Kind, rows: int, layers: int) -> LayerShape:
        """Return the sizes of the program for `rows` rows of hidden states."""
        c, size = self._layer_config, self.cache.size
        inputs = math.gcd(c.hidden_size, c.q_width, c.intermediate_size)
        keys = fitting_divisor(size.page, _KEYS)
        tile = (
            min(rows, _MAX_ROWS) if kind == "decode" else fitting_divisor(size.page, _PROMPT_ROWS)
        )
        return LayerShape(
            c,
            rows if kind == "decode" else 1,
            size.max_seq,
            dtype=self.dtype,
            page=size.page,
            pages=size.total_pages,
            tokens=rows if kind == "prefill" else 0,
            layers=layers,
            int8=self.architecture.int8,
            blocked=self.architecture.columns > 0,
            row_tile=tile,
            seq_tile=keys,
            context_part=max(_CONTEXT_PART // keys, 1) * keys,
            cube_rows=1,
            k_chunk=0 if self.architecture.int8 else fitting_divisor(inputs, _INPUTS),
            out_chunk=self.architecture.columns,
        )

    def _layers(self, kind: Kind, of: LayerKind, rows: int, layers: int) -> CompiledProgram:
        return self._compiled(
            (kind, of.name, str(rows), str(layers)),
            lambda: of.build(kind, self.layer_shape(kind, rows, layers)),
        )

    def _end(self, which: Literal["embedding", "head"], rows: int) -> CompiledProgram:
        return self._compiled((which, str(rows)), lambda: self._build_end(which, rows))

    def _build_end(self, which: Literal["embedding", "head"], rows: int) -> Program:
        build = build_embedding if which == "embedding" else build_head
        inputs = fitting_divisor(self.config.hidden_size, _INPUTS)
        return build(EndShape(self.config, rows, self.dtype, k_chunk=inputs))

    def _compiled(self, key: tuple[str, ...], build: Callable[[], Program]) -> CompiledProgram:
        if key not in self._programs:
            self._programs[key] = compile_program(build(), config=self._settings)
        return self._programs[key]


def check_tokens(number: int, tokens: Sequence[int] | Array, vocabulary: int) -> None:
    """Reject tokens of prompt `number` that are not in the vocabulary."""
    for place, token in enumerate(tokens):
        if not 0 <= token < vocabulary:
            raise UnknownToken(number, place, token, vocabulary)


def token_array(tokens: Any) -> Array:
    """Convert the user's tokens to an array of integers."""
    if is_array(tokens):
        if dtype_of(tokens.dtype) is None:
            raise BadTokens(f"of type {tokens.dtype}", "integers")
        found = as_array(tokens)
    else:
        try:
            found = np.asarray(tokens if len(tokens) else np.zeros(0, np.int64))
        except (TypeError, ValueError) as error:
            raise BadTokens(f"a {type(tokens).__name__} ({error})", "a list of integers") from None
    if not np.issubdtype(found.dtype, np.integer):
        raise BadTokens(f"of type {found.dtype}", "integers")
    return found


def one_prompt(tokens: object) -> Array:
    """Convert the tokens of one prompt, also in the form `[1, tokens]` of `transformers`."""
    found = token_array(tokens)
    if found.ndim == 2 and len(found) == 1:
        return found[0]
    if found.ndim != 1:
        wanted = "`[tokens]` or `[1, tokens]`; several prompts are a list of those"
        raise BadTokens(f"an array {list(found.shape)}", wanted)
    return found


def load(
    directory: str | Path,
    *,
    dtype: object = None,
    max_seq: int = 0,
    stream: bool = False,
    weights_cache: str | Path | None = None,
    layers: int = 0,
    quantize: str | None = None,
    engine: str | None = None,
    ranks: int = 1,
    rank: int | None = None,
    tell: Callable[[dict[str, int]], None] | None = None,
    **sizes: int,
) -> Model:
    """Load the model in a directory, converting its weights.

    dtype          of matrices and hidden states; as stored unless given
    max_seq        maximum positions of a sequence; 4096, or the model's limit if smaller
    stream         read and convert layers for every pass, keep none
    weights_cache  a folder: weights are converted once, into a file there that is then mapped
    layers         only this many layers, from the first
    quantize       "int8": the matrices of the layers in INT8, with a scale per output
    ranks          number of ranks among which heads and MLP columns are divided
    rank           the rank of this process, if each has its own; only its part is loaded
    tell           called with the bytes that will be needed, by use, before loading
    sizes          `batch`, `page`, `pages` and `chunk` of `ModelSizes`
    """
    chosen = dtype_of(dtype) if dtype is not None else None
    folder = Path(weights_cache) if weights_cache is not None else None
    if quantize not in (None, "int8"):
        raise BadGenerateSetting("quantize", quantize, '"int8", or left out')
    if ranks > 1 and (stream or folder or quantize):
        wanted = "1 with `stream`, `weights_cache` or `quantize`"
        raise BadGenerateSetting("ranks", ranks, wanted)
    settings = LoadSettings(chosen, stream, folder, layers, quantize == "int8", ranks, rank)
    loader = Loader(directory, settings)
    config = loader.config
    longest = max_seq or min(_DEFAULT_MAX_SEQ, config.max_position_embeddings)
    if longest > config.max_position_embeddings:
        wanted = f"at most `max_position_embeddings`, {config.max_position_embeddings}"
        raise BadGenerateSetting("max_seq", max_seq, wanted)
    model_sizes = ModelSizes(longest, **sizes)
    per_call = 1 if stream else config.num_hidden_layers
    cache = model_sizes.cache_size(loader.layer_config, loader.dtype)
    copies = len(settings.own_ranks)
    memory = {**loader.memory(per_call), "keys and values": copies * cache.nbytes}
    if tell:
        tell(memory)
    check_memory(memory)
    try:
        return Model(
            config,
            loader.architecture,
            loader.load(),
            model_sizes,
            dtype=loader.dtype,
            layers_per_call=per_call,
            engine=engine,
            ranks=ranks,
            rank=rank or 0,
        )
    except MemoryError:
        raise ModelTooLarge(memory, available_memory() or 0) from None
