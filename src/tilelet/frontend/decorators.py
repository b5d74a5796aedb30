"""The decorators users write: `@pl.program`, `@pl.function`, `@pl.inline`."""

from __future__ import annotations

import ast
import contextlib
import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from tilelet.diag.catalogue.cautions import OwnExtents
from tilelet.diag.catalogue.names import DuplicateFunction
from tilelet.diag.catalogue.python import BadDecorator
from tilelet.diag.catalogue.unsupported import (
    ExternalKernel,
    UnsupportedFunctionType,
    UnsupportedLevel,
)
from tilelet.diag.core import Diagnostic, Loc, UserError, UserErrors
from tilelet.frontend.annotations import parameters, stored_type
from tilelet.frontend.emitting import default_args
from tilelet.frontend.functions import (
    KernelFunction,
    Style,
    frame_names,
    here,
    is_plain,
    lower_alone_by,
    of_type,
)
from tilelet.frontend.jit import jit
from tilelet.frontend.module import Constant, ModuleBuilder, SourceOrigin, as_entry, entries_of
from tilelet.frontend.module_state import TODAY, Reading
from tilelet.frontend.source import SourceFile, find_class
from tilelet.ir import structure
from tilelet.ir.core import (
    SUPPORTED_KINDS,
    Arg,
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
)
from tilelet.ir.programs import Programs
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import INDEX, TensorType, Type
from tilelet.syntax.enums import Level, Role

__all__ = ["function", "inline", "jit", "keep_refused", "program"]

Refusal = Callable[[UserError | UserErrors], Any]

_refused: Refusal | None = None


def keep_refused(make: Refusal | None) -> None:
    """Replace functions and programs with mistakes by `make(error)`; None: raise the error."""
    global _refused  # noqa: PLW0603 - set once, by what runs many programs of one file
    _refused = make


def function(
    func: Callable[..., object] | None = None,
    *,
    type: FunctionKind = FunctionKind.Opaque,  # noqa: A002
    strict_ssa: bool = False,
    auto_scope: bool = True,  # noqa: ARG001
    attrs: Mapping[str, object] | None = None,
    level: Level | None = None,
    role: Role | None = None,
    **options: object,
) -> Any:
    """A function of a program: `@pl.function` or `@pl.function(type=pl.FunctionType.InCore)`.

    Opaque (the default) may hold scopes and becomes the control program; Orchestration is a
    hand-written control program; InCore is a kernel body, one task per call; Inline and Graph are
    spliced into their callers. AIC and AIV are kernel bodies for one kind of core; a Group calls
    one of each, which run together as one task and hand each other tiles (`pl.tpush_to_aiv`).
    `strict_ssa=True` forbids rebinding a name. `auto_scope=False` only tells the device runtime not
    to place memory scopes by itself; results do not depend on it. `attrs` are hints to a device's
    compiler; they change no result either. `attrs={"split": pl.SplitMode.UP_DOWN}` says how two
    vector cores share the kernel, which the modelled device follows; under `auto_tile` and
    `auto_fuse` the body is an expression of whole tensors, and assigning to an output writes it.
    `level=pl.Level.HOST` makes it the host's: with `role=pl.Role.Orchestrator` it dispatches the
    other functions to ranks, with `role=pl.Role.SubWorker` it is Python that the host calls.
    """
    visible, where = frame_names(1), here(1)
    refusal: UserError | None = None
    if options.pop("external_source", None) is not None:
        refusal = ExternalKernel(where, "@pl.function(external_source=...)")
    elif options:
        refusal = BadDecorator(where, "pl.function", f"it has no option `{next(iter(options))}`")
    elif level not in (None, Level.CORE_GROUP, Level.HOST):
        refusal = UnsupportedLevel(where, f"pl.Level.{level.name}")
    elif type not in SUPPORTED_KINDS:
        refusal = UnsupportedFunctionType(where, type.name)
    if refusal is not None and _refused is None:
        raise refusal

    def decorate(target: Callable[..., object]) -> KernelFunction:
        if not is_plain(target):
            raise BadDecorator(where, "pl.function", "it decorates plain functions")
        if refusal is not None and _refused is not None:
            return _refused(refusal)
        is_callback = role is Role.SubWorker
        kind = FunctionKind.Host if level is Level.HOST and not is_callback else type
        more = {"python": target, "frame_names": visible, "is_callback": is_callback}
        return of_type(target.__name__, kind, strict_ssa, attrs, **more)

    return decorate if func is None else decorate(func)


def inline(func: Callable[..., object]) -> Any:
    """A helper whose body is spliced into every caller. It must return a value."""
    if not is_plain(func):
        raise BadDecorator(here(1), "pl.inline", "it decorates plain functions")
    more: dict[str, Any] = {"python": func, "frame_names": frame_names(1)}
    return KernelFunction(func.__name__, FunctionKind.Inline, Style(), generic=True, **more)


def program(cls: object = None, *, strict_ssa: bool = False) -> Any:
    """Make a program of a class whose methods are decorated with `@pl.function`.

    The class is parsed, never instantiated. Its entry is the Orchestration function, or the Opaque
    one that no other method calls; of several, `Program["name"]` is the program that starts in one.
    Mistakes are reported here, where the class is defined.
    `@pl.program(strict_ssa=True)` forbids rebinding a name in all of its functions.
    """

    def decorate(target: object) -> Any:
        return _of_class(target, strict_ssa)

    return decorate if cls is None else _of_class(cls, strict_ssa)


def _of_class(cls: object, strict_ssa: bool) -> Any:
    """Build the program of a class; the caller is two frames below the class's text."""
    if not isinstance(cls, type):
        raise BadDecorator(here(2), "pl.program", "it decorates classes")
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    source, node = find_class(cls, frame.f_code, frame.f_lineno)
    names = frame_names(2)
    for member in vars(cls).values():
        if strict_ssa and isinstance(member, KernelFunction):
            member.style = replace(member.style, strict_ssa=True)
    if _refused is None:
        return _program(cls, source, node, names)
    for member in vars(cls).values():
        if isinstance(_refused, type) and isinstance(member, _refused):
            return member
    try:
        return _program(cls, source, node, names)
    except (UserError, UserErrors) as error:
        return _refused(error)


def _program(
    cls: type, source: SourceFile, node: ast.ClassDef, names: dict[str, object]
) -> Program | Programs:
    seen: dict[str, Loc] = {}
    for member in node.body:
        if isinstance(member, ast.FunctionDef):
            loc = source.loc(member)
            if seen.setdefault(member.name, loc) is not loc:
                raise DuplicateFunction(loc, member.name, seen[member.name])
    methods: dict[str, KernelFunction] = {}
    for name, member in vars(cls).items():
        if isinstance(member, KernelFunction):
            member.is_method = True
            member.frame_names = {**names, **member.frame_names}
            methods[name] = member
    return build_program(cls.__name__, methods, source.loc(node))


def build_program(name: str, methods: Mapping[str, KernelFunction], loc: Loc) -> Program | Programs:
    """Lower all functions of a program; raise every mistake found (ten at most).

    A class with several control programs gives one program for each.
    """
    entries = entries_of(name, methods, loc)
    if len(entries) == 1:
        return _build_either(name, methods, entries[0])
    return Programs(name, {e.name: _build_either(name, methods, e) for e in entries})


def lower_alone(function: KernelFunction) -> Function:
    """Return the IR of a function by itself."""
    built = build_program(function.name, {function.name: function}, function.loc())
    assert isinstance(built, Program)  # one function has one entry
    return built.functions[function.name]


lower_alone_by(lower_alone)


def _build_either(
    name: str, methods: Mapping[str, KernelFunction], entry: KernelFunction
) -> Program:
    """Build as declared; if that has mistakes, with tensors declared `pl.DN` as stored."""
    printed: list[str] = []
    try:
        return _build(name, methods, entry, printed=printed)
    except UserErrors:
        with contextlib.suppress(UserError, UserErrors):
            declared = [p for method in methods.values() for p in parameters(method)]
            if any(stored_type(p) != p.type for p in declared):
                stored: list[str] = []
                built = _build(name, methods, entry, Reading(as_stored=True), printed=stored)
                printed = stored
                return built
        raise
    finally:
        for text in printed:
            print(text)


def can_lower_again(program: Program) -> bool:
    """Return whether the text of a program is known and its entry is a control program."""
    origin = program.origin
    return isinstance(origin, SourceOrigin) and origin.entry.kind is not FunctionKind.InCore


def as_stored(program: Program, shapes: Mapping[str, Sequence[int]]) -> Program:
    """Lower the program with `pl.DN` tensors as stored, if the arguments have the stored shapes."""
    if not can_lower_again(program):
        return program
    assert isinstance(program.origin, SourceOrigin)
    lowered = {v.name: v.type for v in program.main.params}
    own: dict[str, Sequence[int]] = {}
    for p in parameters(program.origin.entry):
        stored = stored_type(p)
        if stored == lowered.get(p.name) or not isinstance(stored, TensorType):
            continue
        if stored.shape == tuple(shapes.get(p.name, ())):
            own[p.name] = shapes[p.name]
    return with_extents(program, own, as_stored=True) if own else program


def open_parameters(program: Program) -> tuple[str, ...]:
    """Return the entry's parameters whose shape or number each call decides, such as `x: pl.Tensor`
    in a `@pl.jit` function.
    """
    if not can_lower_again(program):
        return ()
    assert isinstance(program.origin, SourceOrigin)
    return tuple(p.name for p in parameters(program.origin.entry) if p.type is None)


def call_numbers(program: Program) -> Mapping[str, Constant]:
    """Return the numbers that a call made part of the program's text."""
    return program.origin.constants if isinstance(program.origin, SourceOrigin) else {}


def with_extents(
    program: Program,
    shapes: Mapping[str, Sequence[int]],
    numbers: Mapping[str, Constant] | None = None,
    *,
    as_stored: bool = False,
) -> Program:
    """Lower the program again, with these shapes instead of the declared ones.

    numbers    replace the numbers that a call made part of the text
    as_stored  tensors declared `pl.DN` in called functions are taken as they lie in memory

    A caution is added, because the text declares each symbol as one number.
    """
    origin = program.origin
    assert isinstance(origin, SourceOrigin)
    known = {v.name: v.type for v in program.main.params}
    given: list[Type] = []
    notes: list[Diagnostic] = []
    for p in parameters(origin.entry):
        type_ = known.get(p.name, INDEX)
        if p.name in shapes and isinstance(type_, TensorType):
            fixed = replace(type_, shape=tuple(shapes[p.name]))
            notes.append(OwnExtents(p.loc, p.name, str(type_), str(fixed)).diagnostic)
            type_ = fixed
        given.append(type_)
    types, reading = tuple(given), Reading(as_stored=as_stored)
    constants = {**origin.constants, **(numbers or {})}
    built = _build(program.name, origin.methods, origin.entry, reading, types, constants)
    return replace(built, cautions=(*built.cautions, *notes))


def definition_of(program: Program) -> tuple[str, ast.FunctionDef]:
    """Return the file and a copy of the definition of a program's entry."""
    origin = program.origin
    assert isinstance(origin, SourceOrigin)
    return origin.entry.source.path, copy.deepcopy(origin.entry.node)


def with_definition(program: Program, definition: ast.FunctionDef) -> Program:
    """Lower the program again, with another definition of its entry; print nothing again."""
    origin = program.origin
    assert isinstance(origin, SourceOrigin)
    entry = replace(origin.entry, given_source=(origin.entry.source, definition))
    known = {v.name: v.type for v in program.main.params}
    types = tuple([known.get(p.name, INDEX) for p in parameters(entry)])
    return _build(program.name, origin.methods, entry, TODAY, types, origin.constants, printed=[])


def _build(
    name: str,
    methods: Mapping[str, KernelFunction],
    entry: KernelFunction,
    reading: Reading = TODAY,
    given: tuple[Type, ...] | None = None,
    constants: Mapping[str, Constant] | None = None,
    *,
    printed: list[str] | None = None,
) -> Program:
    """Lower the functions of a program; see `ModuleBuilder.build`."""
    builder = ModuleBuilder(name, methods, reading)

    def lower_all() -> str:
        for method in methods.values():
            # Functions called by a group are parts of it, not kernels.
            in_group = method.core in (FunctionKind.AIC, FunctionKind.AIV)
            is_kernel = method.kind is FunctionKind.InCore and not method.generic
            if method is not entry and is_kernel and not in_group:
                builder.kernel(method, (), method.loc())
        if entry.kind is FunctionKind.InCore:
            return builder.kernel(entry, (), entry.loc()).name
        return builder.lower(entry, given, constants).name

    origin = SourceOrigin(entry, methods, constants or {})
    built = builder.build(lower_all, origin, printed)
    in_text_order = {m: built.functions[m] for m in methods if m in built.functions}
    built = built.with_functions({**in_text_order, **built.functions})
    return as_entry(built.main, built)


# --- results without parameters -------------------------------------------------------------------


def with_outputs(program: Program, names: Sequence[str]) -> Program:
    """Add an output parameter for each new tensor that the entry returns.

    Programs of spring 2026 have no parameters for their results, but their callers pass buffers.
    The program is returned unchanged if it does not return that many tensors.
    """
    main = program.main
    new = [v for v, i in zip(main.returned, main.returns, strict=True) if i is None]
    found = [v for v in new if isinstance(v, Value) and _has_known_size(v)]
    if not names or len(found) != len(new) or len(new) != len(names):
        return program
    lifted = _lift_results(main, found, names)
    return program.with_functions({**program.functions, main.name: lifted})


def _has_known_size(value: Value) -> bool:
    t = value.type
    return isinstance(t, TensorType) and all(isinstance(d, int) for d in t.shape)


def _lift_results(main: Function, found: Sequence[Value], names: Sequence[str]) -> Function:
    params = [Value(name, v.type, v.loc) for v, name in zip(found, names, strict=True)]
    ops = list(main.body.ops[:-1])
    end = main.body.terminator
    given: dict[Arg, Arg] = {}
    for value, param in zip(found, params, strict=True):
        assert isinstance(param.type, TensorType)
        offset: Arg = (0,) * len(param.type.shape)
        args = default_args(REGISTRY["assemble"], target=param, source=value, offset=offset)
        written = Value(param.name, param.type, end.loc)
        ops.append(Op(REGISTRY["assemble"], args, (written,), loc=end.loc))
        given[value] = written
    values = tuple(given.get(v, v) for v in main.returned)
    ops.append(Op(structure.RETURN, {**end.args, "values": values}, loc=end.loc))
    places = count(len(main.params))
    return replace(
        main,
        params=(*main.params, *params),
        directions=(*main.directions, *(Direction.Out for _ in params)),
        declared=(*main.declarations, *(Direction.Out for _ in params)),
        body=Block(main.body.params, tuple(ops)),
        returns=tuple(i if i is not None else next(places) for i in main.returns),
    )
