"""Advice on speed and clarity (W13xx), and why there is none (E13xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.tables import byte_text
from tilelet.diag.text import plural, ticked


class CannotAdvise(UserError):
    """The script does not run, or runs nothing to analyze.

    Advice is based on what a script runs: `tilelet run` reports what is wrong with it.
    """

    code = "E1301"

    def __init__(self, script: str, why: str) -> None:
        super().__init__(f"no advice for `{script}`: {why}")


class RoundTrip(Caution):
    """A scope passes values to the next one through global memory.

    Each scope is a separate task: a value that one scope produces and the next one uses is stored
    and loaded again, and the second task waits for the first. In one scope the value stays on chip.
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
            [Label(first, "produced here"), Label(second, "used here")],
            helps=["merge the two scopes"],
        )


class SharedOperand(Caution):
    """Two consecutive scopes load the same window.

    In one scope it is loaded once. Typical cases are the K and V projections, or gate and up, which
    read the same normalized rows.
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
            [Label(first, "loaded here"), Label(second, "loaded again here")],
            helps=["merge the two scopes, so that it is loaded once"],
        )


class AddedProduct(Caution):
    """The vector unit adds a product to an accumulator.

    The cube accumulates while it multiplies: `pl.matmul_acc` needs no second pass over the result
    and no transfer from the cube to the vector unit.
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
            f"the vector unit adds a product to `{accumulator}`",
            [Label(loc)],
            helps=["`pl.matmul_acc` accumulates in the cube"],
        )


class DeadFill(Caution):
    """Memory is filled with a constant that is always overwritten before it is read.

    The fill costs tasks and bandwidth, and the writers often wait for it.
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
            f"the value that {ticked(names, 'and')} {'is' if len(names) == 1 else 'are'} filled "
            "with is never read",
            [Label(loc)],
            helps=["remove the fill: all of it is overwritten later"],
        )


class SumInMemory(Caution):
    """A sum is read from global memory, updated, and written back in every iteration.

    The tasks that update one sum wait for each other, and each moves the sum twice. After
    interchanging the loops, the sum stays on chip until it is complete, and the intermediate
    results of the outer loop are kept in memory.
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
            [Label(loc, "updates the sum"), Label(outer, "repeated by this loop")],
            helps=[f"keep all `{chunk}` in memory, and sum in a separate loop"],
        )


class SequentialLoop(Caution):
    """A loop is sequential although its iterations are independent.

    With `pl.parallel` the runtime can run tasks of several iterations at once.
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
            f"iterations of `{variable}` are independent",
            [Label(loc)],
            helps=["`pl.parallel` lets them run at once"],
        )


class MissingRoot(Caution):
    """A mean of squares plus a small constant is used without a square root.

    RMSNorm and LayerNorm begin like this and continue with the reciprocal square root. A golden
    with the same mistake does not catch it.
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
            helps=["normalization multiplies by its `pl.rsqrt`"],
        )


class HiddenEquality(Caution):
    """A quotient is correct only as long as two constants are equal.

    The script gives them different names, so someone may change only one of them.
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
            f"`{quotient}` is correct only if `{step}` equals `{divisor}`",
            [Label(loc)],
            helps=[f"add `assert {step} == {divisor}`, or divide by `{step}`"],
        )


class StaleConstant(Caution):
    """A comment or docstring gives an outdated value of a constant.

    The text misleads its readers. Correct the value, or remove it.
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
            f"the text says that `{name}` is {said}, but it is {value}",
            [Label(loc)],
            helps=[f"write {value}"],
        )


class LookAlike(Caution):
    """A comment or docstring contains a character that looks like a character of the language.

    Text copied from there does not compile, and searches do not find it.
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
    """A scope stores a tile in global memory and loads the same window again.

    The tile is already on chip. If nothing else reads the memory, the store is not needed either.
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
    """Zeros are written to global memory only to be read back as the initial value of a sum.

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
            f"this reads only the zeros that `{tensor}` was filled with",
            [Label(load, "read here"), Label(fill, "filled here")],
            helps=["start with zeros on chip, and remove the fill"],
        )


class OneScopeTensor(Caution):
    """A tensor in global memory is used by one scope only.

    Created inside the scope, it is a tile on chip that is neither stored nor loaded.
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
            f"`{tensor}` is in global memory, but only one scope uses it",
            [Label(loc, "created here"), Label(scope, "used here")],
            helps=["create it inside the scope, where it is a tile on chip"],
        )


class LaunchInLoop(Caution):
    """A loop launches a task in every iteration, and each waits for the one before.

    With one scope around the loop there is one task: loop-carried values stay on chip, and nothing
    is submitted in between.
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
        what = f", which carries {ticked(carried[:3], 'and')}" if carried else ""
        super().__init__(
            f"every iteration of the loop over `{name}` launches a task{what}",
            [Label(scope, "launched here"), Label(loop, "by this loop")],
            helps=["put the scope around the loop"],
        )


class NoPipeline(Caution):
    """A loop in a scope loads its operands, but the loads do not overlap with computation.

    `pl.pipeline` loads for the next iteration while the current one computes; it needs a second set
    of on-chip buffers. Results are the same as with `pl.range`.
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
            helps=["`pl.pipeline` overlaps them with computation"],
        )


class DiscardedRows(Caution):
    """Rows or columns of a product are computed but never read.

    The cube works on 16 rows and columns at a time. Instead of padding, fill them with useful work:
    a second group of heads, more tokens, or the columns of another weight.
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
            "rows": "use the other rows: two groups of heads can share a product",
            "columns": "multiply only with the columns that are read",
        }
        super().__init__(
            f"{extent - used} of {extent} {what} of this product are discarded",
            [
                Label(product, f"{extent} {what}"),
                Label(use, f"{used} {what} of `{tensor}` are read"),
            ],
            helps=[remedy[what]],
        )


class ExplicitScope(Caution):
    """The script sets the boundaries of every task explicitly.

    In an automatic scope (`pl.auto_incore`, `pl.at(..., optimizations=[pl.auto_chunk])`), `chunk=`
    of the loops decides them: one number makes tasks larger or smaller, and a tuner can vary it.
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
            helps=[
                "an automatic scope around a loop with `chunk=` makes the task size a parameter"
            ],
        )


class CrossingTensor(Caution):
    """A tensor is written by one loop of tasks and only read by another.

    It goes through global memory, and the second loop waits for the first. If each task of the
    second loop needs the result of only one task of the first, the loops can be merged.
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
            helps=["merge the loops, if each task of the second needs one task of the first"],
        )


class TwinLoops(Caution):
    """Two consecutive loops of tasks iterate over the same blocks.

    Values that the first loop produces and the second uses go through global memory, and shared
    operands are loaded twice. In a merged loop the two scopes of a block are adjacent and can be
    merged, too.
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
            [Label(first, "first loop"), Label(second, "the same blocks again")],
            helps=["merge the loops, then the scopes of each block"],
        )


class ReadModifyWrite(Caution):
    """Tasks of a loop read a window of a tensor, update it, and write it back.

    The runtime runs tasks that read and write one tensor one after the other, and each moves the
    window twice. With the loop inside the scope, the window stays on chip until it is complete.
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
            f"every iteration of `{variable}` reads a window of `{tensor}` and writes it back",
            [Label(store, "written here"), Label(loop, "by tasks of this loop")],
            helps=["move the loop into the scope, and store once, after the loop"],
        )


class SoftmaxOverflow(Caution):
    """Exponentials are divided by their sum without subtracting the maximum first.

    This is a softmax that can overflow: a large argument makes the exponential infinite and the
    quotient NaN. After subtracting the maximum, no argument is above zero, and the result is the
    same.
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
            "exponentials are divided by their sum without subtracting the maximum first",
            [Label(loc)],
            helps=["subtract `pl.row_max` first: `pl.exp(pl.row_expand_sub(x, pl.row_max(x)))`"],
        )
