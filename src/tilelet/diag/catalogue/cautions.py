"""Cautions, which do not stop the run (W0xxx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import optional, shape_text, ticked


class RetiredSpelling(Caution):
    """The program uses an older spelling that has been replaced.

    It still works and means the same. The note gives the current form.
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
        super().__init__(f"`{old}` is deprecated: write `{new}`", [Label(loc)])


class ClearedByArithmetic(Caution):
    """Unwritten memory is zeroed by arithmetic: `x * 0` or `x - x`.

    Tilelet returns zeros, but on a device such memory may contain NaN. Any other use of unwritten
    memory shows up in the results. Use `pl.full` instead.
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
            f"`pl.{op}` zeroes memory that was never written: write `pl.full(..., 0.0)`",
            [Label(loc)],
        )


class NoEffect(Caution):
    """The program uses something that Tilelet accepts and ignores.

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
        super().__init__(f"{what} has no effect in Tilelet", [Label(loc)], notes=optional(why))


class LoopMayNotRun(Caution):
    """A name first bound in a loop is used after the loop, which may have no iterations.

    If the loop runs, the name has the value of the last iteration. If it does not, the value is
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
            [Label(loop, f"binds `{name}` and may have no iterations")],
            helps=[f"bind `{name}` before the loop"],
        )


class OutputNotWritten(Caution):
    """A `pl.Out` parameter is never written by its kernel.

    The caller gets back whatever was in memory. Write the output, or declare it as an input. In an
    unfinished kernel this caution is expected; comparing with a golden shows what is missing.
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

    The parameters of an inline function are other names for the caller's values, so the caller
    decides the direction. Remove the wrapper.
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
            [Label(loc, "the caller's value decides the direction")],
        )


class PromotedToTile(Caution):
    """A subscript produces a value of fewer than two dimensions, which becomes a two-dimensional
    tile.

    Tiles have rows and columns; a one-dimensional window becomes one row. To make this explicit,
    keep both axes in the subscript.
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
    """A compute op outside every scope is wrapped in an implicit scope.

    In Opaque functions of a `@pl.program`, consecutive compute ops at the orchestration level
    become one task per execution. Write the scope explicitly to control where the task starts and
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
            f"compute op `{op}` outside a scope becomes a separate task",
            [Label(loc, "an implicit scope starts here")],
            helps=["write the scope: `with pl.at(level=pl.Level.CORE_GROUP):`"],
        )


class LanesAtOnce(Caution):
    """A kernel shared by two vector cores asks which of them it runs on.

    Tilelet computes both halves of a tile at once and reports core 0. This is correct if the kernel
    is written for whole tiles. To divide the work by hand, use `pl.split_aiv`.
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
            "two vector cores share this kernel, but Tilelet runs it as core 0",
            [Label(loc, "always 0 in Tilelet")],
            helps=["divide work by hand with `for lane in pl.split_aiv(2, mode=...):`"],
        )


class AssembleCopies(Caution):
    """An assemble at the orchestration level copies data, in a separate task.

    It is free if its source can be computed in place, in a window of the target: the source must be
    a tensor created here or the result of a scope, assembled exactly once. Otherwise the data is
    copied.
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
            "this assemble copies its source, in a separate task", [Label(loc)], notes=optional(why)
        )


class OwnExtents(Caution):
    """The extents of a tensor contradict the dynamic dimensions of its declaration.

    A `pl.dynamic` symbol stands for one extent, taken from the first parameter that uses it. Some
    published programs break this rule and run, because the runtime knows the shape of every tensor;
    the harness therefore accepts them. In a direct call it is an error. A tensor declared
    transposed, with `pl.DN`, is taken as it is stored in memory.
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
            helps=["use one `pl.dynamic` per extent, and declare tensors as they are stored"],
        )


class ValidationSkipped(Caution):
    """Nothing was compared, so the run does not validate the results.

    The program ran, but it has no golden function and no stored data, or no output. Pass a
    `golden_fn`.
    """

    code = "W0601"
    severity = "note"

    def __init__(self, why: str) -> None:
        super().__init__(f"validation skipped: {why}")


class GoldenLeftOutputs(Caution):
    """The golden function changed no output, so outputs are compared with their initial data.

    This is right if a step has nothing to do. Otherwise the golden probably rebinds a name: write
    the expected values in place.
    """

    code = "W0603"

    def __init__(self, outputs: Sequence[str], loc: Loc | None = None) -> None:
        super().__init__(
            f"the golden function left {ticked(outputs, 'and')} unchanged",
            [Label(loc, "this golden function")] if loc is not None else [],
            notes=["outputs are compared with their initial data"],
            helps=[f'write in place: `tensors["{outputs[0]}"][:] = ...`'],
        )


class HoldsForInputs(Caution):
    """A program was executed to record its tasks, so the answer holds for its inputs only.

    The control program reads what a task computes, and decides by it which tasks follow: a mixture
    of experts whose token counts come from a task, for example. `tilelet check`, `profile`,
    `advise`, `tune` and `tasks` execute such a program once, on the inputs of the script, and work
    on the tasks of that run. Other inputs may have other tasks. The digest is a checksum of the
    inputs: two answers with the same digest are about the same data.
    """

    code = "W0604"
    severity = "note"

    def __init__(self, program: str, name: str, inputs: Sequence[str], digest: str) -> None:
        named = ticked(inputs, "and") if inputs else "none"
        super().__init__(
            f"`{program}` was executed: `{name}`, which its tasks compute, decides which tasks "
            f"follow; the answer holds for these inputs: {named} (digest {digest})"
        )
