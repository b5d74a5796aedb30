"""Count tasks without recording them; uniform loops run only their first and last iteration.

A loop is uniform if neither its index, nor anything derived from it, nor data affects what is
submitted. The first iteration counts for all but the last; the last one is run so that mistakes
that occur only at large indices, such as an empty tensor, are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilelet.dtypes import TASK_ID
from tilelet.interp.control import for_step
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Lowering, Step
from tilelet.ir.core import Arg, Block, Function, FunctionKind, Op, Program, Value
from tilelet.ir.types import ArrayType, ScalarType, TensorType
from tilelet.ir.views import CallView, ForView
from tilelet.tasks.arguments import Argument
from tilelet.tasks.stream import TaskGroup, TaskStream


class CountedTasks(TaskStream):
    """A task list that only counts; each task added counts `weight` times."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1
        self._numbers: Counter[TaskGroup] = Counter()

    def add(self, group: TaskGroup, values: Sequence[object], deps: tuple[int, ...] = ()) -> int:
        del values, deps
        self._numbers[group] += self.weight
        return self.count()

    def number(self, group: TaskGroup) -> int:
        return self._numbers[group]


def count_tasks(program: Program, arguments: Mapping[str, Argument]) -> CountedTasks:
    """Count the tasks of each kernel; raises what recording them would raise."""
    tasks = CountedTasks()
    interpreter = Interpreter(observer=_Counting(program.functions, tasks))
    state, bound = interpreter.begin(program, arguments, execute=False)
    state.tasks = tasks
    interpreter.go_on(program, state, bound)
    return tasks


class _Counting:
    """The observer of this mode."""

    def __init__(self, functions: Mapping[str, Function], tasks: CountedTasks) -> None:
        self._functions = functions
        self._tasks = tasks

    def lower(self, low: Lowering, op: Op) -> Step:
        if op.name != "for" or not _is_uniform(op, self._functions):
            return low.plain_op(op)
        return for_step(low, op, self._ends)

    def _ends(self, indices: range) -> Iterator[int]:
        weight = self._tasks.weight
        if len(indices) > 1:
            self._tasks.weight = weight * (len(indices) - 1)
            yield indices[0]
            self._tasks.weight = weight
        yield from indices[-1:]


# --- uniform loops -------------------------------------------------------------------------------


def _is_uniform(op: Op, functions: Mapping[str, Function]) -> bool:
    """Whether all iterations of a loop submit the same tasks."""
    view = ForView(op)
    if not all(_decides_nothing(value) for value in view.carried):
        return False
    return _Iteration(functions, view.body.params).is_uniform(view.body)


def _decides_nothing(value: Value) -> bool:
    """Return whether a loop-carried value contains no number that could decide something."""
    if isinstance(value.type, (ScalarType, ArrayType)):
        return value.type.dtype is TASK_ID
    return isinstance(value.type, TensorType)


class _Iteration:
    """The values that may change between iterations."""

    def __init__(self, functions: Mapping[str, Function], changing: Iterable[Value]) -> None:
        self._functions = functions
        self._changing = set(changing)

    def is_uniform(self, block: Block) -> bool:
        return all(map(self._keeps, block.ops))

    def _keeps(self, op: Op) -> bool:
        """Return whether an op submits the same tasks in every iteration."""
        changes = any(map(self._changes, op.args.values()))
        match op.name:
            case "while" | "write":
                return False
            case "for":
                view = ForView(op)
                if any(map(self._changes, view.bounds)):
                    return False
                self._changing.update(view.carried)
            case "if" if self._changes(op.args["cond"]):
                return False
            case "read" if changes:
                return False
            case "call":
                kernel = self._functions[CallView(op).callee].kind is FunctionKind.InCore
                if self._changes(op.args["count"]) or (changes and not kernel):
                    return False
            case _:
                pass
        if changes or op.blocks:
            self._changing.update(op.results)
        return all(map(self.is_uniform, op.blocks))

    def _changes(self, arg: Arg) -> bool:
        if isinstance(arg, tuple):
            return any(map(self._changes, arg))
        return isinstance(arg, Value) and arg in self._changing
