"""Scopes and calls: each execution of an in-core one is a task, which is recorded and run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tilelet.analysis.aliases import Aliases, infer_directions, is_tensor
from tilelet.diag.catalogue.windows import BlockCount, DependsOnTaskData
from tilelet.interp.lowering import Frame, Getter, Lowering, Step, lowers
from tilelet.interp.movement import read_element
from tilelet.interp.state import State
from tilelet.ir.core import (
    Arg,
    Block,
    Direction,
    Function,
    FunctionKind,
    Op,
    Value,
    values_in,
)
from tilelet.ir.rebuild import free_values
from tilelet.ir.types import ScalarType, TileType
from tilelet.ir.views import CallView, ScopeView, yielded_values
from tilelet.tasks.control_points import ControlTrace
from tilelet.tasks.stream import TaskGroup, TaskKind, picker
from tilelet.tasks.window import TileValue

Values = tuple[Any, ...]

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@lowers("scope")
def lower_scope(low: Lowering, op: Op) -> Step:
    return _in_core_scope(low, op) if ScopeView(op).in_core else _grouping_scope(low, op)


def _grouping_scope(low: Lowering, op: Op) -> Step:
    state = low.state
    code = low.block(op.blocks[0])
    results = low.define(op.results)
    manual = 1 if ScopeView(op).kind == "manual" else 0

    def step(frame: Frame) -> None:
        state.manual_depth += manual
        frame[results] = code.run(frame)
        state.manual_depth -= manual

    return step


def _in_core_scope(low: Lowering, op: Op) -> Step:
    view, state = ScopeView(op), low.state
    free = free_values(Block(view.body.params, view.body.ops[:-1]))
    # In the order of the future kernel's parameters: tensors, scalars, spilled results.
    inputs = [v for v in free if is_tensor(v)] + [v for v in free if not is_tensor(v)]
    draft = Function("", FunctionKind.InCore, tuple(inputs), (), view.body, op.loc)
    no_dep = tuple([inputs.index(v) for v in values_in((op.args["no_dep"],)) if v in inputs])
    directions = infer_directions(draft, state.functions)
    kernel = low.kernel_name(view.hint)
    kind = TaskKind(kernel, directions, no_dep, loc=op.loc)
    submit = Submission(low, op, kind, yielded_values(view.body))
    taken = low.get(tuple(inputs))
    index = low.define(view.body.params)
    predicate = _predicate(low, op)
    if not state.execute:
        body = skipped = Sketch(low, view.body, view.data_results).run
    else:
        # The results if the task does not run; lowered before the body, whose values they must not
        # use.
        conditional = op.args.get("predicate") is not None
        skipped = Sketch(low, view.body, view.data_results).run if conditional else None
        body = low.block(view.body).run

    def run(frame: Frame, blocks: int | None) -> Values:
        if blocks is None:
            return body(frame)
        values: Values = ()
        for block in state.each_block(blocks if state.execute else 1):
            # `with pl.spmd(n)` has no index variable.
            frame[index] = (block,) * len(view.body.params)
            values = body(frame)
        return values

    def step(frame: Frame) -> None:
        blocks = submit.block_count(frame)
        ran = predicate(frame)
        values = skipped(frame) if skipped is not None and not ran else run(frame, blocks)
        submit.finish(frame, taken(frame), values, blocks, ran)

    return step


@lowers("call")
def lower_call(low: Lowering, op: Op) -> Step:
    view, state = CallView(op), low.state
    callee = state.functions[view.callee]
    operands = low.get(view.operands)
    if callee.kind is not FunctionKind.InCore:
        results = low.define(op.results)

        def call(frame: Frame) -> None:
            frame[results] = state.code(callee.name).run(operands(frame))

        return call

    positions = op.args["no_dep"] or ()
    assert isinstance(positions, tuple)
    no_dep = tuple([p for p in positions if isinstance(p, int)])
    directions = state.directions(callee)
    kind = TaskKind(callee.name, directions, no_dep, loc=op.loc)
    submit = Submission(low, op, kind, callee.returned)
    sketch = CalleeSketch(state, callee, view.data_results)
    predicate = _predicate(low, op)

    def step(frame: Frame) -> None:
        arguments = operands(frame)
        blocks = submit.block_count(frame)
        ran = predicate(frame)
        if state.runs_kernels and ran:
            values, outcomes = state.run_kernel(callee.name, arguments, blocks)
            submit.finish(frame, arguments, values, blocks, ran, outcomes)
        else:
            submit.finish(frame, arguments, sketch.run(arguments), blocks, ran)

    return step


class Submission:
    """Records a task after its scope or call has run.

    A tile among its values (`returned` says which are) is spilled to new global memory, which
    counts as one more argument, written by the task.
    """

    def __init__(
        self,
        low: Lowering,
        op: Op,
        kind: TaskKind,
        returned: Sequence[Arg],
    ) -> None:
        self._results = low.define(op.results)
        self._state = low.state
        tiles = {
            i: arg
            for i, arg in enumerate(returned)
            if isinstance(arg, Value) and isinstance(arg.type, TileType)
        }
        # A tile that is returned twice is one buffer, at its first position.
        self._first = {i: returned.index(tile) for i, tile in tiles.items()}
        self._spilled = list(dict.fromkeys(self._first.values()))
        spilled = (Direction.Out,) * len(self._spilled)
        self._kind = replace(kind, directions=(*kind.directions, *spilled))
        self._deps = low.get(op.args["deps"])
        count = op.args["count"]
        self._count = None if count is None else low.slot(count)
        self._has_id = bool(op.args["task_id"])
        self._group: TaskGroup | None = None
        self._named = op.results

    def block_count(self, frame: Frame) -> int | None:
        if self._count is None:
            return None
        count = frame[self._count]
        if count < 1:
            raise BlockCount(self._kind.loc, count)
        return count

    def finish(
        self,
        frame: Frame,
        arguments: Values,
        values: Values,
        blocks: int | None,
        ran: bool | None,
        outcomes: tuple[ControlTrace, ...] = (),
    ) -> None:
        """Record the task and pass on its values."""
        if self._spilled:
            in_memory = list(values)
            for i in self._spilled:
                if type(values[i]) is TileValue:
                    in_memory[i] = self._state.spill(self._named[i], values[i])
            for i, first in self._first.items():
                in_memory[i] = in_memory[first]
            values = tuple(in_memory)
            arguments = (*arguments, *[values[i] for i in self._spilled])
        group = self._group_of(arguments, blocks, ran)
        if any(outcomes):
            group.outcomes[len(group)] = outcomes
        index = self._state.submit(group, arguments, flat_deps(self._deps(frame)))
        frame[self._results] = (*values, index) if self._has_id else values

    def _group_of(self, arguments: Values, blocks: int | None, ran: bool | None) -> TaskGroup:
        """Return the group of a task, usually that of the previous task."""
        manual, group = self._state.manual_depth > 0, self._group
        kind = self._kind if group is None else group.kind
        if (
            group is None
            or kind.ran is not ran
            or kind.blocks != blocks
            or kind.manual is not manual
        ):
            kind = replace(self._kind, ran=ran, blocks=blocks, manual=manual)
            group = self._group = self._state.tasks.group(kind, arguments)
        return group


def flat_deps(deps: Sequence[Any]) -> tuple[int, ...]:
    """Flatten `deps=` (ids and arrays of ids) into ids, dropping None and `NO_TASK`."""
    if not deps:
        return ()
    found: list[int] = []
    for dep in deps:
        if isinstance(dep, tuple):
            found += flat_deps(cast("tuple[Any, ...]", dep))
        elif dep is not None and dep >= 0:
            found.append(dep)
    return tuple(dict.fromkeys(found))


def _predicate(low: Lowering, op: Op) -> Callable[[Frame], bool | None]:
    """Return whether a task runs: True, False, or None if it depends on data not computed."""
    predicate, loc, state = op.args.get("predicate"), op.loc, low.state
    if predicate is None:
        return lambda _: True
    assert isinstance(predicate, tuple)
    tensor, indices, comparison, literal = predicate
    assert isinstance(comparison, str)
    window, at, limit = low.slot(tensor), low.get(indices), low.slot(literal)
    compare = COMPARISONS[comparison]

    def outcome(frame: Frame) -> bool | None:
        if not frame[window].buffer.known:
            return None
        value = read_element(state, frame[window], at(frame), loc)
        return bool(compare(value, frame[limit]))

    return outcome


class Sketch:
    """The results of an in-core block without running it.

    A yielded tile becomes new memory with unknown contents. A yielded tensor is an operand of the
    block or a view of one, and a yielded scalar is computed from scalars: the few ops that compute
    them are run.
    """

    def __init__(self, low: Lowering, block: Block, results: Sequence[Value]) -> None:
        self._low = low
        self._aliases = Aliases(block, low.state.functions)
        self._steps: list[Step] = []
        self._parts = [self._part(arg, r) for arg, r in zip(yielded_values(block), results)]

    def run(self, frame: Frame) -> Values:
        for step in self._steps:
            step(frame)
        return tuple([part(frame) for part in self._parts])

    def _part(self, arg: Arg, result: Value) -> Getter:
        if not isinstance(arg, Value):
            return self._low.get(arg)
        if isinstance(arg.type, TileType):
            shape, dtype, state = arg.type.shape, arg.type.dtype, self._low.state
            return lambda _: state.unwritten(result, shape, dtype)
        if self._find(arg):
            return self._low.get(arg)

        def unknown(_: Frame) -> Any:
            raise DependsOnTaskData(arg.loc, result.name)

        return unknown

    def _find(self, value: Value) -> bool:
        """Give `value` a slot that is filled without running the block, if possible."""
        if self._low.has(value):
            return True
        end = self._aliases.end(value) if is_tensor(value) else None
        if end is not None and end is not value:
            found = self._find(end)
            if found:
                self._low.alias(value, end)
            return found
        op = self._aliases.definition.get(value)
        if op is None or op.blocks:
            return False
        cheap = isinstance(value.type, ScalarType) or (is_tensor(value) and bool(op.spec.view))
        if not cheap or not all(self._find(operand) for operand in op.operands):
            return False
        self._steps.append(self._low.op(op))
        return True


class CalleeSketch:
    """The `Sketch` of a function, built on first use."""

    def __init__(self, state: State, callee: Function, results: Sequence[Value]) -> None:
        self._low = Lowering(state, callee)
        self._results = results
        self._run: Callable[[Values], Values] | None = None

    def run(self, arguments: Values) -> Values:
        if self._run is None:
            self._run = self._parameters() or self._sketch()
        return self._run(arguments)

    def _parameters(self) -> Callable[[Values], Values] | None:
        """Handle the common case: the function returns only its parameters."""
        function = self._low.function
        at = {param: i for i, param in enumerate(function.params)}
        aliases = Aliases(function.body, self._low.state.functions)
        positions: list[int] = []
        for arg in function.returned:
            whole = aliases.whole(arg) if isinstance(arg, Value) and is_tensor(arg) else None
            if whole not in at:
                return None
            positions.append(at[whole])
        return picker(positions)

    def _sketch(self) -> Callable[[Values], Values]:
        low, function = self._low, self._low.function
        params = low.define(function.params)
        sketch = Sketch(low, function.body, self._results)

        def run(arguments: Values) -> Values:
            frame = low.template.copy()
            frame[params] = arguments
            return sketch.run(frame)

        return run
