"""Calls, compilation and lowering of `@pl.jit` functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.diag.catalogue.harness import ArgumentCount
from tilelet.ir.core import Program
from tilelet.ir.types import TensorType
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.arrays import is_array
from tilelet.runtime.programs.binding import (
    adopt_argument,
    check_arguments,
    given_names,
    jit_parameters,
)
from tilelet.runtime.programs.compiler import (
    CompiledProgram,
    compile_program,
)
from tilelet.runtime.programs.warm_calls import NOT_WARM, WarmCalls

# Compiled programs by the id of the frontend program and by ranks; keeping the program keeps the id
# unique.
_COMPILED: dict[tuple[int, tuple[int, ...]], tuple[Program, CompiledProgram]] = {}


def call(jit_fn: Any, args: Sequence[object], config: RunConfig | None = None) -> Any:
    """`kernel(*args, config=...)`: specialize, compile once, run; results are in the arguments."""
    if config is not None:
        return _call(jit_fn, args, config)[0]
    warm_calls = jit_fn.warm_calls
    if warm_calls is None:
        warm_calls = jit_fn.warm_calls = WarmCalls()
    result = warm_calls.call(args)
    if result is NOT_WARM:
        captures = jit_fn.variant().captures
        result, program, names = _call(jit_fn, args, RunConfig())
        warm_calls.remember(program, args, names, captures)
    return result


def _call(
    jit_fn: object, args: Sequence[object], config: RunConfig
) -> tuple[object, CompiledProgram, list[str]]:
    """Return the results, the program that was run, and the parameter names of `args`."""
    program = compile(jit_fn, args, config)
    names = given_names(jit_parameters(jit_fn), len(args))
    # an undeclared number is part of the program's text, not an argument
    present = {p.name for p in program.parameters}
    passed = [arg for name, arg in zip(names, args) if name in present]
    return program(*passed, config=config), program, names


def compile(  # noqa: A001
    jit_fn: Any, args: Sequence[object], config: RunConfig | None = None
) -> CompiledProgram:
    """`kernel.compile(*args)`: the program for the shapes and types of these arguments."""
    program = jit_fn.specialize(*_examples(jit_fn, args))
    jit_fn.compiled[id(program)] = made = compiled_program(program, config)
    return made


def _examples(jit_fn: Any, args: Sequence[Any]) -> list[object]:
    """The arguments that decide the specialization, with `pl.Out` ones added if left out."""
    params = jit_parameters(jit_fn)
    if not args and all(p.type is not None or p.default is not None for p in params):
        return []
    left_out = [p for p in params if p.is_pure_output]
    named = params if len(args) == len(params) else [p for p in params if p not in left_out]
    seen = [adopt_argument(p, a) for p, a in zip(named, args)] if len(args) == len(named) else args
    plain = [a.item() if _is_number(a) else a for a in seen]
    if len(plain) == len(params) - len(left_out) and all(_is_static(p.type) for p in left_out):
        values = iter(plain)
        plain = [example(p.type) if p in left_out else next(values) for p in params]
    if len(plain) != len(params):
        raise ArgumentCount(jit_fn.name, len(args), [p.name for p in params], params[0].loc)
    check_arguments(params, plain)
    return plain


def example(type_: Any) -> Any:
    """Return an array of this shape and type that takes no memory: one broadcast element."""
    return np.broadcast_to(np.zeros((), type_.dtype.numpy), type_.shape)


def _is_number(value: Any) -> bool:
    return isinstance(value, np.generic) or (is_array(value) and value.ndim == 0)


def _is_static(type_: object) -> bool:
    return isinstance(type_, TensorType) and all(isinstance(d, int) for d in type_.shape)


def lower(jit_fn: object, args: Sequence[object]) -> Program:
    """`kernel.lower(*args)`: the IR after all passes."""
    return compile(jit_fn, args).program


def compiled_program(program: Program, config: RunConfig | None = None) -> CompiledProgram:
    """The program after all passes, compiled at most once."""
    ranks = config.distributed_config if config is not None else None
    key = id(program), () if ranks is None else tuple(ranks.device_ids)
    known = _COMPILED.get(key)
    now = session.current()
    folder = now.dump_folder(now.run_directory(program.name, config), config)
    if known is not None and folder is None:
        return known[1]
    result = compile_program(program, folder, config, now=now)
    _COMPILED[key] = (program, result)
    return result
