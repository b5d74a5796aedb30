"""Binding of arguments: specs, arrays and scalars must match the entry's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass
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
from tilelet.dtypes import FP4, Argument, DType
from tilelet.ir.core import Direction, Program
from tilelet.ir.types import ScalarType, TensorType
from tilelet.runtime.data.arrays import as_array, dtype_of, is_array, is_tensor
from tilelet.runtime.data.dlpack import from_dlpack, speaks_dlpack
from tilelet.runtime.data.specs import ScalarSpec, Spec, TensorSpec
from tilelet.tasks.extents import Extents


@dataclass(frozen=True)
class EntryParameter:
    """A parameter of the entry function."""

    name: str
    type: TensorType | ScalarType | None  # None: a `@pl.jit` parameter without a declared type
    direction: Direction
    declared: Direction | None  # declared direction; None: a plain `pl.Tensor`
    loc: Loc
    default: int | float | None = None  # default of an optional scalar

    @property
    def is_written(self) -> bool:
        return self.direction is not Direction.In

    @property
    def is_pure_output(self) -> bool:
        """Whether it is declared write-only, so that callers may omit it and get it returned."""
        return self.declared is Direction.Out


def parameters(program: Program) -> list[EntryParameter]:
    """Return the entry's parameters with the directions that the passes inferred."""
    entry = program.main
    found: list[EntryParameter] = []
    for value, direction, said in zip(entry.params, entry.directions, entry.declarations):
        assert isinstance(value.type, TensorType | ScalarType)
        found.append(EntryParameter(value.name, value.type, direction, said, value.loc))
    return found


def jit_parameters(jit_fn: Any) -> list[EntryParameter]:
    """Return the parameters of a `@pl.jit` function, as far as its signature declares them."""
    return [
        EntryParameter(p.name, p.type, p.direction or Direction.In, p.direction, p.loc, p.default)
        for p in jit_fn.parameters
    ]


def match_specs(
    params: Sequence[EntryParameter], specs: Sequence[Spec], extents: Extents | None = None
) -> dict[str, Spec]:
    """Return the spec of every parameter, by name if the names agree, else by position.

    Raise an error for missing or extra specs, other shapes and other dtypes.
    """
    named: dict[str, Spec] = {}
    for spec in specs:
        if spec.name in named:
            raise BadSpec(f"two specs are called `{spec.name}`")
        named[spec.name] = spec
    names = [p.name for p in params]
    if len(specs) == len(params) and set(named) != set(names):
        pairs = list(zip(params, specs))  # other names, same number: bind by position
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


def _default_spec(param: EntryParameter) -> ScalarSpec:
    if isinstance(param.type, ScalarType):
        return ScalarSpec(param.name, param.type.dtype, param.default)
    return ScalarSpec(param.name, param.default)


def _check_spec(param: EntryParameter, spec: Spec, dims: Extents) -> None:
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


def check_arguments(params: Sequence[EntryParameter], args: Sequence[Any]) -> None:
    """Check tensors against the declared shapes and dtypes."""
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


def given_names(params: Sequence[EntryParameter], count: int) -> list[str]:
    """Return the parameters that `count` arguments bind to: all, or all but `pl.Out`."""
    inputs = [p.name for p in params if not p.is_pure_output]
    return inputs if len(inputs) == count < len(params) else [p.name for p in params]


def bind_call(
    kernel: str, params: Sequence[EntryParameter], args: Sequence[object]
) -> tuple[dict[str, Argument], dict[str, Any]]:
    """Return the engine's arguments of a direct call, and the tensors that it returns.

    With all parameters given, the call returns those that are written. Omitted `pl.Out` ones are
    allocated here, and only they are returned. Arrays share memory with the user's tensors.
    """
    inputs = [p for p in params if not p.is_pure_output]
    given = params if len(args) == len(params) else inputs
    if len(args) != len(given):
        raise ArgumentCount(kernel, len(args), [p.name for p in params], params[0].loc)
    seen = [adopt_argument(param, arg) for param, arg in zip(given, args)]
    check_arguments(given, seen)
    dims = Extents()
    bound: dict[str, Argument] = {}
    written: dict[str, object] = {}
    for param, arg, plain in zip(given, args, seen):
        bound[param.name] = bind_one(param, plain)
        if isinstance(param.type, TensorType):
            dims.fits(param.name, np.shape(bound[param.name]), param.type.shape)
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
    kernel: str,
    params: Sequence[EntryParameter],
    param: EntryParameter,
    dims: Extents,
    got: int,
    torch: bool,
) -> object:
    from tilelet.runtime.data.arrays import as_tensor

    assert isinstance(param.type, TensorType)
    shape = dims.resolve(param.type.shape)
    if shape is None:  # only the tensor has the extent
        raise ArgumentCount(kernel, got, [p.name for p in params], param.loc)
    array = np.zeros(shape, param.type.dtype.numpy)
    return as_tensor(array) if torch else array


def adopt_argument(param: EntryParameter, arg: Any) -> Any:
    """Convert an argument; one of a library that supports only DLPack becomes an array.

    Signed integers for an unsigned parameter are reinterpreted bit by bit.
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
            return arg  # reported elsewhere
        plain = as_array(arg)
    except Exception as error:  # methods of a user's class may raise anything
        raise UnknownData(param.name, type(arg).__name__, why=str(error)) from None
    if is_tensor(arg) and dtype_of(arg.dtype) is FP4:  # packed FP4: `plain` is a copy
        if param.is_written:
            why = "torch keeps two FP4 elements in a byte; give a NumPy array"
            raise UnknownData(param.name, type(arg).__name__, why=why)
        return plain
    return arg if is_tensor(arg) else plain


def _is_plain(arg: object) -> bool:
    return type(arg) is np.ndarray or isinstance(arg, np.generic)


def bind_one(param: EntryParameter, arg: object) -> Argument:
    """Convert one argument to a NumPy array or a plain number, as engines expect."""
    if isinstance(param.type, ScalarType):
        number = cast("Any", arg)
        return number.item() if is_array(arg) or isinstance(arg, np.generic) else number
    return as_array(arg)


def _same_storage(got: DType, wanted: DType) -> bool:
    """Whether two dtypes match; INDEX is stored as INT64."""
    return got is wanted or (got.numpy == wanted.numpy and got.kind in ("int", "index"))


def _is_unsigned_form(got: DType, wanted: DType) -> bool:
    """Whether a signed type represents the unsigned one: torch lacks most unsigned types."""
    return got.kind == "int" and wanted.kind == "uint" and got.itemsize == wanted.itemsize


def _scalar_fits(got: DType, wanted: DType) -> bool:
    """Whether a scalar matches: any integer for an integer, any float for a float."""
    if wanted.is_float:
        return got.is_float or got.is_integer
    return not got.is_float


def scalars_of(specs: Sequence[Spec]) -> dict[str, np.generic]:
    """Return the values of the scalar specs by name, in their declared types."""
    return {s.name: s.element.numpy.type(s.number) for s in specs if isinstance(s, ScalarSpec)}
