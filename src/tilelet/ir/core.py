"""The IR: typed SSA with structured control flow; all node classes are in this module.

Everything is an `Op`: its arguments are bound by parameter name as in the `pl` call, so that one
binding serves type inference, printing, the interpreter and every backend. An argument is a
`Value`, a Python constant, or a tuple of arguments. Nodes are immutable; passes build new ones
(`ir/rebuild.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol, Union

from tilelet import dtypes
from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.core import UNKNOWN, Diagnostic, Loc
from tilelet.dtypes import DType
from tilelet.ir.types import ScalarType, Type

if TYPE_CHECKING:
    from tilelet.ir.spec import OpSpec


class Value:
    """An SSA value, compared by identity; `name` is only a hint for printing."""

    __slots__ = ("loc", "name", "type")

    def __init__(self, name: str, type: Type, loc: Loc = UNKNOWN) -> None:  # noqa: A002
        self.name: Final = name
        self.type: Final = type
        self.loc: Final = loc

    @property
    def name_hint(self) -> str:
        """The name, under the attribute that scripts use."""
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
    """One operation; structural ones (`for`, `if`, `scope`, ...) have blocks, see ir/views.py."""

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
        if found is None:  # cached: every pass asks, and nodes are immutable
            found = tuple(values_in(self.args.values()))
            object.__setattr__(self, "_operands", found)
        return found

    @property
    def result(self) -> Value:
        (only,) = self.results
        return only


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A sequence of ops that ends with a terminator (`yield`, or `return` in a function body)."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]

    @property
    def terminator(self) -> Op:
        return self.ops[-1]


class FunctionKind(enum.Enum):
    """`pl.FunctionType`; IR contains the first five, and no program may declare `Spmd`.

    `Host` dispatches control programs to ranks; `@pl.jit.host` or `level=` declares it.
    """

    Opaque = "Opaque"
    Orchestration = "Orchestration"
    InCore = "InCore"
    Inline = "Inline"
    Host = "Host"
    AIC = "AIC"
    AIV = "AIV"
    Group = "Group"
    Spmd = "Spmd"
    Graph = "Graph"


SUPPORTED_KINDS = frozenset(FunctionKind) - {FunctionKind.Spmd, FunctionKind.Host}


class Direction(enum.Enum):
    In = "In"
    Out = "Out"
    InOut = "InOut"


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function: the control program, or a kernel.

    directions  one entry per parameter; scalars are always In
    declared    the declared direction of each parameter (None for plain `pl.Tensor`); () if there
                is no signature
    returns     in frontend output: for each returned value the position of the parameter whose
                memory it is; None for a new value
    split       how two vector cores share a mixed kernel: the name of a `pl.SplitMode`
    slots       stated depth of the ring through which the cores of a mixed kernel pass tiles
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
    slots: int | None = None

    @property
    def func_type(self) -> FunctionKind:
        """The kind, under the attribute that scripts use."""
        return self.kind

    @property
    def declarations(self) -> tuple[Direction | None, ...]:
        """Like `declared`, but always with an entry for each parameter."""
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
        """Return the function as `pl` text, which is always concise and formatted."""
        from tilelet.ir.printer import print_function

        return print_function(self)


class Origin(Protocol):
    """The source from which the frontend built a program."""

    def function(self, name: str) -> Function | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A whole program: `entry` is the control program, the rest are kernels that it submits.

    `cautions` are notes of the frontend and the passes for the user. `origin` is the source from
    which the frontend built the program; code that edits the source knows its type.
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
        """Return the function called `name`, including inlined ones, or None."""
        found = self.functions.get(name)
        return self.origin.function(name) if found is None and self.origin is not None else found

    def __str__(self) -> str:
        return self.as_python()

    def as_python(self, *, concise: bool = False, format: bool = True) -> str:  # noqa: A002, ARG002
        """Return the program as `pl` text in explicit SSA form; `pl.parse` reads it back.

        It is always concise (no types of intermediate values) and formatted.
        """
        from tilelet.ir.printer import print_program

        return print_program(self)


def values_in(args: Iterable[Arg]) -> list[Value]:
    """Return the Values in a (nested) collection of arguments."""
    found: list[Value] = []
    for a in args:
        if isinstance(a, Value):
            found.append(a)
        elif isinstance(a, tuple):
            found.extend(values_in(a))
    return found


def walk(block: Block) -> Iterator[Op]:
    """Yield every op of `block` and of nested blocks, outer before inner."""
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from walk(inner)


def scalar_dtype(arg: object) -> DType | None:
    """Return the dtype of a scalar argument, or None if it is not a scalar."""
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
