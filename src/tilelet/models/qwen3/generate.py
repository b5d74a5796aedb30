"""Generation: prompts into the caches, then step by step, each sequence until its own end.

Sequences that end leave the batch, and their pages go to those that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilelet.diag.catalogue.generate import (
    BadGenerateSetting,
    LogitsNotFinite,
    NothingToGenerate,
)
from tilelet.models.qwen3.cache import CachedSequence
from tilelet.models.qwen3.model import Model, token_array
from tilelet.models.qwen3.reference import Array
from tilelet.models.sampling import Sampler, Sampling


class NewToken(NamedTuple):
    """A token of sequence `sequence`, its `number`-th new one, from 0.

    `ended` says why it is the last: "stop" (it is one of the stop tokens), "length" (as many as
    were asked for) or "cache" (no room for more).
    """

    sequence: int
    number: int
    token: int
    ended: str = ""


class Select(Protocol):
    """Chooses the next token of some sequences.

    `logits` are `[rows, vocabulary]`, `best` the token with the largest of each row, and
    `places[r]` the number of the row's sequence and the index of its new token: what a choice may
    depend on besides the logits, so that it is the same in every batch.
    """

    def __call__(
        self, logits: Array, best: Array, places: Sequence[tuple[int, int]]
    ) -> Sequence[int]: ...


def greedy(logits: Array, best: Array, places: Sequence[tuple[int, int]]) -> Sequence[int]:
    """The token with the largest logit; of equals the first."""
    return [int(token) for token in best]


def sampled(model: Model, sampling: Sampling) -> Select:
    """Tokens that are drawn, or the best ones at temperature 0.

    Every sequence has random numbers of its own: its number is added to the seed.
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
    limit: int  # new tokens at the most
    cached: CachedSequence = field(default_factory=CachedSequence)
    last: int = -1
    count: int = 0


def generate(
    model: Model,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int = 128,
    stop: Collection[int] = (),
    sampling: Sampling | None = None,
    select: Select | None = None,
) -> Iterator[NewToken]:
    """New tokens of all prompts, in the order in which they come.

    stop      tokens after which a sequence ends
    sampling  how tokens are drawn; the best ones are taken unless given
    select    another way to choose them
    """
    if not len(prompts):
        raise NothingToGenerate("there is no prompt")
    if max_new_tokens < 1:
        raise BadGenerateSetting("max_new_tokens", max_new_tokens, "at least 1")
    chosen_by = select or sampled(model, sampling or Sampling())
    waiting: deque[_Running] = deque()
    for number, prompt in enumerate(prompts):
        tokens = token_array(prompt)
        model.check_prompt(number, tokens)
        room = model.longest - len(tokens) + 1  # the last new token needs no place
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
                yield from chosen([sequence], *_prefilled(model, sequence))
            if active:
                step = list(active)
                yield from chosen(
                    step,
                    *model.step([s.cached for s in step], [s.last for s in step]),
                )
    finally:  # also when the caller stops, or is stopped
        for sequence in active:
            model.cache.release(sequence.cached)


def _fits(model: Model, sequence: _Running) -> bool:
    """Whether there are pages for all that a sequence may become: so it is never stopped for one
    that came later.
    """
    positions = len(sequence.prompt) + sequence.limit - 1
    return model.cache.size.pages_of(positions) <= model.cache.free_pages


def _prefilled(model: Model, sequence: _Running) -> tuple[Array, Array]:
    """Logits and best token after the prompt."""
    model.cache.reserve(sequence.cached, len(sequence.prompt) + sequence.limit - 1)
    last = np.zeros(0)
    for states in model.prefill(sequence.cached, sequence.prompt):
        last = states[-1:]
    return model.head(np.ascontiguousarray(last))
