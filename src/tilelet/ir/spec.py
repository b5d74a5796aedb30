"""What an op is, and the decorator that makes one out of a typed Python function.

    @op(engine=Engine.VEC, infer=infer_binary, valid=valid_intersection, reference=elementwise.add)
    def add(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
        '''Elementwise sum. ...'''

The function is what users import and editors explain; calling it outside a kernel is an error.
Its signature is the op's signature. Backends are separate tables keyed by the spec's name.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.diag.core import UNKNOWN, Loc
from tilelet.ir.core import Arg
from tilelet.ir.types import Type

P = ParamSpec("P")
R = TypeVar("R")


class Engine(enum.Enum):
    """Which part of a core runs the op."""

    VEC = "vector unit"
    CUBE = "cube unit"
    MTE = "data movement"
    SCALAR = "scalar unit"
    NONE = "no work of its own"


class Plane(enum.Enum):
    """Where an op may stand."""

    SCOPE = "inside a scope only"
    CONTROL = "in the control program only"
    BOTH = "anywhere"


@dataclass(frozen=True)
class Call:
    """One op call as `infer` sees it: bound arguments, where it stands, and spans for messages."""

    op: str
    args: Mapping[str, Arg]
    in_scope: bool
    loc: Loc = UNKNOWN
    arg_locs: Mapping[str, Loc] = field(default_factory=dict[str, Loc])

    def __getitem__(self, param: str) -> Any:
        return self.args[param]

    @property
    def shown(self) -> str:
        """The op in a message."""
        return f"pl.{self.op}"

    def at(self, param: str) -> Loc:
        """The span of the argument given for `param` (the whole call if it was not given)."""
        return self.arg_locs.get(param, self.loc)


Shape = tuple[int, ...]
Valid = tuple[int, ...]
Infer = Callable[[Call], "tuple[Type, ...]"]
ValidRule = Callable[[Mapping[str, "tuple[Shape, Valid]"], Shape, Mapping[str, Any]], Valid]
"""The valid region of one result of an op, at run time.

(operands, result_shape, args) -> valid, where `operands` gives shape and valid region of every
tile operand (and of a tensor operand that is read as a whole) by parameter name, and `args` are
all bound arguments with run-time numbers in place of scalar values. An op with several results
has the rule applied once for each. Raises `ops.faults.Fault` if the result's region is no
origin-anchored box.
"""


@dataclass(frozen=True, eq=False)
class OpSpec:
    """The single definition of an op.

    name       IR name: `add`, `scalar.mul`, `for`
    infer      result types from a `Call`; raises a catalogue error on a wrong call
    engine     for cost and placement
    plane      where it may stand
    valid      run-time rule for the valid region of the result (see `ValidRule`); None when the
               backend handles the op itself
    reference  NumPy meaning on plain arrays, by parameter name; None for ops that touch memory or
               control, which every backend implements itself. It takes every bound argument: tiles
               as arrays, run-time scalars as Python numbers, GM tensors that are not loaded first
               (see on_chip) as the array of their window; and returns one array of the result
               type's shape and dtype, or a tuple of them. It never changes its operands. May raise
               `ops.faults.Fault`. If the result is the GM tensor of `writes`, the array returned
               is its new contents. Ops with both a tensor and a tile form (`slice`, `reshape`,
               `transpose`, `assemble`, ...) have a reference for the tile form only.
    cut_to_valid  the reference gets tile operands cut to their valid regions, and its result is
               the valid part of the result (padded with zeros by the caller)
    takes_valid  the reference gets a further argument `valid`: the valid region by parameter name
    takes_result_type  the reference gets a further argument `result_type`: the type of the result
    on_chip    parameters that must be tiles inside a scope: the frontend loads GM tensors given for
               them. None: every parameter, if the op has a reference, else none
    writes     tensor parameters whose GM memory the op writes in place
    view       tensor parameter whose memory the (tensor) result shares
    terminator, structural  IR bookkeeping
    """

    name: str
    infer: Infer
    engine: Engine = Engine.NONE
    plane: Plane = Plane.BOTH
    valid: ValidRule | None = None
    reference: Callable[..., Any] | None = None
    cut_to_valid: bool = False
    takes_valid: bool = False
    takes_result_type: bool = False
    on_chip: tuple[str, ...] | None = None
    writes: tuple[str, ...] = ()
    view: str | None = None
    structural: bool = False
    terminator: bool = False
    signature: inspect.Signature = field(default_factory=inspect.Signature)
    doc: str = ""
    era: str = "SEED"
    group: str = ""

    @property
    def is_compute(self) -> bool:
        """Whether the op computes on tiles, so that it must stand in a scope."""
        return self.plane is Plane.SCOPE

    def wants_tile(self, param: str) -> bool:
        """Whether a GM tensor given for `param` inside a scope is to be loaded first."""
        return self.reference is not None if self.on_chip is None else param in self.on_chip

    def __repr__(self) -> str:
        return f"<op {self.name}>"


REGISTRY: dict[str, OpSpec] = {}


def register(spec: OpSpec) -> OpSpec:
    if spec.name in REGISTRY:
        raise ValueError(f"op {spec.name!r} is defined twice")
    REGISTRY[spec.name] = spec
    return spec


def op(
    *,
    infer: Infer,
    name: str | None = None,
    **fields: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make an op of a typed, documented function whose body is only a docstring."""

    def make(function: Callable[P, R]) -> Callable[P, R]:
        spec = register(
            OpSpec(
                name=name or function.__name__,
                infer=infer,
                signature=inspect.signature(function),
                doc=inspect.getdoc(function) or "",
                group=function.__module__.rsplit(".", 1)[-1],
                **fields,
            )
        )

        @functools.wraps(function)
        def outside_kernel(*_: P.args, **__: P.kwargs) -> R:
            raise OpOutsideKernel(f"pl.{spec.name}")

        outside_kernel.spec = spec  # type: ignore[attr-defined]
        return outside_kernel

    return make


def spec_of(function: object) -> OpSpec | None:
    """The op behind a `pl` function, or None if it is something else."""
    spec = getattr(function, "spec", None)
    return spec if isinstance(spec, OpSpec) else None
