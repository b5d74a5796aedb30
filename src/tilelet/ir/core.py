"""The IR: typed SSA with structured control flow. All node classes are on this page.

Everything is an `Op`: its arguments are bound by parameter name exactly as in the `pl` call, so
that one binding serves type inference, printing, the interpreter and every backend. An argument
is a `Value`, a Python constant, or a tuple of arguments. Nodes are never changed once built;
passes make new ones (`ir/rebuild.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, Union

from tilelet import dtypes
from tilelet.diag.core import UNKNOWN, Diagnostic, Loc
from tilelet.dtypes import DType
from tilelet.ir.types import ScalarType, Type

if TYPE_CHECKING:
    from tilelet.ir.spec import OpSpec


class Value:
    """An SSA value. Identity is equality; `name` is only a hint for printing."""

    __slots__ = ("loc", "name", "type")

    def __init__(self, name: str, type: Type, loc: Loc = UNKNOWN) -> None:  # noqa: A002
        self.name: Final = name
        self.type: Final = type
        self.loc: Final = loc

    @property
    def name_hint(self) -> str:
        """As scripts ask for it."""
        return self.name

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar constant with a pinned dtype (`pl.const(1, pl.INT32)`)."""

    value: int | float | bool
    dtype: DType


Scalar = Value | Const | int | float | bool
# Recursive, so it cannot be written with `|` before Python 3.12.
Arg = Union[Value, Const, int, float, bool, str, None, DType, enum.Enum, tuple["Arg", ...]]  # noqa: UP007


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation. Structural kinds (`for`, `if`, `scope`, ...) have blocks; see ir/views.py."""

    spec: OpSpec
    args: Mapping[str, Arg]
    results: tuple[Value, ...] = ()
    blocks: tuple[Block, ...] = ()
    loc: Loc = UNKNOWN
    _operands: tuple[Value, ...] | None = field(default=None, init=False, repr=False)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def operands(self) -> tuple[Value, ...]:
        """Every Value among the arguments, in parameter order (with repeats)."""
        found = self._operands
        if found is None:  # every pass asks, and the answer never changes
            found = tuple(values_in(self.args.values()))
            object.__setattr__(self, "_operands", found)
        return found

    @property
    def result(self) -> Value:
        (only,) = self.results
        return only


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Straight-line ops; the last is a terminator (`yield`, or `return` in a function body)."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]

    @property
    def terminator(self) -> Op:
        return self.ops[-1]


class FunctionKind(enum.Enum):
    """`pl.FunctionType`. In IR there are the first four; `Spmd` is what no program may declare."""

    Opaque = "Opaque"
    Orchestration = "Orchestration"
    InCore = "InCore"
    Inline = "Inline"
    AIC = "AIC"
    AIV = "AIV"
    Group = "Group"
    Spmd = "Spmd"
    Graph = "Graph"


SUPPORTED_KINDS = frozenset(FunctionKind) - {FunctionKind.Spmd}


class Direction(enum.Enum):
    In = "In"
    Out = "Out"
    InOut = "InOut"


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function: the control program, or a kernel.

    directions  one entry per parameter; scalars are always In
    declared    what the signature says of each parameter (None: nothing, so plain `pl.Tensor`);
                () if there is no signature
    returns     of what the frontend made: for each returned value the position of the parameter
                whose memory it is; None for a new value
    split       how two vector cores share a mixed kernel: the name of a `pl.SplitMode`
    """

    name: str
    kind: FunctionKind
    params: tuple[Value, ...]
    directions: tuple[Direction, ...]
    body: Block
    loc: Loc = UNKNOWN
    declared: tuple[Direction | None, ...] = ()
    returns: tuple[int | None, ...] = ()
    split: str | None = None

    @property
    def func_type(self) -> FunctionKind:
        """As scripts ask for it."""
        return self.kind

    @property
    def declarations(self) -> tuple[Direction | None, ...]:
        """As `declared`, with an entry for each parameter in any case."""
        return self.declared or (None,) * len(self.params)

    @property
    def returned(self) -> tuple[Arg, ...]:
        values = self.body.terminator.args["values"]
        assert isinstance(values, tuple)
        return values

    @property
    def return_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.returned if isinstance(v, Value))

    def __str__(self) -> str:
        return self.as_python()

    def as_python(self, *, concise: bool = False, format: bool = True) -> str:  # noqa: A002, ARG002
        """The function as `pl` text, which is always concise and formatted."""
        from tilelet.ir.printer import print_function

        return print_function(self)


class Origin(Protocol):
    """What the frontend made a program of."""

    def function(self, name: str) -> Function | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A whole program. `entry` is the control program; the rest are kernels it submits.

    `cautions` are what the frontend and the passes would have the user know. `origin` is what the
    frontend made it of: those who work on its text know the type.
    """

    name: str
    functions: Mapping[str, Function]
    entry: str
    cautions: tuple[Diagnostic, ...] = ()
    origin: Origin | None = None

    @property
    def main(self) -> Function:
        return self.functions[self.entry]

    @property
    def kernels(self) -> tuple[Function, ...]:
        return tuple(f for f in self.functions.values() if f.kind is FunctionKind.InCore)

    def with_functions(self, functions: Mapping[str, Function]) -> Program:
        return replace(self, functions=dict(functions))

    def get_function(self, name: str) -> Function | None:
        """The function called `name`, also one that is part of its callers; or None."""
        found = self.functions.get(name)
        return self.origin.function(name) if found is None and self.origin is not None else found

    def __str__(self) -> str:
        return self.as_python()

    def as_python(self, *, concise: bool = False, format: bool = True) -> str:  # noqa: A002, ARG002
        """The program as `pl` text in explicit SSA form; `pl.parse` reads it back.

        It is always concise, without types of intermediate values, and formatted.
        """
        from tilelet.ir.printer import print_program

        return print_program(self)


def values_in(args: Iterable[Arg]) -> list[Value]:
    """The Values in a (nested) collection of arguments."""
    found: list[Value] = []
    for a in args:
        if isinstance(a, Value):
            found.append(a)
        elif isinstance(a, tuple):
            found.extend(values_in(a))
    return found


def walk(block: Block) -> Iterator[Op]:
    """Every op of `block` and of the blocks inside it, outer before inner."""
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from walk(inner)


def scalar_dtype(arg: object) -> DType | None:
    """The dtype of a scalar argument; None if it is not a scalar."""
    if isinstance(arg, Value):
        return arg.type.dtype if isinstance(arg.type, ScalarType) else None
    if isinstance(arg, Const):
        return arg.dtype
    if isinstance(arg, bool):
        return dtypes.BOOL
    if isinstance(arg, int):
        return dtypes.INDEX
    if isinstance(arg, float):
        return dtypes.FP32
    return None
