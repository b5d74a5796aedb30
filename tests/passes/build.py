"""Hand-built IR for the pass tests: loops of every kind, and checks of results."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.interp.build import Body, Build, index, run

from tilelet.ir import structure
from tilelet.ir.core import Block, Function, FunctionKind, Program, Value, walk
from tilelet.ir.printer import print_function
from tilelet.ir.verify import verify
from tilelet.ir.views import ForView, ScopeView


class Source(Build):
    """A builder whose loops take a kind and a chunk."""

    def inner(self, in_scope: bool | None = None) -> Source:
        return Source(self.in_scope if in_scope is None else in_scope)

    def loop(
        self,
        bounds: Sequence[Any],
        body: Body,
        init: Sequence[Value] = (),
        *,
        name: str = "i",
        kind: str = "parallel",
        chunk: int | None = None,
        policy: str = "leading_full",
    ) -> Any:
        """Return `bounds` as in `pl.range`: stop, or start and stop, or start, stop and step."""
        start, stop, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: tuple(bounds)}[len(bounds)]
        inner = self.inner()
        i = Value(name, index())
        carried = [Value(v.name, v.type) for v in init]
        block = inner.block([i, *carried], body(inner, i, *carried))
        args = {"start": start, "stop": stop, "step": step, "init": tuple(init), "kind": kind}
        args |= {"chunk": chunk, "policy": policy, "stage": None}
        return self.add(structure.FOR, args, [Value(v.name, v.type) for v in init], [block]).results

    def scalar(self, name: str, *operands: Any, result: str = "") -> Value:
        names = ("lhs", "rhs") if len(operands) == 2 else ("x",)
        return self.op(f"scalar.{name}", result=result, **dict(zip(names, operands)))

    def opaque(self, *returned: Any, kernels: Sequence[Function] = ()) -> Program:
        """Return a verified program whose entry has these ops, as the frontend leaves it."""
        program = self.program(*returned, kernels=kernels)
        main = replace(program.main, kind=FunctionKind.Opaque)
        program = program.with_functions({**program.functions, "main": main})
        verify(program)
        return program


def apply(program: Program, *passes: Callable[[Program], Program]) -> Program:
    """Return the program after these passes, verified after each."""
    for one in passes:
        program = one(program)
        verify(program)
    return program


def text(program: Program, function: str = "main") -> str:
    return print_function(program.functions[function])


def expected(written: str) -> str:
    return textwrap.dedent(written).lstrip("\n")


def static_tasks(block: Block) -> int:
    """Number of tasks of a control program whose loops have constant bounds."""
    total = 0
    for op in block.ops:
        if op.spec is structure.FOR:
            trips = ForView(op).trip_count
            assert trips is not None
            total += trips * static_tasks(op.blocks[0])
        elif op.spec is structure.CALL or (op.spec is structure.SCOPE and ScopeView(op).in_core):
            total += 1
        else:
            total += sum(static_tasks(b) for b in op.blocks)
    return total


def count_ops(program: Program, name: str, function: str = "main") -> int:
    return sum(op.name == name for op in walk(program.functions[function].body))


def results(program: Program, **arguments: Any) -> dict[str, np.ndarray]:
    """Return the arrays after a run on copies of `arguments`."""
    own = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    run(program, **own)
    return {k: v for k, v in own.items() if isinstance(v, np.ndarray)}


def same_results(before: Program, after: Program, **arguments: Any) -> None:
    """Assert that both programs leave the same bits in every argument."""
    want, got = results(before, **copy.copy(arguments)), results(after, **arguments)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
