"""The program being built, as the lowering of one of its functions sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.python import UnknownAttribute
from tilelet.diag.core import Loc, Sink, UserError
from tilelet.frontend.bindings import close_names
from tilelet.frontend.functions import KernelFunction
from tilelet.ir.core import Function
from tilelet.ir.types import Type

if TYPE_CHECKING:
    from typing_extensions import Self

State = TypeVar("State", bound="ModuleState")


@dataclass(frozen=True)
class Reading:
    """One choice for every ambiguous spelling. The default is the language of today.

    swap_windows  a transposing load states the window of the transposed tensor
    whole_scopes  an auto scope is one kernel, whatever stands in it
    as_stored     a tensor declared `pl.DN` is taken as it lies in memory
    """

    swap_windows: bool = False
    whole_scopes: bool = False
    as_stored: bool = False


TODAY = Reading()


@dataclass
class ModuleState(ABC):
    """Functions and diagnostics of a program, under one reading of its text.

    methods    functions of the class, by name; none for a function by itself
    copies     number of loop bodies that `pl.unroll` has copied
    printed    lines of `pl.static_print`
    kernels    kernels lowered so far, by function and operand types (none unless generic)
    ambiguous  fields of `Reading` that would change what has been lowered
    """

    name: str
    methods: Mapping[str, KernelFunction] = field(default_factory=dict[str, KernelFunction])
    reading: Reading = TODAY
    sink: Sink = field(default_factory=Sink)
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    inline_stack: list[KernelFunction] = field(default_factory=list[KernelFunction])
    copies: int = 0
    printed: list[str] = field(default_factory=list[str])
    ambiguous: set[str] = field(default_factory=set[str])
    kernels: dict[tuple[KernelFunction, tuple[Type, ...]], Function] = field(
        default_factory=dict[tuple[KernelFunction, tuple[Type, ...]], Function]
    )

    def fork(self, **changes: object) -> Self:
        """Return a copy whose changes leave this program as it is."""
        copies: dict[str, object] = {
            "sink": Sink(self.sink.limit, list(self.sink.diagnostics)),
            "functions": dict(self.functions),
            "kernels": dict(self.kernels),
            "printed": list(self.printed),
        }
        return replace(self, **{**copies, **changes})  # type: ignore[arg-type]

    def adopt(self, other: ModuleState) -> None:
        """Take over everything that was built and noted in a copy of this program."""
        self.sink.diagnostics = other.sink.diagnostics
        self.functions, self.kernels = other.functions, other.kernels
        self.copies, self.printed = other.copies, other.printed

    @abstractmethod
    def kernel(self, function: KernelFunction, types: tuple[Type, ...], loc: Loc) -> Function:
        """Return the IR of a kernel called with operands of these types."""

    def method(self, name: str, loc: Loc) -> KernelFunction:
        """Return the method `self.name`."""
        found = self.methods.get(name)
        if found is None:
            raise UnknownAttribute(loc, self.name, name, close_names(name, self.methods))
        return found

    def note_retired(self, caution: UserError) -> None:
        """Report a retired spelling once, however often it is used."""
        message = caution.diagnostic.message
        if all(d.message != message for d in self.sink.diagnostics):
            self.sink.add(caution)
