"""Generated programs of all kinds: engine = interpreter, and one result for all schedules.

`pytest tests/cpu --thorough` takes 60 of each kind through 24 schedules each, the default run a
few through a few. They are those of tests/generated, drawn from a seed.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from tests.cpu.both import share_functions
from tests.cpu.test_schedules import IN_ORDER, SEEDS, THREADS, check_schedules
from tests.generated.core import Choices
from tests.generated.generator import FOCUSES, TAPE, Kernel, make
from tests.generated.harness import compare, compile_text

from tilelet.interp.interpreter import Interpreter
from tilelet.passes.pipeline import run_passes

ALL, FEW = 60, 5  # kernels of each focus

pytestmark = pytest.mark.usefixtures("compile_quickly")


def kernel_of(focus: str, number: int) -> Kernel:
    rng = np.random.default_rng([FOCUSES.index(focus), number])
    return make(Choices(rng.bytes(TAPE)), focus)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        wanted = ALL if metafunc.config.getoption("--thorough", default=False) else FEW
        metafunc.parametrize("number", range(wanted))


@pytest.mark.parametrize("focus", FOCUSES)
def test_generated_programs(
    focus: str,
    number: int,
    thorough: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    share_functions(monkeypatch)
    kernel = kernel_of(focus, number)
    arguments = kernel.arguments()
    program = run_passes(compile_text(kernel, tmp_path, arguments))
    expected = copy.deepcopy(arguments)
    Interpreter().run(program, expected)
    schedules = [(t, IN_ORDER) for t in THREADS] + [(2 + s % 3, s) for s in SEEDS[1:]]
    found = check_schedules(program, arguments, schedules if thorough else schedules[1:8])
    compare(found, expected, f"the interpreter\n{kernel.text}")


def test_the_seeds_give_different_kernels() -> None:
    texts = {kernel_of(focus, n).text for focus in FOCUSES for n in range(ALL)}
    assert len(texts) == ALL * len(FOCUSES)
