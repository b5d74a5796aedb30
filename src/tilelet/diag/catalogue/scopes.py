"""Scopes, loops and tasks (E04xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import ticked

_SCOPE = "`with pl.at(level=pl.Level.CORE_GROUP):`"
_AUTO_SCOPE = "`with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):`"


class ComputeOutsideScope(UserError):
    """A compute op is at the orchestration level, outside every scope.

    The entry function only orchestrates: it runs loops, creates views and submits tasks.
    Computation happens inside a scope, and each execution of a scope is one task.
    """

    code = "E0401"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            y = pl.exp(x)
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.neg(y)
            return out
        """

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"compute op `{op}` outside a scope",
            [Label(loc, "there is no core to run it on here")],
            helps=[f"wrap it in a scope: {_SCOPE}"],
        )


class NestedScope(UserError):
    """A scope is nested in another scope.

    A scope is the work of one task on one core, and a task cannot submit tasks. Move the inner
    scope out, or remove one of the two.
    """

    code = "E0402"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.range(0, 64, 16):
                    with pl.at(level=pl.Level.CORE_GROUP):
                        out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc, outer_loc: Loc) -> None:
        super().__init__(
            "scopes cannot be nested",
            [Label(loc, "inner scope"), Label(outer_loc, "outer scope")],
            helps=["remove one of the two"],
        )


class ChunkOutsideAutoScope(UserError):
    """A loop has `chunk=` but is not inside an automatic scope.

    `chunk=` tells an automatic scope (`pl.auto_incore()`, or `pl.at(...)` with
    `optimizations=[pl.auto_chunk]`) how to split the loop into tasks. Without an automatic scope,
    split the loop by hand: write an outer loop with that step and a scope inside it. `@pl.program`
    classes keep the behavior of the first language versions: a loop that contains no scope gets
    one, and any other loop is not split.
    """

    code = "E0403"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r in pl.parallel(0, 64, 1, chunk=16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 1, :] = pl.exp(x[r : r + 1, :])
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "`chunk=` outside an automatic scope",
            [Label(loc, "no automatic scope splits this loop")],
            helps=[f"put the loop in {_AUTO_SCOPE}"],
        )


class ScalarLeavesScope(UserError):
    """A scalar computed inside a scope is used outside it.

    A task returns tensors, not scalars: a scalar exists only on the core that runs the task. Write
    it into a tensor with `pl.write` and read it back with `pl.read`.
    """

    code = "E0404"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            counts: pl.Tensor[[1, 8], pl.INT32],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                n = pl.read(counts, [0, 0])
                out[0:16, :] = pl.exp(x[0:16, :])
            for i in pl.range(n):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[0:16, :] = pl.neg(x[0:16, :])
            return out
        """

    def __init__(self, use_loc: Loc, name: str, def_loc: Loc) -> None:
        super().__init__(
            f"scalar `{name}` is computed in a scope and used outside it",
            [Label(use_loc, "used here"), Label(def_loc, "exists only inside its scope")],
            helps=["compute it outside the scope, or pass it through a tensor"],
        )


class BadScopeArgument(UserError):
    """An argument of a scope or loop has the wrong kind of value.

    The message says what is expected. Options of scopes and loops are compile-time constants.
    """

    code = "E0405"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint=3):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, scope: str, keyword: str, got: str, expected: str) -> None:
        super().__init__(
            f"argument `{keyword}` of `{scope}` must be {expected}",
            [Label(loc, f"this is {got}")],
        )


class SeveralContextManagers(UserError):
    """One `with` statement opens more than one scope.

    Each scope is a separate task and needs its own `with`.
    """

    code = "E0406"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.manual_scope(), pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "one `with` opens more than one scope",
            [Label(loc, "second context manager")],
            helps=["nest two `with` statements"],
        )


class NotAScope(UserError):
    """A `with` statement opens something that is not a scope of the language.

    Scopes are `pl.at(...)`, `pl.spmd(...)`, `pl.manual_scope()`, `pl.scope(...)`, `pl.cluster()`,
    and the older `pl.incore()` and `pl.auto_incore()`.
    """

    code = "E0407"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with open("log.txt"):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "`with` needs a scope of the language",
            [Label(loc, "not a scope")],
            helps=[f"for example {_SCOPE}"],
        )


class BadChunk(UserError):
    """The chunk size of a loop is not a positive constant, is too large, or its policy is unknown.

    The loop is split at compile time into an outer loop and an inner loop of `chunk` iterations.
    The policies are `leading_full` (full chunks and a remainder) and `guarded` (a bounds check in
    each iteration).
    """

    code = "E0408"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x: pl.Tensor[[64, 128], pl.FP32], out: pl.Tensor[[64, 128], pl.FP32]):
                with pl.auto_incore():
                    for r in pl.parallel(0, 64, 1, chunk=0):
                        out = pl.assemble(out, pl.exp(pl.slice(x, [1, 128], [r, 0])), [r, 0])
                return out
        """

    def __init__(self, loc: Loc, got: str, most: int) -> None:
        super().__init__(
            f"chunk is {got}, expected a constant from 1 to {most}",
            [Label(loc, "cannot split the loop")],
        )


class NonConstantUnroll(UserError):
    """The bounds of `pl.unroll` are not compile-time constants.

    The body is copied once per iteration before the kernel is compiled, so the trip count must be
    known. Use `pl.range`, or `pl.pipeline` to overlap iterations.
    """

    code = "E0409"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            for i in pl.unroll(n):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[0:16, :] = pl.exp(x[0:16, :])
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "the bounds of `pl.unroll` are not constants",
            [Label(loc, "known only at run time")],
            helps=["use `pl.range`"],
        )


class TooManyCopies(UserError):
    """`pl.unroll` would make more copies of a loop body than the compiler accepts.

    Every iteration becomes a separate copy of the body, and the counts of nested loops multiply.
    Use `pl.range` for the outer loops.
    """

    code = "E0418"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for i in pl.unroll(1000000):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[0:16, :] = pl.exp(x[0:16, :])
            return out
        """

    def __init__(self, loc: Loc, trips: int, copies: int, most: int) -> None:
        inside = f", {copies:,} counting the enclosing loops" if copies > trips else ""
        super().__init__(
            f"`pl.unroll` makes {trips:,} copies of its body{inside}; the limit is {most:,}",
            [Label(loc, "too many iterations")],
            helps=["use `pl.range`"],
        )


class OnlyInScope(UserError):
    """Something that runs on a core is used at the orchestration level.

    On-chip loads, stores and moves, block indices and atomic adds are allowed only inside a scope
    or an InCore function.
    """

    code = "E0410"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            tile = pl.load(x, [0, 0], [16, 128])
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"{what} is allowed only inside a scope",
            [Label(loc, "this is the orchestration level")],
            helps=[f"wrap it in a scope: {_SCOPE}"],
        )


class OutsideLanes(UserError):
    """`pl.aiv_shard` or `pl.aic_gather` is used outside a `pl.split_aiv` loop.

    Both ops take the split mode and the lane from the enclosing loop, `for lane in pl.split_aiv(2,
    mode=...)`.
    """

    code = "E0419"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[8, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.aiv_shard(x)
            return out
        """

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"`{what}` is allowed only inside a `pl.split_aiv` loop",
            [Label(loc, "no vector lane is selected here")],
            helps=["write it in `for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):`"],
        )


class BarrierInKernel(UserError):
    """A barrier in a hand-written kernel separates accesses of different blocks to one tensor.

    Tilelet runs the blocks of a launch one after the other, so a block would not see what a later
    block writes before the barrier. Write the body as `for block in pl.spmd(n):`; the code after a
    barrier then becomes a separate launch.
    """

    code = "E0420"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def body(
                self, x: pl.Tensor[[32, 16], pl.FP32], y: pl.InOut[pl.Tensor[[32, 16], pl.FP32]]
            ):
                row = pl.tile.get_block_idx() * 16
                y = pl.store(pl.load(x, [row, 0], [16, 16]), [row, 0], y)
                pl.system.syncall()
                y = pl.store(pl.load(y, [16 - row, 0], [16, 16]), [row, 0], y)
                return y

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(
                self, x: pl.Tensor[[32, 16], pl.FP32], y: pl.InOut[pl.Tensor[[32, 16], pl.FP32]]
            ):
                with pl.spmd(2):
                    y = self.body(x, y)
                return y
        """

    def __init__(self, loc: Loc, name: str, declared: Loc) -> None:
        super().__init__(
            f"a barrier inside a kernel cannot order accesses of its blocks to `{name}`",
            [
                Label(loc, "blocks run one after the other"),
                Label(declared, ("used before and after the barrier")),
            ],
            helps=["write the body as `for block in pl.spmd(n):`"],
        )


class OnlyAtOrchestration(UserError):
    """Something that submits or controls tasks is used inside a scope.

    A task cannot submit tasks or wait for them. Task control belongs in the entry function, outside
    every scope.
    """

    code = "E0411"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def body(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return pl.exp(x)

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
                with pl.incore():
                    y, tid = pl.submit(self.body, x)
                return y
        """

    def __init__(self, loc: Loc, what: str, scope_loc: Loc | None = None) -> None:
        labels = [Label(loc, "inside a task")]
        if scope_loc is not None:
            labels.append(Label(scope_loc, "the scope"))
        super().__init__(f"{what} is not allowed inside a scope", labels)


class BadDependency(UserError):
    """An entry of `deps=` is not a task id.

    Entries are task ids (`with pl.at(...) as tid`, or the last result of `pl.submit`), arrays of
    task ids, or None.
    """

    code = "E0412"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP, deps=[x]):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, got: str) -> None:
        super().__init__(
            "`deps=` takes task ids",
            [Label(loc, f"this is {got}")],
            helps=["name the task to wait for (`with pl.at(...) as tid:`) and pass `deps=[tid]`"],
        )


class BadPredicate(UserError):
    """The `predicate=` of a task is not a single comparison of a tensor element with an int.

    The runtime evaluates the predicate when the task is ready, so it is limited to the form `t[i] >
    0`. Compute anything more complex into a tensor element first.
    """

    code = "E0413"
    example = """
        @pl.jit.incore
        def body(x: pl.Tensor, out: pl.Out[pl.Tensor]):
            out[:] = pl.exp(x)
            return out

        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 128], pl.FP32],
            flags: pl.Tensor[[1, 8], pl.INT32],
            out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
        ):
            out, tid = pl.submit(body, x, out, predicate=(flags[0, 0] + flags[0, 1] > 0))
            return out
        """

    def __init__(self, loc: Loc, why: str) -> None:
        super().__init__(
            "`predicate=` must compare one tensor element with an int literal", [Label(loc, why)]
        )


class ZeroStep(UserError):
    """A loop has a step of zero.

    The loop would never reach its end. If the step becomes zero at run time, the run stops before
    the first iteration.
    """

    code = "E0414"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r in pl.range(0, 64, 0):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__("loop step is zero", [Label(loc, "would never end")])


class TileLeavesSpmd(UserError):
    """A tile computed by the blocks of an `spmd` scope is used after the scope.

    Every block computes its own tile, so there is no single tile to return. Let each block write
    its part of a tensor, `out[r : r + 16, :] = ...`, and use the tensor afterwards.
    """

    code = "E0415"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for i in pl.spmd(4):
                y = pl.exp(x)
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = y
            return out
        """

    def __init__(self, loc: Loc, spmd_loc: Loc) -> None:
        super().__init__(
            "a tile cannot leave an `spmd` scope",
            [Label(loc, "each block has its own copy"), Label(spmd_loc, "runs several blocks")],
            helps=["let each block write its part of a tensor"],
        )


class LevelWithRole(UserError):
    """A `CORE_GROUP` scope has a `role=`.

    Roles apply only to levels above a core group. Remove `role=`.
    """

    code = "E0416"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP, role=pl.Role.Worker):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "`role=` has no meaning for a CORE_GROUP scope",
            [Label(loc)],
            helps=["remove `role=`"],
        )


class LoopKeyword(UserError):
    """A loop has an option that its kind does not support, or two options that exclude each other.

    `chunk=` is for `range`, `parallel` and `unroll`; `stage=` is for `pipeline`; `init_values=` is
    for all loops but `unroll`.
    """

    code = "E0417"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for i, (a,) in pl.unroll(4, init_values=(x,)):
                b = pl.yield_(a)
            return out
        """

    def __init__(self, loc: Loc, loop: str, keyword: str, allowed: Sequence[str], why: str = ""):
        super().__init__(
            f"`{loop}` does not accept `{keyword}=`",
            [Label(loc, why)],
            helps=[f"`{loop}` accepts {ticked(allowed, 'and')}"] if allowed else [],
        )
