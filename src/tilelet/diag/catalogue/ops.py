"""Calls of ops (E03xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import (
    did_you_mean,
    integer_text,
    near,
    optional,
    plural,
    shape_text,
    ticked,
)


class UnknownOp(UserError):
    """A kernel calls a `pl` name that is not an op.

    The ops are listed in docs/ops.md, with a table of what other libraries call them. A misspelled
    name gets a suggestion.
    """

    code = "E0301"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 1], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.row_summ(x)
            return out
        """

    def __init__(
        self, loc: Loc, name: str, suggestions: Iterable[str] = (), instead: str = ""
    ) -> None:
        super().__init__(
            f"no op `{name}`",
            [Label(loc, "not an op")],
            helps=[instead] if instead else did_you_mean(suggestions),
        )


class UnknownKeyword(UserError):
    """A call passes a keyword that the op does not have.

    Nothing is ignored silently: a misspelled option would change results without a word. The help
    lists what the op takes.
    """

    code = "E0302"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 128], pl.BF16],
            b: pl.Tensor[[64, 128], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.matmul(a, b, b_transpose=True, out_dtype=pl.FP32)
            return out
        """

    def __init__(self, loc: Loc, op: str, keyword: str, allowed: Sequence[str]) -> None:
        helps = did_you_mean(near(keyword, allowed))
        if allowed:
            helps.append(f"`{op}` takes {ticked(allowed, 'and')}")
        super().__init__(
            f"`{op}` has no argument `{keyword}`", [Label(loc, "unknown keyword")], helps=helps
        )


class WrongArity(UserError):
    """A call passes more or fewer arguments than the op or function takes.

    The note shows the signature. Optional arguments are passed by keyword.
    """

    code = "E0303"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x, x)
            return out
        """

    def __init__(
        self, loc: Loc, op: str, got: int, expected: int | str, signature: str = ""
    ) -> None:
        wanted = plural(expected, "argument") if isinstance(expected, int) else expected
        super().__init__(
            f"`{op}` takes {wanted}, got {got}",
            [Label(loc, plural(got, "argument"))],
            notes=optional(signature and f"signature: `{signature}`"),
        )


class MissingArgument(UserError):
    """A call leaves out an argument that the op needs.

    The note shows the signature; an argument without a default must be given, by position or by
    keyword.
    """

    code = "E0304"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.slice(x, [16, 128])
            return out
        """

    def __init__(self, loc: Loc, op: str, param: str, signature: str = "") -> None:
        super().__init__(
            f"`{op}` needs the argument `{param}`",
            [Label(loc, f"`{param}` is missing")],
            notes=optional(signature and f"signature: `{signature}`"),
        )


class DuplicateArgument(UserError):
    """A call passes one argument twice, by position and by keyword.

    Which one is meant cannot be known. Remove one.
    """

    code = "E0305"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.BF16]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.cast(x, pl.BF16, target_type=pl.BF16)
            return out
        """

    def __init__(self, loc: Loc, op: str, param: str) -> None:
        super().__init__(
            f"`{op}` got the argument `{param}` twice",
            [Label(loc, "already given by position")],
        )


class ShapeMismatch(UserError):
    """The shapes of two operands do not go together.

    Binary ops take equal shapes, a scalar, or broadcast exactly `[M, N]` with `[M, 1]`, `[1, N]` or
    `[1, 1]`; leading axes of extent 1 may be missing. Nothing else is stretched silently: slice,
    reshape, or use an `expand` op to make the shapes agree.
    """

    code = "E0306"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 128], pl.FP32],
            b: pl.Tensor[[16, 64], pl.FP32],
            out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.add(a, b)
            return out
        """

    def __init__(
        self,
        op: str,
        lhs_loc: Loc,
        lhs_shape: Sequence[object],
        rhs_loc: Loc,
        rhs_shape: Sequence[object],
        why: str = "",
    ) -> None:
        lhs, rhs = shape_text(lhs_shape), shape_text(rhs_shape)
        super().__init__(
            f"shapes `{lhs}` and `{rhs}` do not go together in `{op}`",
            [Label(lhs_loc, f"`{lhs}`"), Label(rhs_loc, f"`{rhs}`")],
            notes=optional(why),
        )


class DTypeMismatch(UserError):
    """The element types of two operands differ where the op needs them equal.

    The hardware converts nothing by itself, and neither does the language: say with `pl.cast` which
    operand is converted, and how it is rounded.
    """

    code = "E0307"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 128], pl.BF16],
            b: pl.Tensor[[128, 64], pl.FP32],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.matmul(a, b)
            return out
        """

    def __init__(
        self, op: str, lhs_loc: Loc, lhs: object, rhs_loc: Loc, rhs: object, hint: str = ""
    ) -> None:
        super().__init__(
            f"`{op}` needs equal dtypes, got `{lhs}` and `{rhs}`",
            [Label(lhs_loc, f"`{lhs}`"), Label(rhs_loc, f"`{rhs}`")],
            helps=[hint or f"cast one side, for example `pl.cast(..., {lhs})`"],
        )


class RankMismatch(UserError):
    """A shape, an offset or an operand has the wrong number of dimensions.

    Shapes and offsets name every axis of the tensor, in order. Tiles are two-dimensional.
    """

    code = "E0308"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.slice(x, [16, 128], [0])
            return out
        """

    def __init__(self, loc: Loc, op: str, what: str, got: int, expected: int | str) -> None:
        super().__init__(
            f"{what} of `{op}` has rank {got}, expected {expected}",
            [Label(loc, f"rank {got}")],
        )


class BadArgument(UserError):
    """An argument of an op is not of the kind the op takes.

    The label shows what was passed, the message what is expected. The op's manual is in
    docs/ops.md.
    """

    code = "E0309"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.cast(x, 16)
            return out
        """

    def __init__(
        self, loc: Loc, op: str, param: str, got: str, expected: str, helps: Sequence[str] = ()
    ) -> None:
        super().__init__(
            f"argument `{param}` of `{op}` must be {expected}",
            [Label(loc, f"this is {got}")],
            helps=helps,
        )


class NonConstantShape(UserError):
    """The shape of a tile depends on a value that is known only when the kernel runs.

    On-chip buffers are planned at compile time, so every extent of a tile is a constant. Take a
    tile of the largest extent and mark the part that holds data with `valid_shape=`.
    """

    code = "E0310"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[64, 128], pl.FP32],
            n: pl.Scalar[pl.INDEX],
            out: pl.Out[pl.Tensor[[64, 128], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                tile = pl.slice(x, [n, 128], [0, 0])
                out[0:64, :] = tile
            return out
        """

    def __init__(self, loc: Loc, op: str, index: int) -> None:
        super().__init__(
            f"shape of `{op}` is not constant in axis {index}",
            [Label(loc, "known only at run time")],
            helps=["use a constant shape and pass the run-time extent as `valid_shape=`"],
        )


class ZeroSizeDim(UserError):
    """A shape has an extent of zero or less.

    Every tensor and tile holds at least one element. If a size can become zero, guard the code that
    uses it with `if`.
    """

    code = "E0311"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[0, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            return out
        """

    def __init__(self, loc: Loc, what: str, shape: Sequence[object], index: int) -> None:
        super().__init__(
            f"{what} has extent {shape[index]} in axis {index}",
            [Label(loc, f"shape `{shape_text(shape)}`")],
            helps=["every extent must be at least 1"],
        )


class ReshapeCount(UserError):
    """`pl.reshape` changes the number of elements.

    Reshaping reads the same elements in the same order under another shape, so the products of the
    extents must be equal.
    """

    code = "E0312"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[8, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.reshape(x, [8, 128])
            return out
        """

    def __init__(
        self,
        loc: Loc,
        from_shape: Sequence[object],
        from_count: object,
        to_shape: Sequence[object],
        to_count: object,
    ) -> None:
        super().__init__(
            f"cannot reshape `{shape_text(from_shape)}` into `{shape_text(to_shape)}`",
            [Label(loc, f"{from_count} elements into {to_count}")],
        )


class InnerDimMismatch(UserError):
    """The inner dimensions of a matrix product differ.

    `pl.matmul(a, b)` multiplies `[M, K]` by `[K, N]`; with `a_trans=True` the left operand is
    stored as `[K, M]`, with `b_trans=True` the right one as `[N, K]`.
    """

    code = "E0313"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 128], pl.BF16],
            b: pl.Tensor[[64, 128], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.matmul(a, b, out_dtype=pl.FP32)
            return out
        """

    def __init__(
        self,
        op: str,
        lhs_loc: Loc,
        lhs_shape: Sequence[object],
        lhs_inner: object,
        rhs_loc: Loc,
        rhs_shape: Sequence[object],
        rhs_inner: object,
        hint: str = "",
    ) -> None:
        super().__init__(
            f"`{op}` needs equal inner dimensions, got {lhs_inner} and {rhs_inner}",
            [
                Label(lhs_loc, f"`{shape_text(lhs_shape)}`, inner dimension {lhs_inner}"),
                Label(rhs_loc, f"`{shape_text(rhs_shape)}`, inner dimension {rhs_inner}"),
            ],
            helps=optional(hint),
        )


class AccumulatorMismatch(UserError):
    """The accumulator of a matrix product does not fit the product.

    `pl.matmul_acc(acc, a, b)` adds into `acc`, which must have the product's shape `[M, N]` and the
    type the cube unit accumulates in: FP32 for float operands, INT32 for integers.
    """

    code = "E0314"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 128], pl.BF16],
            b: pl.Tensor[[128, 64], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 64], pl.BF16]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.matmul(a, b, out_dtype=pl.BF16)
                out[:] = pl.matmul_acc(acc, a, b)
            return out
        """

    def __init__(self, loc: Loc, op: str, got: str, expected: str) -> None:
        super().__init__(
            f"accumulator of `{op}` is `{got}`, expected `{expected}`",
            [Label(loc, f"this is `{got}`")],
        )


class DTypeNotAllowed(UserError):
    """An op does not work on this element type.

    Each op lists its dtypes in docs/ops.md. Cast to one of them, and back afterwards if needed.
    """

    code = "E0315"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.and_(x, x)
            return out
        """

    def __init__(
        self, loc: Loc, op: str, dtype: object, allowed: Iterable[object], hint: str = ""
    ) -> None:
        super().__init__(
            f"`{op}` does not work on `{dtype}`",
            [Label(loc, f"this is `{dtype}`")],
            helps=[f"`{op}` takes {ticked(allowed)}", *optional(hint)],
        )


class BadAxis(UserError):
    """An axis number is outside the operand's dimensions, or used twice.

    Axes count from 0; negative ones count from the end, so -1 is the last.
    """

    code = "E0316"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[128, 16], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.transpose(x, 0, 2)
            return out
        """

    def __init__(self, loc: Loc, op: str, axis: object, rank: int) -> None:
        super().__init__(
            f"axis {axis} of `{op}` does not fit a value of rank {rank}",
            [Label(loc, f"must be one of {-rank} to {rank - 1}, each at most once")],
        )


class BadChoice(UserError):
    """An option has a value that is not one of its choices.

    The help lists the choices.
    """

    code = "E0318"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.BF16]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.cast(x, pl.BF16, mode="nearest")
            return out
        """

    def __init__(
        self, loc: Loc, op: str, param: str, got: object, choices: Sequence[object]
    ) -> None:
        super().__init__(
            f"argument `{param}` of `{op}` cannot be `{got}`",
            [Label(loc, "not one of its choices")],
            helps=[
                *did_you_mean(near(str(got), map(str, choices))),
                f"it is one of {ticked(choices)}",
            ],
        )


class NotConstant(UserError):
    """An argument that must be known at compile time is a run-time value.

    Fill values, comparison kinds, block lengths, axes and options are built into the generated
    code. Use a Python number, or a name from outside the kernel.
    """

    code = "E0319"
    example = """
        @pl.jit
        def kernel(n: pl.Scalar[pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.full([16, 128], dtype=pl.FP32, value=n)
            return out
        """

    def __init__(self, loc: Loc, op: str, param: str, help: str = "") -> None:
        super().__init__(
            f"argument `{param}` of `{op}` must be a compile-time constant",
            [Label(loc, "known only at run time")],
            helps=optional(help),
        )


class CastUnsupported(UserError):
    """There is no conversion between these two element types, or not with this rounding mode.

    TASK_ID values are not numbers, and scalars convert with the default mode only.
    """

    code = "E0320"
    example = """
        @pl.jit
        def kernel(n: pl.Scalar[pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            rows = pl.cast(n, pl.INT32, mode="floor")
            return out
        """

    def __init__(self, loc: Loc, source: object, target: object, mode: str, why: str = "") -> None:
        super().__init__(
            f"cannot cast `{source}` to `{target}` with mode `{mode}`",
            [Label(loc)],
            notes=optional(why),
        )


class SortGeometry(UserError):
    """The shape of a sort or merge operand does not fit the sorting network.

    `sort32` sorts runs of 32 along rows whose length is a multiple of 32. `mrgsort` merges four
    adjacent runs of `block_len` interleaved positions: one row, `block_len` a multiple of 64, the
    row a multiple of four runs.
    """

    code = "E0321"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[1, 48], pl.FP32],
            idx: pl.Tensor[[1, 48], pl.UINT32],
            out: pl.Out[pl.Tensor[[1, 96], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.sort32(x, idx)
            return out
        """

    def __init__(self, loc: Loc, op: str, shape: Sequence[object], needs: str) -> None:
        super().__init__(
            f"`{op}` cannot sort shape `{shape_text(shape)}`",
            [Label(loc, f"`{shape_text(shape)}`")],
            notes=[f"it needs {needs}"],
        )


class ConstantOutOfRange(UserError):
    """A constant does not fit the type it is given.

    Integers are not wrapped and not saturated at compile time: the value would silently become
    another one. A number beside a run-time scalar has that scalar's type, and no number in a kernel
    has more than 64 bits. Use a wider dtype or a smaller number.
    """

    code = "E0322"
    example = """
        @pl.jit
        def kernel(out: pl.Out[pl.Tensor[[16, 128], pl.INT8]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.full([16, 128], dtype=pl.INT8, value=300)
            return out
        """

    def __init__(self, loc: Loc, value: object, dtype: object, low: object, high: object) -> None:
        shown = integer_text(value) if isinstance(value, int) else value
        super().__init__(
            f"constant {shown} does not fit `{dtype}`",
            [Label(loc, f"`{dtype}` holds {low} to {high}")],
        )


class OperandKind(UserError):
    """A Python operator is used on values for which it has no meaning.

    Arithmetic operators work on scalars, and on tensors and tiles as short forms of the elementwise
    ops. Tuples, lists, strings and task ids have no arithmetic in a kernel.
    """

    code = "E0323"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP) as tid:
                out[:] = pl.exp(x)
            after = tid + 1
            return out
        """

    def __init__(self, loc: Loc, operator: str, kinds: Sequence[str]) -> None:
        super().__init__(
            f"operator `{operator}` does not work on {ticked(kinds, 'and')}", [Label(loc)]
        )


class NoSuchForm(UserError):
    """An op that has several forms is called with a mix of arguments that is none of them.

    For example `pl.gather` picks either by `mask_pattern=`, or by `index=` with `dim=`. The note
    lists the forms.
    """

    code = "E0324"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.gather(x)
            return out
        """

    def __init__(self, loc: Loc, op: str, forms: Iterable[str]) -> None:
        super().__init__(
            f"these arguments fit no form of `{op}`",
            [Label(loc)],
            notes=["its forms are\n" + "\n".join(f"`{form}`" for form in forms)],
        )


class WrongMemorySpace(UserError):
    """A tile is in a memory that the op cannot reach, or is sent to one.

    Loads from global memory reach Vec and Mat; Left, Right and Bias are filled by `pl.move`, Acc by
    matrix products. Vector ops work in Vec, the cube unit multiplies Left by Right, and stores
    start from Vec or Acc. Code without `pl.load` and `pl.move` need not care: there the compiler
    places the tiles.
    """

    code = "E0325"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def body(
                self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]
            ):
                tile = pl.load(x, [0, 0], [16, 128], target_memory=pl.Mem.Mat)
                out = pl.store(pl.exp(tile), [0, 0], out)
                return out
        """

    def __init__(
        self, loc: Loc, op: str, param: str, space: str, allowed: Sequence[str], how: str = ""
    ) -> None:
        super().__init__(
            f"`{param}` of `{op}` cannot be in `pl.Mem.{space}`",
            [Label(loc, f"`pl.Mem.{space}`")],
            helps=[f"it must be in {ticked(f'pl.Mem.{m}' for m in allowed)}", *optional(how)],
        )
