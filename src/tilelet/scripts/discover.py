"""Programs of a script that defines kernels but runs none: they are compiled, so checked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilelet.diag.catalogue.command import NoProgramFound
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.text import escape_controls, quoted_names
from tilelet.frontend.decorators import build_program
from tilelet.frontend.functions import KernelFunction
from tilelet.ir.core import FunctionKind, Program
from tilelet.ir.programs import Programs
from tilelet.runtime.programs.compiler import compile_with_dumps
from tilelet.runtime.session import Session

_ENTRIES = (FunctionKind.Opaque, FunctionKind.Orchestration)


def compile_found(path: str, names: Mapping[str, object], now: Session, made: bool = False) -> None:
    """Compile (or, for `tilelet tasks`, count) every program among a script's names.

    `made`: the script has created programs, or tried to, and may not have kept any.
    """
    programs = list(_programs(names))
    if not programs and made:
        print(escape_controls(f"note: {path} makes programs and runs none"))
        return
    if not programs:
        raise NoProgramFound(path, _incomplete(names))
    for program in programs:
        now.handler.uncalled(compile_with_dumps(program), path, now)


def _programs(names: Mapping[str, object]) -> list[Program]:
    """Return programs, annotated `@pl.jit` functions, and results of `build…()` functions."""
    found: dict[int, Program] = {}
    for name, value in names.items():
        if isinstance(value, Programs):
            programs = list(value.by_entry.values())
        elif isinstance(value, Program):
            programs = [value]
        else:
            made = _from_function(name, value)
            programs = [] if made is None else [made]
        for program in programs:
            found.setdefault(id(program), program)
    return list(found.values()) or list(_of_functions(names)) or list(_of_inlines(names))


def _of_functions(names: Mapping[str, object]) -> Iterator[Program]:
    """Yield `@pl.function`s outside classes, each as the entry of a program."""
    for value in names.values():
        if isinstance(value, KernelFunction) and value.kind in _ENTRIES:
            program = build_program(value.name, {value.name: value}, value.loc())
            assert isinstance(program, Program)  # one function has one entry
            yield program


def _of_inlines(names: Mapping[str, object]) -> Iterator[Program]:
    """Yield inline functions that can be programs on their own.

    One whose parameters are tiles needs a caller's scope around it.
    """
    for value in names.values():
        if isinstance(value, KernelFunction) and value.kind is FunctionKind.Inline:
            program = _program_of(value)
            if program is not None:
                yield program


def _program_of(function: KernelFunction) -> Program | None:
    from tilelet.frontend.jit import JitFunction

    try:
        made = JitFunction(replace(function, kind=FunctionKind.Opaque))
        return None if any(p.type is None for p in made.parameters) else made.specialize()
    except (UserError, UserErrors):
        return None


def _from_function(name: str, value: object) -> Program | None:
    from tilelet.frontend.jit import JitFunction

    if isinstance(value, JitFunction):
        is_entry = value.kernel_function.kind is not FunctionKind.InCore
        complete = is_entry and all(parameter.type is not None for parameter in value.parameters)
        return value.specialize() if complete else None
    if not inspect.isfunction(value) or not name.startswith("build"):
        return None
    required = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
    if required or "program" not in name:
        return None
    made = value()
    return made if isinstance(made, Program) else None


def _incomplete(names: Mapping[str, object]) -> dict[str, str]:
    """Return kernels and builders of the script that need arguments, with their names."""
    from tilelet.frontend.jit import JitFunction

    found: dict[str, str] = {}
    for name, value in names.items():
        if isinstance(value, KernelFunction) and value.kind is FunctionKind.Inline:
            found[name] = "is inlined where a program calls it"
        elif isinstance(value, JitFunction):
            if value.kernel_function.kind is FunctionKind.InCore:
                found[name] = "is a kernel for a program to call"
                continue
            missing = [p.name for p in value.parameters if p.type is None]
            found[name] = f"has no type for {quoted_names(missing, 'and')}"
        elif inspect.isfunction(value) and name.startswith("build"):
            required = [
                p.name for p in inspect.signature(value).parameters.values() if p.default is p.empty
            ]
            if required:
                found[name] = f"needs {quoted_names(required, 'and')}"
    return found
