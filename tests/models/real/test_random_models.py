"""Models with random sizes and settings give the tokens of the reference."""

from __future__ import annotations

import pytest
from tests.models.real.random_models import compared, random_model
from tests.models.real.test_generate import one_thread

__all__ = ["one_thread"]


@pytest.mark.parametrize("seed", range(12))
def test_tokens_of_random_models(thorough: bool, seed: int) -> None:
    """All tokens agree in FP32; all but near-ties of tokens and of experts agree in BF16."""
    if not thorough:
        pytest.skip("compiles for a minute")
    case = random_model(seed)
    found = compared(case)
    assert found.comparison.agrees, found.comparison
    if case.dtype == "float32":
        assert found.is_same


def test_random_models_are_of_all_kinds() -> None:
    cases = [random_model(seed) for seed in range(200)]
    sparse = [case.fields for case in cases if case.is_sparse]
    assert 50 < len(sparse) < 150
    assert {case.dtype for case in cases} == {"float32", "bfloat16"}
    assert {case.fields["tie_word_embeddings"] for case in cases} == {False, True}
    assert any(fields["mlp_only_layers"] for fields in sparse)
    assert {fields["norm_topk_prob"] for fields in sparse} == {False, True}
    assert any(fields["num_experts_per_tok"] == 1 for fields in sparse)
    assert any(case.fields["num_key_value_heads"] == 1 for case in cases)
