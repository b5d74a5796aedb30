"""Whole models give the same tokens as the reference implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.models.real.tiny import Sizes, Tiny, ordinary, tiny, torch, whole

from tilelet.models import qwen3
from tilelet.models.qwen3.compare import ModelComparison, ReferenceModel, compare
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
    """Five prompts in a batch of four: the last waits until a sequence ends."""
    reference, texts = ordinary("float32"), prompts(LENGTHS)
    model = qwen3.load(reference.directory, **SMALL)
    free = model.cache.free_pages
    assert tokens_of(model, texts, max_new_tokens=NEW) == [
        reference_tokens(reference, text, NEW) for text in texts
    ]
    assert model.cache.free_pages == free


def test_split_contexts_give_the_tokens_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of one to four parts, alone and in a batch."""
    monkeypatch.setattr("tilelet.models.qwen3.model._CONTEXT_PART", 32)
    reference, texts = ordinary("float32"), prompts((1, 31, 70))
    model = qwen3.load(reference.directory, **SMALL)
    found = tokens_of(model, texts, max_new_tokens=40)
    assert found == [reference_tokens(reference, text, 40) for text in texts]
    assert found[2] == tokens_of(model, texts[2:], max_new_tokens=40)[0]


def check_tokens(
    reference: Tiny, lengths: Sequence[int], new: int, **sizes: Any
) -> ModelComparison:
    """Generate, and compare with the reference on the same tokens."""
    vocabulary = reference.model.config.vocab_size
    texts = prompts(lengths, vocabulary)
    model = qwen3.load(reference.directory, **{**SMALL, **sizes})
    found = tokens_of(model, texts, max_new_tokens=new)
    layers = model.config.num_hidden_layers
    return compare(model, ReferenceModel(reference.directory, model.dtype, layers), texts, found)


def test_bf16_tokens_are_those_of_the_reference_or_near_ties() -> None:
    lengths = (1, 16, 33)
    found = check_tokens(ordinary("bfloat16"), lengths, NEW)
    assert len(found.choices) == len(lengths) * NEW
    assert found.agrees, found.differences
    assert len(found.differences) < 0.1 * len(found.choices)


# Sizes that no tile divides evenly, one query head, heads that share one K/V head.
ODD = (
    Sizes(hidden=40, heads=3, kv_heads=1, head_dim=24, intermediate=56, layers=2),
    Sizes(hidden=36, heads=1, kv_heads=1, head_dim=16, intermediate=100, layers=1),
    Sizes(hidden=96, heads=8, kv_heads=8, head_dim=8, intermediate=33, layers=2),
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("sizes", [Sizes(), *ODD], ids=str)
def test_tokens_of_other_models(thorough: bool, sizes: Sizes, tied: bool, dtype: str) -> None:
    """The vocabulary is no multiple of a block; lengths lie at the ends of pages and chunks."""
    if not thorough:
        pytest.skip("compiles for a minute")
    reference = whole(dtype, sizes, vocabulary=301, tied=tied)
    found = check_tokens(reference, (1, 16, 31, 32, 33, 48, 64, 65), NEW, batch=3, max_seq=130)
    assert found.agrees, (found.first_layer, found.differences)
    if dtype == "float32":
        assert not found.differences


@pytest.mark.parametrize("engine", ["interp"])
def test_the_interpreter_gives_the_same_tokens(engine: str) -> None:
    reference, texts = ordinary("float32"), prompts((3, 18))
    ours = [
        tokens_of(qwen3.load(reference.directory, engine=e, **SMALL), texts, max_new_tokens=3)
        for e in (engine, "cpu")
    ]
    assert ours[0] == ours[1]


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
    """There are pages for one sequence only: three run one after the other, with equal results."""
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
    running.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert model.cache.free_pages == free
