"""Calls of ops in tests: type inference, and the reference with its valid rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tilelet.ops  # noqa: F401 - fills the registry
from tilelet import dtypes
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.ir.core import Arg, Value
from tilelet.ir.rebuild import Builder
from tilelet.ir.spec import REGISTRY, Call, OpSpec, bind
from tilelet.ir.types import Mem, ScalarType, SymDim, TensorType, TileType

CALL = Loc("kernel.py", 1, 0, 1, 40)


def tile(*shape: int, dtype: DType = dtypes.FP32, space: Mem | None = None) -> Value:
    return Value("t", TileType(shape, dtype, space))


def tensor(*shape: int | SymDim, dtype: DType = dtypes.FP32) -> Value:
    return Value("x", TensorType(shape, dtype))


def number(dtype: DType = dtypes.INDEX, name: str = "n") -> Value:
    return Value(name, ScalarType(dtype))


def infer(name: str, *args: Arg, in_scope: bool = True, **kwargs: Arg) -> tuple[Any, ...]:
    """Return the result types of a call; argument i has the span of line 10 + i."""
    spec = REGISTRY[name]
    bound = bind(spec, *args, **kwargs)
    locs = {p: Loc("kernel.py", 10 + i, 0, 10 + i, 5) for i, p in enumerate(bound)}
    types = spec.infer(Call(name, bound, in_scope, CALL, locs))
    if spec.expands is None:
        return types
    made = Builder(CALL, in_scope=in_scope).emit(name, *args, **kwargs).type
    assert types == (made,)
    return types


def infer1(name: str, *args: Arg, in_scope: bool = True, **kwargs: Arg) -> Any:
    (only,) = infer(name, *args, in_scope=in_scope, **kwargs)
    return only


def lines(error: Any) -> list[int]:
    """Return the lines that an error's labels point at."""
    return [label.loc.line for label in error.diagnostic.labels]


class Part:
    """Return a partially valid array operand; zero outside the region, as tiles are."""

    def __init__(self, data: Any, *valid: int) -> None:
        self.data = np.zeros_like(data)
        self.valid = valid
        box = tuple(slice(0, v) for v in valid)
        self.data[box] = data[box]


def as_value(arg: Any) -> Any:
    data = arg.data if isinstance(arg, Part) else arg
    if isinstance(data, np.ndarray):
        return Value("t", TileType(data.shape, dtypes.from_numpy(data.dtype)))
    return arg


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    """Return the result arrays of an op, checked against the inferred types; zero outside regions.

    Follows the contract in `OpSpec` (cutting, `valid`, `result_type`).
    """
    results = run_with_region(name, *args, **kwargs)
    arrays = [array for array, _ in results]
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def region(name: str, *args: Any, **kwargs: Any) -> tuple[int, ...]:
    """Return the valid region of the only result."""
    ((_, valid),) = run_with_region(name, *args, **kwargs)
    return valid


def run_with_region(name: str, *args: Any, **kwargs: Any) -> list[tuple[Any, tuple[int, ...]]]:
    return _run_with_region(REGISTRY[name], bind(REGISTRY[name], *args, **kwargs))


def _run_with_region(spec: OpSpec, bound: Mapping[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    if spec.expands is not None:
        return _run_composition(spec, bound)
    name = spec.name
    types = spec.infer(Call(name, {p: as_value(a) for p, a in bound.items()}, True))
    operands = {}
    plain = {}
    for param, arg in bound.items():
        part = arg if isinstance(arg, Part) else None
        data = part.data if part else arg
        plain[param] = data
        if isinstance(data, np.ndarray):
            valid = part.valid if part else data.shape
            operands[param] = (data.shape, valid)
            if spec.cut_to_valid:
                plain[param] = data[tuple(slice(0, v) for v in valid)]
    before = {p: a.copy() for p, a in plain.items() if isinstance(a, np.ndarray)}
    extra: dict[str, Any] = {}
    if spec.takes_valid:
        extra["valid"] = {p: valid for p, (_, valid) in operands.items()}
    if spec.takes_result_type:
        extra["result_type"] = types[0]
    assert spec.valid is not None
    assert spec.reference is not None
    shapes = [t.shape for t in types if isinstance(t, TileType)]
    regions = [spec.valid(operands, shape, plain) for shape in shapes]
    made = spec.reference(**plain, **extra)
    arrays = made if isinstance(made, tuple) else (made,)
    for param, old in before.items():
        assert plain[param].tobytes() == old.tobytes(), f"{name} changed `{param}`"
    return [
        (finish(spec, array, t, valid), valid)
        for array, t, valid in zip(arrays, types, regions, strict=True)
    ]


def _run_composition(spec: OpSpec, bound: Mapping[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the results of the ops that a composition expands to, in order."""
    values = {param: as_value(arg) for param, arg in bound.items()}
    known = {v: bound[param] for param, v in values.items() if isinstance(v, Value)}
    builder = Builder(CALL, in_scope=True)
    results: list[tuple[Any, tuple[int, ...]]] = []
    builder.emit(spec.name, **values)
    for op in builder.ops:
        given = {p: known[a] if isinstance(a, Value) else a for p, a in op.args.items()}
        results = _run_with_region(op.spec, given)
        known |= {v: Part(data, *valid) for v, (data, valid) in zip(op.results, results)}
    return results


def finish(spec: OpSpec, array: Any, t: TileType, valid: tuple[int, ...]) -> Any:
    assert array.dtype == t.dtype.numpy
    assert array.shape == (valid if spec.cut_to_valid else t.shape)
    box = tuple(slice(0, v) for v in valid)
    result = np.zeros(t.shape, array.dtype)
    result[box] = array[box]
    return result
