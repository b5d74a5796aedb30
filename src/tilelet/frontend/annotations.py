"""Annotations of parameters: types and directions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import get_origin

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.names import BadAnnotation, MissingAnnotation, ScalarOutput
from tilelet.diag.catalogue.ops import ZeroSizeDim
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.frontend.functions import KernelFunction
from tilelet.ir.core import Direction, Value
from tilelet.ir.types import (
    INDEX,
    ArrayType,
    DistributedType,
    ScalarType,
    SymDim,
    TensorType,
    TileType,
    Type,
)
from tilelet.ops.block_scaled import LAYOUTS
from tilelet.syntax import types as language_types
from tilelet.syntax.enums import TensorLayout

# Results of `pl.prefetch`: opaque numbers.
_HANDLES: tuple[type, ...] = (
    language_types.PrefetchAsyncContext,
    language_types.AsyncEvent,
    language_types.AsyncSession,
    language_types.CommCtx,
)


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel function, as declared in its signature."""

    name: str
    type: Type | None  # None: taken from the call (`x: pl.Tensor` in a jit function)
    direction: Direction | None  # None: not declared
    loc: Loc
    layout: str | None = None  # a layout other than row-major, used only by the device
    default: int | float | None = None  # value if a call omits the argument


def value_type(annotation: object) -> Type | None:
    """Return the IR type of an annotation such as `pl.Tensor[[16, 128], pl.FP32]`, or None."""
    match annotation:
        case language_types.DistributedAnnotation():
            return DistributedType(_shape(annotation.shape), annotation.dtype)
        case language_types.TensorAnnotation():
            return TensorType(_shape(annotation.shape), annotation.dtype)
        case language_types.TileAnnotation():
            return TileType(_shape(annotation.shape), annotation.dtype, annotation.space)  # type: ignore[arg-type]
        case language_types.ScalarAnnotation():
            return ScalarType(annotation.dtype)
        case language_types.ArrayAnnotation():
            return ArrayType(annotation.length, annotation.dtype)
        case DType():
            return ScalarType(annotation)
        case type() if annotation in _HANDLES:
            return INDEX
        case _:
            return None


def agree(found: Type, declared: Type) -> bool:
    """Return whether a value of type `found` matches the declared type."""
    if isinstance(found, (TensorType, TileType)) and isinstance(declared, (TensorType, TileType)):
        return (
            found.dtype is declared.dtype
            and len(found.shape) == len(declared.shape)
            and all(
                a == b or not (isinstance(a, int) and isinstance(b, int))
                for a, b in zip(found.shape, declared.shape, strict=True)
            )
        )
    return type(found) is type(declared)


def _shape(shape: object) -> tuple[int | SymDim, ...]:
    return tuple(d if isinstance(d, SymDim) else int(d) for d in shape)  # type: ignore[attr-defined]


def parameters(function: KernelFunction) -> list[KernelParameter]:
    """Return the parameters of a function without `self`; errors point at the annotation."""
    names = function.captured_names()
    defaults = function.defaults
    return [
        replace(_parameter(function, p, names), default=defaults.get(p.arg))
        for p in function.parameters
    ]


def stored_type(p: KernelParameter) -> Type | None:
    """Return a parameter's type in memory; in March 2026 `pl.DN` meant the transpose."""
    if p.layout == "DN" and isinstance(p.type, TensorType) and len(p.type.shape) == 2:
        return replace(p.type, shape=p.type.shape[::-1])
    return p.type


def taken_type(p: KernelParameter) -> Type | None:
    """Return the type of an argument if `pl.DN` tensors are as stored, except vectors."""
    is_vector = isinstance(p.type, TensorType) and 1 in p.type.shape
    return p.type if is_vector else stored_type(p)


def given_type(annotation: object, loc: Loc, *, as_stored: bool) -> Type | None:
    """Return the type that the annotation of a result declares."""
    found = value_type(annotation)
    layout = getattr(annotation, "layout", TensorLayout.ND)
    return taken_type(KernelParameter("", found, None, loc, layout.name)) if as_stored else found


def layouts_of(function: KernelFunction, env: Mapping[str, object]) -> dict[Value, str]:
    """Return the layout of each parameter that holds packed scales."""
    found: dict[Value, str] = {}
    for p in parameters(function):
        value = env.get(p.name)
        if p.layout in LAYOUTS and isinstance(value, Value):
            found[value] = p.layout
    return found


def _parameter(function: KernelFunction, p: ast.arg, names: dict[str, object]) -> KernelParameter:
    loc = function.source.loc(p)
    if p.annotation is None:
        if function.generic:
            return KernelParameter(p.arg, None, None, loc)
        raise MissingAnnotation(loc, p.arg)
    where = function.source.loc(p.annotation)
    annotation = _evaluate(function, p, names, where)
    direction: Direction | None = None
    if isinstance(annotation, language_types.DirectionAnnotation):
        direction, annotation = annotation.direction, annotation.inner
    elif annotation is language_types.Out or annotation is language_types.InOut:
        direction = Direction.Out if annotation is language_types.Out else Direction.InOut
        annotation = language_types.Tensor
    if annotation is language_types.Tensor or annotation is language_types.Scalar:
        if not function.generic:
            raise BadAnnotation(where, p.arg, "it says no shape and no dtype")
        return KernelParameter(p.arg, None, direction, loc)
    found = value_type(annotation)
    if found is None:
        # A plain `int`, `float` or `bool`; in Python 3.10 `list[int]` is a `type` as well.
        if function.generic and isinstance(annotation, type) and get_origin(annotation) is None:
            return KernelParameter(p.arg, None, direction, loc)
        raise BadAnnotation(
            where, p.arg, f"`{ast.unparse(p.annotation)}` is not a type of the language"
        )
    if direction is not None and isinstance(found, ScalarType):
        raise ScalarOutput(where, p.arg)
    if isinstance(found, (TensorType, TileType)):
        for axis, d in enumerate(found.shape):
            if isinstance(d, int) and d <= 0:
                raise ZeroSizeDim(where, f"parameter `{p.arg}`", found.shape, axis)
    layout = getattr(annotation, "layout", TensorLayout.ND)
    return KernelParameter(
        p.arg, found, direction, loc, None if layout is TensorLayout.ND else layout.name
    )


def _evaluate(function: KernelFunction, p: ast.arg, names: dict[str, object], where: Loc) -> object:
    """Evaluate an annotation, which is the author's own program text."""
    node = p.annotation
    assert node is not None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    try:
        return function.host.expression(node, function.source.path, names)
    except Exception as problem:
        raise BadAnnotation(where, p.arg, f"{type(problem).__name__}: {problem}") from None
