"""What would make a program faster or clearer (W13xx), and why nothing can be said (E13xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.tables import byte_text
from tilelet.diag.text import plural, ticked

# Kernels that have the faults; several have the same one.
_TWO_SCOPES = """
    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        middle = pl.create_tensor([16, 512], pl.FP32)
        for k in pl.range(0, 512, 64):
            with pl.at(level=pl.Level.CORE_GROUP):
                middle = pl.assemble(middle, pl.exp(x[:, k : k + 64]), [0, k])
            with pl.at(level=pl.Level.CORE_GROUP):
                t = pl.slice(middle, [16, 64], [0, k])
                out = pl.assemble(out, pl.add(t, x[:, k : k + 64]), [0, k])
        return out
    """
_SUM = """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 512], pl.BF16],
        w: pl.Tensor[[512, 512], pl.BF16],
        out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
    ):
        for d in pl.range(0, 512, 128):
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.assemble(out, pl.full([16, 128], pl.FP32, 0.0), [0, d])
        for k in pl.range(0, 512, 64):
            with pl.at(level=pl.Level.CORE_GROUP):
                chunk = pl.mul(x[:, k : k + 64], 2.0)
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    so_far = pl.slice(out, [16, 128], [0, d])
                    part = pl.matmul(chunk, w[k : k + 64, d : d + 128], out_dtype=pl.FP32)
                    out = pl.assemble(out, pl.add(so_far, part), [0, d])
        return out
    """
_ONE_TILE = """
    @pl.jit
    def kernel(x: pl.Tensor[[1024, 512], pl.FP32], out: pl.Out[pl.Tensor[[1024, 512], pl.FP32]]):
        for k in pl.range(0, 1024, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[k : k + 16, 0:64] = pl.exp(x[k : k + 16, 0:64])
        return out
    """
_READS = """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 512], pl.FP32],
        lengths: pl.Tensor[[16], pl.INT32],
        out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
    ):
        for b in pl.range(16):
            with pl.at(level=pl.Level.CORE_GROUP):
                for k in pl.range(0, 512, 64):
                    if pl.read(lengths, [b]) > k:
                        out[b : b + 1, k : k + 64] = pl.exp(x[b : b + 1, k : k + 64])
        return out
    """
_NORM = """
    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            mean = pl.mul(pl.row_sum(pl.mul(x, x)), 1.0 / 512)
            out[:, :] = pl.row_expand_mul(x, pl.add(mean, 1e-6))
        return out
    """
_PROSE = """
    KV_CHUNK = 128
    HEAD_DIM = 128


    @pl.jit
    def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
        # tiles of 16 \u00d7 128, KV_CHUNK=64
        for kb in pl.range(4):
            kv0 = kb * KV_CHUNK
            with pl.at(level=pl.Level.CORE_GROUP):
                head = kv0 // HEAD_DIM * HEAD_DIM
                out[:, head : head + 128] = pl.exp(x[:, kv0 : kv0 + KV_CHUNK])
        return out
    """


class CannotAdvise(UserError):
    """The script runs nothing that could be looked at, or does not run.

    Advice is about what a script runs: `tilelet run` says what is wrong with it.
    """

    code = "E1301"

    def __init__(self, script: str, why: str) -> None:
        super().__init__(f"no advice about `{script}`: {why}")


class RoundTrip(Caution):
    """A scope hands values to the next one through global memory.

    Each scope is a task of its own: what one makes and the next one uses is stored, and loaded
    again, and the second waits until the first has ended. In one scope it stays on chip.
    """

    code = "W1301"
    example = _TWO_SCOPES

    def __init__(self, first: Loc, second: Loc, names: Sequence[str]) -> None:
        super().__init__(
            f"{ticked(names, 'and')} {'goes' if len(names) == 1 else 'go'} through global memory "
            "from this scope to the next",
            [Label(first, "made here"), Label(second, "used here")],
            helps=["make one scope of both"],
        )


class SharedOperand(Caution):
    """Two scopes, one after the other, load the same window.

    In one scope it is loaded once. K and V projections, or gate and up, are the usual case: both
    read the same normalised rows.
    """

    code = "W1302"
    example = _TWO_SCOPES

    def __init__(self, first: Loc, second: Loc, windows: Sequence[str]) -> None:
        super().__init__(
            f"two scopes load {ticked(windows[:2], 'and')}",
            [Label(first, "loaded here"), Label(second, "and again here")],
            helps=["make one scope of both, which loads it once"],
        )


class AddedProduct(Caution):
    """A product is added to a sum by the vector unit.

    The cube adds to its accumulator while it multiplies: `pl.matmul_acc` needs no second pass over
    the result, and no trip from the cube to the vector unit.
    """

    code = "W1303"
    example = _SUM

    def __init__(self, loc: Loc, accumulator: str) -> None:
        super().__init__(
            f"a product is added to `{accumulator}` by the vector unit",
            [Label(loc)],
            helps=["`pl.matmul_acc` adds while it multiplies"],
        )


class DeadFill(Caution):
    """Memory is filled with a constant, and every element of it is written before it is read.

    The fill takes tasks, bandwidth, and often makes the writers wait for it.
    """

    code = "W1304"
    example = _SUM

    def __init__(self, loc: Loc, names: Sequence[str]) -> None:
        super().__init__(
            f"nobody reads what {ticked(names, 'and')} {'is' if len(names) == 1 else 'are'} "
            "filled with here",
            [Label(loc)],
            helps=["leave it out: all of it is written later"],
        )


class SumInMemory(Caution):
    """A sum is read from global memory, added to, and written back in every iteration.

    The tasks of one sum wait for each other, and each moves the sum twice. If the loops change
    places, the sum stays on chip until it is complete; what the outer loop makes is kept in memory
    for it.
    """

    code = "W1305"
    example = _SUM

    def __init__(self, loc: Loc, outer: Loc, window: str, chunk: str) -> None:
        super().__init__(
            f"`{window}` is read and written again for every `{chunk}`",
            [Label(loc, "one addition"), Label(outer, "repeated by this loop")],
            helps=[f"keep all `{chunk}` in memory, and sum up in a loop of its own"],
        )


class SequentialLoop(Caution):
    """A loop is sequential although its iterations do not depend on each other.

    `pl.parallel` tells the runtime so, and tasks of several iterations run at once.
    """

    code = "W1306"
    example = _TWO_SCOPES

    def __init__(self, loc: Loc, variable: str) -> None:
        super().__init__(
            f"iterations of `{variable}` do not depend on each other",
            [Label(loc)],
            helps=["`pl.parallel` lets them run at once"],
        )


class SmallTasks(Caution):
    """Tasks run for less time than it takes to submit, hand out and complete them.

    Larger tiles, more work in a scope, or `pl.spmd` (one submission for many blocks) help.
    """

    code = "W1307"
    example = _ONE_TILE

    def __init__(self, loc: Loc, kernel: str, tasks: int, each: float, overhead: float) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` run for {each:.2f} us each, and take "
            f"{overhead:.2f} us to hand out",
            [Label(loc)],
            helps=["do more in each: larger tiles, scopes that are one, or `pl.spmd`"],
        )


class FewTasks(Caution):
    """A kernel has fewer tasks than there are cores, and the program waits for it.

    Smaller tiles, or an inner dimension that is cut into parts, give the other cores work.
    """

    code = "W1308"
    example = _ONE_TILE

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` for {cores} cores",
            [Label(loc)],
            helps=["cut the work into more tasks: smaller tiles, or parts of the inner dimension"],
        )


class UnevenWave(Caution):
    """The last tasks of a kernel leave most cores idle.

    A number of tasks that is a multiple of the cores, or longest tasks first, evens that out.
    """

    code = "W1309"
    example = _ONE_TILE

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int, left: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` on {cores} cores: the last {left} run alone",
            [Label(loc)],
            helps=[f"choose tiles so that the tasks are a multiple of {cores}"],
        )


class OrchestratorBound(Caution):
    """The cores wait for tasks to be submitted.

    One orchestrator submits all tasks, one after the other. Fewer tasks are the remedy: larger
    scopes, `pl.spmd`, or chunks.
    """

    code = "W1310"
    example = _ONE_TILE

    def __init__(self, loc: Loc, tasks: int, share: float, kernel: str, of_it: int) -> None:
        super().__init__(
            f"for {share:.0%} of the time the cores wait until {tasks:,} tasks are submitted",
            [Label(loc, f"`{kernel}`: {of_it:,} of them")],
            helps=["submit fewer tasks: larger scopes, `pl.spmd`, or `chunk=`"],
        )


class ShortRows(Caution):
    """A transfer has rows shorter than what global memory moves at a time.

    The rest of each piece is moved and thrown away.
    """

    code = "W1311"
    example = _ONE_TILE

    def __init__(
        self, loc: Loc, tensor: str, rows: int, row_bytes: int, granule: int, machine: str
    ) -> None:
        super().__init__(
            f"{rows} rows of {row_bytes} bytes of `{tensor}`: {machine} moves {granule} at a time",
            [Label(loc)],
            helps=["make the tile wider, or lay the tensor out so that rows are longer"],
        )


class EmptyBuffers(Caution):
    """A kernel that waits for global memory uses little of the memory on chip.

    Larger tiles move more with each transfer, and are reused more often.
    """

    code = "W1312"
    example = _ONE_TILE

    def __init__(self, loc: Loc, kernel: str, memory: str, share: float) -> None:
        super().__init__(
            f"`{kernel}` waits for global memory, and fills {share:.0%} of {memory} at most",
            [Label(loc)],
            helps=["larger tiles, or two in turn (`pl.pipeline`); `tilelet tune` finds sizes"],
        )


class RepeatedRead(Caution):
    """A loop reads the same element of a tensor in every iteration.

    A scalar read from global memory takes about a microsecond. Read once, in front of the loop.
    """

    code = "W1313"
    example = _READS

    def __init__(self, loc: Loc, loop: Loc, what: str) -> None:
        super().__init__(
            f"`{what}` is read again in every iteration",
            [Label(loc), Label(loop, "of this loop")],
            helps=["read it once, in front of the loop"],
        )


class MissingRoot(Caution):
    """A mean of squares plus a small constant is used without its root.

    That is how RMSNorm and LayerNorm begin, and they go on with the reciprocal square root. A
    golden with the same mistake agrees with it.
    """

    code = "W1314"
    example = _NORM

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "a mean of squares plus a small constant is used without its square root",
            [Label(loc)],
            helps=["normalisation multiplies by `pl.rsqrt` of it"],
        )


class HiddenEquality(Caution):
    """A quotient is right only while two constants are equal.

    The script names them differently, so that somebody will change one of them.
    """

    code = "W1315"
    example = _PROSE

    def __init__(self, loc: Loc, quotient: str, step: str, divisor: str) -> None:
        super().__init__(
            f"`{quotient}` is right only while `{step}` equals `{divisor}`",
            [Label(loc)],
            helps=[f"`assert {step} == {divisor}`, or divide by `{step}`"],
        )


class StaleConstant(Caution):
    """A comment or docstring names a constant with another value than it has.

    Whoever reads it believes the text. Write the value, or better none.
    """

    code = "W1316"
    example = _PROSE

    def __init__(self, loc: Loc, name: str, said: int, value: int) -> None:
        super().__init__(
            f"the text says that `{name}` is {said}: it is {value}",
            [Label(loc)],
            helps=[f"write {value}"],
        )


class LookAlike(Caution):
    """A comment or docstring has a character that looks like one of the language.

    What is copied from there into a program does not compile, and searches do not find it.
    """

    code = "W1317"
    severity = "note"
    example = _PROSE

    def __init__(self, loc: Loc, character: str, meant: str) -> None:
        super().__init__(
            f"`{character}` (U+{ord(character):04X}) looks like `{meant}`",
            [Label(loc)],
            helps=[f"write `{meant}`"],
        )


class StoredAndLoaded(Caution):
    """A scope stores a tile in global memory, and loads the same window again.

    It has the tile on chip already. If nobody else reads the memory, the store is of no use either.
    """

    code = "W1318"
    example = _TWO_SCOPES

    def __init__(self, load: Loc, store: Loc, tensor: str) -> None:
        super().__init__(
            f"the scope has just stored this window of `{tensor}`",
            [Label(load, "loaded here"), Label(store, "stored here")],
            helps=["use the tile that was stored"],
        )


class ZerosReadBack(Caution):
    """Zeros are written to global memory only to be read back as the start of a sum.

    Tasks that read and write the same tensor wait for each other; a sum that starts on chip needs
    neither the load nor the fill.
    """

    code = "W1319"
    example = _SUM

    def __init__(self, load: Loc, fill: Loc, tensor: str) -> None:
        super().__init__(
            f"what is read of `{tensor}` here are the zeros it was filled with",
            [Label(load, "read here"), Label(fill, "filled here")],
            helps=["start with zeros on chip, and leave out the fill"],
        )


class OneScopeTensor(Caution):
    """A tensor in global memory is used by one scope only.

    Made inside the scope it is a tile on chip: nothing is stored, and nothing loaded again.
    """

    code = "W1320"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            for k in pl.range(0, 512, 64):
                both = pl.create_tensor([32, 64], pl.FP32)
                with pl.at(level=pl.Level.CORE_GROUP):
                    both = pl.assemble(both, pl.exp(x[:, k : k + 64]), [0, 0])
                    both = pl.assemble(both, pl.neg(x[:, k : k + 64]), [16, 0])
                    out[:, k : k + 64] = pl.slice(pl.mul(both, both), [16, 64], [0, 0])
            return out
        """

    def __init__(self, loc: Loc, scope: Loc, tensor: str) -> None:
        super().__init__(
            f"`{tensor}` is in global memory, and only one scope uses it",
            [Label(loc, "made here"), Label(scope, "used here")],
            helps=["make it inside the scope: there it is a tile on chip"],
        )


class LaunchInLoop(Caution):
    """A loop launches a task in every iteration, and each waits for the one before.

    One scope around the loop is one task: what iterations hand on stays on chip, and nothing is
    submitted in between.
    """

    code = "W1321"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                so_far = pl.full([16, 64], pl.FP32, 0.0)
            for k in pl.range(0, 512, 64):
                with pl.at(level=pl.Level.CORE_GROUP):
                    so_far = pl.maximum(so_far, x[:, k : k + 64])
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.assemble(out, so_far, [0, 0])
            return out
        """

    def __init__(self, loop: Loc, scope: Loc, name: str, carried: Sequence[str]) -> None:
        what = f", which hands on {ticked(carried[:3], 'and')}" if carried else ""
        super().__init__(
            f"every iteration of the loop over `{name}` launches a task{what}",
            [Label(scope, "launched here"), Label(loop, "by this loop")],
            helps=["put the scope around the loop"],
        )


_PRODUCT = """
    @pl.jit
    def kernel(
        x: pl.Tensor[[16, 512], pl.BF16],
        w: pl.Tensor[[512, 512], pl.BF16],
        out: pl.Out[pl.Tensor[[8, 512], pl.FP32]],
    ):
        for d in pl.range(0, 512, 128):
            padded = pl.create_tensor([16, 128], pl.FP32)
            with pl.incore():
                acc = pl.matmul(x[:, 0:64], w[0:64, d : d + 128], out_dtype=pl.FP32)
                for k in pl.range(64, 512, 64):
                    acc = pl.matmul_acc(acc, x[:, k : k + 64], w[k : k + 64, d : d + 128])
                padded = pl.assemble(padded, acc, [0, 0])
            with pl.incore():
                out = pl.assemble(out, pl.slice(padded, [8, 128], [0, 0]), [0, d])
        return out
    """


class NoPipeline(Caution):
    """A loop of a scope loads what it computes with, and loads and computing do not overlap.

    `pl.pipeline` loads for the next iteration while this one computes; it takes a second set of
    buffers on chip. Results are those of `pl.range`.
    """

    code = "W1322"
    example = _PRODUCT

    def __init__(self, loop: Loc, name: str, loads: int) -> None:
        super().__init__(
            f"the loop over `{name}` has {plural(loads, 'load')} and waits for each",
            [Label(loop)],
            helps=["`pl.pipeline` loads for the next iteration meanwhile"],
        )


class DiscardedRows(Caution):
    """Rows of a product are computed, and nobody reads them.

    The cube works on 16 rows at a time. Rows that are only there to fill them up are better used:
    by a second group of heads, or by more tokens.
    """

    code = "W1323"
    example = _PRODUCT

    def __init__(self, product: Loc, use: Loc, tensor: str, used: int, rows: int) -> None:
        super().__init__(
            f"{rows - used} of {rows} rows of this product are thrown away",
            [Label(product, f"{rows} rows"), Label(use, f"{used} rows of `{tensor}` are read")],
            helps=["let the other rows do work: two groups of heads can share a product"],
        )


class ExplicitScope(Caution):
    """The script says itself where every task begins and ends.

    In an automatic scope (`pl.auto_incore`, `pl.at(..., optimizations=[pl.auto_chunk])`) loops with
    `chunk=` decide that, and one number makes tasks larger or smaller: a tuner can vary it.
    """

    code = "W1324"
    example = _PRODUCT

    def __init__(self, first: Loc, explicit: int, automatic: int) -> None:
        super().__init__(
            f"{plural(explicit, 'explicit scope')}, {automatic or 'no'} automatic",
            [Label(first, "one of them")],
            helps=["an automatic scope around a loop with `chunk=` leaves the size of tasks open"],
        )


class CrossingTensor(Caution):
    """A tensor is written by one loop of tasks and only read by another.

    It goes out to global memory and back, and the second loop waits for the first. If each task of
    the second needs what one of the first makes, both can be one.
    """

    code = "W1325"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            middle = pl.create_tensor([16, 512], pl.FP32)
            for k in pl.range(0, 512, 64):
                with pl.at(level=pl.Level.CORE_GROUP):
                    middle = pl.assemble(middle, pl.exp(x[:, k : k + 64]), [0, k])
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:, d : d + 128] = pl.neg(pl.slice(middle, [16, 128], [0, d]))
            return out
        """

    def __init__(self, write: Loc, read: Loc, tensor: str, moved: int) -> None:
        super().__init__(
            f"`{tensor}` goes through global memory from one loop of tasks to another: "
            f"{byte_text(moved)}",
            [Label(write, "written here"), Label(read, "read here")],
            helps=[
                "make one loop of both, if tasks of the second need what one of the first makes"
            ],
        )
