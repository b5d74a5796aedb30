"""What executes a compiled program: the interpreter, or native code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilelet.diag.catalogue.command import UnknownEngine
from tilelet.ir.core import Program
from tilelet.runtime import session
from tilelet.runtime.arrays import Array


class TaskCounter(Protocol):
    """The record of a run, as far as the harness reads it."""

    def counts(self) -> dict[str, int]: ...

    @property
    def total(self) -> int: ...


class Execution(Protocol):
    """What an engine gives back; results are in the arguments' arrays."""

    @property
    def tasks(self) -> TaskCounter: ...


class Engine(Protocol):
    """Runs the passed program on arrays, in place. `execute=False` only records the tasks."""

    def run(
        self, program: Program, arguments: Mapping[str, Array | Any], *, execute: bool = True
    ) -> Execution: ...


_FACTORIES: dict[str, Callable[[], Engine]] = {}


def register(name: str, factory: Callable[[], Engine]) -> None:
    """Add an engine; `factory` is called, and may import, only when the engine is chosen."""
    _FACTORIES[name] = factory


def known() -> list[str]:
    return sorted(_FACTORIES)


def get(name: str) -> Engine:
    """A fresh engine; `UnknownEngine` if there is none of that name."""
    if name not in _FACTORIES:
        raise UnknownEngine(name, known())
    return _FACTORIES[name]()


def _interpreter() -> Engine:
    from tilelet.interp.machine import Interpreter

    return Interpreter(seed_valid=session.current().seed_valid)


def _native() -> Engine:
    if session.current().seed_valid:
        return _interpreter()  # native code tracks valid regions one way only
    from tilelet.cpu.engine import CpuEngine

    return CpuEngine()


register("interp", _interpreter)
register("cpu", _native)
