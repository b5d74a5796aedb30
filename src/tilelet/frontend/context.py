"""The state of lowering one function body, and the primitives that all rules use."""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Generator, Mapping

from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.names import UndefinedName, UsedAfterAssemble
from tilelet.diag.core import Loc, Sink
from tilelet.frontend.bindings import Binding, Poison, ValueFacts, close_names
from tilelet.frontend.compile_time import PYTHON, Python
from tilelet.frontend.functions import Style
from tilelet.frontend.module_state import ModuleState
from tilelet.frontend.nameflow import NameFlow
from tilelet.frontend.source import SourceFile
from tilelet.ir.core import Arg, Block, FunctionKind, Op, Value
from tilelet.ir.rebuild import yield_op
from tilelet.ir.spec import OpSpec
from tilelet.ir.types import SymDim, Type


@dataclass
class CorePart:
    """The ops of one function of a core group."""

    name: str
    ops: list[Op]


@dataclass(frozen=True)
class Lane:
    """The running vector lane in `for lane in pl.split_aiv(2, mode=...)`."""

    mode: str
    index: Binding
    # Tiles that earlier lanes have gathered, by the gathering call.
    gathered: dict[ast.Call, Value] = field(default_factory=dict[ast.Call, Value])


@dataclass
class Context:
    """One function body (or inlined body) being lowered."""

    module: ModuleState
    source: SourceFile
    captured: Mapping[str, object]
    flow: NameFlow
    style: Style
    facts: ValueFacts
    env: dict[str, Binding] = field(default_factory=dict[str, Binding])
    ops: list[Op] = field(default_factory=list[Op])
    in_scope: bool = False
    in_chunked: bool = False  # in an auto scope with chunk loops, outside its in-core parts
    chunk_ok: bool = False  # in an auto scope, where loops accept `chunk=`
    # Name and split of the kernels of an auto scope without chunk loops.
    runs_of: tuple[str | None, str | None] = (None, None)
    scope_loc: Loc | None = None
    blocks: int | None = 1  # number of blocks of the scope, if known
    caller: Loc | None = None
    # Values that were assembled into and must not be read again: value -> (where, new value).
    consumed: dict[Value, tuple[Loc, Value]] = field(
        default_factory=dict[Value, "tuple[Loc, Value]"]
    )
    # Known `pl.dynamic` symbols: an int, or where to read the extent (tensor, axis).
    dims: dict[SymDim, Binding] = field(default_factory=dict[SymDim, Binding])
    # Output parameters by name, to check that they are not rebound without a write.
    outputs: dict[str, Value] = field(default_factory=dict[str, Value])
    # Values of `pl.yield_` in the innermost explicit loop; None elsewhere.
    loop_yield: list[tuple[Binding, ...]] | None = None
    # Whether the loop body itself has a `pl.yield_`: one in a branch then merges the branch.
    yields_itself: bool = False
    returned: tuple[Binding, ...] | None = None
    # How two vector cores share the scope, and which of them runs if the text distinguishes them.
    split: str | None = None
    lane: Lane | None = None
    # Barriers between the blocks of this kernel.
    barriers: list[Op] = field(default_factory=list[Op])
    # The parts of the cores, in a function of type Group; None elsewhere.
    parts: list[CorePart] | None = None
    kind: FunctionKind = FunctionKind.Opaque  # of the function, also in inlined bodies
    host: Python = PYTHON  # evaluates compile-time Python in the text

    @property
    def sink(self) -> Sink:
        return self.module.sink

    def loc(self, node: ast.AST) -> Loc:
        return self.source.loc(node, self.caller)

    def fork(self, **changes: object) -> Context:
        """Return this context with other fields; names and ops stay shared."""
        new = copy.copy(self)  # faster than `replace`: a context has many fields
        vars(new).update(changes)
        return new

    def nested(self, **changes: object) -> Context:
        """Return the context of an inner block, with names and ops of its own."""
        return self.fork(env=dict(self.env), ops=list[Op](), loop_yield=None, **changes)

    def nested_scope(self, loc: Loc, **changes: object) -> Context:
        """Return the context of an in-core scope that starts at `loc`."""
        return self.nested(in_scope=True, scope_loc=loc, in_chunked=False, **changes)

    @contextlib.contextmanager
    def on_trial(self) -> Generator[Context, None, None]:
        """Yield a context that affects this one only through `adopt`.

        Facts about values are shared: facts about values of a dropped trial are never used.
        """
        trial = self.fork(
            module=self.module.fork(), consumed=dict(self.consumed), barriers=list(self.barriers)
        )
        try:
            yield trial
        except Exception:
            self.adopt(trial)
            raise

    def adopt(self, trial: Context) -> None:
        """Take over everything that a trial noted."""
        self.module.adopt(trial.module)
        self.consumed.update(trial.consumed)
        self.barriers[:] = trial.barriers

    def adopt_mistakes(self, trial: Context) -> None:
        """Take over the diagnostics of a dropped trial, if there is an error among them."""
        if trial.sink.errors:
            self.sink.diagnostics = trial.sink.diagnostics

    def lookup(self, node: ast.Name) -> Binding:
        """Return what a name stands for; raise if it is undefined or must not be read."""
        name = node.id
        if name in self.env:
            found = self.env[name]
            if isinstance(found, Poison):
                found.raise_at(self.loc(node))
            if isinstance(found, Value) and found in self.consumed:
                where, new = self.consumed[found]
                raise UsedAfterAssemble(self.loc(node), name, where, new.name)
            return found
        if name in self.captured:
            return self.captured[name]
        try:
            return self.host.builtin(name)
        except AttributeError:
            known = close_names(name, [*self.env, *self.captured])
            raise UndefinedName(self.loc(node), name, known) from None

    def emit(
        self,
        spec: OpSpec,
        args: Mapping[str, Arg],
        types: tuple[Type, ...],
        loc: Loc,
        names: tuple[str, ...] = (),
        blocks: tuple[Block, ...] = (),
    ) -> tuple[Value, ...]:
        """Append an op; its results are new values named after `names`."""
        results = tuple(
            Value(names[i] if i < len(names) else spec.name.rsplit(".", 1)[-1], t, loc)
            for i, t in enumerate(types)
        )
        self.ops.append(Op(spec, args, results, blocks, loc))
        return results

    def rename_result(self, value: Value, name: str) -> Value:
        """Rename a result of the latest op, which has no uses yet."""
        op = self.ops[-1]
        new = Value(name, value.type, value.loc)
        results = tuple(new if r is value else r for r in op.results)
        self.ops[-1] = replace(op, results=results)
        self.facts.note_renamed(new, value)
        for operand in op.operands:
            where, successor = self.consumed.get(operand, (None, None))
            if where is not None and successor is value:
                self.consumed[operand] = (where, new)
        if self.loop_yield:  # `acc = pl.yield_(pl.add(acc, x))`
            self.loop_yield[:] = [
                tuple(new if b is value else b for b in y) for y in self.loop_yield
            ]
        if self.lane is not None:  # `whole = pl.aic_gather(half)`
            gathered = self.lane.gathered
            gathered.update({call: new for call, v in gathered.items() if v is value})
        return new


def finish_block(
    ops: list[Op], params: tuple[Value, ...], values: tuple[Arg, ...], loc: Loc
) -> Block:
    """Close an inner block with its yield."""
    return Block(params, (*ops, yield_op(values, loc)))
