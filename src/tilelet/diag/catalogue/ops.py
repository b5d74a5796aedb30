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

    docs/ops.md lists the ops, with a table of their names in other libraries. The message suggests
    similar names.
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

    Unknown keywords are errors, because ignoring a misspelled option would silently change results.
    The help lists the arguments of the op.
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
    """A call passes too many or too few arguments to an op or function.

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
    """A call omits a required argument of an op.

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

    Remove one of the two.
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
    """The shapes of two operands are incompatible.

    Binary ops take equal shapes or a scalar, or broadcast `[M, N]` with `[M, 1]`, `[1, N]` or `[1,
    1]`; leading axes of extent 1 may be omitted. There is no other broadcasting: slice, reshape, or
    use an `expand` op to make the shapes agree.
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
            f"shapes `{lhs}` and `{rhs}` are incompatible in `{op}`",
            [Label(lhs_loc, f"`{lhs}`"), Label(rhs_loc, f"`{rhs}`")],
            notes=optional(why),
            helps=_fitting_help(tuple(lhs_shape), tuple(rhs_shape), op == "subscript assignment"),
        )


def _fitting_help(a: tuple[object, ...], b: tuple[object, ...], is_store: bool) -> list[str]:
    """Say how two shapes can be made to agree, where one way is likely."""
    if is_store:
        if len(a) != len(b) or not all(isinstance(n, int) for n in (*a, *b)):
            return []
        part = ", ".join(":" if m == n else f"0:{m}" for m, n in zip(a, b))
        return [f"store a part of the tile, `tile[{part}]`, or take a window `{shape_text(b)}`"]
    for vector, other in ((a, b), (b, a)):
        if len(vector) == 1 and len(other) == 2 and vector[0] in other:
            is_row = vector[0] == other[1]
            shape = (1, vector[0]) if is_row else (vector[0], 1)
            return [f"make it a {'row' if is_row else 'column'}: `pl.reshape(v, {list(shape)})`"]
    for column, row in ((a, b), (b, a)):
        if len(column) == len(row) == 2 and column[1] == row[0] == 1 != column[0]:
            whole = shape_text((column[0], row[1]))
            zeros = f"pl.full({whole}, dtype=pl.FP32, value=0.0)"
            return [f"expand one of them to `{whole}` first: `pl.row_expand({zeros}, column)`"]
    return []


class DTypeMismatch(UserError):
    """The element types of two operands differ, but the op needs them to be equal.

    There is no implicit conversion, neither in the hardware nor in the language: use `pl.cast` to
    say which operand is converted and how it is rounded.
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
    """An argument of an op is of the wrong kind.

    The label shows what was passed, the message what is expected. docs/ops.md has the op's manual.
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
    """The shape of a tile depends on a run-time value.

    On-chip buffers are planned at compile time, so every extent of a tile is a constant. Use a tile
    of the largest extent and mark the part that holds data with `valid_shape=`.
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

    Reshaping reinterprets the same elements in the same order, so the products of the extents must
    be equal.
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
    """The accumulator does not match the matrix product.

    `pl.matmul_acc(acc, a, b)` adds into `acc`, which must have the product's shape `[M, N]` and the
    accumulation dtype of the cube: FP32 for float operands, INT32 for integers.
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
    """An op does not support this element type.

    docs/ops.md lists the dtypes of each op. Cast to one of them, and back afterwards if needed.
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
            f"`{op}` does not support `{dtype}`",
            [Label(loc, f"this is `{dtype}`")],
            helps=[f"`{op}` supports {ticked(allowed)}", *optional(hint)],
        )


class BadAxis(UserError):
    """An axis is out of range for the operand's rank, or given twice.

    Axes are numbered from 0; negative axes count from the end, so -1 is the last.
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
            f"axis {axis} of `{op}` is invalid for a value of rank {rank}",
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

    Fill values, comparison kinds, block lengths, axes and options are compiled into the generated
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

    TASK_ID values are not numbers, and scalars are converted with the default mode only.
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
    adjacent runs of `block_len` interleaved positions: the operand has one row whose length is a
    multiple of four runs, and `block_len` is a multiple of 64.
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
    """A constant does not fit its type.

    Constants are neither wrapped nor saturated at compile time, because that would silently change
    the value. A constant combined with a run-time scalar takes the type of the scalar, and
    constants have at most 64 bits. Use a wider dtype or a smaller value.
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
    """A Python operator is used on values that it does not support.

    Arithmetic operators work on scalars, and on tensors and tiles as shorthand for elementwise ops.
    Tuples, lists, strings and task ids have no arithmetic in a kernel.
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
    """The arguments of a call match none of the op's forms.

    For example, `pl.gather` selects either by `mask_pattern=`, or by `index=` with `dim=`. The note
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
            f"these arguments match no form of `{op}`",
            [Label(loc)],
            notes=["its forms are\n" + "\n".join(f"`{form}`" for form in forms)],
        )


class WrongMemorySpace(UserError):
    """A tile is in a memory space that the op cannot access, or is moved to one.

    Loads from global memory go to Vec and Mat; Left, Right and Bias are filled by `pl.move`, and
    Acc by matrix products. Vector ops work in Vec, the cube multiplies Left by Right, and stores
    read from Vec or Acc. In code without `pl.load` and `pl.move` the compiler places the tiles.
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
