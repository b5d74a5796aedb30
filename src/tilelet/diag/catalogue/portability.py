"""Dialects of public PyPTO releases (E12xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Caution, Fix, Label, Loc, UserError


class NotInDialect(UserError):
    """The program uses a name or a parameter that a release of PyPTO does not have.

    Tilelet takes the language of all releases at once; a board has one. The message names the
    release, the reason, and what to write instead. `docs/portability.md` lists all of them.
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
            labels=[Label(loc, why or "not there")],
            helps=[f"write {instead}"] if instead else [],
            fixes=fixes,
        )


class NameCaptured(UserError):
    """A helper's name means something else once its text is spliced into the caller.

    Public parsers put the text of a `@pl.inline` function in place of its call and do not keep its
    names apart: its locals and parameters stay visible after the call, a name that the caller has
    already is assigned to, and constants are looked up among those of the callers first. Tilelet
    keeps them apart, so the program means something else there, or is refused. Give one of the two
    another name, or write the helper as one expression, which has no locals. `tilelet export`
    writes helpers out with names of their own.
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
            helps=["give one of them another name, or write the helper as one expression"],
        )


class OutputNotDeclared(UserError):
    """A parameter that the program writes is declared as a plain tensor.

    In April 2026 the compiler found out by itself what a program writes. Since then only what is
    declared `pl.Out` or `pl.InOut` is copied back: other outputs read as zeros.
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
            f"`{name}` is written and not declared as an output",
            labels=[Label(loc, f"a plain tensor; `pl.{direction}[...]` is copied back")],
            helps=[f"write `pl.{direction}[...]` around its type"],
            fixes=fixes,
        )


class TupleFromHelper(UserError):
    """A helper returns several values, which this dialect cannot take apart.

    The parser makes one value of them, and a later pass of the compiler refuses it. Write the
    helper's text out, or let it return one value. `tilelet export` writes it out.
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
            labels=[Label(loc, "taken apart here"), Label(returned, "returned here")],
            helps=["write its text out here, or make it several helpers of one value each"],
        )


class OpUnderOtherName(UserError):
    """An op is called by a name that the script gave it.

    Public parsers know ops by their spelling, `pl.mul`; a variable that holds one is not a
    function to them.
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
    """A `name_hint=` is not a string in quotes.

    Public parsers read the hint from the text, and take nothing but a literal there.
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
            "`name_hint=` is not a literal",
            labels=[Label(loc, f'it is "{value}" here' if isinstance(value, str) else "computed")],
            helps=["write the string itself"],
            fixes=fixes,
        )


class ParameterAssigned(UserError):
    """A helper gives its parameter a new value, in a loop, and the argument is an expression.

    To public parsers a parameter is the text of its argument. Assigned to in a loop, it becomes a
    variable of the loop's body, which does not keep its value from one round to the next. Assign
    the parameter to a local before the loop.
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
            labels=[Label(loc, "does not keep its value")],
            helps=[f"before the loop, give the value of `{name}` to a local"],
        )


class FormNotTaken(UserError):
    """An op is called in a form that a release of PyPTO does not take.

    The same op works there with other shapes, dtypes or operands; the message says why this form
    does not and what to write instead.
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
            f"`{op}` does not take this in {dialect}",
            labels=[Label(loc, reason)],
            helps=[instead if instead[0] != "`" else f"write {instead}"],
            fixes=fixes,
        )


class HelperNotTyped(UserError):
    """A `@pl.jit.inline` function has a parameter without shape and dtype, or is given a slice.

    Its types are found from the arguments of its calls, which works for names of tensors only.
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
            f"{what} has no type that can be found",
            labels=[Label(loc, "of which the type must be known"), Label(there, "declared here")],
            helps=["use `@pl.inline`, whose parameters need no types"],
        )


class RegionRebound(UserError):
    """`pl.set_validshape` gives a name another valid region, or stands in the control program.

    There the valid region is part of a value's type, and a name keeps its type. And it is a
    property of tiles: outside a scope there are none.
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
            "`pl.set_validshape` cannot stand here",
            labels=[Label(loc, why)],
            helps=[instead],
        )


class NameChangesType(UserError):
    """A name is given a value of another shape or dtype than it had, or one valid in part.

    In public parsers a name keeps its type, and what of it is valid is part of that. In a `@pl.jit`
    function a further assignment makes another variable, if it stands in as many blocks as the
    first; one in the body of a further loop, or in an `else`, does not.
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
            f"`{name}` was {old}, and becomes {new}",
            labels=[Label(loc, "another type")],
            helps=["use another name"],
        )


class TextNotTaken(UserError):
    """A statement or expression of Python that public parsers do not read.

    They take assignments, loops, `if`, `with`, `return` and calls; of expressions the arithmetic
    of numbers, single comparisons, `and` and `or`. Of tensors and tiles they take no operators.
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
            f"{what} is not read by public parsers",
            labels=[Label(loc, "here")],
            helps=[instead],
            fixes=fixes,
        )


class RegionLost(Caution):
    """A reduction in a mixed kernel relies on the valid region of what the cube made.

    In a kernel with products and vector work, what the cube makes is handed to the vector unit as
    whole tiles: there the valid region of an operand was seen to be lost, and a reduction takes
    what lies outside it. Write the padding explicitly: `pl.fillpad(x, pl.PadValue.min)` before a
    maximum, `pl.PadValue.zero` before a sum.
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
            labels=[Label(loc, "takes what lies outside it"), Label(region, "the region")],
            helps=["fill the padding before it: `pl.fillpad(x, pad_value=...)`"],
            fixes=fixes,
        )


class ExtentLost(UserError):
    """Only the cube's half of a mixed kernel uses a valid extent that the kernel computes.

    A kernel with products and vector work is compiled as two. A number that the kernel computes
    goes into the halves in which a statement uses it. If it is the valid extent of what the cube
    multiplies, the vector unit gets a tile of that extent, and `pl.fillpad` of it needs a number
    that its half does not have: code generation ends there. Say the extent again where the vector
    unit has the product, behind one of its ops: `pl.tensor.set_validshape(pl.mul(scores, SCALE),
    rows, keys)`.
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
            f"the vector unit does not know the valid extent of what `{op}` takes",
            labels=[
                Label(loc, "here"),
                Label(region, "the extent, which only the cube's half has"),
            ],
            helps=[
                "behind a vector op: `pl.tensor.set_validshape(pl.mul(x, scale), rows, extent)`"
            ],
        )


class ExtentNotSaid(UserError):
    """A kernel takes a window of a view that is valid in part, without a number that says how much.

    A kernel is compiled on its own. A window of a view takes over what is valid of it, and for that
    the kernel must have the numbers of valid rows and columns that the control program computed. It
    has those which its own text uses. Say them at the window: `valid_shape=[known, COLUMNS]`.
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
            f"the kernel does not know how much of `{view}` is valid",
            labels=[Label(loc, "a window of it"), Label(stated, "valid in part")],
            helps=["say it at the window: `valid_shape=[...]`"],
            fixes=fixes,
        )


class LoadedWhole(Caution):
    """An op of a kernel takes a view that is valid in part, and loads all of it.

    A view from the control program that an op takes as it is, is loaded by its shape: its valid
    region does not reach the kernel. Reductions take what lies outside, and results are stored
    there. Take a window of the view that says its extent.
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
            f"`{view}` is loaded whole, and is valid in part",
            labels=[Label(loc, "takes what lies outside"), Label(stated, "its valid region")],
            helps=[f"take a window that says it: `pl.slice({view}, ..., valid_shape=[...])`"],
            fixes=fixes,
        )


class RegionTwice(UserError):
    """A mixed kernel that only writes to views takes another one that is valid in part.

    Where a kernel returns nothing to the control program, the extent of such a view becomes one
    more argument of it; the two halves of a mixed kernel then do not get what they are called with.
    Make the view of the whole, and say its extent in the kernel only.
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
            labels=[Label(loc, "valid in part")],
            helps=["leave `valid_shape=` out here; the windows in the kernel say it"],
            fixes=fixes,
        )


class AxisNotSplit(UserError):
    """A kernel whose rows are split between two vector units moves a tile of more than two axes.

    With `pl.split`, each vector unit of a mixed kernel works on half of the rows or columns. The
    offset of its half is added to the first or second axis of the tensor, whatever its rank: of
    `[heads, rows, columns]` the wrong one, and shapes are not halved. Nothing says so: results are
    wrong. Make a view of two axes, in the control program, and load or store that.
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
            helps=["make a view of two axes before the scope, and use that"],
        )


class RegionDropped(Caution):
    """A result is valid in part here, and there it is stored whole.

    There the valid region of an elementwise op's result is that of its first operand, and `concat`
    and `transpose` have none. What is stored includes what lies outside. Make the operand that is
    valid in part the first one; store the parts of a `concat` one by one; or say the region again:
    `pl.set_validshape`.
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
            labels=[Label(loc, "the result is stored whole there")],
            helps=[
                "make the operand that is valid in part the first"
                if is_second
                else "store the parts one by one, or say the region again: `pl.set_validshape`"
            ],
        )


class CannotExport(UserError):
    """The program contains something that `tilelet export` cannot write out.

    An exported script holds the text of the kernels with all helpers spliced in. That works for
    what stands in the text as statements and expressions of the language; it does not for Python
    objects that have no literal, or for tuples of values that are handed around as one.
    """

    code = "E1250"

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"{what} cannot be written into a script",
            labels=[Label(loc, "here")] if loc.line else [],
        )


class SeveralToExport(UserError):
    """A script runs several programs, and an exported script holds one.

    Name the one to export: `--program NAME`.
    """

    code = "E1252"

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            "the script runs several programs",
            helps=[f"choose one: `--program {names[0]}`; there are {', '.join(names)}"],
        )


class UnknownDialect(UserError):
    """A dialect that Tilelet does not know.

    Dialects are named by the month of a public release of PyPTO. `docs/portability.md` lists them.
    """

    code = "E1251"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"there is no dialect `{name}`", helps=[f"one of {', '.join(f'`{k}`' for k in known)}"]
        )
