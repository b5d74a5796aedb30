"""Cautions: the run goes on (W0xxx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import optional, shape_text


class RetiredSpelling(Caution):
    """The program uses an older spelling of something that has a newer one.

    It works and means the same. The note gives the modern form.
    """

    code = "W0101"
    severity = "note"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
                with pl.incore():
                    out = pl.assemble(out, pl.exp(x), [0, 0])
                return out
        """

    def __init__(self, loc: Loc, old: str, new: str) -> None:
        super().__init__(f"`{old}` is retired: write `{new}`", [Label(loc)])


class ClearedByArithmetic(Caution):
    """Memory that nobody has written is cleared by arithmetic: `x * 0` or `x - x`.

    That gives zeros here, though on a device such memory may hold NaN. Any other use of memory that
    was never written shows in the results. `pl.full` says what is meant.
    """

    code = "W0103"
    severity = "note"
    example = """
        @pl.jit
        def kernel(out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.create_tensor([16, 128], pl.FP32)
                acc = pl.mul(acc, 0.0)
                out[:, :] = acc
            return out
        """

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"`pl.{op}` makes zeros of memory that was never written: write `pl.full(..., 0.0)`",
            [Label(loc)],
        )


class NoEffect(Caution):
    """Something in the program is accepted but changes nothing here.

    It tunes a part of the vendor's toolchain that Tilelet does not have; results do not depend on
    it.
    """

    code = "W0102"
    severity = "note"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP, allow_early_resolve=True):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, what: str, why: str = "") -> None:
        super().__init__(f"{what} has no effect here", [Label(loc)], notes=optional(why))


class LoopMayNotRun(Caution):
    """A name first bound in a loop is used after it, and the loop may have no iterations.

    If it runs at least once the name holds the last iteration's value. If it does not, the value is
    undefined: bind the name before the loop.
    """

    code = "W0201"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                for i in pl.range(n):
                    last = pl.slice(x, [16, 128], [i * 16, 0])
                out[:] = last
            return out
        """

    def __init__(self, loop: Loc, name: str) -> None:
        super().__init__(
            f"`{name}` is undefined if the loop does not run",
            [Label(loop, f"binds `{name}`, and may have no iterations")],
            helps=[f"bind `{name}` before the loop"],
        )


class OutputNotWritten(Caution):
    """A `pl.Out` parameter is never written by its kernel.

    It comes back with whatever was in memory. Write it, or declare it as an input. What a draft
    leaves for later is no mistake yet; a golden says what is missing.
    """

    code = "W0204"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                y = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"output `{name}` is never written",
            [Label(loc, "declared `pl.Out`")],
            helps=[f"write `{name}[:] = ...`, or drop `pl.Out`"],
        )


class DirectionIgnored(Caution):
    """A parameter of an inline function is wrapped in `pl.Out` or `pl.InOut`.

    An inline function's parameters are other names for the caller's values, so the direction is the
    caller's. Remove the wrapper.
    """

    code = "W0203"
    example = """
        @pl.jit.inline
        def double(x: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            return pl.add(x, x)

        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = double(x)
            return out
        """

    def __init__(self, loc: Loc, param: str) -> None:
        super().__init__(
            f"direction of inline parameter `{param}` is ignored",
            [Label(loc, "the caller's value decides")],
        )


class PromotedToTile(Caution):
    """A subscript gives a value of fewer than two dimensions, which becomes a two-dimensional tile.

    Tiles have rows and columns; a one-dimensional window becomes one row. Keep both axes in the
    subscript to say so yourself.
    """

    code = "W0304"
    severity = "note"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[1, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x[3])
            return out
        """

    def __init__(self, loc: Loc, shape: Sequence[object], tile: Sequence[object]) -> None:
        super().__init__(
            f"window `{shape_text(shape)}` becomes a tile `{shape_text(tile)}`", [Label(loc)]
        )


class ImplicitScope(Caution):
    """A compute op outside every scope was given a scope of its own.

    In Opaque functions of a `@pl.program`, neighbouring compute ops at the orchestration level
    become one task each time they are executed. Write the scope to say where the task starts and
    ends.
    """

    code = "W0401"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
                zero = pl.mul(x, 0.0)
                with pl.incore():
                    out = pl.assemble(out, pl.exp(zero), [0, 0])
                return out
        """

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"compute op `{op}` outside a scope becomes a task of its own",
            [Label(loc, "an implicit scope starts here")],
            helps=["write the scope: `with pl.at(level=pl.Level.CORE_GROUP):`"],
        )


class LanesAtOnce(Caution):
    """A kernel that two vector cores share asks which of them it runs on.

    The halves of its tiles are computed here at once, as by core 0, which is right if the kernel is
    written for whole tiles. Work that a kernel divides by hand belongs in `pl.split_aiv`.
    """

    code = "W0403"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 16], pl.FP32],
            out: pl.Out[pl.Tensor[[32, 16], pl.FP32]],
        ):
            with pl.at(
                level=pl.Level.CORE_GROUP, optimizations=[pl.split(pl.SplitMode.UP_DOWN)]
            ):
                lane = pl.tile.get_subblock_idx()
                out[lane * 16 : lane * 16 + 16, :] = pl.add(pl.matmul(a, a), 1.0)
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "two vector cores share this kernel, but it runs here as on core 0",
            [Label(loc, "always 0 here")],
            helps=["divide work by hand with `for lane in pl.split_aiv(2, mode=...):`"],
        )


class AssembleCopies(Caution):
    """An assemble at the orchestration level copies data, in a task of its own.

    It costs nothing if its source can be computed in place, in a window of the target: a tensor
    made here or a scope's result, assembled exactly once. Otherwise the data is copied.
    """

    code = "W0402"
    severity = "note"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            out = pl.assemble(out, x, [0, 0])
            return out
        """

    def __init__(self, loc: Loc, why: str = "") -> None:
        super().__init__(
            "this assemble copies, in a task of its own", [Label(loc)], notes=optional(why)
        )


class OwnExtents(Caution):
    """A tensor has other extents than the dynamic dimensions of its declaration have elsewhere.

    A `pl.dynamic` symbol stands for one number, which is that of the first parameter with it.
    Programs were published that break this rule and run, because the runtime knows the shape of
    every tensor by itself; so does the harness. In a direct call it is an error. A tensor that is
    declared as the transposed one, with `pl.DN`, is taken as it lies in memory.
    """

    code = "W0602"
    severity = "note"
    example = """
        M = pl.dynamic("M")

        @pl.program
        class Folded:
            @pl.function(type=pl.FunctionType.Orchestration)
            def fold(
                self, x: pl.Tensor[[M], pl.FP32], out: pl.Out[pl.Tensor[[M, 8], pl.FP32]]
            ):
                rows = pl.reshape(x, [4, 8])
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.exp(rows), [0, 0])
                return out
        """

    def __init__(self, loc: Loc, name: str, declared: str, found: str) -> None:
        super().__init__(
            f"`{name}` is taken as `{found}`, not as `{declared}`",
            [Label(loc, "the argument has other extents")],
            helps=["use one `pl.dynamic` for each extent, and declare a tensor as it is stored"],
        )


class ValidationSkipped(Caution):
    """Nothing was compared, so the run says nothing about the results.

    The program ran, but there is no golden function and no stored data, or no output. Give a
    `golden_fn`.
    """

    code = "W0601"
    severity = "note"

    def __init__(self, why: str) -> None:
        super().__init__(f"validation skipped: {why}")
