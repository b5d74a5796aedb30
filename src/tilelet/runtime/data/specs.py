"""`TensorSpec` and `ScalarSpec`: what the harness passes to a program's parameters."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.harness import BadSpec
from tilelet.dtypes import FP4, DType
from tilelet.runtime.data.arrays import dtype_of, is_array, is_dtype, is_torch_dtype

# C names of scalar types, as `ScalarSpec(..., ctype=...)` gives them.
_CTYPES = {
    "float": "float32",
    "size_t": "uint64",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}


@dataclass(init=False, eq=False)
class TensorSpec:
    """One tensor argument: name, shape, dtype, initial value, and whether it is compared.

    `init_value`: None for zeros, a number, an array or tensor, `torch.randn/rand/zeros/ones` (and
    the NumPy equivalents), or a function without arguments. `resident` has no effect on a CPU.

    `from_checkpoint`: the name of a tensor of the model in `checkpoint` (a directory or a
    `.safetensors` file), or else in the directory that TILELET_CHECKPOINT names; the suffix `.T`
    means its transpose. It replaces `init_value`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any  # as the user gave it: a `pl`, torch or NumPy dtype
    init_value: Any
    is_output: bool
    resident: Any
    from_checkpoint: str | None
    checkpoint: Any

    def __init__(
        self,
        name: str,
        shape: Sequence[int] | int,
        dtype: Any,
        init_value: Any = None,
        is_output: bool = False,
        resident: Any = None,
        from_checkpoint: str | None = None,
        checkpoint: Any = None,
    ) -> None:
        # Scripts are not type-checked.
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadSpec(f"a `TensorSpec` needs a name, not `{name!r}`")
        self.name = name
        self.shape = _checked_shape(name, shape)
        self.dtype = dtype
        self.init_value = init_value
        self.is_output = bool(is_output)
        self.resident = resident
        self.from_checkpoint = from_checkpoint
        self.checkpoint = checkpoint
        if from_checkpoint is not None and init_value is not None:
            raise BadSpec(
                f"`{name}` has an `init_value` and comes from a checkpoint",
                "leave one of them out",
            )
        element = self.element  # report an unknown dtype here, not during a run
        if element is FP4 and self.wants_torch:  # torch counts pairs of FP4 elements
            self.shape = (*self.shape[:-1], 2 * self.shape[-1])

    @property
    def element(self) -> DType:
        """The element type in Tilelet's terms."""
        found = dtype_of(self.dtype)
        if found is None:
            raise BadSpec(
                f"`{self.name}` has dtype `{self.dtype}`, which is no element type of the language",
                "use FP32, FP16, BF16, BOOL, or an integer type of 8 to 64 bits",
            )
        return found

    @property
    def wants_torch(self) -> bool:
        """Whether the spec uses torch, so that the golden gets tensors."""
        return is_torch_dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.element.itemsize

    def create_tensor(self) -> Any:
        """Return a fresh tensor or array with this spec's initial value."""
        from tilelet.runtime.data.inputs import initial_array, initial_tensor

        return initial_tensor(self) if self.wants_torch else initial_array(self)


class ScalarSpec:
    """One scalar argument.

    Both forms are accepted: `ScalarSpec(name, value, ctype="int64")` and
    `ScalarSpec(name, dtype, value)`. Without effect: `compile_runtime` (a scalar is a value of the
    run here, never part of the code) and `benchmark_step` (the increment per repetition).
    """

    def __init__(
        self,
        name: str,
        *args: object,
        compile_runtime: bool = False,
        benchmark_step: float | None = None,
        **named: object,
    ) -> None:
        # Scripts are not type-checked.
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadSpec(f"a `ScalarSpec` needs a name, not `{name!r}`")
        dtype_first = ("dtype" in named) or (bool(args) and is_dtype(args[0]))
        order = ("dtype", "value") if dtype_first else ("value", "ctype")
        fields = dict(zip(order, args))
        odd = [n for n in named if n not in order or n in fields] + list(args[len(order) :])
        if odd:
            raise BadSpec(
                f"`ScalarSpec` of `{name}` has one argument too many: `{odd[0]}`",
                "write `ScalarSpec(name, dtype, value)` or `ScalarSpec(name, value, ctype)`",
            )
        fields |= named
        if "value" not in fields:
            raise BadSpec(f"`ScalarSpec` of `{name}` has no value")
        self.name = name
        self.compile_runtime = compile_runtime
        self.benchmark_step = benchmark_step
        self.dtype: object = fields.get("dtype", fields.get("ctype", "int64"))
        self.number = _number(name, fields["value"])
        _ = self.element

    @property
    def value(self) -> Any:
        """The number as scripts see it: a tensor without dimensions if the type is torch's."""
        if not self.wants_torch:
            return self.number
        return import_module("torch").tensor(self.number, dtype=self.dtype)

    @value.setter
    def value(self, value: object) -> None:
        self.number = _number(self.name, value)

    @property
    def element(self) -> DType:
        """The scalar's type in Tilelet's terms."""
        ctype = _CTYPES.get(self.dtype) if isinstance(self.dtype, str) else None
        found = dtype_of(ctype or self.dtype)
        if found is None:
            raise BadSpec(
                f"`{self.name}` has type `{self.dtype}`, which is no type of the language"
            )
        return found

    @property
    def ctype(self) -> str:
        return self.element.numpy.name

    @property
    def wants_torch(self) -> bool:
        return is_torch_dtype(self.dtype)

    def __repr__(self) -> str:
        return f"ScalarSpec({self.name!r}, {self.dtype}, {self.number})"


Spec = TensorSpec | ScalarSpec


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    dims = [shape] if isinstance(shape, int) else list(shape)
    try:
        checked = tuple(operator.index(d) for d in dims)
    except TypeError:
        raise BadSpec(f"`{name}` has shape `{shape}`; every dimension must be an integer") from None
    for dim in checked:
        if dim <= 0:
            raise BadSpec(
                f"`{name}` has shape `{list(checked)}`: a dimension of {dim} holds no elements",
                "every dimension must be at least 1",
            )
    return checked


def _number(name: str, value: object) -> int | float | bool:
    if is_array(value) or isinstance(value, np.generic):
        value = cast("Any", value).item()
    if not isinstance(value, numbers.Real):
        raise BadSpec(f"the value of scalar `{name}` is `{value!r}`, not a number")
    return value  # type: ignore[return-value]
