"""Building a program: its functions are lowered on demand."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import tilelet.frontend.constructs  # noqa: F401 - fills the dispatch table
from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.cautions import NoEffect, OutputNotWritten
from tilelet.diag.catalogue.names import (
    DuplicateFunction,
    InlineRecursion,
    NoEntry,
    OutputRebound,
    ReturnMismatch,
    SeveralEntries,
)
from tilelet.diag.catalogue.ops import InnerDimMismatch
from tilelet.diag.core import Diagnostic, Loc, TooManyErrors, UserError
from tilelet.diag.text import plural
from tilelet.frontend import annotations, barriers, expressions, pipes
from tilelet.frontend.bindings import Binding, ValueFacts, is_scalar, is_shaped, items_of
from tilelet.frontend.compile_time import PYTHON
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import lower_body
from tilelet.frontend.emitting import spilled_type, to_arg
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.kernels import lower_external
from tilelet.frontend.module_state import ModuleState, Reading
from tilelet.frontend.nameflow import NameFlow
from tilelet.frontend.resolve import SelfReference, rebound_by
from tilelet.ir.core import Arg, Block, Direction, Function, FunctionKind, Program, Value
from tilelet.ir.rebuild import call_op, return_op
from tilelet.ir.sweep import Sweep
from tilelet.ir.types import ScalarType, SymDim, TensorType, TileType, Type
from tilelet.ops.block_scaled import LAYOUTS

Constant = int | float | bool


@dataclass(frozen=True)
class SourceOrigin:
    """The decorated functions that a program was built from.

    methods    methods of the class by name; none for a single function
    constants  parameters bound to numbers, as in a call of a `@pl.jit` function
    """

    entry: KernelFunction
    methods: Mapping[str, KernelFunction] = field(default_factory=dict[str, KernelFunction])
    constants: Mapping[str, Constant] = field(default_factory=dict[str, "Constant"])

    def function(self, name: str) -> Function | None:
        """Return the IR of one method, lowered on its own."""
        method = self.methods.get(name)
        return None if method is None else ModuleBuilder(name, self.methods).lower(method)


@dataclass
class ModuleBuilder(ModuleState):
    """Lowers the functions of a program on demand."""

    begun: ClassVar[int] = 0  # number of programs begun in this process, also with mistakes

    def kernel(self, function: KernelFunction, types: tuple[Type, ...], loc: Loc) -> Function:
        """Return the IR of a kernel called with operands of these types, lowered once."""
        key = (function, types if function.generic else ())
        if key not in self.kernels:
            if function in self.inline_stack:
                chain = [f.name for f in self.inline_stack] + [function.name]
                raise InlineRecursion(loc, chain)
            self.kernels[key] = self.lower(function, types if function.generic else None)
        return self.kernels[key]

    def lower(
        self,
        function: KernelFunction,
        given: tuple[Type, ...] | None = None,
        constants: Mapping[str, Constant] | None = None,
    ) -> Function:
        """Lower a function, given argument types, with some parameters bound to constants.

        The first reading without mistakes wins. If there is none, the mistakes are those of the
        text as it reads today.
        """
        today = Reading(as_stored=self.reading.as_stored)
        first = self._attempt(today, function, given, constants)
        chosen = first
        for reading in _other_readings(today, first, len(self.sink.diagnostics)):
            other = self._attempt(reading, function, given, constants)
            if other.is_clean:
                chosen = other
                break
        self.adopt(chosen.module)
        if isinstance(chosen.outcome, Function):
            return chosen.outcome
        raise chosen.outcome

    def _attempt(
        self,
        reading: Reading,
        function: KernelFunction,
        given: tuple[Type, ...] | None,
        constants: Mapping[str, Constant] | None,
    ) -> Lowered:
        """Lower the function under one reading, on a copy of this program."""
        module = self.fork(reading=reading, ambiguous=set[str]())
        try:
            return Lowered(module._lower(function, given, constants), module)
        except (UserError, TooManyErrors) as problem:
            return Lowered(problem, module)

    def _lower(
        self,
        function: KernelFunction,
        given: tuple[Type, ...] | None,
        constants: Mapping[str, Constant] | None,
    ) -> Function:
        params, env = _bind_parameters(function, given, constants or {}, self.reading.as_stored)
        for p in annotations.parameters(function):
            if p.layout is not None and p.layout not in LAYOUTS:
                why = "data is row-major everywhere; results do not depend on it"
                self.sink.add(NoEffect(p.loc, f"layout `pl.{p.layout}` of `{p.name}`", why))
        ctx = Context(
            module=self,
            source=function.source,
            captured=function.captured_names(),
            host=function.host,
            flow=NameFlow(lambda call: rebound_by(ctx, call)),
            style=function.style,
            facts=_facts(params),
            env=env,
            in_scope=function.kind is FunctionKind.InCore,
            scope_loc=function.loc() if function.kind is FunctionKind.InCore else None,
            dims=_dims(params),
            split=function.split,
            kind=function.kind,
        )
        ctx.facts.layouts = annotations.layouts_of(function, env)
        if function.is_method:
            env["self"] = SelfReference()
        if function.style.guards_outputs:
            outputs = (Direction.Out, Direction.InOut)
            ctx.outputs = {v.name: v for v, d in params if d in outputs}
        if function.core is FunctionKind.Group:
            ctx.parts = []
        self.inline_stack.append(function)
        try:
            if function.external is not None:
                values = [v for v, _ in params]
                ctx.returned = lower_external(
                    ctx, function, function.external, values, function.loc()
                )
            else:
                lower_body(ctx, function.body)
        finally:
            self.inline_stack.pop()
        if ctx.parts:
            ended = pipes.weave(ctx, ctx.parts)
            ctx.returned = tuple(
                ended.get(v, v) if isinstance(v, Value) else v for v in ctx.returned or ()
            )
        if function.kind is FunctionKind.InCore:
            barriers.check_kernel(ctx, ctx.ops)
        built = Sweep().function(
            _close_function(ctx, function, params, self._unique_name(function))
        )
        self.functions[built.name] = built
        return built

    def _unique_name(self, function: KernelFunction) -> str:
        if function.name not in self.functions:
            return function.name
        if not function.generic:
            raise DuplicateFunction(
                function.loc(), function.name, self.functions[function.name].loc
            )
        number = 1
        while f"{function.name}_{number}" in self.functions:
            number += 1
        return f"{function.name}_{number}"

    def finish(self, entry: str, origin: SourceOrigin | None) -> Program:
        """Return the program, or raise the collected mistakes as one exception."""
        self.sink.finish()
        cautions: tuple[Diagnostic, ...] = tuple(self.sink.warnings)
        return Program(self.name, self.functions, entry, cautions, origin)

    def build(
        self,
        lower_entry: Callable[[], str],
        origin: SourceOrigin | None = None,
        printed: list[str] | None = None,
    ) -> Program:
        """Run `lower_entry`, which returns the entry's name, and collect mistakes on the way.

        The lines of `pl.static_print` are printed, or put into `printed`.
        """
        ModuleBuilder.begun += 1
        try:
            entry = lower_entry()
        except TooManyErrors:
            entry = ""
        except UserError as problem:
            with contextlib.suppress(TooManyErrors):
                self.sink.add(problem)
            entry = ""
        finally:
            if printed is not None:
                printed[:] = self.printed
            else:
                for text in self.printed:
                    print(text)
        return self.finish(entry, origin)


@dataclass(frozen=True)
class Lowered:
    """A function under one reading, and the program with it: functions and diagnostics.

    The outcome is an exception if a mistake left no function to build.
    """

    outcome: Function | UserError | TooManyErrors
    module: ModuleBuilder

    @property
    def is_clean(self) -> bool:
        return isinstance(self.outcome, Function) and not self.module.sink.errors


def _other_readings(today: Reading, first: Lowered, begin: int) -> Iterator[Reading]:
    """Yield readings that may resolve the mistakes found after the first `begin` diagnostics."""
    found = first.module.sink.diagnostics
    if first.is_clean or any(d.severity == "error" for d in found[:begin]):
        return
    disagree = any(d.code == InnerDimMismatch.code for d in found[begin:])
    if disagree and "swap_windows" in first.module.ambiguous:
        yield replace(today, swap_windows=True)
    if "whole_scopes" in first.module.ambiguous:
        yield replace(today, whole_scopes=True)


def _bind_parameters(
    function: KernelFunction,
    given: tuple[Type, ...] | None,
    constants: Mapping[str, Constant],
    as_stored: bool,
) -> tuple[list[tuple[Value, Direction | None]], dict[str, Binding]]:
    params: list[tuple[Value, Direction | None]] = []
    env: dict[str, Binding] = {}
    for i, p in enumerate(annotations.parameters(function)):
        if p.name in constants:
            env[p.name] = constants[p.name]
            continue
        found = annotations.taken_type(p) if as_stored else p.type
        if given is not None and (found is None or not isinstance(found, ScalarType)):
            found = given[i]
        if isinstance(found, TileType) and function.kind is not FunctionKind.InCore:
            found = TensorType(found.shape, found.dtype)
        assert found is not None
        value = Value(p.name, found, p.loc)
        params.append((value, p.direction))
        env[p.name] = value
    return params, env


def _facts(params: list[tuple[Value, Direction | None]]) -> ValueFacts:
    facts = ValueFacts()
    for value, direction in params:
        if isinstance(value.type, TensorType):
            facts.add_parameter(value)
            if direction in (Direction.Out, Direction.InOut):
                facts.outputs.add(value)
    return facts


def _dims(params: list[tuple[Value, Direction | None]]) -> dict[SymDim, Binding]:
    """Return where each symbolic dimension can be read: (parameter, axis)."""
    found: dict[SymDim, Binding] = {}
    for value, _ in params:
        if isinstance(value.type, TensorType):
            for axis, d in enumerate(value.type.shape):
                if isinstance(d, SymDim):
                    found.setdefault(d, (value, axis))
    return found


def _close_function(
    ctx: Context, function: KernelFunction, params: list[tuple[Value, Direction | None]], name: str
) -> Function:
    loc = function.loc()
    returned: list[Arg] = []
    if not ctx.sink.errors:
        given = ctx.returned or ()
        _check_returns(ctx, function, given)
        if function.kind is not FunctionKind.InCore:
            given = _results_of_control(given)
        returned = [to_arg(ctx, v, loc) for v in given]
        _check_returned_names(ctx, function, params)
        # Printed programs were checked before; passes may have dropped writes that never run.
        judged = function.given_source is not None and function.host is PYTHON
        for output, direction in params:
            is_output = output.name in ctx.outputs and direction is Direction.Out
            if is_output and output not in ctx.facts.written and not judged:
                ctx.sink.add(OutputNotWritten(output.loc, output.name))
    positions = {value: i for i, (value, _) in enumerate(params)}
    roots = tuple(positions.get(ctx.facts.root_of(v)) for v in returned)  # type: ignore[arg-type]
    block = Block((), (*ctx.ops, return_op(returned, loc)))
    return Function(
        name,
        function.kind,
        tuple(v for v, _ in params),
        tuple(d or Direction.In for _, d in params),
        block,
        loc,
        declared=tuple(d for _, d in params),
        returns=roots,
        split=function.split,
    )


def _results_of_control(given: tuple[Binding, ...]) -> tuple[Binding, ...]:
    """Return the tensors and scalars among the results, without task ids and tuples."""
    flat: list[Binding] = []
    for value in given:
        items = items_of(value)
        if items is not None:
            flat += _results_of_control(items)
        elif is_shaped(value) or is_scalar(value):
            flat.append(value)
    return tuple(flat)


def _check_returns(ctx: Context, function: KernelFunction, returned: tuple[Binding, ...]) -> None:
    """Check the returned values against the declared return type."""
    node = function.node.returns
    last = function.body[-1] if function.body else None
    if node is None or not isinstance(last, ast.Return) or function.generic:
        return
    parts = [node]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        is_tuple = ast.unparse(node.value) in ("tuple", "Tuple", "pl.Tuple")
        parts = node.slice.elts if is_tuple else [node]
    if len(returned) == 1:  # one call may give several values
        returned = items_of(returned[0]) or returned
    declared_loc = function.source.loc(node)
    if len(parts) != len(returned):
        got, declared = plural(len(returned), "value"), plural(len(parts), "value")
        raise ReturnMismatch(ctx.loc(last), function.name, got, declared, declared_loc)
    for part, value in zip(parts, returned, strict=True):
        where, as_stored = function.source.loc(part), ctx.module.reading.as_stored
        annotation = expressions.run_python(ctx, part)
        declared = annotations.given_type(annotation, where, as_stored=as_stored)
        if declared is None or not isinstance(value, Value):
            continue
        if not annotations.agree(value.type, declared):
            got, wanted = str(value.type), str(declared)
            raise ReturnMismatch(ctx.loc(last), function.name, got, wanted, where)


def _check_returned_names(
    ctx: Context, function: KernelFunction, params: list[tuple[Value, Direction | None]]
) -> None:
    """Check that a returned parameter name still stands for the parameter."""
    last = function.body[-1] if function.body else None
    if function.kind is FunctionKind.InCore or not isinstance(last, ast.Return):
        return
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    tensors = {v.name: v for v, _ in params if isinstance(v.type, TensorType)}
    for part in parts:
        name = part.id if isinstance(part, ast.Name) else ""
        value = ctx.env.get(name)
        if name in tensors and isinstance(value, Value):
            param = tensors[name]
            if ctx.facts.storage_of(value) is not param and param not in ctx.facts.written:
                ctx.sink.add(OutputRebound(value.loc, name, param.loc))


def entries_of(name: str, methods: Mapping[str, KernelFunction], loc: Loc) -> list[KernelFunction]:
    """Return the control programs that no other function calls, host functions first."""
    by_kind = {k: [m for m in methods.values() if m.kind is k] for k in FunctionKind}
    for kind in (FunctionKind.Host, FunctionKind.Orchestration, FunctionKind.Opaque):
        found = _uncalled_functions(by_kind[kind], methods)
        if found:
            return found
    kernels = _uncalled_functions(by_kind[FunctionKind.InCore], methods)
    if len(kernels) > 1:
        raise SeveralEntries(name, [(f.name, f.loc()) for f in kernels])
    if not kernels:
        raise NoEntry(loc, name)
    return kernels


def _uncalled_functions(
    candidates: list[KernelFunction], methods: Mapping[str, KernelFunction]
) -> list[KernelFunction]:
    if len(candidates) < 2:
        return candidates  # the common case needs no search of the text
    called = {
        n.attr
        for m in methods.values()
        for n in ast.walk(m.node)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"
    }
    free = [c for c in candidates if c.name not in called]
    return free or candidates


def as_entry(function: Function, program: Program) -> Program:
    """Add a control program that calls the entry once, if the entry is a kernel."""
    if function.kind is not FunctionKind.InCore:
        return program
    name = f"{function.name}_main"
    params = tuple(Value(p.name, p.type, p.loc) for p in function.params)
    types: list[Type] = []
    for value, index in zip(function.returned, function.returns, strict=True):
        source = value if index is None else params[index]
        assert isinstance(source, Value)
        types.append(spilled_type(source.type))
    results = tuple(Value(f"result_{i}", t, function.loc) for i, t in enumerate(types))
    call = call_op(function.name, params, results, function.loc)
    body = Block((), (call, return_op(results, function.loc)))
    kind = FunctionKind.Orchestration
    main = replace(function, name=name, kind=kind, params=params, body=body, split=None)
    return replace(program, functions={**program.functions, name: main}, entry=name)
