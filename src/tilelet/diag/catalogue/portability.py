"""Dialects of public PyPTO releases (E12xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Caution, Fix, Label, Loc, UserError


class NotInDialect(UserError):
    """The program uses a name or a parameter that a release of PyPTO does not have.

    Tilelet accepts the language of all releases at once; a board runs one release. The message
    names the release, the reason, and what to write instead. `docs/portability.md` lists all
    differences.
    """

    code = "E1201"
    example = """
        @pl.program
        class Program:
            @pl.function
            def copy(
                self, x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
            ):
                with pl.incore():
                    out = pl.assemble(out, pl.add(x, 0.0), [0, 0])
                return out
    """

    def __init__(
        self, loc: Loc, what: str, dialect: str, why: str, instead: str, fixes: Iterable[Fix] = ()
    ) -> None:
        super().__init__(
            f"{what} is not in the language of {dialect}",
            labels=[Label(loc, why or "not available there")],
            helps=[f"write {instead}"] if instead else [],
            fixes=fixes,
        )


class NameCaptured(UserError):
    """A helper's name means something else once the helper is spliced into its caller.

    Public parsers replace a call of a `@pl.inline` function by its text and do not rename anything:
    the helper's locals and parameters stay visible after the call, a local may overwrite a variable
    of the caller, and constants are looked up in the callers first. Tilelet keeps the names
    separate, so a public parser gives the program another meaning or rejects it. Rename one of the
    two, or write the helper as one expression, which has no locals. `tilelet export` writes helpers
    out with unique names.
    """

    code = "E1202"
    example = """
        @pl.inline
        def doubled(x):
            total = pl.add(x, x)
            return total


        @pl.jit
        def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                total = pl.exp(x)
                twice = doubled(x)
                out[:, :] = pl.add(total, twice)
            return out
    """

    def __init__(
        self, loc: Loc, name: str, what: str, there: Loc | None, other: str, why: str
    ) -> None:
        labels = [Label(loc, what)]
        if there is not None:
            labels.append(Label(there, other))
        super().__init__(
            f"`{name}` is captured where the helper is spliced in",
            labels=labels,
            notes=[why],
            helps=["rename one of them, or write the helper as one expression"],
        )


class OutputNotDeclared(UserError):
    """A parameter that the program writes is declared as a plain tensor.

    In April 2026 the compiler inferred what a program writes. Since then only parameters declared
    `pl.Out` or `pl.InOut` are copied back: other outputs read as zeros.
    """

    code = "E1203"
    example = """
        @pl.program
        class Program:
            @pl.function
            def copy(self, x: pl.Tensor[[16, 64], pl.FP32], out: pl.Tensor[[16, 64], pl.FP32]):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.add(x, 0.0), [0, 0])
                return out
    """

    def __init__(self, loc: Loc, name: str, direction: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{name}` is written but not declared as an output",
            labels=[Label(loc, f"a plain tensor; only `pl.{direction}[...]` is copied back")],
            helps=[f"wrap its type in `pl.{direction}[...]`"],
            fixes=fixes,
        )


class TupleFromHelper(UserError):
    """A helper returns several values, which this dialect cannot unpack.

    The parser turns them into one value, and a later compiler pass rejects it. Write the helper's
    body at the call, or return one value. `tilelet export` writes the body out.
    """

    code = "E1204"
    example = """
        @pl.inline
        def both(x):
            return pl.exp(x), pl.neg(x)


        @pl.jit
        def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                a, b = both(x)
                out[:, :] = pl.add(a, b)
            return out
    """

    def __init__(self, loc: Loc, name: str, returned: Loc) -> None:
        super().__init__(
            f"`{name}` returns several values",
            labels=[Label(loc, "unpacked here"), Label(returned, "returned here")],
            helps=["write its body here, or split it into helpers that return one value each"],
        )


class OpUnderOtherName(UserError):
    """An op is called by a name that the script assigned to it.

    Public parsers recognize ops by their spelling, such as `pl.mul`; they do not follow a variable
    that holds one.
    """

    code = "E1205"
    example = """
        times = pl.mul


        @pl.jit
        def square(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:, :] = times(x, x)
            return out
    """

    def __init__(self, loc: Loc, name: str, op: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{name}` is `{op}` under another name",
            labels=[Label(loc, "not an op to a public parser")],
            helps=[f"write `{op}`"],
            fixes=fixes,
        )


class HintNotLiteral(UserError):
    """A `name_hint=` is not a string literal.

    Public parsers read the hint from the source text and accept only a literal.
    """

    code = "E1206"
    example = """
        NAME = "square"


        @pl.jit
        def square(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint=NAME):
                out[:, :] = pl.mul(x, x)
            return out
    """

    def __init__(self, loc: Loc, value: object, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            "`name_hint=` is not a string literal",
            labels=[
                Label(
                    loc, (f'its value is "{value}" here') if isinstance(value, str) else "computed"
                )
            ],
            helps=["write the string literal"],
            fixes=fixes,
        )


class ParameterAssigned(UserError):
    """A helper assigns to its parameter in a loop, and the argument is an expression.

    To public parsers a parameter is the text of its argument. When it is assigned to in a loop, it
    becomes a local variable of the loop body and does not keep its value across iterations. Copy
    the parameter to a local variable before the loop.
    """

    code = "E1207"
    example = """
        @pl.inline
        def summed(total, x):
            for i in pl.range(4):
                total = pl.add(total, x)
            return total


        @pl.jit
        def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:, :] = summed(pl.exp(x), x)
            return out
    """

    def __init__(self, loc: Loc, name: str, helper: str) -> None:
        super().__init__(
            f"`{name}`, a parameter of `{helper}`, is assigned to in a loop",
            labels=[Label(loc, "does not keep its value across iterations")],
            helps=[f"copy `{name}` to a local variable before the loop"],
        )


class FormNotTaken(UserError):
    """An op is called in a form that a release of PyPTO does not support.

    The release supports the op with other shapes, dtypes or operands; the message says why it
    rejects this form and what to write instead.
    """

    code = "E1208"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                ones = pl.full([16, 1], dtype=pl.FP32, value=1.0)
                out[:, :] = pl.row_expand_mul(x, ones)
            return out
    """

    def __init__(
        self, loc: Loc, op: str, dialect: str, reason: str, instead: str, fixes: Iterable[Fix] = ()
    ) -> None:
        super().__init__(
            f"{dialect} does not support this form of `{op}`",
            labels=[Label(loc, reason)],
            helps=[instead if instead[0] != "`" else f"write {instead}"],
            fixes=fixes,
        )


class HelperNotTyped(UserError):
    """A `@pl.jit.inline` function has a parameter without shape and dtype, or is called with a
    slice.

    Its types are inferred from the arguments of its calls, which works only for names of tensors.
    Declare them, as in `x: pl.Tensor[[16, 64], pl.FP32]`, or make it a `@pl.inline` function.
    """

    code = "E1210"
    example = """
        @pl.jit.inline
        def doubled(x: pl.Tensor):
            return pl.add(x, x)


        @pl.jit
        def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:, :] = doubled(x)
            return out
    """

    def __init__(self, loc: Loc, what: str, there: Loc) -> None:
        super().__init__(
            f"the type of {what} cannot be inferred",
            labels=[Label(loc, "its type must be known"), Label(there, "declared here")],
            helps=["use `@pl.inline`, whose parameters need no types"],
        )


class RegionRebound(UserError):
    """`pl.set_validshape` changes the valid region of a name, or is used in the control program.

    In public releases the valid region is part of a value's type, and a name keeps its type. It is
    also a property of tiles, which exist only inside a scope.
    """

    code = "E1211"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            known = pl.set_validshape(x, 16, 32)
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:, :] = pl.fillpad(known)
            return out
    """

    def __init__(self, loc: Loc, why: str, instead: str) -> None:
        super().__init__(
            "`pl.set_validshape` cannot be used here",
            labels=[Label(loc, why)],
            helps=[instead],
        )


class NameChangesType(UserError):
    """A name is rebound to a value of another shape, dtype or valid region.

    In public parsers a name keeps its type, and the valid region is part of the type. In a
    `@pl.jit` function a later assignment creates another variable if it is at the same block depth
    as the first, but not if it is in a deeper loop or in an `else`.
    """

    code = "E1217"
    example = """
        @pl.program
        class Normalised:
            @pl.function
            def main(
                self, x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
            ):
                with pl.at(level=pl.Level.CORE_GROUP):
                    y = pl.exp(x)
                    y = pl.row_sum(y)
                    out[:, :] = pl.row_expand_div(x, y)
                return out
    """

    def __init__(self, loc: Loc, name: str, old: str, new: str) -> None:
        super().__init__(
            f"`{name}` was {old} and becomes {new}",
            labels=[Label(loc, "different type")],
            helps=["use another name"],
        )


class TextNotTaken(UserError):
    """Public parsers do not support this Python statement or expression.

    They accept assignments, loops, `if`, `with`, `return` and calls, and as expressions the
    arithmetic of scalars, single comparisons, `and` and `or`. They accept no operators on tensors
    and tiles.
    """

    code = "E1218"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
            row = 0
            for i in pl.range(4):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[row : row + 16, :] = pl.exp(x[row : row + 16, :])
                row += 16
            return out
    """

    def __init__(self, loc: Loc, what: str, instead: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"public parsers do not support {what}",
            labels=[Label(loc, "here")],
            helps=[instead],
            fixes=fixes,
        )


class RegionLost(Caution):
    """A reduction in a mixed kernel relies on the valid region of a cube result.

    In a kernel with both cube and vector work, the vector unit receives cube results as whole
    tiles. The valid region has been observed to be lost there, so a reduction includes the padding.
    Fill the padding explicitly: `pl.fillpad(x, pl.PadValue.min)` before a maximum,
    `pl.PadValue.zero` before a sum.
    """

    code = "W1216"
    example = """
        @pl.jit
        def kernel(
            q: pl.Tensor[[16, 64], pl.BF16],
            k: pl.Tensor[[64, 64], pl.BF16],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[16, 1], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                keys = pl.slice(k, [64, 64], [0, 0], valid_shape=[n, 64])
                scores = pl.matmul(q, keys, b_trans=True, out_dtype=pl.FP32)
                out[:, :] = pl.row_max(scores)
            return out
    """

    def __init__(self, loc: Loc, op: str, region: Loc, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{op}` relies on a valid region in a mixed kernel",
            labels=[Label(loc, "includes the padding"), Label(region, "this valid region")],
            helps=["fill the padding before it: `pl.fillpad(x, pad_value=...)`"],
            fixes=fixes,
        )


class ExtentLost(UserError):
    """Only the cube half of a mixed kernel has a valid extent that the kernel computes.

    A kernel with both cube and vector work is compiled as two halves, and a computed scalar exists
    only in the halves whose statements use it. If it is the valid extent of a cube operand, the
    vector unit gets a tile of that extent, and `pl.fillpad` of the tile needs a scalar that the
    vector half does not have: code generation fails. Set the extent again after a vector op on the
    product: `pl.tensor.set_validshape(pl.mul(scores, SCALE), rows, keys)`.
    """

    code = "E1219"
    example = """
        @pl.jit
        def kernel(
            q: pl.Tensor[[16, 64], pl.BF16],
            k: pl.Tensor[[256, 64], pl.BF16],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                for s0 in pl.range(0, n, 64):
                    keys = pl.min(64, n - s0)
                    rows = pl.slice(k, [64, 64], [s0, 0], valid_shape=[keys, 64])
                    scores = pl.matmul(q, rows, b_trans=True, out_dtype=pl.FP32)
                    out[:, :] = pl.exp(pl.fillpad(scores, pad_value=pl.PadValue.min))
            return out
    """

    def __init__(self, loc: Loc, op: str, region: Loc) -> None:
        super().__init__(
            f"the vector unit does not know the valid extent of the operand of `{op}`",
            labels=[
                Label(loc, "here"),
                Label(region, "the extent, known only in the cube half"),
            ],
            helps=[
                "set it after a vector op: `pl.tensor.set_validshape(pl.mul(x, s), rows, extent)`"
            ],
        )


class ExtentNotSaid(UserError):
    """A kernel takes a window of a partially valid view without giving its valid extent.

    A kernel is compiled on its own. A window of a view inherits its valid region, so the kernel
    needs the valid row and column counts that the control program computed, but it receives only
    the scalars that its own text uses. Give them at the window: `valid_shape=[known, COLUMNS]`.
    """

    code = "E1220"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 64], pl.FP32],
            lens: pl.Tensor[[1], pl.INT32],
            out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
        ):
            n = pl.read(lens, [0])
            for r0 in pl.range(0, n, 16):
                known = pl.min(16, n - r0)
                rows = pl.slice(x, [16, 64], [r0, 0], valid_shape=[known, 64])
                with pl.at(level=pl.Level.CORE_GROUP):
                    left = pl.slice(rows, [16, 32], [0, 0])
                    out = pl.assemble(out, pl.exp(left), [r0, 0])
            return out
    """

    def __init__(self, loc: Loc, view: str, stated: Loc, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"the kernel does not know the valid extent of `{view}`",
            labels=[Label(loc, "a window of it"), Label(stated, "partially valid")],
            helps=["give it at the window: `valid_shape=[...]`"],
            fixes=fixes,
        )


class LoadedWhole(Caution):
    """An op of a kernel uses a partially valid view directly and loads all of it.

    A view of the control program that an op uses directly is loaded with its full shape: its valid
    region does not reach the kernel. Reductions include the padding, and results are stored over
    it. Take a window of the view with an explicit extent.
    """

    code = "W1221"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 64], pl.FP32],
            lens: pl.Tensor[[1], pl.INT32],
            out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
        ):
            n = pl.read(lens, [0])
            for r0 in pl.range(0, n, 16):
                known = pl.min(16, n - r0)
                rows = pl.slice(x, [16, 64], [r0, 0], valid_shape=[known, 64])
                with pl.at(level=pl.Level.CORE_GROUP):
                    out = pl.assemble(out, pl.exp(rows), [r0, 0])
            return out
    """

    def __init__(self, loc: Loc, view: str, stated: Loc, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{view}` is loaded whole but is only partially valid",
            labels=[Label(loc, "includes the padding"), Label(stated, "its valid region")],
            helps=[f"take a window with its extent: `pl.slice({view}, ..., valid_shape=[...])`"],
            fixes=fixes,
        )


class RegionTwice(UserError):
    """A mixed kernel that only writes to views uses another view that is partially valid.

    If a kernel returns nothing to the control program, the extent of such a view becomes an
    additional argument, and the arguments of the two halves of a mixed kernel no longer match. Take
    the view without `valid_shape=`, and give the extent only in the kernel.
    """

    code = "E1222"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 64], pl.BF16],
            w: pl.Tensor[[64, 64], pl.BF16],
            lens: pl.Tensor[[1], pl.INT32],
            out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
        ):
            n = pl.read(lens, [0])
            for r0 in pl.range(0, n, 16):
                known = pl.min(16, n - r0)
                rows = pl.slice(x, [16, 64], [r0, 0], valid_shape=[known, 64])
                part = pl.slice(out, [16, 64], [r0, 0])
                with pl.at(level=pl.Level.CORE_GROUP):
                    tile = pl.slice(rows, [16, 64], [0, 0], valid_shape=[known, 64])
                    product = pl.matmul(tile, w, out_dtype=pl.FP32)
                    part = pl.assemble(part, pl.exp(product), [0, 0])
            return out
    """

    def __init__(self, loc: Loc, view: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"the extent of `{view}` reaches a mixed kernel twice",
            labels=[Label(loc, "partially valid")],
            helps=["omit `valid_shape=` here; the windows in the kernel give the extent"],
            fixes=fixes,
        )


class AxisNotSplit(UserError):
    """A kernel whose rows are split between two vector units moves a tile of more than two axes.

    With `pl.split`, each vector unit of a mixed kernel works on half of the rows or columns. The
    offset of the half is added to the first or second axis of the tensor regardless of its rank,
    which is the wrong axis for `[heads, rows, columns]`, and shapes are not halved. There is no
    error message, only wrong results. Make a two-dimensional view in the control program, and load
    or store that.
    """

    code = "E1223"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 64], pl.BF16],
            w: pl.Tensor[[64, 64], pl.BF16],
            out: pl.Out[pl.Tensor[[4, 16, 64], pl.FP32]],
        ):
            for i in pl.range(4):
                with pl.at(
                    level=pl.Level.CORE_GROUP, optimizations=[pl.split(pl.SplitMode.UP_DOWN)]
                ):
                    product = pl.matmul(x[i * 16 : i * 16 + 16, :], w, out_dtype=pl.FP32)
                    out = pl.assemble(out, pl.exp(product), [i, 0, 0])
            return out
    """

    def __init__(self, loc: Loc, what: str, tensor: str) -> None:
        super().__init__(
            f"the halves of a tile are {what} `{tensor}` along the wrong axis",
            labels=[Label(loc, "more than two axes, in a kernel with `pl.split`")],
            helps=["make a two-dimensional view before the scope, and use that"],
        )


class RegionDropped(Caution):
    """A result is partially valid here, but is stored whole there.

    In public releases the result of an elementwise op has the valid region of its first operand,
    and `concat` and `transpose` have none, so the store includes the padding. Make the partially
    valid operand the first one, store the parts of a `concat` one by one, or set the region again
    with `pl.set_validshape`.
    """

    code = "W1224"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 64], pl.FP32],
            bias: pl.Tensor[[16, 64], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                rows = pl.slice(x, [16, 64], [0, 0], valid_shape=[n, 64])
                all_rows = pl.slice(bias, [16, 64], [0, 0])
                out = pl.assemble(out, pl.add(all_rows, rows), [0, 0])
            return out
    """

    def __init__(self, loc: Loc, op: str, is_second: bool) -> None:
        super().__init__(
            f"the valid region is lost at `{op}`",
            labels=[Label(loc, "public releases store the whole result")],
            helps=[
                "make the partially valid operand the first one"
                if is_second
                else "store the parts one by one, or set the region again: `pl.set_validshape`"
            ],
        )


class CannotExport(UserError):
    """The program contains something that `tilelet export` cannot write out.

    An exported script contains the text of the kernels with all helpers inlined. That works for
    statements and expressions of the language, but not for Python objects without a literal form or
    for tuples that are passed around as one value.
    """

    code = "E1250"

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"{what} cannot be written into a script",
            labels=[Label(loc, "here")] if loc.line else [],
        )


class SeveralToExport(UserError):
    """A script runs several programs, but an exported script contains one.

    Select the program to export: `--program NAME`.
    """

    code = "E1252"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            "the script runs several programs",
            helps=[f"choose one: `--program {names[0]}`; there are {', '.join(names)}"],
        )


class UnknownDialect(UserError):
    """Tilelet does not know this dialect.

    Dialects are named by the month of a public release of PyPTO. `docs/portability.md` lists them.
    """

    code = "E1251"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"there is no dialect `{name}`", helps=[f"one of {', '.join(f'`{k}`' for k in known)}"]
        )
