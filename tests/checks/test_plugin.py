"""The pytest plugin, used as a project would."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checks.test_race import ACC, X, atomic_blocks, without_dependency

from tilelet.runtime.inspection.budget import budget_of
from tilelet.runtime.pytest_plugin import assert_budget, tilelet_check

__all__ = ["assert_budget", "tilelet_check"]


def test_a_clean_kernel(tilelet_check) -> None:
    assert tilelet_check(atomic_blocks, X, ACC).ok


def test_a_racing_kernel(tilelet_check) -> None:
    with pytest.raises(pytest.fail.Exception, match="race on `acc`"):
        tilelet_check(without_dependency, X, ACC)
    assert tilelet_check(without_dependency, X, ACC, only=["capacity"]).ok


def test_budgets(assert_budget) -> None:
    used = assert_budget(without_dependency, X, ACC, tasks=4, us=1e6, gm_bytes=2**30, vec_kib=96)
    assert used.tasks == 4
    assert used.gm_bytes == 4 * 3 * 16 * 128 * 4
    assert used.us > 0
    with pytest.raises(pytest.fail.Exception) as failure:
        assert_budget(without_dependency, X, ACC, tasks=3, gm_bytes=1000, vec_kib=1)
    text = str(failure.value)
    assert "4 tasks on a2a3, budget 3" in text
    assert "4 in `without_dependency_incore_0`" in text
    assert "98,304 bytes of global memory on a2a3, budget 1,000" in text
    assert "KiB of Vec on a2a3, budget 1" in text


def test_nothing_is_executed() -> None:
    acc = np.zeros((16, 128), np.float32)
    budget_of(without_dependency, (X, acc), "a2a3")
    assert not acc.any()
