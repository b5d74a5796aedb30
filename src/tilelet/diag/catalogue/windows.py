"""Windows, indices, valid regions, and faults at run time (E05xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import optional, plural, shape_text


class WindowOutOfRange(UserError):
    """A slice, load, store or assemble reaches outside its tensor.

    The error is reported at compile time if it is certain, and otherwise when the kernel runs, with
    the actual values. A view taken by the control program may extend past the end of its tensor at
    run time as long as nothing loads or stores the missing part, as a fixed-width block table does
    near its end.

    If the last window may be partial, use `pl.slice(..., clamp=True)` or `pl.load(...,
    clamp=True)`: the part outside the tensor is not valid, and stores skip it. Or take the full
    shape and pass `valid_shape=` with the remaining extent, `pl.min(size, extent - start)`.
    """

    code = "E0501"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.slice(x, [16, 128], [56, 0])
            return out
        """

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
        remedy = "limit the window with `valid_shape=`, or check the offset"
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


class ValidShapeTooLarge(UserError):
    """A `valid_shape` is larger than the tile it describes, or a negative constant.

    The valid region is the part of the tile that holds data, counted from the tile's own origin, so
    it is at most the tile's shape. A common mistake is to pass the tensor's total length for a
    shifted window: subtract the offset. A computed extent may be negative, as `length - offset` is
    past the end; then nothing is valid. In `@pl.program` classes the size of the window itself may
    also be computed (`x[0:n]`), but must not be negative.
    """

    code = "E0502"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.slice(x, [16, 128], [48, 0], valid_shape=[64, 128])
            return out
        """

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


class IndexOutOfRange(UserError):
    """An element index is outside its tensor.

    In every axis, indices go from 0 to the extent minus one. Gather and scatter check their index
    tensors in the same way.
    """

    code = "E0503"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            lens: pl.Tensor[[1, 8], pl.INT32],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            n = pl.read(lens, [0, 8])
            for i in pl.range(n):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:] = pl.exp(x)
            return out
        """

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


class BadSubscript(UserError):
    """A subscript uses a form that the language does not have.

    Windows are written `a:b`, with non-negative bounds and a step of one. There is no `...`, no
    `None`, no negative index and no index list; use `pl.gather` to select by a list of indices.
    """

    code = "E0504"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[32, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x[0:64:2, :])
            return out
        """

    def __init__(self, loc: Loc, what: str, help: str = "") -> None:
        super().__init__(
            f"{what} is not supported in a subscript", [Label(loc)], helps=optional(help)
        )


class WrongIndexCount(UserError):
    """A subscript or index list has too many or too few entries for the tensor.

    `pl.read`, `pl.write` and subscripts in a `@pl.program` name every axis. In `@pl.jit` code,
    missing trailing indices of a subscript select the whole axis.
    """

    code = "E0505"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x[0:16, :, 0])
            return out
        """

    def __init__(self, loc: Loc, name: str, got: int, rank: int) -> None:
        indices, axes = plural(got, "index", "indices"), plural(rank, "axis", "axes")
        super().__init__(f"{indices} for `{name}`, which has {axes}", [Label(loc, indices)])


class ChainedWrite(UserError):
    """A value is assigned to a window of a window, as in `x[0:16][:, 0:8] = ...`.

    The inner window is a separate value, so the assignment would not reach the tensor. Use one
    subscript that names all axes.
    """

    code = "E0506"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[8, 8], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:8, :][:, 0:8] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "cannot write through a window of a window",
            [Label(loc, "two subscripts")],
            helps=["use one subscript"],
        )


class NonConstantExtent(UserError):
    """The length of a window taken by a subscript is not a compile-time constant.

    `x[a:b]` becomes a tile of `b - a` rows, and tile shapes are constant, so the difference must
    simplify to a constant, as in `x[k : k + 128]`. For a run-time length, take a window of constant
    size with `pl.slice(..., valid_shape=...)`.
    """

    code = "E0507"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:64, :] = pl.exp(x[0:n, :])
            return out
        """

    def __init__(self, loc: Loc, axis: int) -> None:
        super().__init__(
            f"the length of the window in axis {axis} is not a constant",
            [Label(loc, "known only at run time")],
            helps=["use `pl.slice(x, [SIZE, ...], [start, ...], valid_shape=[length, ...])`"],
        )


class ScalarIntoWindow(UserError):
    """A number is assigned to a window of a tensor or tile.

    `x[...] = value` copies a tensor or tile of the window's shape. Fill with `pl.full(shape, dtype,
    value)`, or write one element with `pl.write(x, [i, j], value)`.
    """

    code = "E0508"
    example = """
        @pl.jit
        def kernel(out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[0:8, :] = 0.0
            return out
        """

    def __init__(self, loc: Loc, value_type: str) -> None:
        super().__init__(
            "cannot assign a scalar to a window",
            [Label(loc, f"this is {value_type}")],
            helps=["fill with `pl.full(...)`, or write one element with `pl.write`"],
        )


class DivisionByZero(UserError):
    """An integer is divided by zero, or taken modulo zero.

    Integers have no infinity, so the run stops at this line. Float division follows IEEE 754 and
    returns infinity or NaN.
    """

    code = "E0509"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            for i in pl.range(64 // n):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, operator: str) -> None:
        super().__init__(
            f"integer `{operator}` by zero", [Label(loc, "at run time, the right operand is 0")]
        )


class ValidRegionLost(UserError):
    """An op would turn a partial valid region into something that is not a box.

    A valid region always consists of the rows and columns from the origin up to a limit. Reshaping
    a partially valid tile generally scatters them. Fill the padding first with `pl.fillpad`, then
    reshape.
    """

    code = "E0510"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[32, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                tile = pl.slice(x, [16, 128], [0, 0], valid_shape=[16, 100])
                out[:] = pl.reshape(tile, [32, 64])
            return out
        """

    def __init__(self, loc: Loc, op: str, valid: Sequence[object], shape: Sequence[object]) -> None:
        super().__init__(
            f"`{op}` of a partially valid value",
            [Label(loc, f"valid `{shape_text(valid)}` of `{shape_text(shape)}`")],
            helps=["fill the padding first: `pl.fillpad(x, pad_value=pl.PadValue.zero)`"],
        )


class ReshapeNeedsCopy(UserError):
    """A tensor in global memory is reshaped, but its window has gaps that no view can skip.

    Reshaping a tensor moves no data: the result is another view of the same memory. The rows of a
    window that is narrower than its tensor are not contiguous, so they cannot be merged. Reshape
    the whole tensor and take the window from the result, or load the window in a scope and reshape
    the tile.
    """

    code = "E0512"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[1, 1024], pl.FP32]]):
            row = pl.reshape(x[0:16, 0:64], [1, 1024])
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(row)
            return out
        """

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


class BlockCount(UserError):
    """A `pl.spmd` launch has fewer than one block.

    The number of blocks is a positive integer. If there may be no work, put the launch inside an
    `if`.
    """

    code = "E0513"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            for i in pl.spmd(n // 16):
                out[i * 16 : i * 16 + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
            return out
        """

    def __init__(self, loc: Loc, count: object) -> None:
        super().__init__(
            f"launch of {count} blocks", [Label(loc, f"at run time, the block count is {count}")]
        )


class DependsOnTaskData(UserError):
    """The number of tasks was requested without running them, but it depends on what they compute.

    The control program reads an element that a task writes, and uses it in a loop bound or branch.
    The tasks that follow are known only after that task has run. Commands execute such a program
    once, on the inputs of the script; this error remains where there are no inputs.
    """

    code = "E0514"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.INT32], out: pl.Out[pl.Tensor[[16, 128], pl.INT32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.add(x, 1)
            for i in pl.range(pl.read(out, [0, 0])):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:] = pl.add(x, 2)
            return out
        """

    def __init__(self, loc: Loc, name: str) -> None:
        self.name = name
        super().__init__(
            f"the value of `{name}` depends on tasks that were not run",
            [Label(loc, "unknown while tasks are only counted")],
            helps=["run the program, which also counts its tasks"],
        )


class ExtentNotPositive(UserError):
    """A shape computed at run time has an extent below one.

    Tensors and views have at least one element. Check how the extent is computed, or put the code
    inside an `if`.
    """

    code = "E0515"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            scratch = pl.create_tensor([n - 1, 128], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, op: str, shape: Sequence[object], axis: int) -> None:
        super().__init__(
            f"shape `{shape_text(shape)}` of `{op}` has no elements",
            [Label(loc, f"at run time, the extent of axis {axis} is {shape[axis]}")],
        )
