"""Windows, indices, valid regions, and faults at run time (E05xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import optional, plural, shape_text


class WindowOutOfRange(UserError):
    """A slice, load, store or assemble reaches outside its tensor.

    Reported at compile time if it is certain, else when the kernel runs, with the actual numbers.
    A view that the control program takes may reach past the end of its tensor at run time, as long
    as nobody loads or stores what is not there: a block table of fixed width near its end.
    If the last window may be partial, take it with `pl.slice(..., clamp=True)` or `pl.load(...,
    clamp=True)`: what is outside is not valid, and a store of it writes nothing there. Or take the
    full shape with `valid_shape=` cut to what is left: `pl.min(size, extent - start)`.
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
        """`clamps`: the op has `clamp=`; `made`: where the tensor is made.

        whole: the extent of the view, of which only `extent` exists
        """
        of_name = f" of `{name}`" if name else ""
        nothing = isinstance(start, int) and isinstance(extent, int) and not 0 <= start < extent
        remedy = "cut the window with `valid_shape=`, or check the offset"
        if nothing:
            remedy = "no part of the window is inside: check the offset"
        elif clamps:
            remedy = (
                "if the last window may be partial, `pl.slice(..., clamp=True)` takes what is there"
            )
        end = (
            start + size if isinstance(start, int) and isinstance(size, int) else f"{start}+{size}"
        )
        said = "at run time, the window is out of range" if runtime else "out of range"
        labels = [Label(loc, said)]
        labels += [Label(made, f"`{name}` is made here")] if made is not None else []
        text = f"outside axis {axis}{of_name}, which has extent {extent}"
        if whole not in (None, extent):
            text = (
                f"outside axis {axis} of a view{of_name} that reaches past its end: only {extent} "
                f"of its {whole} exist"
            )
        super().__init__(f"window {start}:{end} is {text}", labels, helps=[remedy])


class ValidShapeTooLarge(UserError):
    """A `valid_shape` is larger than the tile it describes, or a negative constant.

    The valid region is the part of the tile that holds data, counted from the tile's own origin: it
    is at most the tile's shape. A frequent slip is passing the tensor's total length for a shifted
    window; subtract the offset. An extent that is computed may be negative, as `length - offset` is
    beyond the end: then nothing is valid. The size of the window itself may be computed, too, in
    `@pl.program` classes (`x[0:n]`), but not negative.
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
        remedy = "it counts from the window's own start: use `pl.min(size, length - offset)`"
        if runtime and isinstance(valid, int) and valid < 0:
            remedy = "no window has a negative size: use `pl.max(size, 0)` where it may be nothing"
        super().__init__(
            f"valid extent {valid} does not fit a tile of {size} in axis {axis}",
            [Label(loc, f"must be 0 to {size}{' at run time' if runtime else ''}")],
            helps=[remedy],
        )


class IndexOutOfRange(UserError):
    """An index of an element is outside its tensor.

    Indices count from 0 to the extent minus one, in every axis. Gather and scatter check the
    indices they are given as data in the same way.
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

    Windows are `a:b` with a step of one and bounds from 0; there is no `...`, no `None`, no
    negative index and no index list. `pl.gather` picks by a list of indices.
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
    """A subscript or index list has more entries than the tensor has axes, or too few.

    `pl.read`, `pl.write` and subscripts in a `@pl.program` name every axis; in `@pl.jit` code
    missing trailing indices of a subscript mean the whole axis.
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

    The inner window is a value of its own, so nothing would reach the tensor. Write through one
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
            helps=["write through one subscript"],
        )


class NonConstantExtent(UserError):
    """The length of a window taken by a subscript is not a compile-time constant.

    `x[a:b]` becomes a tile of `b - a` rows, and tiles have constant shapes; the difference must
    cancel to a number, as in `x[k : k + 128]`. For a run-time length, take a constant window with
    `pl.slice(..., valid_shape=...)`.
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
            f"length of the window in axis {axis} is not a constant",
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
    """An integer is divided by zero, or its remainder by zero taken.

    Integers have no infinity, so the run stops and names the line. Float division follows IEEE and
    gives infinity or NaN.
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
            f"integer `{operator}` by zero", [Label(loc, "at run time, the right side is 0")]
        )


class ValidRegionLost(UserError):
    """An op would turn a partial valid region into something that is no longer a box.

    The valid region is always the rows and columns from the origin up to a limit. Reshaping a
    partially valid tile generally scatters them. Fill the rest first with `pl.fillpad`, then
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
            f"`{op}` of a partly valid value",
            [Label(loc, f"valid `{shape_text(valid)}` of `{shape_text(shape)}`")],
            helps=["fill the rest first: `pl.fillpad(x, pad_value=pl.PadValue.zero)`"],
        )


class ReshapeNeedsCopy(UserError):
    """A tensor in global memory is reshaped, but its window has gaps that no view can skip.

    Reshaping a tensor moves no data: the new shape is another view of the same memory. The rows of
    a window that is narrower than its tensor do not follow each other, so they cannot be joined.
    Reshape the whole tensor and take the window of that, or load the window in a scope and reshape
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
        self, loc: Loc, name: str, from_shape: Sequence[object], to_shape: Sequence[object]
    ) -> None:
        super().__init__(
            f"cannot view a window of `{name}` as `{shape_text(to_shape)}`",
            [Label(loc, f"the memory of this `{shape_text(from_shape)}` has gaps")],
            helps=["reshape the whole tensor first, or load the window and reshape the tile"],
        )


class BlockCount(UserError):
    """A `pl.spmd` launch asks for less than one block.

    The number of blocks is a positive integer. If there may be no work, put the launch under an
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
            f"a launch of {count} blocks", [Label(loc, f"at run time, the block count is {count}")]
        )


class DependsOnTaskData(UserError):
    """Tasks are counted without running them, but the count depends on what they compute.

    The control program reads an element that a task writes, and loops or branches on it. Which
    tasks follow is then known only after that task has run: run the program instead, which counts
    as well. `tilelet tasks` does so by itself; `tilelet profile` with `--execute`.
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
        super().__init__(
            f"tasks that are not run decide the value of `{name}`",
            [Label(loc, "unknown while tasks are only counted")],
            helps=["run the program: the run counts its tasks too"],
        )


class ExtentNotPositive(UserError):
    """A shape given by run-time numbers has an extent below one.

    Memory of zero or fewer elements cannot be made or viewed. Check how the number is computed, or
    put the code under an `if`.
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
