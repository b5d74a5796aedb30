"""Cautions, which do not stop the run (W0xxx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import optional, quoted_names, shape_text


class RetiredSpelling(Caution, code="W0101"):
    """The program uses an older spelling that has been replaced."""

    severity = "note"

    def __init__(self, loc: Loc, old: str, new: str) -> None:
        super().__init__(f"`{old}` is deprecated: write `{new}`", [Label(loc)])


class ClearedByArithmetic(Caution, code="W0103"):
    """Unwritten memory is zeroed by arithmetic: `x * 0` or `x - x`."""

    severity = "note"

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"`pl.{op}` zeroes memory that was never written: write `pl.full(..., 0.0)`",
            [Label(loc)],
        )


class NoEffect(Caution, code="W0102"):
    """The program uses something that Tilelet accepts and ignores."""

    severity = "note"

    def __init__(self, loc: Loc, what: str, why: str = "") -> None:
        super().__init__(f"{what} has no effect in Tilelet", [Label(loc)], notes=optional(why))


class LoopMayNotRun(Caution, code="W0201"):
    """A name first bound in a loop is used after the loop, which may have no iterations."""

    def __init__(self, loop: Loc, name: str) -> None:
        super().__init__(
            f"`{name}` is undefined if the loop does not run",
            [Label(loop, f"binds `{name}` and may have no iterations")],
            helps=[f"bind `{name}` before the loop"],
        )


class OutputNotWritten(Caution, code="W0204"):
    """A `pl.Out` parameter is never written by its kernel."""

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"output `{name}` is never written",
            [Label(loc, "declared `pl.Out`")],
            helps=[f"write `{name}[:] = ...`, or drop `pl.Out`"],
        )


class DirectionIgnored(Caution, code="W0203"):
    """A parameter of an inline function is wrapped in `pl.Out` or `pl.InOut`."""

    def __init__(self, loc: Loc, param: str) -> None:
        super().__init__(
            f"direction of inline parameter `{param}` is ignored",
            [Label(loc, "the caller's value decides the direction")],
        )


class PromotedToTile(Caution, code="W0304"):
    """A subscript produces a value of fewer than two dimensions, which becomes a two-dimensional
    tile.
    """

    severity = "note"

    def __init__(self, loc: Loc, shape: Sequence[object], tile: Sequence[object]) -> None:
        super().__init__(
            f"window `{shape_text(shape)}` becomes a tile `{shape_text(tile)}`", [Label(loc)]
        )


class ImplicitScope(Caution, code="W0401"):
    """A compute op outside every scope is wrapped in an implicit scope."""

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"compute op `{op}` outside a scope becomes a separate task",
            [Label(loc, "an implicit scope starts here")],
            helps=["write the scope: `with pl.at(level=pl.Level.CORE_GROUP):`"],
        )


class UndividedScope(Caution, code="W0404"):
    """An automatic scope runs as one kernel, but a compiler divides it."""

    def __init__(self, loc: Loc, why: str) -> None:
        super().__init__(
            "this part of an automatic scope runs as one kernel, but a compiler may divide it",
            [Label(loc, why)],
            notes=["the number of tasks, their time and what fits on chip may differ"],
            helps=["write the scopes: `with pl.at(level=pl.Level.CORE_GROUP):`"],
        )


class LanesAtOnce(Caution, code="W0403"):
    """A kernel shared by two vector cores asks which of them it runs on."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "two vector cores share this kernel, but Tilelet runs it as core 0",
            [Label(loc, "always 0 in Tilelet")],
            helps=["divide work by hand with `for lane in pl.split_aiv(2, mode=...):`"],
        )


class AssembleCopies(Caution, code="W0402"):
    """An assemble at the orchestration level copies data, in a separate task."""

    severity = "note"

    def __init__(self, loc: Loc, why: str = "") -> None:
        super().__init__(
            "this assemble copies its source, in a separate task", [Label(loc)], notes=optional(why)
        )


class OwnExtents(Caution, code="W0602"):
    """The extents of a tensor contradict the dynamic dimensions of its declaration."""

    severity = "note"

    def __init__(self, loc: Loc, name: str, declared: str, found: str) -> None:
        super().__init__(
            f"`{name}` is taken as `{found}`, not as `{declared}`",
            [Label(loc, "the argument has other extents")],
            helps=["use one `pl.dynamic` per extent, and declare tensors as they are stored"],
        )


class ValidationSkipped(Caution, code="W0601"):
    """Nothing was compared, so the run does not validate the results."""

    severity = "note"

    def __init__(self, why: str) -> None:
        super().__init__(f"validation skipped: {why}")


class GoldenLeftOutputs(Caution, code="W0603"):
    """The golden function changed no output, so outputs are compared with their initial data."""

    def __init__(self, outputs: Sequence[str], loc: Loc | None = None) -> None:
        super().__init__(
            f"the golden function left {quoted_names(outputs, 'and')} unchanged",
            [Label(loc, "this golden function")] if loc is not None else [],
            notes=["outputs are compared with their initial data"],
            helps=[f'write in place: `tensors["{outputs[0]}"][:] = ...`'],
        )


class HoldsForInputs(Caution, code="W0604"):
    """A program was executed to record its tasks, so the answer holds for its inputs only."""

    severity = "note"

    def __init__(self, program: str, name: str, inputs: Sequence[str], digest: str) -> None:
        named = quoted_names(inputs, "and") if inputs else "none"
        super().__init__(
            f"`{program}` was executed: `{name}`, which its tasks compute, decides which tasks "
            f"follow; the answer holds for these inputs: {named} (digest {digest})"
        )
