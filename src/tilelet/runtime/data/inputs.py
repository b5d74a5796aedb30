"""The initial data of every argument, the same in every run.

Each tensor's initializer runs with all random generators seeded from the tensor's name, so that two
runs, and two tensors of one run, get the data they should. A script that calls `torch.manual_seed`
chooses other data; so does `tilelet run --seed`.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import traceback
import zlib
from bdb import BdbQuit
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tilelet.checkpoint.tensors import chosen_checkpoint, read_tensor
from tilelet.diag.catalogue.harness import InitValueFailed, TooBig
from tilelet.diag.core import UserError
from tilelet.dtypes import HF8, Argument, Arguments, Array
from tilelet.native.memory import available_memory
from tilelet.numerics import cast as cast_elements
from tilelet.runtime.data.arrays import as_array, as_tensor, is_array, is_deferred, loaded_torch
from tilelet.runtime.data.lent import MIN_LENT_BYTES
from tilelet.runtime.data.seeds import seeded_generators, torch_seed
from tilelet.runtime.data.specs import Spec, TensorSpec
from tilelet.runtime.session import Session, current

# Arguments have three copies: for the program, for the golden, and the original. Large inputs have
# one.
_COPIES = 3


def check_memory(specs: Sequence[Spec]) -> None:
    """Raise `TooBig` if the arguments do not fit into memory, before any is allocated."""
    tensors = [spec for spec in specs if isinstance(spec, TensorSpec)]
    available = available_memory()
    needed = {
        s.name: s.nbytes * (1 if s.nbytes >= MIN_LENT_BYTES and not s.is_output else _COPIES)
        for s in tensors
    }
    total = sum(needed.values())
    if available is None or total <= available:
        return
    largest = max(needed, key=needed.__getitem__)
    if needed[largest] > available:
        raise TooBig(largest, needed[largest], available)
    raise TooBig("all arguments together", total, available)


def has_room(nbytes: int) -> bool:
    """Whether this much memory is known to be available."""
    return nbytes < (available_memory() or 0)


def initial_array(
    spec: TensorSpec,
    zero: bool = False,
    *,
    seed: int | None = None,
    now: Session | None = None,
    is_lent: bool = False,
) -> Array:
    """Return the initial data of a tensor: a dense array. `zero` ignores `init_value`.

    `seed` is a `draw_seed`; `now` the session whose seed and console count if none is given. The
    array is fresh unless it `is_lent`: then it may be that of the script.
    """
    now = now or current()
    if spec.from_checkpoint is not None and not zero:
        source = chosen_checkpoint(spec.name, spec.checkpoint)
        return read_tensor(source, spec.from_checkpoint, spec.shape, spec.element.numpy)
    if zero or spec.init_value is None:
        return np.zeros(spec.shape, spec.element.numpy)
    return _convert(spec, _initial_value(spec, seed, now), now, is_lent)


def initial_tensor(spec: TensorSpec) -> Any:
    """Return the initial data of a tensor: a fresh torch tensor.

    If the script's own tensor is deferred, so is the result.
    """
    if spec.init_value is None:
        return as_tensor(initial_array(spec))
    now = current()
    value = _initial_value(spec, None, now)
    if is_deferred(value) and value.shape == spec.shape and value.dtype == spec.dtype:
        return value.clone()
    return as_tensor(_convert(spec, value, now, is_lent=False))


def _initial_value(spec: TensorSpec, seed: int | None, now: Session) -> Any:
    """Return what the script gives as initial data: an array of any kind, or a number."""
    value = spec.init_value
    if callable(value):
        with seeded_generators(seed_of(spec.name, draw_seed(now) if seed is None else seed)):
            return _call(spec, value)
    return value


def draw_seed(now: Session) -> int:
    """Return the seed of a run's data, from `--seed` and the script's current seed."""
    return now.seed ^ torch_seed()


def seed_of(name: str, seed: int) -> int:
    """Return the generator seed of a tensor, or of the golden; `seed` is a `draw_seed`."""
    return zlib.crc32(name.encode()) ^ (seed & 0xFFFFFFFF)


def _call(spec: TensorSpec, function: Callable[..., object]) -> Any:
    """Call an initializer with the arguments that its kind takes."""
    try:
        made = _call_known(spec, function)
        if made is not None:
            return made
        return function(spec.shape) if _wants_shape(function) else function()
    except (UserError, BdbQuit):
        raise
    except Exception as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        raise InitValueFailed(spec.name, f"the function raised {summary}") from error


def _call_known(spec: TensorSpec, function: Callable[..., object]) -> object | None:
    """Call a generator of torch or NumPy, which takes the shape."""
    torch = loaded_torch()
    shape = spec.shape
    if torch and function in (torch.randn, torch.rand, torch.zeros, torch.ones):
        # In FP32, then narrowed: integers and 8-bit floats have no generator of their own.
        return function(shape, dtype=torch.float32)
    if function in (np.zeros, np.ones):
        return function(shape)
    if function in (np.random.randn, np.random.rand):
        return function(*shape)
    return None


def _wants_shape(function: Callable[..., object]) -> bool:
    """Whether the function has exactly one parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.kind in positional and p.default is p.empty]
    return len(required) == 1


def _convert(spec: TensorSpec, value: Any, now: Session, is_lent: bool) -> Array:
    """Return `value` as an array of the spec's shape and element type, fresh unless it is lent."""
    if isinstance(value, list | tuple):
        value = np.array(cast("Sequence[Any]", value))
    if isinstance(value, np.generic | bool | int | float):
        return _narrow(np.full(spec.shape, value), spec)
    if not is_array(value):
        raise InitValueFailed(spec.name, f"it is a `{type(value).__name__}`, not numbers")
    if tuple(value.shape) == ():
        return _narrow(np.full(spec.shape, value.item()), spec)
    try:
        array = as_array(value)
    except (TypeError, RuntimeError) as error:  # torch: another device, or an unsupported type
        raise InitValueFailed(spec.name, str(error)) from error
    if array.shape != spec.shape and _joins(array.shape, spec.shape):
        # The original harness passes memory regardless of its shape.
        given, wanted = list(array.shape), list(spec.shape)
        now.say_once(f"note: `{spec.name}` is given as {given}, and taken as {wanted}")
        array = array.reshape(spec.shape)
    if array.shape != spec.shape:
        raise InitValueFailed(
            spec.name, f"shape `{list(array.shape)}` where the spec has `{list(spec.shape)}`"
        )
    if is_lent and array.dtype == spec.element.numpy and array.flags.carray:
        return array
    return _narrow(array, spec)


def _joins(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether one shape results from the other by merging adjacent axes."""
    ends, wanted = ({1, *itertools.accumulate(s, operator.mul)} for s in (shape, other))
    return max(ends) == max(wanted) and (ends <= wanted or wanted <= ends)


def _narrow(array: Array, spec: TensorSpec) -> Array:
    if array.dtype.kind in "OSUMmc":
        raise InitValueFailed(spec.name, f"elements of type `{array.dtype}` are not numbers")
    if spec.element is HF8 and array.dtype != HF8.numpy:
        return cast_elements(array.astype(np.float32), HF8, "rint")
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(array, dtype=spec.element.numpy, order="C", copy=True)


class MadeOnDemand(Mapping[str, Argument]):
    """Arguments by name, some of which are created on first access."""

    def __init__(self, made: Arguments, makers: Mapping[str, Callable[[], Argument]]) -> None:
        self._made = dict(made)
        self._makers = makers

    def __getitem__(self, name: str) -> Argument:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, name: object) -> bool:
        return name in self._makers
