"""What would make a program faster or clearer (W13xx), and why nothing can be said (E13xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.tables import byte_text
from tilelet.diag.text import plural, ticked


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
    example = """
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
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 512], pl.BF16],
            wk: pl.Tensor[[512, 4096], pl.BF16],
            wv: pl.Tensor[[512, 4096], pl.BF16],
            k: pl.Out[pl.Tensor[[16, 4096], pl.FP32]],
            v: pl.Out[pl.Tensor[[16, 4096], pl.FP32]],
        ):
            for d in pl.range(0, 4096, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    rows = pl.slice(x, [16, 512], [0, 0])
                    k[:, d : d + 128] = pl.matmul(rows, wk[:, d : d + 128], out_dtype=pl.FP32)
                with pl.at(level=pl.Level.CORE_GROUP):
                    rows = pl.slice(x, [16, 512], [0, 0])
                    v[:, d : d + 128] = pl.matmul(rows, wv[:, d : d + 128], out_dtype=pl.FP32)
            return k, v
        """

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
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 512], pl.BF16],
            w: pl.Tensor[[512, 512], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
        ):
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    acc = pl.full([16, 128], pl.FP32, 0.0)
                    for k in pl.range(0, 512, 64):
                        rows = w[k : k + 64, d : d + 128]
                        part = pl.matmul(x[:, k : k + 64], rows, out_dtype=pl.FP32)
                        acc = pl.add(acc, part)
                    out[:, d : d + 128] = acc
            return out
        """

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
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.full([16, 128], pl.FP32, 0.0), [0, d])
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.exp(x[:, d : d + 128]), [0, d])
            return out
        """

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
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 512], pl.BF16],
            w: pl.Tensor[[512, 512], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
        ):
            for d in pl.range(4):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.full([16, 128], pl.FP32, 0.0), [0, d * 128])
            for k in pl.range(8):
                with pl.at(level=pl.Level.CORE_GROUP):
                    chunk = pl.mul(x[:, k * 64 : k * 64 + 64], 2.0)
                for d in pl.range(4):
                    with pl.at(level=pl.Level.CORE_GROUP):
                        so_far = pl.slice(out, [16, 128], [0, d * 128])
                        rows = pl.slice(w, [64, 128], [k * 64, d * 128])
                        part = pl.matmul(chunk, rows, out_dtype=pl.FP32)
                        out = pl.assemble(out, pl.add(so_far, part), [0, d * 128])
            return out
        """

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
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[256, 512], pl.FP32], out: pl.Out[pl.Tensor[[256, 512], pl.FP32]]):
            middle = pl.create_tensor([256, 512], pl.FP32)
            for r in pl.range(0, 256, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    middle[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            for r in pl.parallel(0, 256, 32):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 32, :] = pl.neg(middle[r : r + 32, :])
            return out
        """

    def __init__(self, loc: Loc, variable: str) -> None:
        super().__init__(
            f"iterations of `{variable}` do not depend on each other",
            [Label(loc)],
            helps=["`pl.parallel` lets them run at once"],
        )


class MissingRoot(Caution):
    """A mean of squares plus a small constant is used without its root.

    That is how RMSNorm and LayerNorm begin, and they go on with the reciprocal square root. A
    golden with the same mistake agrees with it.
    """

    code = "W1314"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                mean = pl.mul(pl.row_sum(pl.mul(x, x)), 1.0 / 512)
                out[:, :] = pl.row_expand_mul(x, pl.add(mean, 1e-6))
            return out
        """

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
    example = """
        KV_CHUNK = 128
        HEAD_DIM = 128


        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            for kb in pl.range(4):
                kv0 = kb * KV_CHUNK
                with pl.at(level=pl.Level.CORE_GROUP):
                    head = kv0 // HEAD_DIM
                    out[:, head * 128 : head * 128 + 128] = pl.exp(x[:, kv0 : kv0 + KV_CHUNK])
            return out
        """

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
    example = """
        CHUNK = 128


        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            # columns in blocks of CHUNK=64
            for k in pl.range(0, 512, CHUNK):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:, k : k + CHUNK] = pl.exp(x[:, k : k + CHUNK])
            return out
        """

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
    example = """
        CHUNK = 128


        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            # tiles of 16 \u00d7 128
            for k in pl.range(0, 512, CHUNK):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:, k : k + CHUNK] = pl.exp(x[:, k : k + CHUNK])
            return out
        """

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
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 512], pl.FP32], out: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            middle = pl.create_tensor([16, 512], pl.FP32)
            for k in pl.range(0, 512, 64):
                with pl.at(level=pl.Level.CORE_GROUP):
                    middle = pl.assemble(middle, pl.exp(x[:, k : k + 64]), [0, k])
                    t = pl.slice(middle, [16, 64], [0, k])
                    out = pl.assemble(out, pl.add(t, x[:, k : k + 64]), [0, k])
            return out
        """

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
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 512], pl.BF16],
            w: pl.Tensor[[512, 512], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
        ):
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.full([16, 128], pl.FP32, 0.0), [0, d])
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    so_far = pl.slice(out, [16, 128], [0, d])
                    for k in pl.range(0, 512, 64):
                        rows = w[k : k + 64, d : d + 128]
                        part = pl.matmul(x[:, k : k + 64], rows, out_dtype=pl.FP32)
                        so_far = pl.add(so_far, part)
                    out = pl.assemble(out, so_far, [0, d])
            return out
        """

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


class NoPipeline(Caution):
    """A loop of a scope loads what it computes with, and loads and computing do not overlap.

    `pl.pipeline` loads for the next iteration while this one computes; it takes a second set of
    buffers on chip. Results are those of `pl.range`.
    """

    code = "W1322"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 512], pl.BF16],
            w: pl.Tensor[[512, 512], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 512], pl.FP32]],
        ):
            for d in pl.range(0, 512, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    acc = pl.matmul(x[:, 0:64], w[0:64, d : d + 128], out_dtype=pl.FP32)
                    for k in pl.range(64, 512, 64):
                        acc = pl.matmul_acc(acc, x[:, k : k + 64], w[k : k + 64, d : d + 128])
                    out[:, d : d + 128] = acc
            return out
        """

    def __init__(self, loop: Loc, name: str, loads: int) -> None:
        super().__init__(
            f"the loop over `{name}` has {plural(loads, 'load')} and waits for each",
            [Label(loop)],
            helps=["`pl.pipeline` loads for the next iteration meanwhile"],
        )


class DiscardedRows(Caution):
    """Rows or columns of a product are computed, and nobody reads them.

    The cube works on 16 rows and columns at a time. Those that are only there to fill them up are
    better used: by a second group of heads, by more tokens, or by the columns of another weight.
    """

    code = "W1323"
    example = """
        @pl.jit
        def kernel(
            q: pl.Tensor[[16, 128], pl.BF16],
            keys: pl.Tensor[[128, 512], pl.BF16],
            out: pl.Out[pl.Tensor[[8, 512], pl.FP32]],
        ):
            for d in pl.range(0, 512, 128):
                padded = pl.create_tensor([16, 128], pl.FP32)
                with pl.at(level=pl.Level.CORE_GROUP):
                    scores = pl.matmul(q[:, :], keys[:, d : d + 128], out_dtype=pl.FP32)
                    padded = pl.assemble(padded, scores, [0, 0])
                with pl.at(level=pl.Level.CORE_GROUP):
                    used = pl.slice(padded, [8, 128], [0, 0])
                    out = pl.assemble(out, pl.exp(used), [0, d])
            return out
        """

    def __init__(
        self, product: Loc, use: Loc, tensor: str, used: int, extent: int, what: str
    ) -> None:
        """`what`: "rows" or "columns"."""
        remedy = {
            "rows": "let the other rows do work: two groups of heads can share a product",
            "columns": "multiply with the columns that are read, and no others",
        }
        super().__init__(
            f"{extent - used} of {extent} {what} of this product are thrown away",
            [
                Label(product, f"{extent} {what}"),
                Label(use, f"{used} {what} of `{tensor}` are read"),
            ],
            helps=[remedy[what]],
        )


class ExplicitScope(Caution):
    """The script says itself where every task begins and ends.

    In an automatic scope (`pl.auto_incore`, `pl.at(..., optimizations=[pl.auto_chunk])`) loops with
    `chunk=` decide that, and one number makes tasks larger or smaller: a tuner can vary it.
    """

    code = "W1324"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[256, 512], pl.FP32], out: pl.Out[pl.Tensor[[256, 512], pl.FP32]]):
            a = pl.create_tensor([256, 512], pl.FP32)
            b = pl.create_tensor([256, 512], pl.FP32)
            for r in pl.parallel(0, 256, 16):
                with pl.incore():
                    a[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            for r in pl.parallel(0, 256, 16):
                with pl.incore():
                    b[r : r + 16, :] = pl.neg(x[r : r + 16, :])
            for r in pl.parallel(0, 256, 16):
                with pl.incore():
                    out[r : r + 16, :] = pl.add(a[r : r + 16, :], b[r : r + 16, :])
            return out
        """

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


class TwinLoops(Caution):
    """Two loops of tasks, one after the other, go over the same blocks.

    What the first makes of a block and the second uses goes through global memory, and what both
    load is loaded twice. In one loop the scopes of a block stand side by side, and can be one.
    """

    code = "W1326"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[256, 512], pl.FP32], out: pl.Out[pl.Tensor[[256, 512], pl.FP32]]):
            middle = pl.create_tensor([256, 512], pl.FP32)
            for r in pl.range(0, 256, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    middle[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            for r in pl.range(0, 256, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 16, :] = pl.add(middle[r : r + 16, :], 1.0)
            return out
        """

    def __init__(
        self, first: Loc, second: Loc, header: str, handed: Sequence[str], shared: Sequence[str]
    ) -> None:
        what = (
            f"{ticked(handed[:2], 'and')} {'goes' if len(handed) == 1 else 'go'} through memory"
            if handed
            else f"both load {ticked(shared[:1], 'and')}"
        )
        super().__init__(
            f"two loops over `{header}`: {what}",
            [Label(first, "one loop"), Label(second, "the same blocks again")],
            helps=["make one loop of both, then one scope of what it does with a block"],
        )


class ReadModifyWrite(Caution):
    """Tasks of a loop read a window of a tensor, change it, and write it again.

    The runtime runs tasks that read and write one tensor one after the other, and each of them
    moves the window twice. With the loop inside the scope it stays on chip until it is complete.
    """

    code = "W1327"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[32, 4096], pl.FP32], out: pl.InOut[pl.Tensor[[32, 1], pl.FP32]]):
            for c in pl.range(0, 4096, 128):
                with pl.at(level=pl.Level.CORE_GROUP):
                    most = pl.row_max(x[:, c : c + 128])
                    out[:, :] = pl.maximum(out[:, :], most)
            return out
        """

    def __init__(self, store: Loc, loop: Loc, tensor: str, variable: str) -> None:
        super().__init__(
            f"every iteration of `{variable}` reads a window of `{tensor}` and writes it again",
            [Label(store, "written here"), Label(loop, "by tasks of this loop")],
            helps=["put the loop into the scope, and store once, behind it"],
        )


class SoftmaxOverflow(Caution):
    """Exponentials are divided by their sum, and no maximum was subtracted before.

    That is a softmax, and right on paper. An exponent that is too large makes it infinite, and the
    quotient NaN; less its maximum, no exponent is above zero, and the result is the same.
    """

    code = "W1328"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 512], pl.FP32], out: pl.Out[pl.Tensor[[64, 512], pl.FP32]]):
            for r in pl.parallel(0, 64, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    e = pl.exp(x[r : r + 16, :])
                    out[r : r + 16, :] = pl.row_expand_div(e, pl.row_sum(e))
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "exponentials are divided by their sum, and no maximum was subtracted before",
            [Label(loc)],
            helps=["subtract `pl.row_max` first: `pl.exp(pl.row_expand_sub(x, pl.row_max(x)))`"],
        )
