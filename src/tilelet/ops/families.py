"""Decorators for ops that apply a function of `numerics/` to each element.

`@two(_BINARY, numerics.add, Cost.ADD)` defines an op of `lhs` and `rhs`, `with_number` one whose
`rhs` is a number, `one` an op of `x`. The first argument holds the fields that the family shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilelet.dtypes import DType
from tilelet.ir.spec import Cost, Engine, OpFields, P, Plane, R, op
from tilelet.ops import infer
from tilelet.ops.infer import NUMBERS
from tilelet.ops.reference import Binary, Unary, of_one, of_two

VECTOR: OpFields = {"engine": Engine.VEC, "plane": Plane.SCOPE}
"""Fields of the ops that the vector unit runs."""


def two(
    family: OpFields,
    function: Binary,
    cost: Cost,
    allowed: Iterable[DType] = NUMBERS,
    *scratches: str,
    era: str = "SEED",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Define an op of two tiles, one of which may be a number."""
    types = infer.infer_binary(allowed, *scratches)
    return op(infer=types, reference=of_two(function), cost=cost, family=family, era=era)


def with_number(
    family: OpFields,
    function: Binary,
    cost: Cost,
    allowed: Iterable[DType] = NUMBERS,
    *scratches: str,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Define an op of a tile and a number."""
    types = infer.infer_with_number(allowed, *scratches)
    return op(infer=types, reference=of_two(function), cost=cost, family=family)


def one(
    family: OpFields,
    function: Unary,
    cost: Cost,
    allowed: Iterable[DType] = NUMBERS,
    to_float: bool = False,
    era: str = "SEED",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Define an op of one tile; with `to_float`, integers give FP32."""
    types = infer.infer_unary(allowed, to_float)
    return op(infer=types, reference=of_one(function), cost=cost, family=family, era=era)
