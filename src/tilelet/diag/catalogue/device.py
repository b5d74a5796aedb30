"""The modelled device (E09xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilelet.diag.core import Caution, Consequence, Label, Loc, UserError
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
    """There is no machine or machine file of this name.

    A machine is a built-in description (`a2a3`, `a5`) or the path of a TOML file. Check the
    spelling, or give a path that ends in `.toml`.
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

    The parser's message says where. To start a machine file, copy a built-in description and change
    its values.
    """

    code = "E0902"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"machine file {file} is not valid TOML", notes=[problem])


class MachineFieldMissing(UserError):
    """A machine file lacks a required field.

    The model uses every field, so there are no silent defaults. Add the field, or put `extends =
    "a2a3"` at the top to inherit all fields that the file does not set.
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

    The field would have no effect and is most likely misspelled. Correct the name or remove the
    line.
    """

    code = "E0904"

    def __init__(self, file: str, field: str, known: Sequence[str]) -> None:
        last = field.rsplit(".", 1)[-1]
        super().__init__(
            f"machine file has unknown field `{field}`",
            notes=[*_in_file(file, field), f"known fields: {', '.join(known)}"],
            helps=did_you_mean(near(last, known)),
        )


class MachineFieldValue(UserError):
    """A field of a machine file has an invalid value: out of range, or of the wrong type.

    A value is written plain or with its evidence: `{ value = 110, evidence = "C" }`. The message
    says which values are accepted.
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

    For example, more of a buffer is usable than exists, or a path is faster from memory than from
    cache. The message names both fields; one of them is wrong.
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

    Runtimes became faster over time, so a machine lists its runtime costs by month. Choose one of
    the listed periods, or add a table `[runtime.PERIOD]` to your own machine file.
    """

    code = "E0907"

    def __init__(self, period: str, machine: str, known: Sequence[str]) -> None:
        super().__init__(
            f"machine `{machine}` has no runtime period `{period}`",
            helps=[f"choose {ticked(known)}"],
        )


class NoTasks(UserError):
    """The program submits no task, so there is nothing to model.

    Device time is the time of tasks, and a task is one execution of a scope. Put the compute
    statements into a scope (`with pl.at(level=pl.Level.CORE_GROUP):`), and check that the loops
    around it run at least once.
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
                "a task is one execution of a scope: put the compute statements into one",
                "check that the loops around the scope run",
            ],
        )


class WindowDeadlock(UserError):
    """A runtime scope holds more tasks than the runtime's task window, so the device would hang.

    Tasks of a `pl.scope()` keep their slots in the window until the scope ends, and the scope ends
    only after its last task has been submitted, which needs a slot. Close the scope more often (put
    it inside the loop), submit fewer and larger tasks, or enlarge the window.
    """

    code = "E0909"
    consequence = Consequence.REFUSED
    example = """
        with pl.scope():
            for i in pl.range(20000):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.exp(x[i : i + 1, :]), [i, 0])
        """

    def __init__(self, tasks: int, window: int, loc: Loc | None = None) -> None:
        held = f"{plural(tasks, 'task')} live at once"
        super().__init__(
            f"a runtime scope holds {plural(tasks, 'task')}, but the task window has {window} "
            "slots",
            [Label(loc, held)] if loc else [],
            helps=["put the scope inside the loop, or make the tasks larger"],
        )


class HeapDeadlock(UserError):
    """The tensors of unfinished tasks exceed the runtime's heap, so the device would hang.

    A tensor from `pl.create_tensor` occupies the runtime's heap until the last task that uses it is
    done. Create fewer or smaller tensors at once, or enlarge the heap in a machine file.
    """

    code = "E0910"
    consequence = Consequence.REFUSED

    def __init__(
        self,
        tensor: str,
        nbytes: int,
        heap: int,
        loc: Loc | None = None,
        scope: Loc | None = None,
    ) -> None:
        labels = [Label(loc, "this task needs it")] if loc else []
        if scope:
            labels.append(Label(scope, "keeps the tensors of its tasks until it ends"))
        super().__init__(
            f"`{tensor}` ({size_text(nbytes)}) does not fit in the runtime's heap "
            f"({size_text(heap)})",
            labels,
            notes=["no running task will free enough memory"],
            helps=[
                "put the scope inside the loop, so that memory is freed earlier"
                if scope
                else "create smaller tensors, or fewer of them at once"
            ],
        )


@dataclass(frozen=True)
class Resident:
    """One tile in the overflow message: `x [64, 512] FP32` and its size in bytes."""

    name: str
    loc: Loc
    text: str
    nbytes: int


class OnChipOverflow(UserError):
    """The live tiles of a kernel do not fit into an on-chip memory.

    A scope computes on tiles in memories of fixed size: Vec for the vector unit; Mat, Left, Right
    and Acc for the cube. Tiles whose lifetimes do not overlap share memory, so the peak decides:
    the message lists every tile that is live at that statement. Load smaller windows (the message
    lists sizes that fit, fastest first), or split the scope. Tensors in global memory do not count:
    only the windows that a scope loads take on-chip memory.
    """

    code = "E0911"
    consequence = Consequence.REFUSED
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
        listed = "\n".join(["live at the peak:", *rows])
        if fitting:
            helps = ["\n".join(["sizes that fit, fastest first (modelled):", *fitting])]
        else:
            helps = ["no smaller size of the same kernel fits: split the scope in two"]
        super().__init__(
            f"kernel `{kernel}` needs {size_text(needed)} of {space}, but `{machine}` has "
            f"{size_text(limit)}",
            [
                Label(peak, f"peak use is here: {size_text(sum(r.nbytes for r in residents))}"),
                *(
                    Label(r.loc, f"`{r.name}`: {size_text(r.nbytes)}")
                    for r in residents[:_LABELLED]
                    if r.loc.line != peak.line
                ),
            ],
            notes=[listed],
            helps=helps,
        )


class SerializedStages(Caution):
    """A pipelined loop asks for several buffers per tile, and the memory holds only one of each.

    `pl.pipeline(stage=n)` keeps `n` buffers of every tile that its body loads, so that the next
    load runs while this iteration computes. If they do not fit, the compiler falls back to one
    buffer: the kernel runs and its results are the same, but each load waits until the previous
    iteration has finished with the tile. The modelled times of `tilelet profile` include that.
    Choose tiles whose stages fit, or write `pl.range` to say that nothing overlaps.
    """

    code = "W0920"
    consequence = Consequence.SLOW
    example = """
        @pl.jit
        def scale(x: pl.Tensor[[256, 1024], pl.FP32], y: pl.Out[pl.Tensor[[256, 1024], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.pipeline(0, 256, 32, stage=2):
                    y[r : r + 32, :] = pl.exp(x[r : r + 32, :])
            return y
        """

    def __init__(
        self,
        kernel: str,
        space: str,
        machine: str,
        needed: int,
        limit: int,
        loop: Loc,
        us: float,
        overlapped_us: float,
        fitting: Sequence[str],
    ) -> None:
        helps = ["write `pl.range`: the stages do not overlap either way"]
        if fitting:
            helps = ["\n".join(["sizes whose stages fit, fastest first (modelled):", *fitting])]
        super().__init__(
            f"the stages of `{kernel}` need {size_text(needed)} of {space} and serialize: "
            f"`{machine}` has {size_text(limit)}",
            [Label(loop, "each tile of this loop gets one buffer")],
            notes=[
                f"modelled: {us:.2f} us per execution, {overlapped_us:.2f} us if stages overlapped"
            ],
            helps=helps,
        )


_LABELLED = 6
"""Tiles that are also shown in the source; all of them are in the note."""


class UnalignedTile(UserError):
    """The row size of a tile is not a multiple of 32 bytes.

    On-chip memory is addressed in 32-byte blocks, and device compilers do not pad rows: the
    contiguous axis of a tile needs a multiple of 8 FP32 or 16 BF16 elements. (A column `[M, 1]` is
    stored along M.) Load a wider window and mark the valid part with `valid_shape`.
    """

    code = "E0912"
    consequence = Consequence.REFUSED
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
        # A column is stored along its rows.
        is_column = wider[-1] == 1
        what = f"column `{name}` {tile} has" if is_column else f"rows of `{name}` {tile} have"
        super().__init__(
            f"{what} {nbytes} bytes, not a multiple of 32",
            [Label(loc, f"{nbytes} bytes" if is_column else f"{nbytes} bytes per row")],
            notes=[f"`{machine}` stores tiles in 32-byte blocks and does not pad them"],
            helps=[
                f"load a {shape_text(wider)} window, and mark the valid part with `valid_shape`"
            ],
        )


class NonFractalTile(UserError):
    """A cube operand does not consist of whole fractals.

    The cube works on blocks of 16 rows by 32 bytes (16 BF16, 8 FP32 or 32 INT8 elements), and
    operands are not padded automatically. Pad them: load 16 rows where 8 are needed and mark the
    valid part with `valid_shape`, or use the extra rows for other work.
    """

    code = "E0913"
    consequence = Consequence.REFUSED
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
        labels = [Label(op_loc, f"the cube needs {axis} in multiples of {multiple}")]
        if loc != op_loc:
            labels.append(Label(loc, f"`{name}` has {extent}"))
        super().__init__(
            f"cube operand `{name}` {tile} has {extent} {axis}, not a multiple of {multiple}",
            labels,
            helps=[f"pad it to {shape_text(padded)}, and mark the valid part with `valid_shape`"],
        )


class MatmulExtent(UserError):
    """A matrix product exceeds the limits of a cube instruction.

    Rows, inner dimension and columns may each be 1 to 4095. Split the product: loop over the inner
    dimension with `pl.matmul` for the first part and `pl.matmul_acc` for the rest, or use several
    tasks over rows and columns.
    """

    code = "E0914"
    consequence = Consequence.REFUSED
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
            f"matrix product with {which} = {extent}; the limit is {limit}",
            [Label(loc, f"{which} = {extent}")],
            helps=["loop over parts of it, with `pl.matmul_acc` for all but the first"]
            if which == "K"
            else ["split it into several smaller products"],
        )


class VectorDType(UserError):
    """The machine's vector unit does not support this dtype.

    On A2/A3 the vector unit adds, multiplies, reduces and compares FP32, FP16, INT32 and INT16.
    BF16 can be loaded, stored, cast and multiplied by the cube. Cast to FP32, compute, and cast the
    result back.
    """

    code = "E0915"
    consequence = Consequence.REFUSED
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
            helps=["cast to `pl.FP32` before, and back afterwards"],
        )


class BadProfile(UserError):
    """The file is not a saved profile.

    `tilelet compare` reads the `profile.json` that `tilelet profile` writes into its run directory.
    Pass that file unmodified, or pass a program.
    """

    code = "E0916"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} is not a saved profile",
            notes=[problem],
            helps=["pass the `profile.json` of a run directory, or a script"],
        )


class NothingToCompare(UserError):
    """Only one side of a comparison was given.

    Pass two programs (`tilelet compare before.py after.py`), two saved profiles, or one program and
    two machines (`tilelet compare kernel.py --platforms a2a3,a5`).
    """

    code = "E0917"

    def __init__(self, only: str) -> None:
        super().__init__(
            f"nothing to compare `{only}` with",
            helps=["pass a second program or profile, or `--platforms a2a3,a5`"],
        )


class BadResults(UserError):
    """A file of measurements cannot be read.

    `tilelet calibrate fit` reads the lane records of a board's profiler, together with deps.json
    and the name map next to them, or a hand-written file: `{"total_us": 215.3, "kernels": {"tiny":
    1.1}}`.
    """

    code = "E0918"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} contains no measurements",
            notes=[problem],
            helps=["the kit's README.md describes the contents of the folder"],
        )


class NoResults(UserError):
    """The folder contains no measurements of the kit's scripts.

    For each script NAME.py of `tilelet calibrate kit`, put the records into RESULTS/NAME/ or the
    times into RESULTS/NAME.json.
    """

    code = "E0919"

    def __init__(self, folder: str, case: str) -> None:
        super().__init__(
            f"{folder} contains no measurements of the kit's scripts",
            helps=[f"for `{case}.py`, put its records into `{folder}/{case}/`"],
        )
