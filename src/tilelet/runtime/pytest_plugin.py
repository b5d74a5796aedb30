"""A pytest plugin: checks and budgets of kernels in a project's own tests.

    def test_softmax(tilelet_check):
        tilelet_check(softmax, x, out)              # fails with the findings in full

    def test_softmax_stays_small(assert_budget):
        assert_budget(softmax, x, out, tasks=64, us=40, gm_bytes=2**20, vec_kib=96)

It is active once Tilelet is installed; `-p no:tilelet` disables it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def tilelet_check() -> Callable[..., Any]:
    """Check a program as `tilelet.check` does and fail with its findings; return the verdict."""

    def run(program: Any, *args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        import tilelet

        verdict = tilelet.check(program, *args, **options)
        if not verdict.ok:
            pytest.fail(str(verdict), pytrace=False)
        return verdict

    return run


@pytest.fixture
def assert_budget() -> Callable[..., Any]:
    """Fail if a program needs more than its budget; the message names what grew.

    tasks     number of tasks
    us        modelled microseconds on `platform`
    gm_bytes  bytes between global memory and the cores
    vec_kib   largest vector memory of a kernel, in KiB
    """

    def run(
        program: object,
        *args: object,
        tasks: int | None = None,
        us: float | None = None,
        gm_bytes: int | None = None,
        vec_kib: float | None = None,
        platform: str = "a2a3",
    ) -> Any:
        __tracebackhide__ = True
        from tilelet.runtime.inspection.budget import budget_of

        used = budget_of(program, args, platform)
        limits = {"tasks": tasks, "us": us, "gm_bytes": gm_bytes, "vec_kib": vec_kib}
        wrong = used.over({name: limit for name, limit in limits.items() if limit is not None})
        if wrong:
            pytest.fail(wrong, pytrace=False)
        return used

    return run
