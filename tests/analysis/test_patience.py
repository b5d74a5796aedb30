"""Automatic checks end after a fixed amount of work."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels import lowered

import tilelet.language as pl
from tilelet.analysis import patience
from tilelet.analysis.patience import OutOfSteps, within
from tilelet.checks.findings import Status
from tilelet.checks.registry import CHECKS
from tilelet.checks.verdict import TOO_LONG, Subject, verdict_on
from tilelet.device.machine.description import load_machine
from tilelet.device.run import Recorded
from tilelet.interp.interpreter import Interpreter


@pl.jit
def many_rounds(
    x: pl.Tensor[[16, 64], pl.FP32],
    n: pl.Tensor[[4], pl.INT32],
    out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    rounds = pl.read(n, [0])
    with pl.at(level=pl.Level.CORE_GROUP):
        for i in pl.range(rounds):
            row = pl.cast(pl.cast(i, pl.INT32) % 16, pl.INDEX)
            out[row : row + 1, :] = x[row : row + 1, :]
    return out


def recorded(rounds: int) -> Subject:
    arguments = {
        "x": np.zeros((16, 64), np.float32),
        "n": np.full(4, rounds, np.int32),
        "out": np.zeros((16, 64), np.float32),
    }
    program = lowered(many_rounds.specialize(*arguments.values()))
    tasks = Interpreter().run(program, arguments, execute=False).tasks
    return Subject(Recorded("many_rounds", program, tasks), arguments, load_machine("a2a3"), None)


def test_checks_that_take_long_are_left() -> None:
    race, subject = [CHECKS["race"]], recorded(5000)
    with within(0):
        (part,) = verdict_on(subject, race).parts
    assert (part.status, part.summary) == (Status.NOT_CHECKED, TOO_LONG)
    (part,) = verdict_on(recorded(5000), race).parts
    assert part.status is not Status.NOT_CHECKED


def test_within_the_limit_nothing_ends() -> None:
    with within(10**9):
        (part,) = verdict_on(recorded(50), [CHECKS["race"]]).parts
    assert part.status is not Status.NOT_CHECKED


def test_the_limit_holds_only_inside() -> None:
    def looks() -> None:
        for _ in range(5000):
            patience.step()

    with within(0), pytest.raises(OutOfSteps):
        looks()
    looks()
