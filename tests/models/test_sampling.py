"""Tokens chosen by the tile program, compared with NumPy in double and transformers' filters."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.models.programs import every_engine

import tilelet.language as pl
from tilelet.device import load_machine, machine_names
from tilelet.device.memory.limits import program_findings
from tilelet.diag.catalogue.sampling import BadLogits, BadSampling, WrongSamplerInput
from tilelet.models.sampling import LARGEST_BLOCK as BLOCK
from tilelet.models.sampling import Sampler, Sampling, build_sampling
from tilelet.passes.pipeline import run_passes

Array = np.ndarray[Any, np.dtype[Any]]
# One token, one block, a block and one token, and odd numbers.
VOCABULARIES = (1, 7, BLOCK, BLOCK + 1, 2 * BLOCK + 777)
COMPILED = (BLOCK + 1,)


def philox(key: tuple[int, int], counter: int) -> int:
    """The first word of Philox4x32-10 for a counter below 2**32, by its definition."""
    words = [counter, 0, 0, 0]
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            (b >> 32) ^ words[1] ^ k0,
            b & 0xFFFFFFFF,
            (a >> 32) ^ words[3] ^ k1,
            a & 0xFFFFFFFF,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return words[0]


def test_the_reference_generator_gives_the_published_word() -> None:
    assert philox((0, 0), 0) == 0x6627E8D5


def uniform(seed: int, step: int) -> float:
    return (philox((seed & 0xFFFFFFFF, seed >> 32), step) >> 8) / 2**24


def probabilities(logits: Array, how: Sampling) -> Array:
    """Return probabilities in double; zero for tokens that are filtered out."""
    x = logits.astype(np.float64)
    weights = np.exp((x - x.max()) / how.temperature)
    kept = np.ones(x.shape, bool)
    if 0 < how.top_k < x.size:
        kept = x >= np.sort(x)[-how.top_k]
    if how.top_p < 1:
        order = np.argsort(-x, kind="stable")
        mass = np.cumsum(np.where(kept, weights, 0)[order])
        last = x[order[np.searchsorted(mass, how.top_p * mass[-1])]]
        kept &= x >= last
    weights = np.where(kept, weights, 0)
    return weights / weights.sum()


def allowed(chances: Array, number: float, slack: float = 2e-6) -> set[int]:
    """Return the token for a uniform number, and its neighbors if FP32 rounding may choose them."""
    cumulated = np.cumsum(chances)
    ends = (max(number - slack, 0.0), number, min(number + slack, cumulated[-1] * (1 - 1e-15)))
    return {int(np.searchsorted(cumulated, u, side="right")) for u in ends}


SETTINGS = [
    Sampling(0.7, seed=1),
    Sampling(1.0, top_k=1, seed=2),
    Sampling(1.3, top_k=40, seed=3),
    Sampling(0.9, top_p=0.8, seed=(5 << 32) + 4),
    Sampling(1.0, top_k=50, top_p=0.5, seed=(1 << 64) - 1),
    Sampling(0.05, top_p=0.999, seed=6),
    Sampling(100.0, top_k=1 << 30, top_p=1e-6, seed=7),
    Sampling(0.0, top_k=3, top_p=0.1, seed=8),
]


@every_engine
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_token_for_a_uniform_number(vocabulary: int, engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough and vocabulary not in COMPILED:
        pytest.skip("compiles for seconds")
    rng = np.random.default_rng(vocabulary)
    logits = (rng.standard_normal((len(SETTINGS), vocabulary)) * 4).astype(np.float32)
    logits[2, ::3] = logits[2, 0]  # ties at the limits
    logits[4, 1::2] = -np.inf
    choose = Sampler(len(SETTINGS), vocabulary, engine=engine)
    for step in (0, 12345):
        tokens = choose(logits, SETTINGS, [step] * len(SETTINGS))
        for row, how in enumerate(SETTINGS):
            if how.temperature == 0:
                assert tokens[row] == logits[row].argmax()
            else:
                number = uniform(how.seed, step)
                assert int(tokens[row]) in allowed(probabilities(logits[row], how), number)


def test_the_vocabulary_of_qwen3() -> None:
    vocabulary = 151936
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((len(SETTINGS), vocabulary)) * 3).astype(np.float32)
    choose = Sampler(len(SETTINGS), vocabulary, engine="cpu")
    tokens = choose(logits, SETTINGS, list(range(len(SETTINGS))))
    for row, how in enumerate(SETTINGS[:-1]):
        # The error of such a sum in FP32 is larger.
        chosen = allowed(probabilities(logits[row], how), uniform(how.seed, row), slack=2e-5)
        assert int(tokens[row]) in chosen
    assert tokens[-1] == logits[-1].argmax()


@every_engine
def test_draws_have_the_distribution(engine: str, thorough: bool) -> None:
    """Chi-squared of draws from 12 tokens, of which top-k and top-p keep seven."""
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    row = np.linspace(2, -1, 12).astype(np.float32)[[3, 9, 0, 7, 1, 11, 5, 2, 8, 4, 6, 10]]
    how = Sampling(1.5, top_k=9, top_p=0.85, seed=11)
    rows, calls = 24, 250
    chances = probabilities(row, how)
    kept = np.flatnonzero(chances)
    assert len(kept) == 7
    choose = Sampler(rows, row.size, engine=engine)
    logits = np.tile(row, (rows, 1))
    counts = np.zeros(row.size)
    for call in range(calls if engine == "cpu" and thorough else 5):
        steps = range(call * rows, (call + 1) * rows)
        counts += np.bincount(choose(logits, [how] * rows, list(steps)), minlength=row.size)
    expected = chances * counts.sum()
    assert set(np.flatnonzero(counts)) <= set(kept)
    squared = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert squared < 22.5  # once in a thousand, with six degrees of freedom


def test_kept_tokens_are_those_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    logits_process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(5)
    logits = (rng.standard_normal(501) * 3).astype(np.float32)
    for how in SETTINGS[:-1]:
        scores = torch.from_numpy(logits.copy())[None]
        scores = logits_process.TemperatureLogitsWarper(how.temperature)(None, scores)
        if how.top_k:
            scores = logits_process.TopKLogitsWarper(how.top_k)(None, scores)
        if how.top_p < 1:
            scores = logits_process.TopPLogitsWarper(how.top_p)(None, scores)
        theirs = torch.softmax(scores, -1)[0].numpy()
        np.testing.assert_allclose(probabilities(logits, how), theirs, atol=1e-5)


@every_engine
def test_ties_and_nan_as_torch_argmax(engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    logits = np.zeros((5, 2 * BLOCK + 5), np.float32)
    logits[1, [BLOCK + 3, BLOCK, 17]] = 1.0
    logits[2, [2 * BLOCK + 4, BLOCK - 1]] = np.nan
    logits[2, 3] = np.inf
    logits[3] = -np.inf
    logits[4, 0], logits[4, 1] = -0.0, 0.0
    tokens = Sampler(5, logits.shape[1], engine=engine)(logits, [Sampling()] * 5, [0] * 5)
    assert list(tokens) == [0, 17, BLOCK - 1, 0, 0]
    torch = pytest.importorskip("torch")
    assert list(tokens) == torch.from_numpy(logits).argmax(1).tolist()


@every_engine
def test_logits_in_bf16(engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    logits = np.random.default_rng(2).standard_normal((2, 300)).astype(ml_dtypes.bfloat16)
    how = Sampling(0.8, top_k=5, seed=9)
    tokens = Sampler(2, 300, pl.BF16, engine=engine)(logits, [Sampling(), how], [0, 4])
    wide = logits.astype(np.float32)
    assert tokens[0] == wide[0].argmax()
    assert int(tokens[1]) in allowed(probabilities(wide[1], how), uniform(9, 4))


@every_engine
def test_logits_that_are_no_numbers(engine: str, thorough: bool) -> None:
    if engine == "cpu" and not thorough:
        pytest.skip("compiles for seconds")
    choose = Sampler(2, 9, engine=engine)
    for bad in (np.nan, np.inf):
        logits = np.zeros((2, 9), np.float32)
        logits[1, 4] = bad
        with pytest.raises(BadLogits, match="row 1 of the logits"):
            choose(logits, [Sampling(1.0)] * 2, [0, 0])


def test_the_program_fits_on_every_machine() -> None:
    program = run_passes(build_sampling(2, 151936))
    for machine in machine_names():
        findings = program_findings(program, load_machine(machine))
        assert not findings, "\n\n".join(map(str, findings))


def test_a_sequence_does_not_depend_on_its_batch() -> None:
    logits = np.random.default_rng(1).standard_normal((3, 99)).astype(np.float32)
    how = Sampling(1.0, seed=21)
    alone = Sampler(1, 99, engine="interp")(logits[1:2], [how], [7])
    among = Sampler(3, 99, engine="interp")(logits, [Sampling(), how, Sampling(2.0)], [0, 7, 3])
    assert alone[0] == among[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -0.1), ("temperature", float("nan")), ("top_k", -1), ("top_p", 0.0),
     ("top_p", 1.5), ("seed", -1), ("seed", 1 << 64)],
)  # fmt: skip
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(BadSampling, match=f"`{name}` is"):
        Sampling(**{name: value})


def test_logits_of_another_size() -> None:
    with pytest.raises(WrongSamplerInput, match=r"float32 \[2, 8\].*float32 \[2, 9\]"):
        Sampler(2, 9)(np.zeros((2, 8), np.float32), [Sampling()] * 2, [0, 0])
    with pytest.raises(WrongSamplerInput, match="1 settings and 2 steps"):
        Sampler(2, 9)(np.zeros((2, 9), np.float32), [Sampling()], [0, 0])
