"""Op definitions, and the decorators that create them from typed Python functions.

    @op(infer=infer_binary, valid=valid_intersection, reference=elementwise.add, engine=Engine.VEC,
        traits=Trait.ELEMENTWISE | Trait.ARITHMETIC, cost=Cost.ADD)
    def add(lhs: Shaped, rhs: Shaped | Number) -> Shaped:
        '''Elementwise sum. ...'''

    @composition()
    def sigmoid(x: Shaped) -> Shaped:
        '''The logistic function. ...'''
        return recip(add(exp(neg(x)), 1.0))

The function is what users import and editors document; calling it outside a kernel is an error. Its
signature is the op's signature. Backends are separate tables keyed by the spec's name; a property
of many ops is a `Trait`. A composition needs no backend: IR builders expand it into the ops of its
body.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.diag.core import UNKNOWN, Loc, UserError
from tilelet.ir.core import Arg, Value
from tilelet.ir.types import TileType, Type

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")


class Engine(enum.Enum):
    """The part of a core that runs the op."""

    VEC = "vector unit"
    CUBE = "cube unit"
    MTE = "data movement"
    SCALAR = "scalar unit"
    NONE = "no work of its own"


class Plane(enum.Enum):
    """Where an op is allowed."""

    SCOPE = "inside a scope only"
    CONTROL = "in the control program only"
    BOTH = "anywhere"


class Trait(enum.Flag):
    """Properties of ops that analyses and backends query, so that none of them lists op names.

    SCALAR        scalar arithmetic: the result follows from the operands alone
    OF_BLOCK      returns information about the blocks of a task; `BY_BLOCK`: different in each
                  block
    SHAPE_ONLY    reads the shape of a tensor, not its contents
    NUMBER        reads a number from a tensor, tile or array: an element, or an extent
    SUBMITS       creates a task
    CHECKED       offsets, indices or extents must fit the operand; if they are known only at run
                  time and do not fit, the run fails

    ELEMENTWISE   axes of operands and results correspond, from the last one; an element depends on
                  the elements at the same position (on the only one in an axis of extent 1)
    KEEPS_VALID   the result is valid where the operands are
    IN_PLACE      reads each element before writing the one at its position, so that the result may
                  share memory with an operand
    ARITHMETIC    computes with numbers: the vector unit must support their type
    JUMPS         a float result may change by much where an operand changes by rounding
    FOLD          a reduction to one number of the operand's type (not a position)

    LOAD          loads elements of a tensor on chip
    BY_INDEX      accesses rows of a tensor by an index
    ANY_MEMORY    accepts a tile in any memory space
    TILE_VIEW     returns another name for the storage of a tile, without work
    CREATION      returns a tile that is not computed from others
    ONE_ROW       a matrix product with a one-row left operand
    GEMM          the plain product of two matrices, possibly accumulating
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
    JUMPS = enum.auto()
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
    """The cost class of a vector op: its entry in a machine's `[vector.costs]`."""

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
    PAD = "pad"


class SeedRegion(enum.Enum):
    """How the compilers of spring 2026 derived the valid region of an op's result."""

    FORGOTTEN = "taken to be all of it"
    LEFT = "that of the left operand"
    TRACKED = "as its rule says"


def shown_name(op: str) -> str:
    """Return the name of an op as programs write it."""
    return op if op.startswith("pld.") else f"pl.{op}"


@dataclass(frozen=True)
class Call:
    """One op call as `infer` sees it: bound arguments, position, and spans for messages."""

    op: str
    args: Mapping[str, Arg]
    in_scope: bool
    loc: Loc = UNKNOWN
    arg_locs: Mapping[str, Loc] = field(default_factory=dict[str, Loc])

    def __getitem__(self, param: str) -> Any:
        return self.args[param]

    @property
    def shown(self) -> str:
        """The op's name in messages."""
        return shown_name(self.op)

    def at(self, param: str) -> Loc:
        """Return the span of the argument given for `param`, or of the whole call."""
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


def infer_nothing(_: Call) -> tuple[Type, ...]:
    """The `infer` of an op whose result types are set elsewhere."""
    return ()


@dataclass(frozen=True)
class Limit:
    """A form of an op that Tilelet supports but public compilers do not (see `dialects`).

    reason   what is wrong with it
    instead  what to write
    applies  whether a call has this form, given its bound arguments, its result's type, and
             `made_by`, which returns the op that defines a value
    rewrite  the call in another form, given the texts of its arguments by parameter; None if there
             is no automatic rewrite
    """

    reason: str
    instead: str
    applies: Callable[[Mapping[str, Arg], Type, Callable[[Arg], str]], bool]
    rewrite: Callable[[str, Mapping[str, str]], str | None] = lambda _, __: None


BLOCKS = "launched_blocks"
"""Argument of an external kernel: number of blocks of its launch, if known."""


@dataclass
class External:
    """A kernel written outside the language.

    core_type  "aic", "aiv" or "mixed"
    reference  Python function of its arguments as NumPy arrays and numbers, which writes or returns
               the outputs; needed to run it
    us         time of one execution; None: that of reading the inputs and writing the outputs once
    """

    core_type: str = "aiv"
    reference: Callable[..., Any] | None = None
    us: float | None = None


@dataclass(frozen=True, eq=False)
class OpSpec:
    """The single definition of an op.

    name       IR name: `add`, `scalar.mul`, `for`
    infer      result types from a `Call`; raises a catalogue error on a wrong call. For a
               composition it only checks: the types come from the ops of its expansion
    engine     for cost and placement
    plane      where it is allowed
    traits     see `Trait`
    cost       cost class of a vector op
    expands    for a composition: the function that emits its ops (see `expand`); such an op never
               occurs in IR
    valid      run-time rule for the valid region of the result (see `ValidRule`); None if the
               backend handles the op itself
    reference  NumPy implementation on plain arrays, by parameter name; None for ops that access
               memory or control, which every backend implements itself. It takes every bound
               argument: tiles as arrays, run-time scalars as Python numbers, GM tensors that are
               not loaded first (see on_chip) as the array of their window; and returns one array of
               the result type's shape and dtype, or a tuple of them. It never modifies its
               operands. May raise `ir.faults.Fault`. If the result is the GM tensor of `writes`,
               the returned array is its new contents. Ops with both a tensor and a tile form
               (`slice`, `reshape`, `transpose`, `assemble`, ...) have a reference for the tile form
               only.
    cut_to_valid  the reference gets tile operands cut to their valid regions, and its result is
               the valid part of the result (the caller pads it with zeros)
    takes_valid  the reference gets an additional argument `valid`: the valid regions by parameter
    takes_result_type  the reference gets an additional argument `result_type`
    on_chip    parameters that must be tiles inside a scope: the frontend loads GM tensors given for
               them. None: every parameter if the op has a reference, else none
    writes     tensor parameters whose GM memory the op writes in place
    view       tensor parameter whose memory the (tensor) result shares
    replaces   tile parameter whose on-chip storage the result takes over
    reduces    the axis, from the end, along which a reduction reduces
    moves      parameters whose elements appear unchanged in the result; numbers and other operands
               only decide where
    seed_region  see `SeedRegion`
    limits     forms that not every compiler supports
    terminator, structural  IR bookkeeping
    section    its section in docs/ops.md: the module of `ops/`
    external   for a kernel written outside the language: what its author says about it
    """

    name: str
    infer: Infer = infer_nothing
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
    external: External | None = None
    structural: bool = False
    terminator: bool = False
    signature: inspect.Signature = field(default_factory=inspect.Signature)
    doc: str = ""
    era: str = "SEED"
    section: str = ""

    @property
    def is_compute(self) -> bool:
        """Whether the op computes on tiles and so must be in a scope."""
        return self.plane is Plane.SCOPE

    @property
    def is_window_load(self) -> bool:
        """Whether the op loads a window of a tensor unchanged."""
        return Trait.LOAD in self.traits and Trait.BY_INDEX not in self.traits

    def wants_tile(self, param: str) -> bool:
        """Return whether a GM tensor given for `param` inside a scope is loaded first."""
        if self.on_chip is None:
            return self.reference is not None or self.expands is not None
        return param in self.on_chip

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class OpFields(TypedDict, total=False):
    """Fields of an `OpSpec` that a definition gives, or that a family of ops shares."""

    infer: Infer
    engine: Engine
    plane: Plane
    traits: Trait
    cost: Cost
    valid: ValidRule | None
    reference: Callable[..., Any] | None
    cut_to_valid: bool
    takes_valid: bool
    takes_result_type: bool
    on_chip: tuple[str, ...] | None
    writes: tuple[str, ...]
    view: str | None
    replaces: str | None
    reduces: int | None
    moves: tuple[str, ...]
    seed_region: SeedRegion
    limits: tuple[Limit, ...]
    era: str
    section: str


REGISTRY: dict[str, OpSpec] = {}


def register(spec: OpSpec, registry: dict[str, OpSpec] = REGISTRY) -> OpSpec:
    if spec.name in registry:
        raise ValueError(f"op {spec.name!r} is defined twice")
    registry[spec.name] = spec
    return spec


class Emit(Protocol):
    """Emits an op into the IR being built, and returns its result or results."""

    def __call__(self, spec: OpSpec, args: Mapping[str, Arg], /) -> Any: ...


_EXPANDING: ContextVar[Emit | None] = ContextVar("expanding", default=None)


def expand(spec: OpSpec, args: Mapping[str, Arg], emit: Emit) -> Any:
    """Emit the ops of a composition and return its result.

    Its body is executed with IR arguments; the ops that it calls are emitted.
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


def shape_of(tile: object) -> Shape:
    """Return the shape of a tile, in the body of a composition."""
    assert isinstance(tile, Value)
    assert isinstance(tile.type, TileType)
    return tile.type.shape


def bind(spec: OpSpec, *args: Arg, **named: Arg) -> dict[str, Arg]:
    """Bind arguments by parameter name, filling in the defaults of the op's signature."""
    bound = spec.signature.bind(*args, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def op(
    *,
    name: str | None = None,
    family: OpFields | None = None,
    registry: dict[str, OpSpec] = REGISTRY,
    **fields: Unpack[OpFields],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Define an op from a typed, documented function whose body is only a docstring.

    `family` holds fields that several ops share; those given beside it take precedence.
    """
    given: OpFields = {**(family or {}), **fields}
    if "infer" not in given:
        raise TypeError("an op needs a rule for the types of its results: `infer`")

    def make(function: Callable[P, R]) -> Callable[P, R]:
        return _define(function, name, given, registry)

    return make


def composition(
    *, name: str | None = None, family: OpFields | None = None, **fields: Unpack[OpFields]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Define an op from a typed, documented function whose body calls the ops it consists of."""
    given: OpFields = {"engine": Engine.VEC, "plane": Plane.SCOPE, **(family or {}), **fields}

    def make(function: Callable[P, R]) -> Callable[P, R]:
        return _define(function, name, given, REGISTRY, expands=function)

    return make


def _define(
    function: Callable[P, R],
    name: str | None,
    fields: OpFields,
    registry: dict[str, OpSpec],
    expands: Callable[..., object] | None = None,
) -> Callable[P, R]:
    given: OpFields = {"section": function.__module__.rsplit(".", 1)[-1], **fields}
    spec = register(
        OpSpec(
            name=name or function.__name__,
            expands=expands,
            doc=inspect.getdoc(function) or "",
            signature=inspect.signature(function),
            **given,
        ),
        registry,
    )

    @functools.wraps(function)
    def outside_kernel(*args: P.args, **named: P.kwargs) -> R:
        emit = _EXPANDING.get()
        if emit is None:
            raise OpOutsideKernel(shown_name(spec.name))
        return emit(spec, bind(spec, *args, **named))  # type: ignore[arg-type]

    outside_kernel.spec = spec  # type: ignore[attr-defined]
    return outside_kernel


def spec_of(function: object) -> OpSpec | None:
    """Return the op behind a `pl` function, or None if it is something else."""
    spec = getattr(function, "spec", None)
    return spec if isinstance(spec, OpSpec) else None
