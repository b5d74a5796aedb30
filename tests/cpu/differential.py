"""The engine against the interpreter: results bit for bit, or the same error."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from tests.generated.harness import described

from tilelet import dtypes
from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag.core import UserError
from tilelet.dtypes import DType
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.passes.pipeline import run_passes
from tilelet.tasks.stream import TaskStream

Arrays = dict[str, Any]


def outcome(
    engine: Any, program: Program, arguments: Mapping[str, Any]
) -> tuple[Arrays, str, TaskStream]:
    """Outcome of a run: the arrays, the error's text, the tasks."""
    given = {n: copy.deepcopy(a) for n, a in arguments.items()}
    try:
        tasks = engine.run(program, given).tasks
    except UserError as error:
        return {}, str(error), TaskStream()
    return given, "", tasks


def agree(program: Program, *, ulp: int = 0, **arguments: Any) -> Arrays:
    """Run on both; return the engine's arrays. With `ulp`, FP32 results may differ by that much."""
    return agree_lowered(run_passes(program), arguments, ulp)


def agree_lowered(lowered: Program, arguments: Mapping[str, Any], ulp: int = 0) -> Arrays:
    """Check `agree` for a program after all passes."""
    expected, wanted_error, wanted_tasks = outcome(Interpreter(), lowered, arguments)
    found, error, tasks = outcome(CpuEngine(records=True), lowered, arguments)
    assert error == wanted_error
    assert described(tasks) == described(wanted_tasks)
    for name, array in expected.items():
        if isinstance(array, np.ndarray):
            assert_same(found[name], array, name, ulp)
    return found


def assert_same(found: np.ndarray, expected: np.ndarray, name: str = "", ulp: int = 0) -> None:
    """Whether bits are equal; NaN equals NaN whatever its bits."""
    itemsize = expected.dtype.itemsize
    bits = expected.view(f"u{itemsize}"), found.view(f"u{itemsize}")
    differs = bits[0] != bits[1]
    if dtypes.from_numpy(expected.dtype).is_float:
        differs &= ~(np.isnan(expected.astype(np.float32)) & np.isnan(found.astype(np.float32)))
        if ulp:
            differs &= ~_near(bits[0], bits[1], ulp)
    if differs.any():
        at = tuple(int(i[0]) for i in np.nonzero(differs))
        raise AssertionError(
            f"{name}: {int(differs.sum())} of {differs.size} differ, first at {at}: "
            f"{found[at]!r}, expected {expected[at]!r}"
        )


def _near(a: np.ndarray, b: np.ndarray, ulp: int) -> np.ndarray:
    same_sign = (a >> (8 * a.itemsize - 1)) == (b >> (8 * a.itemsize - 1))
    return same_sign & (np.abs(a.astype(np.int64) - b.astype(np.int64)) <= ulp)


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    0.5,
    -2.5,
    1e-40,
    -3e-45,
    3.4e38,
    65504,
    1e-7,
]


def numbers(
    dtype: DType, *shape: int, seed: int = 0, special: bool = True, scale: float = 3.0
) -> np.ndarray:
    """Random elements: floats with special values among them, integers over their whole range."""
    rng = np.random.default_rng([seed, *shape, len(dtype.name)])
    if dtype is dtypes.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        values = rng.normal(scale=scale, size=shape)
        if special:
            flat = values.reshape(-1)
            places = rng.permutation(flat.size)[: min(len(SPECIAL), max(1, flat.size // 3))]
            flat[places] = rng.permutation(SPECIAL)[: len(places)]
        with np.errstate(all="ignore"):
            return values.astype(np.float32).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    values = rng.integers(limits.min, limits.max, shape, dtype=dtype.numpy, endpoint=True)
    small = rng.integers(0, 7, shape).astype(dtype.numpy)
    values = np.where(rng.random(shape) < 0.4, small, values)
    flat = values.reshape(-1)
    if special and flat.size >= 4:
        flat[:4] = [limits.min, limits.max, 0, np.asarray(-1).astype(dtype.numpy)]
    return values
