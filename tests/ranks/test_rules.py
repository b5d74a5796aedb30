"""Static rules for programs of several ranks, and where a debugger stops."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ranks.programs import world

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.diag.catalogue.ranks import BadDeferredWait, BadDevice

SIGNALS = pld.DistributedTensor[[1, 80], pl.INT32]


def _deferring(count: int, computes: bool):
    @pl.jit
    def one(x: pl.Tensor[[1, 64], pl.FP32], y: pl.Out[pl.Tensor[[1, 64], pl.FP32]], s: SIGNALS):
        with pl.at(level=pl.Level.CORE_GROUP) as tid:
            for i in pl.range(count):
                pld.system.defer_wait(s, offsets=[0, i], expected=0)
            if computes:
                y[:] = pl.add(x, x)
        with pl.at(level=pl.Level.CORE_GROUP, deps=[tid]):
            y[:] = pl.add(x, x)
        return y

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, 64], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, 64], pl.FP32]]):
        buf = pld.alloc_window_buffer([1, 80], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            one(x[r], y[r], pld.window(buf, [1, 80], dtype=pl.INT32), device=r)

    return host


@pytest.mark.parametrize(
    ("count", "computes", "problem"),
    [(65, False, "more than 64 conditions"), (1, True, "its kernel has `slice`, too")],
)
def test_rules_of_deferred_waits(count: int, computes: bool, problem: str) -> None:
    x = np.ones((2, 1, 64), np.float32)
    with pytest.raises(BadDeferredWait, match=problem):
        _deferring(count, computes)(x, np.zeros_like(x), config=world(2))
    _deferring(64, False)(x, y := np.zeros_like(x), config=world(2))
    assert np.array_equal(y, x + x)


def test_a_computed_device() -> None:
    @pl.jit
    def one(y: pl.Out[pl.Tensor[[1, 64], pl.FP32]], s: SIGNALS):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.full([1, 64], dtype=pl.FP32, value=1.0)
        return y

    @pl.jit.host
    def host(y: pl.Out[pl.Tensor[[2, 1, 64], pl.FP32]]):
        buf = pld.alloc_window_buffer([1, 80], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            one(y[r], pld.window(buf, [1, 80], dtype=pl.INT32), device=1 - r)

    with pytest.raises(BadDevice, match=r"`device=` of a dispatch with windows is computed"):
        host(np.zeros((2, 1, 64), np.float32), config=world(2))


def test_a_breakpoint_says_its_rank(capsys: pytest.CaptureFixture[str]) -> None:
    @pl.jit
    def one(x: pl.Tensor[[1, 64], pl.FP32], y: pl.Out[pl.Tensor[[1, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="twice"):
            double = pl.add(x, x)
            breakpoint()  # noqa: T100
            y[:] = double
        return y

    @pl.jit.host
    def host(x: pl.Tensor[[2, 1, 64], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, 64], pl.FP32]]):
        for r in pl.range(pld.world_size()):
            one(x[r], y[r], device=r)

    x = np.ones((2, 1, 64), np.float32)
    host(x, np.zeros_like(x), config=world(2))
    printed = capsys.readouterr().err
    assert printed.index("rank 0, `twice`:") < printed.index("rank 1, `twice`:")
