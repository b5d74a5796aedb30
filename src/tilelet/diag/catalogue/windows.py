"""Windows, indices, valid regions, and faults at run time (E05xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import optional, plural, shape_text


class WindowOutOfRange(UserError, code="E0501"):
    """A slice, load, store or assemble reaches outside its tensor."""

    def __init__(
        self,
        loc: Loc,
        axis: int,
        start: object,
        size: object,
        extent: object,
        name: str = "",
        runtime: bool = False,
        clamps: bool = False,
        made: Loc | None = None,
        whole: object = None,
    ) -> None:
        """Build the message.

        `clamps`: the op has `clamp=`; `made`: where the tensor is created; `whole`: the extent of
        the view, of which only `extent` exists.
        """
        of_name = f" of `{name}`" if name else ""
        nothing = isinstance(start, int) and isinstance(extent, int) and not 0 <= start < extent
        remedy = (
            "if part of the tile is padding, store only the rest: "
            "`pl.set_validshape(tile, rows, cols)`"
        )
        if nothing:
            remedy = "the whole window is outside: check the offset"
        elif clamps:
            remedy = "if the last window may be partial, use `pl.slice(..., clamp=True)`"
        end = (
            start + size if isinstance(start, int) and isinstance(size, int) else f"{start}+{size}"
        )
        said = "at run time, the window is out of range" if runtime else "out of range"
        labels = [Label(loc, said)]
        labels += [Label(made, f"`{name}` is created here")] if made is not None else []
        text = f"outside axis {axis}{of_name}, which has extent {extent}"
        if whole not in (None, extent):
            text = (
                f"outside axis {axis} of a view{of_name} that extends past its end: only {extent} "
                f"of its {whole} exist"
            )
        super().__init__(f"window {start}:{end} is {text}", labels, helps=[remedy])


class ValidShapeTooLarge(UserError, code="E0502"):
    """A `valid_shape` is larger than the tile it describes, or a negative constant."""

    def __init__(
        self, loc: Loc, axis: int, valid: object, size: object, runtime: bool = False
    ) -> None:
        remedy = "it counts from the start of the window: use `pl.min(size, length - offset)`"
        if runtime and isinstance(valid, int) and valid < 0:
            remedy = (
                "a window cannot have a negative size: use `pl.max(size, 0)` if it may be empty"
            )
        super().__init__(
            f"valid extent {valid} does not fit a tile of extent {size} in axis {axis}",
            [Label(loc, f"must be 0 to {size}{' at run time' if runtime else ''}")],
            helps=[remedy],
        )


class IndexOutOfRange(UserError, code="E0503"):
    """An element index is outside its tensor."""

    def __init__(
        self,
        loc: Loc,
        axis: int,
        index: object,
        extent: object,
        name: str = "",
        runtime: bool = False,
    ) -> None:
        of_name = f" of `{name}`" if name else ""
        super().__init__(
            f"index {index} is outside axis {axis}{of_name}, which has extent {extent}",
            [Label(loc, "at run time, out of range" if runtime else "out of range")],
        )


class BadSubscript(UserError, code="E0504"):
    """A subscript uses a form that the language does not have."""

    def __init__(self, loc: Loc, what: str, help: str = "") -> None:
        super().__init__(
            f"{what} is not supported in a subscript", [Label(loc)], helps=optional(help)
        )


class WrongIndexCount(UserError, code="E0505"):
    """A subscript or index list has too many or too few entries for the tensor."""

    def __init__(self, loc: Loc, name: str, got: int, rank: int) -> None:
        indices, axes = plural(got, "index", "indices"), plural(rank, "axis", "axes")
        super().__init__(f"{indices} for `{name}`, which has {axes}", [Label(loc, indices)])


class ChainedWrite(UserError, code="E0506"):
    """A value is assigned to a window of a window, as in `x[0:16][:, 0:8] = ...`."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "cannot write through a window of a window",
            [Label(loc, "two subscripts")],
            helps=["use one subscript"],
        )


class NonConstantExtent(UserError, code="E0507"):
    """The length of a window taken by a subscript is not a compile-time constant."""

    def __init__(self, loc: Loc, axis: int) -> None:
        super().__init__(
            f"the length of the window in axis {axis} is not a constant",
            [Label(loc, "known only at run time")],
            helps=["use `pl.slice(x, [SIZE, ...], [start, ...], valid_shape=[length, ...])`"],
        )


class ScalarIntoWindow(UserError, code="E0508"):
    """A number is assigned to a window of a tensor or tile."""

    def __init__(self, loc: Loc, value_type: str) -> None:
        super().__init__(
            "cannot assign a scalar to a window",
            [Label(loc, f"this is {value_type}")],
            helps=["fill with `pl.full(...)`, or write one element with `pl.write`"],
        )


class DivisionByZero(UserError, code="E0509"):
    """An integer is divided by zero, or taken modulo zero."""

    def __init__(self, loc: Loc, operator: str) -> None:
        super().__init__(
            f"integer `{operator}` by zero", [Label(loc, "at run time, the right operand is 0")]
        )


class ValidRegionLost(UserError, code="E0510"):
    """An op would turn a partial valid region into something that is not a box."""

    def __init__(self, loc: Loc, op: str, valid: Sequence[object], shape: Sequence[object]) -> None:
        super().__init__(
            f"`{op}` of a partially valid value",
            [Label(loc, f"valid `{shape_text(valid)}` of `{shape_text(shape)}`")],
            helps=["fill the padding first: `pl.fillpad(x, pad_value=pl.PadValue.zero)`"],
        )


class ReshapeNeedsCopy(UserError, code="E0512"):
    """A tensor in global memory is reshaped, but its window has gaps that no view can skip."""

    def __init__(
        self,
        loc: Loc,
        name: str,
        from_shape: Sequence[object],
        to_shape: Sequence[object],
        is_recast: bool = False,
    ) -> None:
        """`is_recast`: the view also changes the element type."""
        why = "does not consist of whole elements of the new type" if is_recast else "has gaps"
        super().__init__(
            f"cannot view a window of `{name}` as `{shape_text(to_shape)}`",
            [Label(loc, f"the memory of this `{shape_text(from_shape)}` window {why}")],
            helps=["reshape the whole tensor first, or load the window and reshape the tile"],
        )


class BlockCount(UserError, code="E0513"):
    """A `pl.spmd` launch has fewer than one block."""

    def __init__(self, loc: Loc, count: object) -> None:
        super().__init__(
            f"launch of {count} blocks", [Label(loc, f"at run time, the block count is {count}")]
        )


class DependsOnTaskData(UserError, code="E0514"):
    """The number of tasks, requested without running them, depends on what they compute."""

    def __init__(self, loc: Loc, name: str) -> None:
        self.name = name
        super().__init__(
            f"the value of `{name}` depends on tasks that were not run",
            [Label(loc, "unknown while tasks are only counted")],
            helps=["run the program, which also counts its tasks"],
        )


class ExtentNotPositive(UserError, code="E0515"):
    """A shape computed at run time has an extent below one."""

    def __init__(self, loc: Loc, op: str, shape: Sequence[object], axis: int) -> None:
        super().__init__(
            f"shape `{shape_text(shape)}` of `{op}` has no elements",
            [Label(loc, f"at run time, the extent of axis {axis} is {shape[axis]}")],
        )
