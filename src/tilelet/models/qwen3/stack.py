"""Several consecutive Qwen3 layers with their caches: prefill, then decode step by step.

    stack = LayerStack.load("Qwen3-0.6B", batch=4, max_seq=256)
    hidden = stack.prefill(embedded, seq_lens)     # [batch, tokens, hidden_size]
    hidden = stack.decode(embedded_next)           # [batch, hidden_size], one token each

Embedding, final norm and the output head are left to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilelet import dtypes
from tilelet.diag.catalogue.models import (
    BadSequenceLength,
    BadTile,
    NoFreePages,
    SequenceTooLong,
    WeightsMismatch,
    WrongStackInput,
    WrongStep,
)
from tilelet.diag.text import shape_text
from tilelet.dtypes import Array, DType
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.published import LayerShape, build_decode, build_prefill, rope_tables
from tilelet.models.qwen3.weights import Checkpoint, LayerWeights, layer_shapes
from tilelet.runtime import CompiledProgram, RunConfig, compile_program


class PageTable:
    """Which page of the caches holds which positions of which sequence; -1 if not allocated.

    All layers use the same pages, each in its own cache.
    """

    def __init__(self, shape: LayerShape, free: Sequence[int] | None = None) -> None:
        self._shape = shape
        self.free = list(range(shape.pages) if free is None else free)
        self.table = np.full((shape.batch, shape.table_width), -1, np.int32)

    def grown(self, seq_lens: Array, *, afresh: bool = False) -> PageTable:
        """Return a table with the pages that these lengths need, or raise `NoFreePages`.

        `afresh` releases all pages first. This table is not modified.
        """
        grown = PageTable(self._shape, self.free)
        if afresh:
            grown.free += [int(page) for page in self.table[self.table >= 0]]
        else:
            grown.table[:] = self.table
        wanted = [
            (b, i)
            for b, length in enumerate(seq_lens)
            for i in range(math.ceil(int(length) / self._shape.page))
            if grown.table[b, i] < 0
        ]
        if len(wanted) > len(grown.free):
            s = self._shape
            size = 2 * s.config.kv_heads * s.page * s.config.head_dim * s.dtype.itemsize
            raise NoFreePages(len(wanted), len(grown.free), size)
        for place in wanted:
            grown.table[place] = grown.free.pop(0)
        return grown


class LayerStack:
    """Layers with their caches; hidden states in, hidden states out.

    `seq_lens` counts the positions of each sequence in the caches.
    """

    def __init__(
        self,
        config: Qwen3Config,
        layers: Iterable[LayerWeights],
        *,
        batch: int,
        max_seq: int,
        dtype: DType | None = None,
        engine: str | None = None,
        free_pages: Sequence[int] | None = None,
        **sizes: Any,
    ) -> None:
        """`sizes` are those of `LayerShape`: `page`, `pages`, `tokens` and tiles.

        `free_pages` is the order in which pages are allocated.
        """
        self.layers = list(layers)
        dtype = dtype or (self.layers[0].dtype if self.layers else dtypes.BF16)
        self.shape = LayerShape(config, batch, max_seq, dtype=dtype, **sizes)
        for index, weights in enumerate(self.layers):
            self._check_weights(index, weights)
        cache = (self.shape.cache_rows, config.head_dim)
        self.k_caches = [np.zeros(cache, dtype.numpy) for _ in self.layers]
        self.v_caches = [np.zeros(cache, dtype.numpy) for _ in self.layers]
        self.pages = PageTable(self.shape, free_pages)
        free = set(self.pages.free)
        if len(free) < len(self.pages.free) or not free <= set(range(self.shape.pages)):
            raise BadTile("free_pages", free_pages, f"distinct, and below {self.shape.pages}")
        self.seq_lens = np.zeros(batch, np.int64)
        self._rope = rope_tables(config, max_seq)
        self._settings = RunConfig(engine=engine)
        self._programs: dict[str, CompiledProgram] = {}

    @staticmethod
    def load(path: str | Path, *, batch: int, max_seq: int, **options: Any) -> LayerStack:
        """Load all layers of the model in directory `path`."""
        config = Qwen3Config.read(path)
        layers = list(Checkpoint(path, config).layers(options.get("dtype")))
        return LayerStack(config, layers, batch=batch, max_seq=max_seq, **options)

    def prefill(self, hidden: Array, seq_lens: Sequence[int] | Array) -> Array:
        """Process whole sequences from position 0: `[batch, tokens, hidden_size]`, of which the
        first `seq_lens[b]` tokens count. Previous contents of the caches are discarded.
        """
        s = self.shape
        tokens = hidden.shape[1] if hidden.ndim == 3 else 0
        self._check_hidden(hidden, (s.batch, tokens, s.config.hidden_size))
        lengths = self._lengths(seq_lens)
        for b, length in enumerate(lengths):
            self._check_length(b, int(length))
            if length > s.tokens:
                raise SequenceTooLong(b, int(length), s.tokens, "the prefill program takes")
            if length > tokens:
                raise SequenceTooLong(b, int(length), tokens, "the hidden states have")
        pages = self.pages.grown(lengths, afresh=True)
        rows = np.zeros((s.batch, s.tokens, s.config.hidden_size), s.dtype.numpy)
        for b, length in enumerate(lengths):
            rows[b, :length] = hidden[b, :length]
        out = self._run("prefill", rows.reshape(-1, s.config.hidden_size), lengths, pages)
        return out.reshape(rows.shape)[:, :tokens]

    def decode(self, hidden: Array, seq_lens: Sequence[int] | Array | None = None) -> Array:
        """Process one more token of every sequence: `[batch, hidden_size]`.

        `seq_lens`, if given, are the lengths after the step.
        """
        s = self.shape
        self._check_hidden(hidden, (s.batch, s.config.hidden_size))
        lengths = self.seq_lens + 1 if seq_lens is None else self._lengths(seq_lens)
        for b, (length, cached) in enumerate(zip(lengths, self.seq_lens)):
            self._check_length(b, int(length))
            if cached == 0 or length != cached + 1:
                raise WrongStep(b, int(length), int(cached))
        pages = self.pages.grown(lengths)
        return self._run("decode", hidden, lengths, pages)

    def _run(self, which: str, hidden: Array, lengths: Array, pages: PageTable) -> Array:
        """Run the layers; commit the new lengths and pages once all are done."""
        program, states = self._program(which), hidden.copy()
        starts = np.zeros_like(lengths) if which == "prefill" else lengths - 1
        table = np.maximum(pages.table, 0)  # entries past the end of a sequence are not read
        for weights, k_cache, v_cache in zip(self.layers, self.k_caches, self.v_caches):
            program(
                states, lengths.astype(np.int32), starts.astype(np.int32), table, *self._rope,
                k_cache, v_cache, *weights.arrays().values(), config=self._settings,
            )  # fmt: skip
        self.seq_lens, self.pages = lengths, pages
        return states

    def _program(self, which: str) -> CompiledProgram:
        if which not in self._programs:
            build = build_prefill if which == "prefill" else build_decode
            self._programs[which] = compile_program(build(self.shape), config=self._settings)
        return self._programs[which]

    def _lengths(self, seq_lens: Sequence[int] | Array) -> Array:
        lengths = np.asarray(seq_lens)
        if lengths.shape != (self.shape.batch,) or not np.issubdtype(lengths.dtype, np.integer):
            found = f"{lengths.dtype} {shape_text(lengths.shape)}"
            raise WrongStackInput("seq_lens", found, f"integers [{self.shape.batch}]")
        return lengths.astype(np.int64)

    def _check_length(self, sequence: int, length: int) -> None:
        if length < 1:
            raise BadSequenceLength(sequence, length)
        if length > self.shape.max_seq:
            raise SequenceTooLong(sequence, length, self.shape.max_seq, "the cache holds")

    def _check_hidden(self, hidden: Array, wanted: tuple[int, ...]) -> None:
        dtype = self.shape.dtype
        # Callers are not type-checked.
        if not isinstance(hidden, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
            kind = f"{type(hidden).__module__}.{type(hidden).__qualname__}"
            shown = shape_text(getattr(hidden, "shape", ()))
            raise WrongStackInput(
                "hidden",
                f"a {kind} {shown}",
                f"a NumPy array {dtype.numpy} {shape_text(wanted)}",
                f"convert it: `hidden.float().numpy().astype({dtype.numpy})`"
                if kind == "torch.Tensor"
                else "",
            )
        if hidden.shape != wanted or hidden.dtype != dtype.numpy:
            found = f"{hidden.dtype} {shape_text(hidden.shape)}"
            raise WrongStackInput("hidden", found, f"{dtype.numpy} {shape_text(wanted)}")

    def _check_weights(self, index: int, weights: LayerWeights) -> None:
        arrays = weights.arrays()
        for name, shape in layer_shapes(self.shape.config).items():
            dtype = dtypes.FP32 if name.endswith("norm") else self.shape.dtype
            array = arrays[name]
            if array.shape != shape or array.dtype != dtype.numpy:
                found = f"{array.dtype} {shape_text(array.shape)}"
                raise WeightsMismatch(index, name, found, f"{dtype.numpy} {shape_text(shape)}")
