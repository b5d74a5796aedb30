"""The modelled device (E09xx)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath

from tilelet.dataclasses import dataclass
from tilelet.diag.core import Caution, Consequence, Label, Loc, UserError
from tilelet.diag.text import (
    did_you_mean,
    integer_text,
    near,
    plural,
    quoted_names,
    shape_text,
    size_text,
)


def _in_file(file: str, field: str) -> list[str]:
    return [f"in machine file {file}, field {field}"]


class UnknownMachine(UserError, code="E0901"):
    """There is no machine or machine file of this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(
            f"no machine `{name}`",
            notes=[f"built-in machines: {', '.join(names)}"],
            helps=did_you_mean(near(name, names)) or ["give the path of a `.toml` file"],
        )


class MachineSyntax(UserError, code="E0902"):
    """A machine file is not valid TOML."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"machine file {file} is not valid TOML", notes=[problem])


class MachineFieldMissing(UserError, code="E0903"):
    """A machine file lacks a required field."""

    def __init__(self, file: str, field: str, wanted: str) -> None:
        super().__init__(
            f"machine file lacks `{field}`",
            notes=[*_in_file(file, field), f"expected {wanted}"],
            helps=['add it, or inherit it: `extends = "a2a3"`'],
        )


class MachineFieldUnknown(UserError, code="E0904"):
    """A machine file has a field that the model does not know."""

    def __init__(self, file: str, field: str, known: Sequence[str]) -> None:
        last = field.rsplit(".", 1)[-1]
        super().__init__(
            f"machine file has unknown field `{field}`",
            notes=[*_in_file(file, field), f"known fields: {', '.join(known)}"],
            helps=did_you_mean(near(last, known)),
        )


class MachineFieldValue(UserError, code="E0905"):
    """A field of a machine file has an invalid value: out of range, or of the wrong type."""

    def __init__(self, file: str, field: str, got: object, wanted: str) -> None:
        shown = integer_text(got) if isinstance(got, int) else got
        super().__init__(
            f"machine field `{field}` is `{shown}`, expected {wanted}",
            notes=_in_file(file, field),
        )


class MachineContradiction(UserError, code="E0906"):
    """Two fields of a machine file contradict each other."""

    def __init__(self, file: str, field: str, value: object, other: str, limit: object) -> None:
        super().__init__(
            f"machine field `{field}` is `{value}`, but `{other}` is `{limit}`",
            notes=_in_file(file, field),
            helps=[f"`{field}` may be at most `{other}`"],
        )


class UnknownPeriod(UserError, code="E0907"):
    """The machine has no runtime costs for this period."""

    def __init__(self, period: str, machine: str, known: Sequence[str]) -> None:
        super().__init__(
            f"machine `{machine}` has no runtime period `{period}`",
            helps=[f"choose {quoted_names(known)}"],
        )


class NoTasks(UserError, code="E0908"):
    """The program submits no task, so there is nothing to model."""

    def __init__(self, program: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"program `{program}` submits no task",
            [Label(loc, "no scope here is executed")] if loc else [],
            helps=[
                "a task is one execution of a scope: put the compute statements into one",
                "check that the loops around the scope run",
            ],
        )


class WindowDeadlock(UserError, code="E0909", consequence=Consequence.REFUSED):
    """A runtime scope holds more tasks than the runtime's task window, so the device would hang."""

    def __init__(self, tasks: int, window: int, loc: Loc | None = None) -> None:
        held = f"{plural(tasks, 'task')} live at once"
        super().__init__(
            f"a runtime scope holds {plural(tasks, 'task')}, but the task window has {window} "
            "slots",
            [Label(loc, held)] if loc else [],
            helps=["put the scope inside the loop, or make the tasks larger"],
        )


class HeapDeadlock(UserError, code="E0910", consequence=Consequence.REFUSED):
    """The tensors of unfinished tasks exceed the runtime's heap, so the device would hang."""

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


class OnChipOverflow(UserError, code="E0911", consequence=Consequence.REFUSED):
    """The live tiles of a kernel do not fit into an on-chip memory."""

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
                    for r in residents[:_LABELED]
                    if r.loc.line != peak.line
                ),
            ],
            notes=[listed],
            helps=helps,
        )
        self.causes = ((space, peak),)
        self.kernel = kernel


class SerializedStages(Caution, code="W0920", consequence=Consequence.SLOW):
    """A pipelined loop asks for more buffers per tile than the memory holds."""

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
            f"the stages of `{kernel}` need {size_text(needed)} of {space} and share buffers: "
            f"`{machine}` has {size_text(limit)}",
            [Label(loop, "tiles of this loop get fewer buffers than it has stages")],
            notes=[
                f"modelled: {us:.2f} us per execution, {overlapped_us:.2f} us if stages overlapped"
                if us - overlapped_us >= 0.005
                else f"modelled: {us:.2f} us per execution, whether stages overlap or not"
            ],
            helps=helps,
        )


_LABELED = 6
"""Tiles that are also shown in the source; all of them are in the note."""


class ShortTransferRows(Caution, code="W0921", consequence=Consequence.SLOW):
    """Transfers have rows shorter than the access granularity of global memory."""

    def __init__(
        self,
        loc: Loc,
        worst: str,
        granule: int,
        machine: str,
        places: Mapping[tuple[str, str], Collection[int]],
    ) -> None:
        """`places`: lines by kernel and file."""
        count = len({(file, line) for (_, file), lines in places.items() for line in lines})
        super().__init__(
            f"rows of less than {granule} bytes are moved in {plural(count, 'line')}: "
            f"`{machine}` moves {granule} bytes at a time",
            [Label(loc, worst)],
            notes=[
                f"`{kernel}`: {_lines_text(lines, '' if file == loc.file else file)}"
                for (kernel, file), lines in places.items()
            ],
            helps=["use wider tiles, or longer rows in memory, where `tilelet advise` says so"],
        )


class ShortRing(Caution, code="W0923", consequence=Consequence.SLOW):
    """The cores of a mixed kernel wait for slots of the ring between them."""

    def __init__(
        self, kernel: str, slots: int, slot: int, us: float, loc: Loc, enough: int, enough_us: float
    ) -> None:
        better = f"pl.cross_core_slot(slot_num={enough})"
        super().__init__(
            f"the cores of `{kernel}` wait for slots: they pass tiles through a ring of "
            f"{plural(slots, 'slot')} of {size_text(slot)}",
            [Label(loc, "passed to the other core")],
            notes=[f"modelled: {us:.2f} us per execution"],
            helps=[f"`{better}`: {size_text(enough * slot)}, {enough_us:.2f} us"],
        )


def _lines_text(lines: Collection[int], file: str) -> str:
    """Return `lines 3, 5 of kernels.py`; without a file, the numbers alone."""
    numbers = ", ".join(map(str, sorted(lines)))
    where = f" of {PurePath(file).name}" if file else ""
    return f"{'lines' if len(lines) > 1 else 'line'} {numbers}{where}"


class UnalignedTile(UserError, code="E0912", consequence=Consequence.REFUSED):
    """The row size of a tile is not a multiple of 32 bytes."""

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
        self.causes = ((is_column, nbytes),)


class NonFractalTile(UserError, code="E0913", consequence=Consequence.REFUSED):
    """A cube operand does not consist of whole fractals."""

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
        self.causes = ((axis, extent),)


class MatmulExtent(UserError, code="E0914", consequence=Consequence.REFUSED):
    """A matrix product exceeds the limits of a cube instruction."""

    def __init__(self, which: str, extent: int, limit: int, loc: Loc) -> None:
        super().__init__(
            f"matrix product with {which} = {extent}; the limit is {limit}",
            [Label(loc, f"{which} = {extent}")],
            helps=["loop over parts of it, with `pl.matmul_acc` for all but the first"]
            if which == "K"
            else ["split it into several smaller products"],
        )
        self.causes = ((which, extent),)


class VectorDType(UserError, code="E0915", consequence=Consequence.REFUSED):
    """The machine's vector unit does not support this dtype."""

    def __init__(self, op: str, dtype: str, machine: str, loc: Loc) -> None:
        super().__init__(
            f"`pl.{op}` on {dtype}: the vector unit of `{machine}` has no {dtype} arithmetic",
            [Label(loc, f"computes in {dtype}")],
            helps=["cast to `pl.FP32` before, and back afterwards"],
        )
        self.causes = (dtype,)


class MissingDType(UserError, code="E0922", consequence=Consequence.REFUSED):
    """The machine does not have this element type."""

    def __init__(self, dtype: str, machine: str, others: Sequence[str], loc: Loc) -> None:
        where = " and ".join(f"`{name}`" for name in others) or "no known machine"
        super().__init__(
            f"`{machine}` has no {dtype}",
            [Label(loc, f"of {dtype}")],
            notes=[f"{where} has it" if len(others) < 2 else f"{where} have it"],
        )
        self.causes = (dtype,)


class BadProfile(UserError, code="E0916"):
    """The file is not a saved profile."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} is not a saved profile",
            notes=[problem],
            helps=["pass the `profile.json` of a run directory, or a script"],
        )


class NothingToCompare(UserError, code="E0917"):
    """Only one side of a comparison was given."""

    def __init__(self, only: str) -> None:
        super().__init__(
            f"nothing to compare `{only}` with",
            helps=["pass a second program or profile, or `--platforms a2a3,a5`"],
        )


class BadResults(UserError, code="E0918"):
    """A file of measurements cannot be read."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} contains no measurements",
            notes=[problem],
            helps=["the kit's README.md describes the contents of the folder"],
        )


class NoResults(UserError, code="E0919"):
    """The folder contains no measurements of the kit's scripts."""

    def __init__(self, folder: str, case: str) -> None:
        super().__init__(
            f"{folder} contains no measurements of the kit's scripts",
            helps=[f"for `{case}.py`, put its records into `{folder}/{case}/`"],
        )
