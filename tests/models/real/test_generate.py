"""Whole models against the implementation that everybody uses: the same tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.models.real.tiny import Sizes, Tiny, ordinary, tiny, torch

from tilelet.models import qwen3
from tilelet.models.qwen3.generate import NewToken, generate
from tilelet.models.qwen3.model import Model
from tilelet.models.qwen3.reference import Array

NEW = 64
# One token, and lengths on and beside the pages of 16 positions and the chunks of 32.
LENGTHS = (1, 15, 16, 17, 33)
SMALL: dict[str, Any] = {"max_seq": 128, "page": 16, "chunk": 32, "batch": 4}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def prompts(lengths: Sequence[int], vocabulary: int = 96) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocabulary, n) for n in lengths]


def tokens_of(model: Model, texts: Sequence[Array], **options: Any) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in texts]
    for new in generate(model, texts, **options):
        assert new.number == len(found[new.sequence])
        found[new.sequence].append(new.token)
    return found


def reference_tokens(reference: Tiny, text: Array, count: int) -> list[int]:
    given = torch.from_numpy(text)[None]
    with torch.no_grad():
        found = reference.model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return found[0, len(text) :].tolist()


def test_fp32_tokens_are_those_of_the_reference() -> None:
    """Five prompts in a batch of four: the last waits until a sequence has ended."""
    reference, texts = ordinary("float32"), prompts(LENGTHS)
    model = qwen3.load(reference.directory, **SMALL)
    free = model.cache.free_pages
    assert tokens_of(model, texts, max_new_tokens=NEW) == [
        reference_tokens(reference, text, NEW) for text in texts
    ]
    assert model.cache.free_pages == free


def test_logits_of_all_positions() -> None:
    reference = tiny("float32", Sizes(layers=2))
    model = qwen3.load(reference.directory, **SMALL)
    (text,) = prompts([33])
    with torch.no_grad():
        wanted = reference.model(torch.from_numpy(text)[None]).logits[0].numpy()
    found = model.forward(text)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    as_tensor = model.forward(torch.from_numpy(text)[None])
    assert torch.is_tensor(as_tensor)
    assert np.array_equal(as_tensor[0].numpy(), found)


def test_sequences_that_end_make_room_for_others() -> None:
    """With pages for one sequence only, three go one after the other; results do not change."""
    reference, texts = ordinary("float32"), prompts((20, 3, 9))
    wide = qwen3.load(reference.directory, **SMALL)
    narrow = qwen3.load(reference.directory, **{**SMALL, "pages": 2})
    wanted = tokens_of(wide, texts, max_new_tokens=12)
    order = list(generate(narrow, texts, max_new_tokens=12))
    assert [new.sequence for new in order] == [0] * 12 + [1] * 12 + [2] * 12
    assert [new.token for new in order] == [token for tokens in wanted for token in tokens]
    assert [new.ended for new in order if new.ended] == ["length"] * 3


def test_ends() -> None:
    reference, (text,) = ordinary("float32"), prompts([14])
    model = qwen3.load(reference.directory, **{**SMALL, "max_seq": 18})
    all_of_them = list(generate(model, [text], max_new_tokens=99))
    assert all_of_them[-1] == NewToken(0, 4, all_of_them[-1].token, "cache")
    stop = all_of_them[2].token
    stopped = list(generate(model, [text], max_new_tokens=99, stop=[stop]))
    first = [new.token for new in all_of_them].index(stop)
    assert stopped == [*all_of_them[:first], all_of_them[first]._replace(ended="stop")]


def test_pages_come_back_when_the_caller_stops() -> None:
    reference, texts = ordinary("float32"), prompts((5, 7))
    model = qwen3.load(reference.directory, **SMALL)
    free = model.cache.free_pages
    running = generate(model, texts, max_new_tokens=20)
    next(running)
    assert model.cache.free_pages < free
    running.close()
    assert model.cache.free_pages == free
