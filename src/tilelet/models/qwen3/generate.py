"""Generation: prompts into the caches, then step by step, each sequence until its own end.

Sequences that end leave the batch, and their pages go to waiting ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from tilelet.diag.catalogue.generate import (
    BadGenerateSetting,
    LogitsNotFinite,
    NothingToGenerate,
)
from tilelet.dtypes import Array
from tilelet.models.qwen3.cache import CachedSequence
from tilelet.models.qwen3.model import Model, one_prompt
from tilelet.models.sampling import Sampler, Sampling


class NewToken(NamedTuple):
    """A token of sequence `sequence`, its `number`-th new one, from 0.

    `ended` says why it is the last: "stop" (it is a stop token), "length" (the requested number
    is reached) or "cache" (no room for more).
    """

    sequence: int
    number: int
    token: int
    ended: str = ""


class Select(Protocol):
    """Selects the next token of some sequences.

    `logits` are `[rows, vocabulary]`, `best` the token with the largest of each row, and
    `places[r]` the row's sequence number and the index of its new token: all that a choice may
    depend on besides the logits, so that it is the same in every batch.
    """

    def __call__(
        self, logits: Array, best: Array, places: Sequence[tuple[int, int]]
    ) -> Sequence[int]: ...


def greedy(logits: Array, best: Array, places: Sequence[tuple[int, int]]) -> Sequence[int]:
    """Return the token with the largest logit; ties go to the first."""
    return [int(token) for token in best]


def sampling_select(model: Model, sampling: Sampling) -> Select:
    """Return a selector that samples, or takes the best tokens at temperature 0.

    Every sequence has its own random numbers: its number is added to the seed.
    """
    if sampling.temperature == 0:
        return greedy
    samplers: dict[int, Sampler] = {}

    def select(logits: Array, best: Array, places: Sequence[tuple[int, int]]) -> Sequence[int]:
        rows = model.rows_for(len(logits))
        if rows not in samplers:
            vocabulary = model.config.vocab_size
            samplers[rows] = Sampler(rows, vocabulary, model.dtype, engine=model.engine)
        padded = np.zeros((rows, logits.shape[1]), logits.dtype)
        padded[: len(logits)] = logits
        seeds = [(sampling.seed + sequence) % (1 << 64) for sequence, _ in places]
        unused = rows - len(places)
        settings = [replace(sampling, seed=seed) for seed in [*seeds, *[0] * unused]]
        steps = [number for _, number in places] + [0] * unused
        return [int(token) for token in samplers[rows](padded, settings, steps)[: len(places)]]

    return select


@dataclass(eq=False)
class _Running:
    number: int
    prompt: Array
    limit: int  # maximum number of new tokens
    cached: CachedSequence = field(default_factory=CachedSequence)
    last: int = -1
    count: int = 0


def generate(
    model: Model,
    prompts: Sequence[object],
    *,
    max_new_tokens: int = 128,
    stop: Collection[int] = (),
    sampling: Sampling | None = None,
    select: Select | None = None,
) -> Iterator[NewToken]:
    """Yield new tokens of all prompts, in the order in which they are generated.

    stop      tokens after which a sequence ends
    sampling  sampling settings; greedy unless given
    select    another way to choose tokens
    """
    if not len(prompts):
        raise NothingToGenerate("there is no prompt")
    if max_new_tokens < 1:
        raise BadGenerateSetting("max_new_tokens", max_new_tokens, "at least 1")
    chosen_by = select or sampling_select(model, sampling or Sampling())
    waiting: deque[_Running] = deque()
    for number, prompt in enumerate(prompts):
        tokens = one_prompt(prompt)
        model.check_prompt(number, tokens)
        room = model.longest - len(tokens) + 1  # the last new token needs no position
        waiting.append(_Running(number, tokens, min(max_new_tokens, room)))
    return _run(model, waiting, max_new_tokens, frozenset(stop), chosen_by)


def _run(
    model: Model,
    waiting: deque[_Running],
    wanted: int,
    stop: frozenset[int],
    select: Select,
) -> Iterator[NewToken]:
    active: list[_Running] = []

    def chosen(sequences: list[_Running], logits: Array, best: Array) -> Iterator[NewToken]:
        places = [(s.number, s.count) for s in sequences]
        for row, (number, count) in enumerate(places):
            if not np.isfinite(logits[row, best[row]]):
                raise LogitsNotFinite(number, count)
        for sequence, token in zip(sequences, select(logits, best, places)):
            sequence.last = int(token)
            sequence.count += 1
            ended = ""
            if sequence.last in stop:
                ended = "stop"
            elif sequence.count == sequence.limit:
                ended = "length" if sequence.count == wanted else "cache"
            if ended:
                active.remove(sequence)
                model.cache.release(sequence.cached)
            yield NewToken(sequence.number, sequence.count - 1, sequence.last, ended)

    try:
        while waiting or active:
            while waiting and len(active) < model.sizes.batch and _fits(model, waiting[0]):
                sequence = waiting.popleft()
                active.append(sequence)
                yield from chosen([sequence], *_prefill(model, sequence))
            if active:
                step = list(active)
                yield from chosen(
                    step,
                    *model.step([s.cached for s in step], [s.last for s in step]),
                )
    finally:  # also if the caller stops or is interrupted
        for sequence in active:
            model.cache.release(sequence.cached)


def _fits(model: Model, sequence: _Running) -> bool:
    """Return whether there are pages for the maximum length of a sequence, so that it is never
    stopped by a later one.
    """
    positions = len(sequence.prompt) + sequence.limit - 1
    return model.cache.size.pages_of(positions) <= model.cache.free_pages


def _prefill(model: Model, sequence: _Running) -> tuple[Array, Array]:
    """Return logits and best token after the prompt."""
    model.cache.reserve(sequence.cached, len(sequence.prompt) + sequence.limit - 1)
    last = np.zeros(0)
    for states in model.prefill(sequence.cached, sequence.prompt):
        last = states[-1:]
    return model.head(np.ascontiguousarray(last))
