"""A few lines to write IR by hand.

b = Build()
x = b.param("x", tensor([16, 128]))
(y,) = b.scope(lambda s: [s.op("exp", x=s.load(x, [16, 128], [0, 0]))])
run(b.program(y), x=array)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tilelet.ops  # noqa: F401
from tilelet import dtypes
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.interp.interpreter import Execution, Interpreter
from tilelet.ir import structure
from tilelet.ir.core import (
    Arg,
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
)
from tilelet.ir.spec import REGISTRY, Call, OpSpec, bind, expand
from tilelet.ir.types import ArrayType, ScalarType, TensorType, TileType, Type

FP32 = dtypes.FP32
_lines = itertools.count(1)

Body = Callable[..., Sequence[Arg]]


def tensor(shape: Sequence[Any], dtype: DType = FP32) -> TensorType:
    return TensorType(tuple(shape), dtype)


def index() -> ScalarType:
    return ScalarType(dtypes.INDEX)


def _listed(arg: Any) -> Any:
    return tuple(_listed(a) for a in arg) if isinstance(arg, list | tuple) else arg


class Build:
    """Collects the ops of one block."""

    def __init__(self, in_scope: bool = False) -> None:
        self.in_scope = in_scope
        self.ops: list[Op] = []
        self.params: list[Value] = []

    def param(self, name: str, type_: Type) -> Value:
        self.params.append(Value(name, type_))
        return self.params[-1]

    def add(self, spec: Any, args: dict[str, Any], results: Sequence[Value], blocks=()) -> Op:
        args = {k: _listed(v) for k, v in args.items()}
        op = Op(spec, args, tuple(results), tuple(blocks), Loc("kernel.py", next(_lines)))
        self.ops.append(op)
        return op

    def op(self, op_name: str, *, result: str = "", **named: Any) -> Any:
        """Append an op by name; its defaults and types come from its own definition."""
        spec = REGISTRY[op_name]
        return self._op(spec, bind(spec, **named), result)

    def _op(self, spec: OpSpec, given: Mapping[str, Any], result: str = "") -> Any:
        args = {k: _listed(v) for k, v in given.items()}
        types = spec.infer(Call(spec.name, args, self.in_scope))
        if spec.expands is not None:
            return expand(spec, args, self._op)
        name = result or spec.name.rsplit(".", 1)[-1]
        op = self.add(spec, args, [Value(name, t) for t in types])
        return op.results[0] if len(op.results) == 1 else op.results

    def window(self, x: Value, shape: Sequence[Any], offset: Sequence[Any], **named: Any) -> Value:
        """A view in the control program, a load in a scope."""
        return self.op("slice", x=x, shape=shape, offset=offset, **named)

    def whole(self, x: Value) -> Value:
        assert isinstance(x.type, TensorType | TileType)
        return self.window(x, x.type.shape, [0] * len(x.type.shape))

    def put(self, target: Value, source: Value, offset: Sequence[Any], **named: Any) -> Value:
        return self.op(
            "assemble", target=target, source=source, offset=offset, result=target.name, **named
        )

    def inner(self, in_scope: bool | None = None) -> Build:
        return Build(self.in_scope if in_scope is None else in_scope)

    def block(self, params: Sequence[Value], values: Sequence[Arg], end=structure.YIELD) -> Block:
        self.add(end, {"values": tuple(values)}, ())
        return Block(tuple(params), tuple(self.ops))

    # Structural ops; a body gets the inner builder and its parameters, and returns its results

    def for_(self, stop: Any, body: Body, init: Sequence[Value] = (), start=0, step=1) -> Any:
        inner = self.inner()
        i = Value("i", index())
        carried = [Value(v.name, v.type) for v in init]
        yields = body(inner, i, *carried)
        args = {"start": start, "stop": stop, "step": step, "init": tuple(init)}
        args |= {"kind": "range", "chunk": None, "policy": "leading_full", "stage": None}
        results = [Value(v.name, v.type) for v in init]
        block = inner.block([i, *carried], yields)
        return self.add(structure.FOR, args, results, [block]).results

    def while_(self, cond: Body, body: Body, init: Sequence[Value]) -> Any:
        blocks = []
        for make in (cond, body):
            inner = self.inner()
            carried = [Value(v.name, v.type) for v in init]
            blocks.append(inner.block(carried, make(inner, *carried)))
        results = [Value(v.name, v.type) for v in init]
        return self.add(structure.WHILE, {"init": tuple(init)}, results, blocks).results

    def if_(self, cond: Arg, then: Body, orelse: Body) -> Any:
        blocks, types = [], []
        for make in (then, orelse):
            inner = self.inner()
            values = make(inner)
            types = [v.type if isinstance(v, Value) else index() for v in values]
            blocks.append(inner.block([], values))
        results = [Value("joined", t) for t in types]
        return self.add(structure.IF, {"cond": cond}, results, blocks).results

    def scope(self, body: Body, kind: str = "incore", count: Any = None, **options: Any) -> Any:
        in_core = kind in structure.IN_CORE_KINDS
        inner = self.inner(in_scope=in_core)
        params = [Value("block", index())] if kind == "spmd" else []
        values = body(inner, *params)
        defaults = {"kind": kind, "hint": None, "split": None, "count": count, "deps": ()}
        defaults |= {"no_dep": (), "options": (), "task_id": False}
        args = {**defaults, **options}
        results = [Value(_name(v), _in_memory(v)) for v in values]
        if args["task_id"]:
            results.append(Value("tid", ScalarType(dtypes.TASK_ID)))
        return self.add(structure.SCOPE, args, results, [inner.block(params, values)]).results

    def call(self, callee: Function, operands: Sequence[Arg], **options: Any) -> Any:
        defaults = {"deps": (), "no_dep": (), "predicate": None, "count": None, "task_id": False}
        args = {"callee": callee.name, "operands": tuple(operands), **defaults, **options}
        results = [Value(_name(v), _in_memory(v)) for v in callee.returned]
        if args["task_id"]:
            results.append(Value("tid", ScalarType(dtypes.TASK_ID)))
        return self.add(structure.CALL, args, results).results

    def undef(self, type_: Type) -> Value:
        return self.add(structure.UNDEF, {}, [Value("undefined", type_)]).result

    def function(
        self,
        name: str,
        *returned: Arg,
        kind: FunctionKind = FunctionKind.InCore,
        directions: Sequence[Direction] | None = None,
    ) -> Function:
        body = self.block([], returned, structure.RETURN)
        said = tuple(directions or [Direction.In] * len(self.params))
        return Function(name, kind, tuple(self.params), said, body)

    def program(self, *returned: Arg, kernels: Sequence[Function] = ()) -> Program:
        main = self.function("main", *returned, kind=FunctionKind.Orchestration)
        return Program("P", {f.name: f for f in (main, *kernels)}, "main")


def kernel() -> Build:
    """A builder for the body of an InCore function."""
    return Build(in_scope=True)


def _name(value: Arg) -> str:
    return value.name if isinstance(value, Value) else "constant"


def _in_memory(value: Arg) -> Type:
    if not isinstance(value, Value):
        return index()
    if isinstance(value.type, TileType):
        return TensorType(value.type.shape, value.type.dtype)
    assert isinstance(value.type, TensorType | ScalarType | ArrayType)
    return value.type


def run(program: Program, execute: bool = True, seed_valid: bool = False, **arguments) -> Execution:
    interpreter = Interpreter(seed_valid=seed_valid)
    return interpreter.run(program, arguments, execute=execute)


def ramp(*shape: int, dtype: DType = FP32) -> np.ndarray:
    """1, 2, 3, ... in row-major order."""
    return (np.arange(np.prod(shape)) + 1).reshape(shape).astype(dtype.numpy)
