"""The modelled device (E09xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import (
    did_you_mean,
    integer_text,
    near,
    plural,
    shape_text,
    size_text,
    ticked,
)


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
    """A field of a machine file has a value that cannot be: too small, too large, of another kind.

    Numbers are given as they are or with their evidence: `{ value = 110, evidence = "C" }`. The
    message says what the field may be; correct the number.
    """

    code = "E0905"

    def __init__(self, file: str, field: str, got: object, wanted: str) -> None:
        shown = integer_text(got) if isinstance(got, int) else got
        super().__init__(
            f"machine field `{field}` is `{shown}`, expected {wanted}",
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
            [Label(loc, "no scope here is executed")] if loc else [],
            helps=[
                "a task is one execution of a scope: put the computing statements into one",
                "check that the loops around it run",
            ],
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

    def __init__(
        self,
        tensor: str,
        nbytes: int,
        heap: int,
        loc: Loc | None = None,
        scope: Loc | None = None,
    ) -> None:
        labels = [Label(loc, "the task that needs it")] if loc else []
        if scope:
            labels.append(Label(scope, "keeps the tensors of its tasks until it ends"))
        super().__init__(
            f"no room for `{tensor}` ({size_text(nbytes)}) in the runtime's heap "
            f"({size_text(heap)})",
            labels,
            notes=["nothing that is running will free enough"],
            helps=[
                "put the scope inside the loop, so that memory is freed earlier"
                if scope
                else "create smaller tensors, or fewer of them at once"
            ],
        )


@dataclass(frozen=True)
class Resident:
    """A tile as the overflow message lists it: `x [64, 512] FP32` and its bytes."""

    name: str
    loc: Loc
    text: str
    nbytes: int


class OnChipOverflow(UserError):
    """The tiles that a kernel needs at one moment do not fit into an on-chip memory.

    A scope computes on tiles in memories of a fixed size: Vec for the vector unit, Mat, Left, Right
    and Acc for the cube. Tiles share memory when they are needed at different times, so what counts
    is the statement at which most is in use. The message lists every tile there. Load smaller
    windows (the message names sizes that fit, fastest first), or split the scope. Tensors in global
    memory do not count: however big, only the windows that a scope loads take on-chip memory.
    """

    code = "E0911"
    example = """
        @pl.jit
        def scale(x: pl.Tensor[[64, 4096], pl.FP32], y: pl.Out[pl.Tensor[[64, 4096], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                a = x[0:64, 0:4096]
                y[0:64, 0:4096] = pl.mul(a, pl.exp(a))
            return y
        """

    def __init__(
        self,
        kernel: str,
        space: str,
        machine: str,
        needed: int,
        limit: int,
        peak: Loc,
        residents: Sequence[Resident],
        fitting: Sequence[str],
    ) -> None:
        width = max((len(r.name) for r in residents), default=0)
        shapes = max((len(r.text) for r in residents), default=0)
        rows = [
            f"{r.name:<{width}}  {r.text:<{shapes}}  {size_text(r.nbytes):>10}  line {r.loc.line}"
            for r in residents
        ]
        listed = "\n".join(["in use at once:", *rows])
        if fitting:
            helps = ["\n".join(["sizes that fit, fastest first (modelled):", *fitting])]
        else:
            helps = ["no smaller size of the same kernel fits: split the scope in two"]
        super().__init__(
            f"kernel `{kernel}` needs {size_text(needed)} of {space}, "
            f"`{machine}` has {size_text(limit)}",
            [
                Label(peak, f"most is in use here: {size_text(sum(r.nbytes for r in residents))}"),
                *(
                    Label(r.loc, f"`{r.name}`: {size_text(r.nbytes)}")
                    for r in residents[:_LABELLED]
                    if r.loc.line != peak.line
                ),
            ],
            notes=[listed],
            helps=helps,
        )


_LABELLED = 6
"""Tiles that are also shown in the source; all of them are in the note."""


class UnalignedTile(UserError):
    """The rows of a tile are not a multiple of 32 bytes.

    On-chip memory is addressed in blocks of 32 bytes, and compilers for the device do not pad rows:
    the contiguous axis of a tile must have a multiple of 8 FP32 or 16 BF16 elements. (A column
    `[M, 1]` is stored along M.) Load a wider window and mark its valid part with `valid_shape`.
    """

    code = "E0912"
    example = """
        @pl.jit
        def scale(x: pl.Tensor[[16, 12], pl.FP32], y: pl.Out[pl.Tensor[[16, 12], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[0:16, 0:12] = pl.mul(x[0:16, 0:12], 2.0)
            return y
        """

    def __init__(
        self,
        name: str,
        tile: str,
        nbytes: int,
        machine: str,
        wider: Sequence[int],
        loc: Loc,
    ) -> None:
        super().__init__(
            f"rows of `{name}` {tile} have {nbytes} bytes, not a multiple of 32",
            [Label(loc, f"{nbytes} bytes in a row")],
            notes=[f"`{machine}` stores tiles in blocks of 32 bytes, and rows are not padded"],
            helps=[f"load a {shape_text(wider)} window, and mark what is meant with `valid_shape`"],
        )


class NonFractalTile(UserError):
    """An operand of the cube is not made of whole fractals.

    The cube works on blocks of 16 rows and 32 bytes (16 BF16, 8 FP32, 32 INT8 elements), and
    operands are not padded for you. Pad them: load 16 rows where 8 are meant, with `valid_shape`
    for the part that is, or let the other rows do useful work.
    """

    code = "E0913"
    example = """
        @pl.jit
        def scores(
            q: pl.Tensor[[8, 128], pl.BF16],
            k: pl.Tensor[[128, 64], pl.BF16],
            out: pl.Out[pl.Tensor[[8, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:8, 0:64] = pl.matmul(q[0:8, 0:128], k[0:128, 0:64], out_dtype=pl.FP32)
            return out
        """

    def __init__(
        self,
        name: str,
        tile: str,
        axis: str,
        extent: int,
        multiple: int,
        padded: Sequence[int],
        op_loc: Loc,
        loc: Loc,
    ) -> None:
        labels = [Label(op_loc, f"the cube takes {axis} in multiples of {multiple}")]
        if loc != op_loc:
            labels.append(Label(loc, f"`{name}` has {extent}"))
        super().__init__(
            f"cube operand `{name}` {tile} has {extent} {axis}, not a multiple of {multiple}",
            labels,
            helps=[f"pad it to {shape_text(padded)}, with `valid_shape` for what is meant"],
        )


class MatmulExtent(UserError):
    """A matrix product is larger than one cube instruction can be.

    Rows, inner dimension and columns may each be 1 to 4095. Cut the product: a loop over the inner
    dimension with `pl.matmul` for the first part and `pl.matmul_acc` for the rest, or several tasks
    over rows and columns.
    """

    code = "E0914"
    example = """
        @pl.jit
        def project(
            x: pl.Tensor[[16, 8192], pl.BF16],
            w: pl.Tensor[[8192, 16], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:16, 0:16] = pl.matmul(x[0:16, 0:8192], w[0:8192, 0:16], out_dtype=pl.FP32)
            return out
        """

    def __init__(self, which: str, extent: int, limit: int, loc: Loc) -> None:
        super().__init__(
            f"a matrix product with {which} = {extent}, at most {limit} are possible",
            [Label(loc, f"{which} = {extent}")],
            helps=["loop over parts of it, with `pl.matmul_acc` for all but the first"]
            if which == "K"
            else ["make several products, each of a part"],
        )


class VectorDType(UserError):
    """The machine's vector unit does not compute in this type.

    On A2/A3 the vector unit adds, multiplies, reduces and compares FP32, FP16, INT32 and INT16.
    BF16 can be loaded, stored, cast and multiplied by the cube. Cast to FP32, compute, and cast
    the result back.
    """

    code = "E0915"
    example = """
        @pl.jit
        def double(x: pl.Tensor[[16, 128], pl.BF16], y: pl.Out[pl.Tensor[[16, 128], pl.BF16]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[0:16, 0:128] = pl.add(x[0:16, 0:128], x[0:16, 0:128])
            return y
        """

    def __init__(self, op: str, dtype: str, machine: str, loc: Loc) -> None:
        super().__init__(
            f"`pl.{op}` on {dtype}: the vector unit of `{machine}` has no {dtype} arithmetic",
            [Label(loc, f"computes in {dtype}")],
            helps=["cast to `pl.FP32` before and back after"],
        )


class BadProfile(UserError):
    """A file that should hold a saved profile does not.

    `tilelet compare` reads the `profile.json` that `tilelet profile` writes into its run directory.
    Give that file, unchanged, or a program.
    """

    code = "E0916"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} is not a saved profile",
            notes=[problem],
            helps=["give the `profile.json` of a run directory, or a script"],
        )


class NothingToCompare(UserError):
    """A comparison needs two sides.

    Give two programs (`tilelet compare before.py after.py`), two saved profiles, or one program and
    two machines (`tilelet compare kernel.py --platforms a2a3,a5`).
    """

    code = "E0917"

    def __init__(self, only: str) -> None:
        super().__init__(
            f"nothing to compare `{only}` with",
            helps=["give a second program or profile, or `--platforms a2a3,a5`"],
        )


class BadResults(UserError):
    """A file of measurements cannot be read.

    `tilelet calibrate fit` reads the records of lanes that a board's profiler writes, with
    deps.json and the map of names beside them, or a file made by hand:
    `{"total_us": 215.3, "kernels": {"tiny": 1.1}}`.
    """

    code = "E0918"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} holds no measurements",
            notes=[problem],
            helps=["the kit's README.md says what belongs into the folder"],
        )


class NoResults(UserError):
    """The folder has no measurement of any script of the kit.

    Each script NAME.py of `tilelet calibrate kit` has its records in RESULTS/NAME/, or its times in
    RESULTS/NAME.json.
    """

    code = "E0919"

    def __init__(self, folder: str, case: str) -> None:
        super().__init__(
            f"{folder} has no measurements of the kit's scripts",
            helps=[f"for `{case}.py`, put its records into `{folder}/{case}/`"],
        )
