"""Check the invariants of the IR; a violation is a bug in Tilelet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.ir import structure
from tilelet.ir.core import (
    Arg,
    Block,
    Function,
    FunctionKind,
    Op,
    Program,
    Value,
    scalar_dtype,
)
from tilelet.ir.spec import Call, Plane
from tilelet.ir.types import BOOL, TASK_ID, ScalarType, TensorType, TileType, Type, types_agree
from tilelet.ir.views import CallView, ForView, ScopeView, yielded_values


def verify(program: Program) -> None:
    """Raise `InternalError` at the first op that violates an invariant."""
    if program.entry not in program.functions:
        raise InternalError(f"the program has no function `{program.entry}`")
    defined: set[Value] = set()
    for name, fn in program.functions.items():
        if name != fn.name:
            raise InternalError(f"function `{fn.name}` is filed under `{name}`", name)
        _FunctionVerifier(program, fn, defined).run()


class _FunctionVerifier:
    """Checks one function; `_visible` holds the values in scope, `_defined` all values."""

    def __init__(self, program: Program, fn: Function, defined: set[Value]) -> None:
        self._program = program
        self._fn = fn
        self._defined = defined
        self._visible: set[Value] = set()
        self._op: Op | None = None

    def run(self) -> None:
        fn = self._fn
        if len(fn.directions) != len(fn.params):
            self._fail(f"{len(fn.params)} parameters, {len(fn.directions)} directions")
        if fn.body.params:
            self._fail("the body of a function has no block parameters")
        for p in fn.params:
            self._define(p)
        self._block(fn.body, structure.RETURN.name, in_scope=fn.kind is FunctionKind.InCore)

    def _fail(self, problem: str) -> None:
        op = self._op
        raise InternalError(
            problem, self._fn.name, _describe(op) if op else "", op.loc if op else self._fn.loc
        )

    # Values and blocks

    def _define(self, value: Value) -> None:
        if value in self._defined:
            self._fail(f"`{value}` is defined twice")
        self._defined.add(value)
        self._visible.add(value)

    def _block(self, block: Block, terminator: str, *, in_scope: bool) -> None:
        """Check a block; its values go out of scope at its end."""
        if not block.ops:
            self._fail("a block without a terminator")
        outside = self._visible
        self._visible = set(outside)
        for p in block.params:
            self._define(p)
        for op in block.ops:
            self._op = op
            last = op is block.ops[-1]
            if op.spec.terminator != last or (last and op.name != terminator):
                self._fail(f"expected `{terminator}`" if last else f"`{op.name}` ends a block")
            for v in op.operands:
                if v not in self._visible:
                    self._fail(f"`{v}` is used where it is not defined")
            self._check(op, in_scope=in_scope)
            self._op = op
            for r in op.results:
                self._define(r)
        self._visible = outside

    def _inner(self, op: Op, params: Sequence[Iterable[Type]], *, in_scope: bool) -> None:
        """Check the blocks of `op`, whose parameters must have these types."""
        if len(op.blocks) != len(params):
            self._fail(f"{len(op.blocks)} blocks instead of {len(params)}")
        for block, types in zip(op.blocks, params):
            self._op = op
            self._match("block parameter", [p.type for p in block.params], types)
            self._block(block, structure.YIELD.name, in_scope=in_scope)
        self._op = op

    # Ops

    def _check(self, op: Op, *, in_scope: bool) -> None:
        if not op.spec.structural:
            self._plain(op, in_scope=in_scope)
        elif op.name == "for":
            self._for(op, in_scope=in_scope)
        elif op.name == "while":
            self._while(op, in_scope=in_scope)
        elif op.name == "if":
            self._if(op, in_scope=in_scope)
        elif op.name == "scope":
            self._scope(ScopeView(op), in_scope=in_scope)
        elif op.name == "call":
            self._call(CallView(op), in_scope=in_scope)

    def _plain(self, op: Op, *, in_scope: bool) -> None:
        if op.blocks:
            self._fail("only structural ops have blocks")
        if op.spec.plane is Plane.SCOPE and not in_scope:
            self._fail("a compute op outside every scope")
        if op.spec.plane is Plane.CONTROL and in_scope:
            self._fail("an op of the control program inside a scope")
        try:
            types = op.spec.infer(Call(op.name, op.args, in_scope, op.loc))
        except UserError as problem:
            self._fail(f"type inference rejects the op: {problem.diagnostic.message}")
        else:
            self._match("result", [r.type for r in op.results], types)

    def _for(self, op: Op, *, in_scope: bool) -> None:
        loop = ForView(op)
        for bound in loop.bounds:
            dtype = scalar_dtype(bound)
            if dtype is None or not dtype.is_integer:
                self._fail("a loop bound is not an integer")
        carried = [r.type for r in op.results]
        self._carries(loop.init, carried, "initial value")
        self._inner(op, [[loop.index.type, *carried]], in_scope=in_scope)
        self._carries(yielded_values(loop.body), carried, "yielded value")

    def _while(self, op: Op, *, in_scope: bool) -> None:
        init = op.args["init"]
        assert isinstance(init, tuple)
        carried = [r.type for r in op.results]
        self._carries(init, carried, "initial value")
        self._inner(op, [carried, carried], in_scope=in_scope)
        cond, body = op.blocks
        self._carries(yielded_values(cond), [BOOL], "condition")
        self._carries(yielded_values(body), carried, "yielded value")

    def _if(self, op: Op, *, in_scope: bool) -> None:
        self._carries((op.args["cond"],), [BOOL], "condition")
        self._inner(op, [[], []], in_scope=in_scope)
        for block in op.blocks:
            self._carries(yielded_values(block), [r.type for r in op.results], "joined value")

    def _scope(self, scope: ScopeView, *, in_scope: bool) -> None:
        if in_scope:
            self._fail("a scope inside an in-core scope or kernel")
        self._task_id(scope.op, scope.has_task_id)
        params = [p.type for p in scope.body.params] if scope.kind == "spmd" else []
        if scope.kind == "spmd" and len(params) != 1:
            self._fail("an spmd scope has one block parameter, its index")
        self._inner(scope.op, [params], in_scope=scope.in_core)
        results = [r.type for r in scope.data_results]
        self._carries(yielded_values(scope.body), results, "yielded value", spill=scope.in_core)

    def _call(self, call: CallView, *, in_scope: bool) -> None:
        if in_scope:
            self._fail("a call inside an in-core scope or kernel")
        callee = self._program.functions.get(call.callee)
        if callee is None:
            self._fail(f"no function `{call.callee}`")
            return
        self._carries(call.operands, [p.type for p in callee.params], "operand")
        self._task_id(call.op, bool(call.op.args["task_id"]))
        self._carries(
            callee.returned, [r.type for r in call.data_results], "returned value", spill=True
        )

    def _task_id(self, op: Op, wanted: bool) -> None:
        if wanted and (not op.results or op.results[-1].type != TASK_ID):
            self._fail("the last result is not a task id")

    # Types

    def _carries(
        self, args: Sequence[Arg], types: Sequence[Type], what: str, *, spill: bool = False
    ) -> None:
        given = [_argument_type(a, t) for a, t in zip_longest(args, types)]
        self._match(what, given, types, spill=spill)

    def _match(
        self,
        what: str,
        have: Iterable[Type | None],
        want: Iterable[Type | None],
        *,
        spill: bool = False,
    ) -> None:
        for i, (a, b) in enumerate(zip_longest(have, want)):
            if spill and isinstance(a, TileType):
                a = TensorType(a.shape, a.dtype)
            if not _agree(a, b):
                self._fail(f"{what} {i} has type `{a}` where `{b}` is needed")


def _describe(op: Op) -> str:
    results = ", ".join(f"%{r.name}" for r in op.results)
    operands = ", ".join(f"%{v.name}" for v in op.operands)
    return f"{results} = {op.name}({operands})" if results else f"{op.name}({operands})"


def _argument_type(arg: Arg, wanted: Type | None) -> Type | None:
    """Return the type of an argument; a Python number has any scalar type that can hold it."""
    if isinstance(arg, Value):
        return arg.type
    if isinstance(arg, int | float) and isinstance(wanted, ScalarType):
        kinds = _HELD_BY[type(arg)]
        if wanted.dtype.kind in kinds:
            return wanted
    dtype = scalar_dtype(arg)
    return ScalarType(dtype) if dtype else None


_HELD_BY: dict[type, tuple[str, ...]] = {
    bool: ("bool",),
    int: ("int", "uint", "index", "float", "task"),
    float: ("float",),
}


def _agree(have: Type | None, want: Type | None) -> bool:
    return have is not None and want is not None and types_agree(have, want)
