"""The candidate: one program of a file that is read, never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tilelet.diag.catalogue.command import FileMissing, NotAScript
from tilelet.diag.catalogue.oracle import NotOneCandidate, OtherSignature
from tilelet.frontend.annotations import KernelParameter, parameters
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.module import entries_of
from tilelet.ir.core import Direction, Program
from tilelet.ir.types import SymDim, TensorType, Type
from tilelet.static.module import MAX_TEXT, StaticModule, TextProgram, read_module


def read_candidate(path: Path, wanted: str) -> TextProgram:
    """Return the program of a file; of several, the one with the reference's name."""
    if not path.exists():
        raise FileMissing(str(path), [])
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except (OSError, UnicodeDecodeError) as problem:
        raise NotAScript(str(path), str(problem)) from None
    return choose(read_module(text, str(path)), wanted)


def choose(module: StaticModule, wanted: str) -> TextProgram:
    if not module.programs and module.problems:
        raise module.problems[0]
    called = {n for p in module.programs for f in p.functions.values() for n in _called_names(f)}
    free = [p for p in module.programs if p.name not in called] or module.programs
    named = [p for p in free if p.name == wanted] or free
    if len(named) != 1:
        raise NotOneCandidate(module.source.path, [(p.name, p.loc) for p in named])
    return named[0]


def _called_names(function: KernelFunction) -> Iterator[str]:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def entry_of(program: TextProgram) -> KernelFunction:
    if program.jit is not None:
        return program.jit.kernel_function
    return entries_of(program.name, program.functions, program.loc)[0]


def check_signature(program: TextProgram, reference: Program) -> None:
    """Raise `OtherSignature` if the candidate's parameters are not the reference's."""
    unknown = next(program.unknown_names(), None)
    if unknown is not None:
        raise unknown
    entry = entry_of(program)
    mine = {p.name: p for p in parameters(entry)}
    main = reference.main
    theirs = {v.name: (v.type, said) for v, said in zip(main.params, main.declarations)}
    found = [f"parameter `{n}` is missing" for n in theirs if n not in mine]
    found += [f"parameter `{n}` is not in the reference" for n in mine if n not in theirs]
    for name, (type_, said) in theirs.items():
        if name in mine:
            found += _differences(mine[name], type_, said)
    if found:
        raise OtherSignature(entry.loc(), found)


def check_writes(candidate: TextProgram, program: Program, reference: Program) -> None:
    """Raise `OtherSignature` if the candidate writes parameters that the reference only reads."""
    excess = sorted(_written(program) - _written(reference))
    if excess:
        found = [f"`{n}` is written here and only read in the reference" for n in excess]
        raise OtherSignature(entry_of(candidate).loc(), found)


def _written(program: Program) -> set[str]:
    main = program.main
    return {p.name for p, d in zip(main.params, main.directions) if d is not Direction.In}


def _differences(mine: KernelParameter, type_: Type, said: object) -> Iterator[str]:
    if mine.type is not None and not _agrees(mine.type, type_):
        yield f"`{mine.name}` is {mine.type} here and {type_} in the reference"
    if said is not None and mine.direction is not said:
        here = mine.direction.name if mine.direction else "In"
        yield f"`{mine.name}` is {here} here and {getattr(said, 'name', said)} in the reference"


def _agrees(mine: Type, theirs: Type) -> bool:
    if not isinstance(mine, TensorType) or not isinstance(theirs, TensorType):
        return mine == theirs
    if mine.dtype is not theirs.dtype or len(mine.shape) != len(theirs.shape):
        return False
    return all(
        a == b or (isinstance(a, SymDim) and isinstance(b, SymDim))
        for a, b in zip(mine.shape, theirs.shape)
    )
