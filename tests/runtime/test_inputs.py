"""Initial data: reproducible, of the right type, and validated before anything is allocated."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import tilelet.language as pl
from tilelet.diag.catalogue.harness import InitValueFailed, TooBig
from tilelet.runtime import TensorSpec, run_jit, session
from tilelet.runtime.data.inputs import check_memory, initial_array
from tilelet.runtime.handlers.count import Count
from tilelet.runtime.session import Session


def test_two_runs_get_the_same_data_and_two_tensors_do_not() -> None:
    spec = TensorSpec("x", [64], torch.float32, torch.randn)
    first = initial_array(spec)
    torch.rand(3)
    random.random()
    assert np.array_equal(first, initial_array(spec))
    assert not np.array_equal(
        first, initial_array(TensorSpec("y", [64], torch.float32, torch.randn))
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(8),
        lambda: np.random.randn(8),  # noqa: NPY002
        lambda: np.array([random.random() for _ in range(8)]),
    ],
)
def test_functions_without_arguments_are_seeded_too(draw: object) -> None:
    spec = TensorSpec("x", [8], torch.float32, draw)
    assert np.array_equal(initial_array(spec), initial_array(spec))


def test_the_generators_of_the_script_are_left_as_they_were() -> None:
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.rand(1).item(), random.random()
    torch.manual_seed(5)
    random.seed(5)
    initial_array(TensorSpec("x", [8], torch.float32, torch.randn))
    assert (torch.rand(1).item(), random.random()) == expected
    assert torch.initial_seed() == 5


def test_a_manual_seed_and_the_sessions_seed_choose_other_data() -> None:
    spec = TensorSpec("x", [8], torch.float32, torch.randn)
    torch.manual_seed(1)
    first = initial_array(spec)
    torch.manual_seed(2)
    second = initial_array(spec)
    with session.active(Session(seed=7)):
        third = initial_array(spec)
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        (None, [0, 0]),
        (2.5, [2.5, 2.5]),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), [1, 2]),
        (np.array([1, 2]), [1, 2]),
        ([1, 2], [1, 2]),
        (lambda: torch.tensor([3, 4]), [3, 4]),
        (lambda: 5, [5, 5]),
        (lambda shape: np.full(shape, 6), [6, 6]),
        (torch.ones, [1, 1]),
        (np.ones, [1, 1]),
        (torch.tensor(7.0), [7, 7]),
    ],
)
def test_kinds_of_initial_values(init: object, expected: list[float]) -> None:
    array = initial_array(TensorSpec("x", [2], torch.bfloat16, init))
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(float).tolist() == expected


def test_generators_work_for_integers_too() -> None:
    assert initial_array(TensorSpec("x", [100], torch.int8, torch.randn)).dtype == np.int8


def test_zero_ignores_the_initial_value() -> None:
    assert initial_array(TensorSpec("x", [2], np.float32, 3.0), zero=True).tolist() == [0, 0]


def test_the_users_array_is_copied() -> None:
    mine = np.ones(2, np.float32)
    initial_array(TensorSpec("x", [2], np.float32, mine))[0] = 9
    assert mine[0] == 1


@pytest.mark.parametrize(
    ("init", "message"),
    [
        (np.zeros(3), "shape `[3]` where the spec has `[2]`"),
        (np.zeros((2, 2)), "shape `[2, 2]` where the spec has `[2]`"),
        (lambda: 1 / 0, "the function raised ZeroDivisionError"),
        (lambda: "text", "it is a `str`"),
        (["a", "b"], "are not numbers"),
    ],
)
def test_mistakes(init: object, message: str) -> None:
    with pytest.raises(InitValueFailed) as caught:
        initial_array(TensorSpec("x", [2], np.float32, init))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "wanted", "fits"),
    [
        ((2, 1), (2,), True),
        ((1, 6), (6, 1), True),
        ((2, 3, 4), (6, 4), True),
        ((6, 4), (2, 3, 4), True),
        ((2, 3), (3, 2), False),  # a transpose, as a rule
        ((4, 6), (2, 12), False),
        ((2, 3, 4), (2, 12, 1), True),
        ((2, 3, 4), (2, 6, 2), False),
    ],
)
def test_axes_may_be_joined_or_split(
    shape: tuple[int, ...], wanted: tuple[int, ...], fits: bool
) -> None:
    given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    spec = TensorSpec("x", wanted, np.float32, given)
    if fits:
        assert np.array_equal(initial_array(spec), given.reshape(wanted))
    else:
        with pytest.raises(InitValueFailed, match="where the spec has"):
            initial_array(spec)


def test_sizes_beyond_memory_are_found_before_allocating() -> None:
    huge = TensorSpec("weights", [1 << 30, 1 << 20], np.float32)
    with pytest.raises(TooBig, match="weights"):
        check_memory([TensorSpec("x", [2], np.float32), huge])
    check_memory([TensorSpec("x", [2], np.float32)])


DRAWS = [
    "import numpy, random, torch; print(torch.rand(1), random.random(), numpy.random.rand())",
    "import numpy; print(numpy.random.rand(), numpy.random.randn())",
]


@pytest.mark.parametrize("text", DRAWS)
def test_a_script_draws_the_same_in_every_process(text: str, tmp_path: Path) -> None:
    """Generators of modules that the script imports have another seed in every process."""
    script = tmp_path / "draws.py"
    script.write_text(text)

    def drawn(*options: str) -> str:
        command = [sys.executable, "-m", "tilelet.cli", "tasks", *options, str(script)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.stdout.splitlines()[0]

    first = drawn()
    assert drawn() == first
    assert drawn("--seed", "3") != first


def test_a_seed_that_nobody_chose_does_not_count() -> None:
    spec = TensorSpec("x", [8], torch.float32, torch.randn)
    drawn = []
    for seed in (3 << 61, 5 << 60):
        torch.manual_seed(seed)
        drawn.append(initial_array(spec))
    assert np.array_equal(*drawn)


ROWS = pl.dynamic("ROWS")


@pl.jit
def counted_rows(
    lengths: pl.Tensor[[4], pl.INT32],
    table: pl.Tensor[[4], pl.INT32],
    weights: pl.Tensor[[ROWS, 16], pl.INT8],
    out: pl.Out[pl.Tensor[[64, 16], pl.INT8]],
):
    kept = lengths[0:2]
    for i in pl.range(pl.read(kept, [1])):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [0])
            out[i * 16 : i * 16 + 16, :] = weights[row : row + 16, :]
    return out


def test_counting_makes_only_what_the_control_program_reads() -> None:
    made: list[str] = []

    def maker(name: str, value: np.ndarray) -> Callable[[], np.ndarray]:
        def make() -> np.ndarray:
            made.append(name)
            return value

        return make

    arguments = [
        TensorSpec("lengths", [4], pl.INT32, maker("lengths", np.array([1, 3, 2, 2]))),
        TensorSpec("table", [4], pl.INT32, maker("table", np.zeros(4))),
        TensorSpec("weights", [32, 16], pl.INT8, maker("weights", np.ones((32, 16)))),
        TensorSpec("out", [64, 16], pl.INT8, is_output=True),
    ]
    with session.active(Session(Count())) as now:
        result = run_jit(counted_rows, arguments)
    assert sum(result.tasks.values()) == 3
    assert made == ["lengths"]
    assert [table.total for table in now.task_tables] == [3]
