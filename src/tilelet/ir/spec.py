"""What an op is, and the decorators that make one out of a typed Python function.

    @op(infer=infer_binary, valid=valid_intersection, reference=elementwise.add, engine=Engine.VEC,
        traits=Trait.ELEMENTWISE | Trait.ARITHMETIC, cost=Cost.ADD)
    def add(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
        '''Elementwise sum. ...'''

    @composition()
    def sigmoid(x: Shaped) -> Shaped:
        '''The logistic function. ...'''
        return recip(add(exp(neg(x)), 1.0))

The function is what users import and editors explain; calling it outside a kernel is an error.
Its signature is the op's signature. Backends are separate tables keyed by the spec's name; what
they have to know of many ops at once is a `Trait`. A composition needs no backend: whoever builds
IR puts the ops of its body in its place.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Protocol, TypeVar

from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.diag.core import UNKNOWN, Loc, UserError
from tilelet.ir.core import Arg, Value
from tilelet.ir.types import TileType, Type

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


class Trait(enum.Flag):
    """Facts about an op that analyses and backends act on, so that none of them lists names.

    SCALAR        arithmetic of scalars: its result follows from its operands alone
    OF_BLOCK      tells a block of a task about the blocks; `BY_BLOCK`: each something else
    SHAPE_ONLY    asks for the shape of a tensor, not for its contents
    NUMBER        gives a number of a tensor, tile or array: an element, or an extent
    SUBMITS       makes a task
    CHECKED       offsets, indices or extents must fit what it is applied to: an error, if they are
                  known only at run time and do not

    ELEMENTWISE   axes of operands and results correspond, from the last one; an element depends on
                  those in the same place (of an axis of extent 1, on the only ones)
    KEEPS_VALID   its result is valid where its operands are
    IN_PLACE      reads each element before it writes the one in its place, so that the result may
                  lie where an operand lay
    ARITHMETIC    computes with numbers: the vector unit must know their type
    FOLD          a reduction that gives one number of the operand's type (not a position)

    LOAD          brings elements of a tensor on chip
    BY_INDEX      reaches rows of a tensor by an index
    ANY_MEMORY    takes a tile from whichever memory it is in
    TILE_VIEW     gives another name to the storage of a tile, without work
    CREATION      gives a tile that is not computed from others
    ONE_ROW       a matrix product with one row on the left
    GEMM          the plain product of two matrices, alone or added to an accumulator
    """

    NONE = 0
    SCALAR = enum.auto()
    OF_BLOCK = enum.auto()
    BY_BLOCK = enum.auto()
    SHAPE_ONLY = enum.auto()
    NUMBER = enum.auto()
    SUBMITS = enum.auto()
    ELEMENTWISE = enum.auto()
    KEEPS_VALID = enum.auto()
    IN_PLACE = enum.auto()
    ARITHMETIC = enum.auto()
    FOLD = enum.auto()
    LOAD = enum.auto()
    BY_INDEX = enum.auto()
    ANY_MEMORY = enum.auto()
    TILE_VIEW = enum.auto()
    CREATION = enum.auto()
    ONE_ROW = enum.auto()
    GEMM = enum.auto()
    CHECKED = enum.auto()
    POINTWISE = ELEMENTWISE | KEEPS_VALID | IN_PLACE


class Cost(enum.Enum):
    """What an op costs on the vector unit: the entry of a machine's `[vector.costs]`."""

    DEFAULT = "default"
    ADD = "add"
    MUL = "mul"
    DIV = "div"
    EXP = "exp"
    LOG = "log"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    RELU = "relu"
    MULS = "muls"
    ADDS = "adds"
    ABS = "abs"
    COPY = "copy"
    CAST = "cast"
    SELECT = "select"
    COMPARE = "compare"
    LOGIC = "logic"
    ROW_REDUCE = "row_reduce"
    COL_REDUCE = "col_reduce"
    BROADCAST = "broadcast"
    ROW_BROADCAST = "row_broadcast"
    ROW_DIVIDE = "row_divide"
    REPEATED_ROWS = "repeated_rows"
    FILLED_ROWS = "filled_rows"
    TRANSPOSE = "transpose"
    GATHER = "gather"
    COMPACT = "compact"
    SCATTER = "scatter"
    SORT = "sort"
    TRIGONOMETRIC = "trigonometric"


class SeedRegion(enum.Enum):
    """What the compilers of spring 2026 knew of the valid region of an op's result."""

    FORGOTTEN = "taken to be all of it"
    LEFT = "that of the left operand"
    TRACKED = "as its rule says"


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


def unchecked(_: Call) -> tuple[Type, ...]:
    """`infer` of an op whose results get their types elsewhere."""
    return ()


@dataclass(frozen=True)
class Limit:
    """A form of an op that works here and that public compilers do not take (see `dialects`).

    reason   what is wrong with it
    instead  what to write
    applies  whether a call has this form: from its bound arguments, its result's type, and
             `made_by`, which gives the op that a value was made by
    rewrite  the call in another form, from the texts of its arguments by parameter; None: the form
             cannot be changed by itself
    """

    reason: str
    instead: str
    applies: Callable[[Mapping[str, Arg], Type, Callable[[Arg], str]], bool]
    rewrite: Callable[[str, Mapping[str, str]], str | None] = lambda _, __: None


@dataclass(frozen=True, eq=False)
class OpSpec:
    """The single definition of an op.

    name       IR name: `add`, `scalar.mul`, `for`
    infer      result types from a `Call`; raises a catalogue error on a wrong call. Of a
               composition it only checks: the types come from the ops it is made of
    engine     for cost and placement
    plane      where it may stand
    traits     see `Trait`
    cost       what a vector op costs
    expands    of a composition: the function that makes the ops it stands for (see `expand`).
               Such an op never stands in IR
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
    replaces   tile parameter whose place on chip the result takes
    reduces    the axis, from the end, along which a reduction reduces
    moves      parameters whose elements are in the result as they are: the op only says where, by
               its numbers and by its other operands
    seed_region  see `SeedRegion`
    limits     forms that not every compiler takes
    terminator, structural  IR bookkeeping
    section    where docs/ops.md describes it: the module of `ops/`
    """

    name: str
    infer: Infer = unchecked
    engine: Engine = Engine.NONE
    plane: Plane = Plane.BOTH
    traits: Trait = Trait.NONE
    cost: Cost = Cost.DEFAULT
    expands: Callable[..., Any] | None = None
    valid: ValidRule | None = None
    reference: Callable[..., Any] | None = None
    cut_to_valid: bool = False
    takes_valid: bool = False
    takes_result_type: bool = False
    on_chip: tuple[str, ...] | None = None
    writes: tuple[str, ...] = ()
    view: str | None = None
    replaces: str | None = None
    reduces: int | None = None
    moves: tuple[str, ...] = ()
    seed_region: SeedRegion = SeedRegion.FORGOTTEN
    limits: tuple[Limit, ...] = ()
    structural: bool = False
    terminator: bool = False
    signature: inspect.Signature = field(default_factory=inspect.Signature)
    doc: str = ""
    era: str = "SEED"
    section: str = ""

    @property
    def is_compute(self) -> bool:
        """Whether the op computes on tiles, so that it must stand in a scope."""
        return self.plane is Plane.SCOPE

    @property
    def is_window_load(self) -> bool:
        """Whether the op loads a window of a tensor as it lies there."""
        return Trait.LOAD in self.traits and Trait.BY_INDEX not in self.traits

    def wants_tile(self, param: str) -> bool:
        """Whether a GM tensor given for `param` inside a scope is to be loaded first."""
        if self.on_chip is None:
            return self.reference is not None or self.expands is not None
        return param in self.on_chip

    def __repr__(self) -> str:
        return f"<op {self.name}>"


REGISTRY: dict[str, OpSpec] = {}


def register(spec: OpSpec) -> OpSpec:
    if spec.name in REGISTRY:
        raise ValueError(f"op {spec.name!r} is defined twice")
    REGISTRY[spec.name] = spec
    return spec


class Emit(Protocol):
    """Puts an op into the IR that is being built; gives its result or results."""

    def __call__(self, spec: OpSpec, args: Mapping[str, Arg], /) -> Any: ...


_EXPANDING: ContextVar[Emit | None] = ContextVar("expanding", default=None)


def expand(spec: OpSpec, args: Mapping[str, Arg], emit: Emit) -> Any:
    """Emit the ops that a composition stands for; gives what it gives.

    Its body is run: the ops that it calls are emitted, and its arguments are IR arguments.
    """
    assert spec.expands is not None
    outer = _EXPANDING.set(emit)
    try:
        return spec.expands(**args)
    except UserError as error:
        note = f"`pl.{spec.name}` is made of several ops; this is one of them"
        error.diagnostic = replace(error.diagnostic, notes=(*error.diagnostic.notes, note))
        raise
    finally:
        _EXPANDING.reset(outer)


def shape_of(tile: Any) -> Shape:
    """The shape of a tile, in the body of a composition."""
    assert isinstance(tile, Value)
    assert isinstance(tile.type, TileType)
    return tile.type.shape


def bind(spec: OpSpec, *args: Arg, **named: Arg) -> dict[str, Arg]:
    """Arguments by parameter name, with the defaults of the op's signature filled in."""
    bound = spec.signature.bind(*args, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def op(
    *,
    infer: Infer,
    name: str | None = None,
    **fields: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make an op of a typed, documented function whose body is only a docstring."""

    def make(function: Callable[P, R]) -> Callable[P, R]:
        return _define(function, name=name or function.__name__, infer=infer, **fields)

    return make


def composition(
    *, infer: Infer = unchecked, name: str | None = None, **fields: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make an op of a typed, documented function whose body says which ops it stands for."""
    fields = {"engine": Engine.VEC, "plane": Plane.SCOPE, **fields}

    def make(function: Callable[P, R]) -> Callable[P, R]:
        named = name or function.__name__
        return _define(function, name=named, infer=infer, expands=function, **fields)

    return make


def _define(function: Callable[P, R], **fields: Any) -> Callable[P, R]:
    given: dict[str, Any] = {"section": function.__module__.rsplit(".", 1)[-1], **fields}
    doc, signature = inspect.getdoc(function) or "", inspect.signature(function)
    spec = register(OpSpec(doc=doc, signature=signature, **given))

    @functools.wraps(function)
    def outside_kernel(*args: P.args, **named: P.kwargs) -> R:
        emit = _EXPANDING.get()
        if emit is None:
            raise OpOutsideKernel(f"pl.{spec.name}")
        return emit(spec, bind(spec, *args, **named))  # type: ignore[arg-type]

    outside_kernel.spec = spec  # type: ignore[attr-defined]
    return outside_kernel


def spec_of(function: object) -> OpSpec | None:
    """The op behind a `pl` function, or None if it is something else."""
    spec = getattr(function, "spec", None)
    return spec if isinstance(spec, OpSpec) else None
