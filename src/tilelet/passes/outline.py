"""Turn every in-core scope into a kernel and a call; bring hand-written kernels into the same form.

The parameters of a kernel are the values that its body uses from outside, tensors before scalars,
each in the order of first use, followed by one hidden Out tensor per tile that leaves it. A kernel
returns exactly its Out and InOut parameters, in parameter order. A call site creates the hidden
tensors (`create_tensor`) just before the call. The block index of an `spmd` scope is not a
parameter: the kernel reads it with `get_block_idx`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilelet.analysis.aliases import Aliases, infer_directions, is_repeatable, is_tensor
from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.scopes import ScalarLeavesScope
from tilelet.diag.catalogue.unsupported import UnsupportedConstruct
from tilelet.diag.core import Loc
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
    values_in,
    walk,
)
from tilelet.ir.rebuild import (
    CALL_DEFAULTS,
    Builder,
    Rewriter,
    call_op,
    free_values,
    fresh_value,
    return_op,
    with_operands,
)
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import CallView, ScopeView, yielded_values


def outline(program: Program) -> Program:
    """Turn scopes into kernels; the functions that contained them become the control program."""
    functions = dict(program.functions)
    kernels = {
        fn.name: _finish_kernel(fn, functions)
        for fn in program.functions.values()
        if fn.kind is FunctionKind.InCore
    }
    functions.update({name: kernel.function for name, kernel in kernels.items()})
    for fn in program.functions.values():
        if fn.kind is not FunctionKind.InCore:
            outliner = _Outliner(fn, functions, kernels)
            kind = FunctionKind.Host if fn.kind is FunctionKind.Host else FunctionKind.Orchestration
            functions[fn.name] = replace(outliner.function(fn), kind=kind)
    return program.with_functions(functions)


# Kernels


@dataclass(frozen=True)
class _Kernel:
    """A kernel in its final form, with what its call sites need.

    hidden   positions of the hidden Out parameters, by the tile each receives
    results  the values to return to the caller, as named in the body
    """

    function: Function
    hidden: Mapping[Value, int]
    results: tuple[Arg, ...]
    aliases: Aliases

    @property
    def outputs(self) -> list[int]:
        return [i for i, d in enumerate(self.function.directions) if d is not Direction.In]


def _finish_kernel(fn: Function, functions: Mapping[str, Function]) -> _Kernel:
    """Store the results of `fn` into hidden parameters and return these in parameter order."""
    results = fn.returned
    store = Builder(fn.body.terminator.loc, in_scope=True)
    hidden: dict[Value, Value] = {}
    stored: dict[Value, Value] = {}
    for tile in dict.fromkeys(values_in(results)):
        if isinstance(tile.type, TileType):
            out = Value(tile.name, TensorType(tile.type.shape, tile.type.dtype), tile.loc)
            hidden[tile] = out
            zero = (0,) * len(tile.type.shape)
            stored[out] = store.emit("assemble", out, tile, zero, result=tile.name)
    params = (*fn.params, *hidden.values())
    ops = (*fn.body.ops[:-1], *store.ops, return_op((), fn.body.terminator.loc))
    body = Block((), ops)
    declared = (*fn.declared, *(None for _ in hidden)) if fn.declared else ()
    draft = replace(fn, params=params, body=body, declared=declared)
    aliases = Aliases(body, functions)
    directions = infer_directions(draft, functions, aliases)
    latest = dict(stored)
    for v in values_in(results):
        whole = aliases.whole(v) if is_tensor(v) else None
        if whole is not None:
            latest[whole] = v
    returned = [latest.get(p, p) for p, d in zip(params, directions) if d is not Direction.In]
    body = Block((), (*ops[:-1], return_op(returned, fn.body.terminator.loc)))
    position = {p: i for i, p in enumerate(params)}
    return _Kernel(
        replace(draft, directions=directions, body=body),
        {tile: position[out] for tile, out in hidden.items()},
        results,
        aliases,
    )


# The control program


class _Outliner(Rewriter):
    def __init__(
        self, fn: Function, functions: dict[str, Function], kernels: Mapping[str, _Kernel]
    ) -> None:
        super().__init__()
        self._name = fn.name
        self._functions = functions
        self._kernels = kernels
        self._count = 0
        self._first_use: dict[Value, Loc] = {}
        for op in walk(fn.body):
            for v in op.operands:
                self._first_use.setdefault(v, op.loc)

    def rewrite(self, op: Op) -> Sequence[Op]:
        if op.spec is structure.SCOPE and ScopeView(op).in_core:
            return self._scope(ScopeView(op), Rewriter(self.mapping), FunctionKind.InCore)
        if op.spec is structure.SCOPE and ScopeView(op).kind == "chip":
            return self._scope(ScopeView(op), self, FunctionKind.Orchestration)
        if op.spec is structure.CALL and CallView(op).callee in self._kernels:
            call = CallView(op)
            return self._call(self._kernels[call.callee], call.operands, op, call.data_results)
        return (self.descend(op),)

    def _scope(self, scope: ScopeView, inner: Rewriter, kind: FunctionKind) -> Sequence[Op]:
        """Outline a scope whose body `inner` rewrites, as a function of this kind."""
        op = scope.op
        body = inner.block(scope.body)
        ops = body.ops[:-1]
        handed_on = zip(scope.data_results, yielded_values(body))
        needed = {r: v for r, v in handed_on if r in self._first_use}
        inputs = _inputs(Block(body.params, ops))
        end = return_op(needed.values(), body.terminator.loc)
        kernel = self._kernel(scope, kind, Block(body.params, (*ops, end)), inputs)
        self._functions[kernel.function.name] = kernel.function
        position = {v: i for i, v in enumerate(inputs)}
        no_dep = tuple(position[v] for v in values_in((op.args["no_dep"],)) if v in position)
        launch = {**CALL_DEFAULTS, **op.args, "no_dep": no_dep}
        return self._call(kernel, inputs, replace(op, args=launch), tuple(needed))

    def _kernel(
        self, scope: ScopeView, kind: FunctionKind, body: Block, inputs: Sequence[Value]
    ) -> _Kernel:
        op = scope.op
        params = tuple(fresh_value(v) for v in inputs)
        start = Builder(op.loc, in_scope=True)
        inside: dict[Value, Arg] = dict(zip(inputs, params))
        if body.params:
            (index,) = body.params
            inside[index] = start.emit("get_block_idx", result=index.name)
        ops = (*start.ops, *Rewriter(inside).ops(body.ops))
        draft = Function(
            self._fresh_name(scope.hint, kind),
            kind,
            params,
            (Direction.In,) * len(params),
            Block((), ops),
            op.loc,
            split=scope.split,
            slots=scope.slots,
        )
        return _finish_kernel(draft, self._functions)

    def _fresh_name(self, hint: str | None, kind: FunctionKind) -> str:
        base = hint
        if base is None:
            level = "incore" if kind is FunctionKind.InCore else "chip"
            base = f"{self._name}_{level}_{self._count}"
            self._count += 1
        name, n = base, 0
        while name in self._functions:
            n += 1
            name = f"{base}_{n}"
        return name

    # Calls

    def _call(
        self, kernel: _Kernel, operands: Iterable[Arg], op: Op, results: Sequence[Value]
    ) -> Sequence[Op]:
        """Call `kernel` in place of `op`, whose data results are `results`."""
        b = Builder(op.loc)
        operands = list(operands)
        for tile in kernel.hidden:
            assert isinstance(tile.type, TileType)
            b.loc = tile.loc
            operands.append(
                b.emit("create_tensor", tile.type.shape, tile.type.dtype, result=tile.name)
            )
        b.loc = op.loc
        updated = self._updated_outputs(kernel, operands, results)
        task_id = op.results[-1:] if op.args["task_id"] else ()
        args = {k: op.args.get(k, default) for k, default in CALL_DEFAULTS.items()}
        name = kernel.function.name
        b.add(call_op(name, operands, (*updated.values(), *task_id), op.loc, **args))
        known: dict[Value, Arg] = dict(zip(kernel.function.params, operands))
        known.update({kernel.function.params[i]: v for i, v in updated.items()})
        recover = _Recovery(b, kernel, known)
        for result, value in zip(results, kernel.results):
            if result in self._first_use:
                self.mapping[result] = recover.value(value, result, self._first_use[result])
        return b.ops

    def _updated_outputs(
        self, kernel: _Kernel, operands: Sequence[Arg], results: Sequence[Value]
    ) -> dict[int, Value]:
        """Return a call result for each output parameter, named after the value it replaces."""
        params = kernel.function.params
        names: dict[Value, str] = {}
        for result, value in zip(results, kernel.results):
            if isinstance(value, Value):
                hidden = kernel.hidden.get(value)
                root = params[hidden] if hidden is not None else kernel.aliases.whole(value)
                if root is not None:
                    names.setdefault(root, result.name)
        made: dict[int, Value] = {}
        for i in kernel.outputs:
            operand = operands[i]
            assert isinstance(operand, Value)
            name = names.get(params[i], operand.name)
            made[i] = Value(name, operand.type, operand.loc)
        return made


def _inputs(block: Block) -> list[Value]:
    """Return the values that the block uses from outside: tensors, then scalars."""
    free = free_values(block)
    return [v for v in free if is_tensor(v)] + [v for v in free if not is_tensor(v)]


class _Recovery:
    """Expresses the results of a kernel at its call site by operands and call results."""

    def __init__(self, b: Builder, kernel: _Kernel, known: dict[Value, Arg]) -> None:
        self._b = b
        self._kernel = kernel
        self._known = known  # by kernel value

    def value(self, value: Arg, result: Value, use: Loc) -> Arg:
        """Return the call site's name for `value`, which the program calls `result` and uses at
        `use`.
        """
        found = self._find(value)
        if found is not None or value is None:
            return found
        if isinstance(result.type, ScalarType):
            raise ScalarLeavesScope(use, result.name, result.loc)
        raise UnsupportedConstruct(
            result.loc,
            f"`{result.name}`, which is one of several tensors when its scope ends,",
            "bind each tensor to a separate name after the scope",
        )

    def _find(self, value: Arg) -> Arg:
        """Return `value` at the call site, or None if it is not available there."""
        if not isinstance(value, Value):
            return value
        if value not in self._known:
            found = self._again(value)
            if found is None:
                return None
            self._known[value] = found
        return self._known[value]

    def _again(self, value: Value) -> Arg:
        kernel = self._kernel
        if value in kernel.hidden:
            return self._find(kernel.function.params[kernel.hidden[value]])
        if is_tensor(value):
            whole = kernel.aliases.whole(value)
            if whole is not None and whole is not value:
                return self._find(whole)
        op = kernel.aliases.definition.get(value)
        if op is None:
            return None
        if op.spec is structure.IF:
            return self._join(op, op.results.index(value))
        repeatable = is_repeatable(op, self._written_params(), kernel.aliases)
        if not repeatable and op.spec is not structure.UNDEF:
            return None
        mapping: dict[Value, Arg] = {}
        for v in op.operands:
            found = self._find(v)
            if found is None:
                return None
            mapping[v] = found
        again = replace(with_operands(op, mapping), results=(fresh_value(value),))
        return self._b.add(again).result

    def _join(self, op: Op, at: int) -> Arg:
        """Return a tensor or scalar defined by one of two arms, if both are known outside."""
        cond = self._find(op.args["cond"])
        arms = [self._find(yielded_values(block)[at]) for block in op.blocks]
        if cond is None or None in arms:
            return None
        then, otherwise = arms
        return self._b.branch(cond, (self._b.inside(), (then,)), (self._b.inside(), (otherwise,)))[
            0
        ]

    def _written_params(self) -> set[Value]:
        return {self._kernel.function.params[i] for i in self._kernel.outputs}
