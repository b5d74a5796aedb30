"""Arguments against parameters: specs, arrays and scalars must fit what the entry declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilelet.diag.catalogue.harness import (
    ArgumentCount,
    ArgumentMismatch,
    BadSpec,
    ExtraSpec,
    MissingSpec,
    SpecMismatch,
    UnknownData,
)
from tilelet.diag.core import Loc
from tilelet.diag.text import shape_text
from tilelet.dtypes import FP4, DType
from tilelet.ir.core import Direction, Program
from tilelet.ir.types import ScalarType, TensorType
from tilelet.runtime.data.arrays import Array, as_array, dtype_of, is_array, is_tensor
from tilelet.runtime.data.dlpack import from_dlpack, speaks_dlpack
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.tasks.extents import Extents


@dataclass(frozen=True)
class Parameter:
    """A parameter of the entry function."""

    name: str
    type: TensorType | ScalarType | None  # None: a `@pl.jit` parameter that takes what it gets
    direction: Direction
    declared: Direction | None  # what the signature says; None: a plain `pl.Tensor`
    loc: Loc
    default: int | float | None = None  # of a number that a call need not give

    @property
    def is_written(self) -> bool:
        return self.direction is not Direction.In

    @property
    def is_pure_output(self) -> bool:
        """Declared write-only: callers may leave it out and get it back."""
        return self.declared is Direction.Out


def parameters(program: Program) -> list[Parameter]:
    """The entry's parameters, with the directions that the passes found."""
    entry = program.main
    found: list[Parameter] = []
    for value, direction, said in zip(entry.params, entry.directions, entry.declarations):
        assert isinstance(value.type, TensorType | ScalarType)
        found.append(Parameter(value.name, value.type, direction, said, value.loc))
    return found


def jit_parameters(jit_fn: Any) -> list[Parameter]:
    """The parameters of a `@pl.jit` function, as far as its signature says what they are."""
    return [
        Parameter(p.name, p.type, p.direction or Direction.In, p.direction, p.loc, p.default)
        for p in jit_fn.parameters
    ]


def match_specs(
    params: Sequence[Parameter], specs: Sequence[Spec], extents: Extents | None = None
) -> dict[str, Spec]:
    """The spec of every parameter. By name if the names agree, else in order.

    Raises what does not fit: a spec too few or too many, another shape, another dtype.
    """
    named: dict[str, Spec] = {}
    for spec in specs:
        if spec.name in named:
            raise BadSpec(f"two specs are called `{spec.name}`")
        named[spec.name] = spec
    names = [p.name for p in params]
    if len(specs) == len(params) and set(named) != set(names):
        pairs = list(zip(params, specs))  # other names, same number: the order counts
    else:
        for spec in specs:
            if spec.name not in names:
                raise ExtraSpec(spec.name, names)
        for param in params:
            if param.name not in named and param.default is not None:
                named[param.name] = _default_spec(param)
            elif param.name not in named:
                raise MissingSpec(param.name, param.loc)
        pairs = [(param, named[param.name]) for param in params]
    dims = extents or Extents()
    for param, spec in pairs:
        _check_spec(param, spec, dims)
    return {param.name: spec for param, spec in pairs}


def _default_spec(param: Parameter) -> ScalarSpec:
    if isinstance(param.type, ScalarType):
        return ScalarSpec(param.name, param.type.dtype, param.default)
    return ScalarSpec(param.name, param.default)


def _check_spec(param: Parameter, spec: Spec, dims: Extents) -> None:
    if param.type is None:
        return
    if isinstance(param.type, ScalarType):
        if not isinstance(spec, ScalarSpec):
            raise SpecMismatch(spec.name, "kind", "tensor", "scalar", param.loc)
        if not _scalar_fits(spec.element, param.type.dtype):
            raise SpecMismatch(spec.name, "dtype", spec.element, param.type.dtype, param.loc)
        return
    if not isinstance(spec, TensorSpec):
        raise SpecMismatch(spec.name, "kind", "scalar", "tensor", param.loc)
    if not dims.fits(spec.name, spec.shape, param.type.shape):
        raise SpecMismatch(
            spec.name, "shape", shape_text(spec.shape), shape_text(param.type.shape), param.loc
        )
    if not _same_storage(spec.element, param.type.dtype) and not _is_unsigned_form(
        spec.element, param.type.dtype
    ):
        raise SpecMismatch(spec.name, "dtype", spec.element, param.type.dtype, param.loc)


def check_arguments(params: Sequence[Parameter], args: Sequence[Any]) -> None:
    """Tensors against the shapes and dtypes that a signature states."""
    dims = Extents()
    for param, arg in zip(params, args):
        if is_array(arg) and dtype_of(arg.dtype) is None:
            raise UnknownData(param.name, str(arg.dtype))
        if not isinstance(param.type, TensorType):
            continue
        wanted = param.type
        if not is_array(arg):
            raise ArgumentMismatch(param.name, "type", type(arg).__name__, "tensor", param.loc)
        if not dims.fits(param.name, arg.shape, wanted.shape):
            got = shape_text(arg.shape)
            raise ArgumentMismatch(param.name, "shape", got, shape_text(wanted.shape), param.loc)
        dtype = dtype_of(arg.dtype)
        if dtype is not None and not _same_storage(dtype, wanted.dtype):
            raise ArgumentMismatch(param.name, "dtype", dtype, wanted.dtype, param.loc)


def given_names(params: Sequence[Parameter], count: int) -> list[str]:
    """The parameters that `count` arguments are for: all, or those that are not `pl.Out`."""
    inputs = [p.name for p in params if not p.is_pure_output]
    return inputs if len(inputs) == count < len(params) else [p.name for p in params]


def bind_call(
    kernel: str, params: Sequence[Parameter], args: Sequence[Any]
) -> tuple[dict[str, Array | Any], dict[str, Any]]:
    """Arguments of a direct call: what the engine gets, and the tensors that the call gives back.

    All parameters in order, and those that are written come back; or all but the `pl.Out` ones,
    which are then made here, and alone come back. Arrays share memory with the user's tensors.
    """
    inputs = [p for p in params if not p.is_pure_output]
    given = params if len(args) == len(params) else inputs
    if len(args) != len(given):
        raise ArgumentCount(kernel, len(args), [p.name for p in params], params[0].loc)
    seen = [adopted(param, arg) for param, arg in zip(given, args)]
    check_arguments(given, seen)
    dims = Extents()
    bound: dict[str, Array | Any] = {}
    written: dict[str, Any] = {}
    for param, arg, plain in zip(given, args, seen):
        bound[param.name] = bind_one(param, plain)
        if isinstance(param.type, TensorType):
            dims.fits(param.name, bound[param.name].shape, param.type.shape)
            if param.is_written:
                written[param.name] = arg
    wants_torch = any(is_tensor(a) for a in args)
    made = {
        p.name: _made_output(kernel, params, p, dims, len(args), wants_torch)
        for p in params
        if p.name not in bound
    }
    bound.update({name: as_array(output) for name, output in made.items()})
    return {p.name: bound[p.name] for p in params}, made or written


def _made_output(
    kernel: str, params: Sequence[Parameter], param: Parameter, dims: Extents, got: int, torch: bool
) -> Any:
    from tilelet.runtime.data.arrays import as_tensor

    assert isinstance(param.type, TensorType)
    shape = dims.resolve(param.type.shape)
    if shape is None:  # its extent is known only from the tensor itself
        raise ArgumentCount(kernel, got, [p.name for p in params], param.loc)
    array = np.zeros(shape, param.type.dtype.numpy)
    return as_tensor(array) if torch else array


def adopted(param: Parameter, arg: Any) -> Any:
    """An argument; that of a library which only speaks DLPack as an array of the same memory.

    Signed integers for a parameter of unsigned ones are these: the same bits.
    """
    if isinstance(param.type, TensorType) and is_array(arg):
        got = dtype_of(arg.dtype)
        if got is not None and _is_unsigned_form(got, param.type.dtype):
            return as_array(arg).view(param.type.dtype.numpy)
    if _is_plain(arg) or not (is_array(arg) or speaks_dlpack(arg)):
        return arg
    try:
        if not is_array(arg):
            return from_dlpack(arg)
        if not dtype_of(arg.dtype):
            return arg  # that is said elsewhere
        plain = as_array(arg)
    except Exception as error:  # what the methods of somebody's class raise
        raise UnknownData(param.name, type(arg).__name__, why=str(error)) from None
    if is_tensor(arg) and dtype_of(arg.dtype) is FP4:  # two elements in a byte: `plain` is a copy
        if param.is_written:
            why = "torch keeps two FP4 elements in a byte; give a NumPy array"
            raise UnknownData(param.name, type(arg).__name__, why=why)
        return plain
    return arg if is_tensor(arg) else plain


def _is_plain(arg: Any) -> bool:
    return type(arg) is np.ndarray or isinstance(arg, np.generic)


def bind_one(param: Parameter, arg: Any) -> Array | Any:
    """One argument as engines want it: a NumPy array, or a plain number."""
    if isinstance(param.type, ScalarType):
        return cast("Any", arg).item() if is_array(arg) or isinstance(arg, np.generic) else arg
    return as_array(arg)


def _same_storage(got: DType, wanted: DType) -> bool:
    """INDEX is stored as INT64, so the two go together."""
    return got is wanted or (got.numpy == wanted.numpy and got.kind in ("int", "index"))


def _is_unsigned_form(got: DType, wanted: DType) -> bool:
    """A signed type for the unsigned one of its width: torch has few unsigned types."""
    return got.kind == "int" and wanted.kind == "uint" and got.itemsize == wanted.itemsize


def _scalar_fits(got: DType, wanted: DType) -> bool:
    """Scalars are passed by value: any integer for an integer, any float for a float."""
    if wanted.is_float:
        return got.is_float or got.is_integer
    return not got.is_float


def scalars_of(specs: Sequence[Spec]) -> dict[str, np.generic]:
    """The values of the scalar specs, by name, in their own types."""
    return {s.name: s.element.numpy.type(s.value) for s in specs if isinstance(s, ScalarSpec)}
