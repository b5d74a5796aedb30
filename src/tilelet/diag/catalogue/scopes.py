"""Scopes, loops and tasks (E04xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import ticked

_SCOPE = "`with pl.at(level=pl.Level.CORE_GROUP):`"
_AUTO_SCOPE = "`with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):`"


class ComputeOutsideScope(UserError):
    """A compute op stands at the orchestration level, outside every scope.

    The entry function only controls: it loops, makes views and submits tasks. Work on data happens
    inside a scope, which becomes one task each time it is executed.
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
            [Label(loc, "no core to run it on here")],
            helps=[f"wrap it in a scope: {_SCOPE}"],
        )


class NestedScope(UserError):
    """A scope stands inside another scope.

    A scope is the work of one task on one core; a task cannot submit tasks. Move the inner scope
    out, or remove one of the two.
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
            [Label(loc, "a scope inside a scope"), Label(outer_loc, "the outer scope")],
            helps=["remove one of the two"],
        )


class ChunkOutsideAutoScope(UserError):
    """A loop has `chunk=` but no automatic scope is around it.

    `chunk=` tells an automatic scope (`pl.auto_incore()`, or `pl.at(...)` with
    `optimizations=[pl.auto_chunk]`) how to cut the loop into tasks. Without one, cut it by hand: an
    outer loop with that step, and a scope in it. Programs in classes take it as the first versions
    of the language did: a loop without scopes in it gets one, any other loop is not cut.
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
            [Label(loc, "nothing here splits the loop")],
            helps=[f"put the loop in {_AUTO_SCOPE}"],
        )


class ScalarLeavesScope(UserError):
    """A scalar computed inside a scope is used outside it.

    A task returns tensors, not numbers: its scalars live in the core that ran it. Write the scalar
    into a tensor with `pl.write` and read it back with `pl.read`.
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
            [Label(use_loc, "used here"), Label(def_loc, "lives only inside its scope")],
            helps=["compute it outside the scope, or pass it through a tensor"],
        )


class BadScopeArgument(UserError):
    """An argument of a scope or a loop has the wrong kind of value.

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

    Each scope is a task of its own, so each has its own `with`.
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
            helps=["write one `with` inside the other"],
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

    The loop is cut at compile time into an outer and an inner loop of `chunk` iterations. Policies
    are `leading_full` (full chunks and a remainder) and `guarded` (a check in each iteration).
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

    The body is copied once per iteration before the kernel is compiled, so the number of iterations
    must be known. Use `pl.range`, or `pl.pipeline` for overlapping iterations.
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
    """`pl.unroll` would copy loop bodies more often than any compiler can take.

    Every iteration is program text of its own, and loops inside each other multiply. Use `pl.range`
    for the outer ones.
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
        inside = f", {copies:,} with the loops around it" if copies > trips else ""
        super().__init__(
            f"`pl.unroll` makes {trips:,} copies of its body{inside}; the most are {most:,}",
            [Label(loc, "too many iterations")],
            helps=["use `pl.range`"],
        )


class OnlyInScope(UserError):
    """Something that runs on a core is used at the orchestration level.

    On-chip loads, stores and moves, block indices and atomic adds exist only inside a scope or an
    InCore function.
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
    """A tile is divided among vector lanes, or put together again, where no lane runs.

    `pl.aiv_shard` and `pl.aic_gather` take the mode and the lane from the loop around them,
    `for lane in pl.split_aiv(2, mode=...)`.
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
            f"`{what}` is allowed only where vector lanes are told apart",
            [Label(loc, "no lane runs here")],
            helps=["write it in `for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):`"],
        )


class BarrierInKernel(UserError):
    """A barrier in a hand-written kernel orders what its blocks do with one tensor.

    The blocks of a launch run here one after the other, so a block could not see what a later one
    wrote before the barrier. Write the body as `for block in pl.spmd(n):`, where what follows a
    barrier is a launch of its own.
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
            f"a barrier of a kernel cannot order what its blocks do with `{name}`",
            [Label(loc, "blocks run one after the other"), Label(declared, "used on both sides")],
            helps=["write the body as `for block in pl.spmd(n):`"],
        )


class OnlyAtOrchestration(UserError):
    """Something that submits or controls tasks is used inside a scope.

    A task cannot submit tasks or wait for them. Task control belongs to the entry function, outside
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
            helps=["name the task to wait for: `with pl.at(...) as tid:`, then `deps=[tid]`"],
        )


class BadPredicate(UserError):
    """The `predicate=` of a task is not one comparison of a tensor element with an int.

    The runtime evaluates it when the task is ready, so it can be no more than `t[i] > 0`. Compute
    anything else into a tensor element first.
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

    It would never reach its end. At run time the loop is stopped before its first iteration.
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
    """A tile computed by the blocks of an `spmd` scope is used after it.

    Every block computes its own tile, so there is no single one to hand on. Let each block write
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
            "a tile cannot leave the blocks of an `spmd` scope",
            [Label(loc, "each block has its own"), Label(spmd_loc, "several blocks")],
            helps=["let each block write its part of a tensor"],
        )


class LevelWithRole(UserError):
    """A `CORE_GROUP` scope is given a `role=`.

    Roles belong to the levels above a core group. A core group runs the scope's body; leave `role=`
    out.
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
    """A loop is given an option that its kind does not have, or two options that exclude each
    other.

    `chunk=` is for `range`, `parallel` and `unroll`; `stage=` for `pipeline`; `init_values=` for
    all but `unroll`.
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
            f"`{loop}` cannot have `{keyword}=`",
            [Label(loc, why)],
            helps=[f"`{loop}` takes {ticked(allowed, 'and')}"] if allowed else [],
        )
