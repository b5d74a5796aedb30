"""Advice about how a program uses the machine (W13xx)."""

from __future__ import annotations

from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import plural


class SmallTasks(Caution):
    """Tasks take less time to run than to submit, dispatch and complete.

    Use larger tiles, more work per scope, or `pl.spmd` (one submission for many blocks).
    """

    code = "W1307"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[4096, 128], pl.FP32],
            out: pl.Out[pl.Tensor[[4096, 128], pl.FP32]],
        ):
            for r in pl.parallel(0, 4096, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc, tasks: int, each: float, overhead: float) -> None:
        super().__init__(
            "tasks of this scope take less time to run than to dispatch",
            [Label(loc)],
            notes=[f"{plural(tasks, 'task')}: {each:.2f} us each, {overhead:.2f} us to dispatch"],
            helps=["do more work per task: larger tiles, merged scopes, or `pl.spmd`"],
        )


class FewTasks(Caution):
    """A kernel on the critical path has fewer tasks than there are cores.

    Smaller tiles, or a split inner dimension, give the other cores work.
    """

    code = "W1308"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 2048], pl.BF16],
            w: pl.Tensor[[2048, 3072], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 3072], pl.FP32]],
        ):
            for d in pl.parallel(0, 3072, 512):
                with pl.at(level=pl.Level.CORE_GROUP):
                    acc = pl.matmul(x[:, 0:64], w[0:64, d : d + 512], out_dtype=pl.FP32)
                    for k in pl.range(64, 2048, 64):
                        acc = pl.matmul_acc(acc, x[:, k : k + 64], w[k : k + 64, d : d + 512])
                    out[:, d : d + 512] = acc
            return out
        """

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` for {cores} cores",
            [Label(loc)],
            helps=[
                "split the work into more tasks: smaller tiles, or parts of the inner dimension"
            ],
        )


class UnevenWave(Caution):
    """The last wave of a kernel's tasks leaves most cores idle.

    Make the number of tasks a multiple of the number of cores, or run the longest tasks first.
    """

    code = "W1309"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 2048], pl.BF16],
            w: pl.Tensor[[2048, 3072], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 3072], pl.FP32]],
        ):
            for d in pl.parallel(0, 3072, 96):
                with pl.at(level=pl.Level.CORE_GROUP):
                    acc = pl.matmul(x[:, 0:256], w[0:256, d : d + 96], out_dtype=pl.FP32)
                    for k in pl.range(256, 2048, 256):
                        acc = pl.matmul_acc(acc, x[:, k : k + 256], w[k : k + 256, d : d + 96])
                    out[:, d : d + 96] = acc
            return out
        """

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int, left: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` on {cores} cores: the last {left} run alone",
            [Label(loc)],
            helps=[f"choose tiles so that the number of tasks is a multiple of {cores}"],
        )


class OrchestratorBound(Caution):
    """The cores wait for tasks to be submitted.

    One orchestrator submits all tasks, one after the other, so submit fewer: use larger scopes,
    `pl.spmd`, or chunks. A program that runs often with the same shapes can be submitted as a graph
    (`with pl.graph():`) if the runtime supports graphs: its tasks are prepared in advance.
    """

    code = "W1310"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[4096, 128], pl.FP32],
            out: pl.Out[pl.Tensor[[4096, 128], pl.FP32]],
        ):
            for r in pl.parallel(0, 4096, 8):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 8, :] = pl.exp(x[r : r + 8, :])
            return out
        """

    def __init__(self, loc: Loc, tasks: int, share: float, kernel: str, of_it: int) -> None:
        super().__init__(
            f"for {share:.0%} of the time the cores wait for {tasks:,} tasks to be submitted",
            [Label(loc, f"`{kernel}`: {of_it:,} of them")],
            helps=[
                "submit fewer tasks: larger scopes, `pl.spmd`, or `chunk=`",
                "or submit them as a graph: `with pl.graph():`; `--period 2026-09` models that",
            ],
        )


class ShortRows(Caution):
    """A transfer has rows shorter than the access granularity of global memory.

    The rest of each memory access is wasted.
    """

    code = "W1311"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[512, 512], pl.FP32], out: pl.Out[pl.Tensor[[512, 512], pl.FP32]]):
            for c in pl.parallel(0, 512, 32):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:, c : c + 32] = pl.exp(x[:, c : c + 32])
            return out
        """

    def __init__(
        self, loc: Loc, tensor: str, rows: int, row_bytes: int, granule: int, machine: str
    ) -> None:
        super().__init__(
            f"{rows} rows of {row_bytes} bytes of `{tensor}`: {machine} moves {granule} bytes at "
            "a time",
            [Label(loc)],
            helps=["use wider tiles, or a tensor layout with longer rows"],
        )


class EmptyBuffers(Caution):
    """A kernel that waits for global memory, or for its own latency, uses little on-chip memory.

    Larger tiles move more data per transfer, are reused more often, and need fewer transfers.
    """

    code = "W1312"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 2048], pl.BF16],
            w: pl.Tensor[[2048, 3072], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 3072], pl.FP32]],
        ):
            for d in pl.parallel(0, 3072, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    acc = pl.matmul(x[:, 0:32], w[0:32, d : d + 128], out_dtype=pl.FP32)
                    for k in pl.range(32, 2048, 32):
                        acc = pl.matmul_acc(acc, x[:, k : k + 32], w[k : k + 32, d : d + 128])
                    out[:, d : d + 128] = acc
            return out
        """

    def __init__(self, loc: Loc, kernel: str, bound: str, memory: str, share: float) -> None:
        super().__init__(
            f"`{kernel}` is bound by {bound} but fills at most {share:.0%} of {memory}",
            [Label(loc)],
            helps=[
                "use larger tiles or double buffering (`pl.pipeline`); `tilelet tune` finds sizes"
            ],
        )


class RepeatedRead(Caution):
    """A loop reads the same element of a tensor in every iteration.

    A scalar read from global memory takes about a microsecond. Hoist the read out of the loop.
    """

    code = "W1313"
    example = """
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

    def __init__(self, loc: Loc, loop: Loc, what: str) -> None:
        super().__init__(
            f"`{what}` is read again in every iteration",
            [Label(loc), Label(loop, "of this loop")],
            helps=["hoist the read out of the loop"],
        )


class SmallTransfers(Caution):
    """Single short rows are moved to or from global memory, one transfer each.

    Starting a transfer takes hundreds of nanoseconds regardless of its size, and global memory
    moves whole blocks. Collect rows on chip and move them in one transfer.
    """

    code = "W1329"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[256, 64], pl.FP32], out: pl.Out[pl.Tensor[[256, 64], pl.FP32]]):
            for r in pl.parallel(0, 256, 32):
                with pl.at(level=pl.Level.CORE_GROUP):
                    for i in pl.range(32):
                        out[r + i : r + i + 1, :] = pl.exp(x[r + i : r + i + 1, :])
            return out
        """

    def __init__(self, loc: Loc, tensor: str, row_bytes: int, times: int, stores: bool) -> None:
        super().__init__(
            f"{times:,} transfers of {row_bytes} bytes {'to' if stores else 'from'} `{tensor}`",
            [Label(loc)],
            helps=["move several rows at once: collect them in a tile, or use larger blocks"],
        )


class TileSize(Caution):
    """Another size of a tile, chunk or pipeline makes the program faster.

    Half and double of every number that cuts the work are modelled. `tilelet tune` searches more.
    """

    code = "W1330"
    example = """
        TILE = 16


        @pl.jit
        def kernel(x: pl.Tensor[[2048, 64], pl.FP32], out: pl.Out[pl.Tensor[[2048, 64], pl.FP32]]):
            for r in pl.parallel(0, 2048, TILE):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + TILE, :] = pl.exp(x[r : r + TILE, :])
            return out
        """

    def __init__(self, loc: Loc, name: str, value: int, better: int) -> None:
        super().__init__(
            f"`{name}` is {value}, and {better} is faster",
            [Label(loc)],
            helps=["`tilelet tune` tries more values, and several at once"],
        )
