"""The modelled device (E09xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, optional, plural, size_text, ticked


def _in_file(file: str, field: str) -> list[str]:
    return [f"in machine file {file}, field {field}"]


class UnknownMachine(UserError):
    """There is no machine of this name, and no such file.

    A machine is named by a built-in description (`a2a3`, `a5`) or by the path of a TOML file of
    your own. Check the spelling, or give a path that ends in `.toml`.
    """

    code = "E0901"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(
            f"no machine `{name}`",
            notes=[f"built-in machines: {', '.join(names)}"],
            helps=did_you_mean(near(name, names)) or ["give the path of a `.toml` file"],
        )


class MachineSyntax(UserError):
    """A machine file is not valid TOML.

    The parser's own message says where. Machine files are plain TOML; copy one of the built-in
    descriptions and change its numbers.
    """

    code = "E0902"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"machine file {file} is not valid TOML", notes=[problem])


class MachineFieldMissing(UserError):
    """A machine file lacks a field that the model needs.

    Every field has a meaning in the model, so there are no silent defaults. Add the field, or say
    `extends = "a2a3"` at the top, which takes everything that the file does not say from there.
    """

    code = "E0903"

    def __init__(self, file: str, field: str, wanted: str) -> None:
        super().__init__(
            f"machine file lacks `{field}`",
            notes=[*_in_file(file, field), f"expected {wanted}"],
            helps=['add it, or inherit it: `extends = "a2a3"`'],
        )


class MachineFieldUnknown(UserError):
    """A machine file has a field that the model does not know.

    It would have no effect, and is most likely a misspelling of another one. Correct the name or
    remove the line.
    """

    code = "E0904"

    def __init__(self, file: str, field: str, known: Sequence[str]) -> None:
        last = field.rsplit(".", 1)[-1]
        super().__init__(
            f"machine file has unknown field `{field}`",
            notes=[*_in_file(file, field), f"fields here: {', '.join(known)}"],
            helps=did_you_mean(near(last, known)),
        )


class MachineFieldValue(UserError):
    """A field of a machine file has a value that cannot be: negative, zero, or of another kind.

    Numbers are given as they are or with their evidence: `{ value = 110, evidence = "C" }`. The
    message says what the field may be; correct the number.
    """

    code = "E0905"

    def __init__(self, file: str, field: str, got: object, wanted: str) -> None:
        super().__init__(
            f"machine field `{field}` is `{got}`, expected {wanted}",
            notes=_in_file(file, field),
        )


class MachineContradiction(UserError):
    """Two fields of a machine file contradict each other.

    For example a buffer of which more is usable than there is, or a path that is faster from
    memory than from cache. Both fields are named; one of them is wrong.
    """

    code = "E0906"

    def __init__(self, file: str, field: str, value: object, other: str, limit: object) -> None:
        super().__init__(
            f"machine field `{field}` is `{value}`, but `{other}` is `{limit}`",
            notes=_in_file(file, field),
            helps=[f"`{field}` may be at most `{other}`"],
        )


class UnknownPeriod(UserError):
    """The machine has no runtime costs for this period.

    Runtimes got faster over time, so a machine lists its runtime's costs by month. Choose one of
    those it has, or add a table `[runtime.PERIOD]` to a machine file of your own.
    """

    code = "E0907"

    def __init__(self, period: str, machine: str, known: Sequence[str]) -> None:
        super().__init__(
            f"machine `{machine}` has no runtime period `{period}`",
            helps=[f"choose {ticked(known)}"],
        )


class NoTasks(UserError):
    """The program submits no task, so there is nothing to model.

    Time on the device is the time of tasks; a task is one execution of a scope. Put the computing
    statements into one (`with pl.at(level=pl.Level.CORE_GROUP):`), and check that the loops around
    it run at least once.
    """

    code = "E0908"
    example = """
        @pl.program
        class Empty:
            @pl.function(type=pl.FunctionType.Opaque)
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return x
        """

    def __init__(self, program: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"program `{program}` submits no task",
            [Label(loc, "nothing here is a scope")] if loc else [],
            helps=["a task is one execution of a scope: put the computing statements into one"],
        )


class WindowDeadlock(UserError):
    """A runtime scope holds more tasks than the runtime's task window, so the device would hang.

    Tasks of a `pl.scope()` keep their slots in the window until the scope ends, and the scope ends
    only when its last task has been submitted, which needs a slot. Close the scope more often (put
    it inside the loop), submit fewer and larger tasks, or raise the window.
    """

    code = "E0909"
    example = """
        with pl.scope():
            for i in pl.range(20000):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.exp(x[i : i + 1, :]), [i, 0])
        """

    def __init__(self, tasks: int, window: int, loc: Loc | None = None) -> None:
        held = f"{plural(tasks, 'task')} live at once"
        super().__init__(
            f"a runtime scope holds {plural(tasks, 'task')}, the task window {window}",
            [Label(loc, held)] if loc else [],
            helps=["put the scope inside the loop, or make the tasks larger"],
        )


class HeapDeadlock(UserError):
    """The tensors of tasks that cannot finish yet exceed the runtime's heap: the device would hang.

    A tensor from `pl.create_tensor` takes memory of the runtime's heap until the last task that
    uses it is done. Create fewer or smaller tensors at once, or raise the heap in a machine file.
    """

    code = "E0910"

    def __init__(self, tensor: str, nbytes: int, heap: int, loc: Loc | None = None) -> None:
        super().__init__(
            f"no room for `{tensor}` ({size_text(nbytes)}) in the runtime's heap "
            f"({size_text(heap)})",
            [Label(loc, "the task that needs it")] if loc else [],
            notes=optional("nothing that is running will free enough"),
        )
