"""Fast path for repeated calls with the same signature.

An ordinary call checks its arguments, finds or compiles the program, and consults the session. The
outcome is valid for every call of the same signature as long as global names keep their values and
the session wants only results. Such calls go straight to native code; all others take the ordinary
path, which also reports errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.ir.types import ScalarType, TensorType
from tilelet.runtime import session
from tilelet.runtime.data.arrays import as_array, as_tensor, is_tensor
from tilelet.runtime.programs.binding import EntryParameter
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.cpu.run.prepared import PreparedCalls
    from tilelet.runtime.programs.compiler import CompiledProgram

NOT_WARM: Any = object()  # result of a call that must take the ordinary path
_MAX_SIGNATURES = 64  # signatures of one function

Signature = tuple[object, ...]
Made = tuple[tuple[int, ...], Any]  # shape and element type of an allocated output


class Captures(Protocol):
    """Values of the global names in a kernel's text."""

    def are_current(self) -> bool: ...


class WarmCalls:
    """The signatures with which one function has been called."""

    def __init__(self) -> None:
        self._known: dict[Signature, _WarmCall] = {}
        self._scalars: frozenset[int] = frozenset()

    def call(self, args: Sequence[object]) -> Any:
        """Return the results, or `NOT_WARM` without doing anything."""
        found = _call_signature(args, self._scalars)
        if found is None:
            return NOT_WARM
        warm = self._known.get(found[0])
        return NOT_WARM if warm is None else warm(args, found[1])

    def remember(
        self,
        program: CompiledProgram,
        args: Sequence[object],
        names: Sequence[str],
        captures: Captures | None = None,
    ) -> None:
        """Record a successful ordinary call. `names` are the parameter names of `args`; those that
        the program lacks are constants in its text.
        """
        now = session.current()
        positions = {name: i for i, name in enumerate(names)}
        params = program.parameters
        numbers = [p.name for p in params if isinstance(p.type, ScalarType)]
        self._scalars = frozenset(positions[n] for n in numbers if n in positions)
        found = _call_signature(args, self._scalars)
        sources = [positions.get(p.name, _output_type(p)) for p in params]
        if found is None or None in sources or not now.wants_only_results:
            return
        if not session.environment_wants_only_results():
            return
        if not all(a.flags.aligned for a in found[1] if type(a) is np.ndarray):
            return
        if not all(
            _is_of_its_type(p, found[1][positions[p.name]]) for p in params if p.name in positions
        ):
            return
        prepared = program.prepared()
        if prepared is None:
            return
        written = [i for i, p in enumerate(params) if p.is_written and p.name not in numbers]
        made = [i for i in written if isinstance(sources[i], tuple)]
        if len(self._known) >= _MAX_SIGNATURES:
            self._known.clear()
        self._known[found[0]] = _WarmCall(
            prepared,
            now,
            captures,
            tuple([s for s in sources if s is not None]),
            tuple(made or written),
            any(is_tensor(a) for a in args),
        )


def _is_of_its_type(param: EntryParameter, arg: Any) -> bool:
    """Whether types match; the ordinary path handles signed arrays for unsigned parameters."""
    return not isinstance(param.type, TensorType) or arg.dtype == param.type.dtype.numpy


def _output_type(param: EntryParameter) -> Made | None:
    """Return the type of an omitted output; None if its shape depends on other arguments."""
    if not isinstance(param.type, TensorType):
        return None
    shape = tuple([d for d in param.type.shape if isinstance(d, int)])
    return (shape, param.type.dtype.numpy) if len(shape) == len(param.type.shape) else None


_type_of: Callable[[object], type[object]] = type


def _call_signature(
    args: Sequence[Any], scalars: Collection[int]
) -> tuple[Signature, Sequence[Any]] | None:
    """Return the signature of a call, and its arguments as arrays and numbers.

    None if only the ordinary path supports an argument.
    """
    parts: list[object] = []
    arrays: list[object] | None = None
    for i, arg in enumerate(args):
        kind = _type_of(arg)
        if kind is not np.ndarray:
            if kind is int or kind is float or kind is bool:
                parts.append(kind if i in scalars else (kind, repr(arg)))
                continue
            array = _of_tensor(arg)
            if array is None:
                return None
            parts.append(kind)
            arrays = [*args] if arrays is None else arrays
            arrays[i] = arg = array
        shape = arg.shape
        if not shape:  # a subclass of int
            return None
        parts.append((shape, arg.strides, arg.dtype, arg.flags.num))
    return tuple(parts), args if arrays is None else arrays


def _of_tensor(arg: object) -> Any | None:
    torch = sys.modules.get("torch")
    if torch is None or type(arg) is not torch.Tensor:
        return None
    try:
        return as_array(arg)
    except (TypeError, RuntimeError):  # other devices and sparse tensors are rejected elsewhere
        return None


@dataclass(frozen=True)
class _WarmCall:
    """The shared state of calls with one signature.

    captures   values of global names; None for a compiled program, which does not depend on them
    arguments  position of each parameter's argument, or shape and element type of an output that
               is allocated here
    results    positions of the returned parameters
    """

    prepared: PreparedCalls
    session: session.Session
    captures: Captures | None
    arguments: tuple[int | Made, ...]
    results: tuple[int, ...]
    wants_torch: bool

    def __call__(self, args: Sequence[object], arrays: Sequence[object]) -> Any:
        """Run, or return `NOT_WARM` without doing anything if something has changed."""
        now = session.current()
        if now is not self.session or not now.wants_only_results:
            return NOT_WARM
        if self.captures is not None and not (
            self.captures.are_current() and session.environment_wants_only_results()
        ):
            return NOT_WARM
        bound: list[object] = []
        given: list[object] = []
        for source in self.arguments:
            if isinstance(source, int):
                bound.append(arrays[source])
                given.append(args[source])
            else:
                made = np.zeros(*source)
                bound.append(made)
                given.append(as_tensor(made) if self.wants_torch else made)
        if not self.prepared.run(bound, progress):
            return NOT_WARM
        if len(self.results) == 1:
            return given[self.results[0]]
        return tuple([given[i] for i in self.results]) or None
