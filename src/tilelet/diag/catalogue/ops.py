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
    quoted_names,
    shape_text,
)


class UnknownOp(UserError, code="E0301"):
    """A kernel calls a `pl` name that is not an op."""

    def __init__(
        self, loc: Loc, name: str, suggestions: Iterable[str] = (), instead: str = ""
    ) -> None:
        super().__init__(
            f"no op `{name}`",
            [Label(loc, "not an op")],
            helps=[instead] if instead else did_you_mean(suggestions),
        )


class UnknownKeyword(UserError, code="E0302"):
    """A call passes a keyword that the op does not have."""

    def __init__(self, loc: Loc, op: str, keyword: str, allowed: Sequence[str]) -> None:
        helps = did_you_mean(near(keyword, allowed))
        if allowed:
            helps.append(f"`{op}` takes {quoted_names(allowed, 'and')}")
        super().__init__(
            f"`{op}` has no argument `{keyword}`", [Label(loc, "unknown keyword")], helps=helps
        )


class WrongArity(UserError, code="E0303"):
    """A call passes too many or too few arguments to an op or function."""

    def __init__(
        self, loc: Loc, op: str, got: int, expected: int | str, signature: str = ""
    ) -> None:
        wanted = plural(expected, "argument") if isinstance(expected, int) else expected
        super().__init__(
            f"`{op}` takes {wanted}, got {got}",
            [Label(loc, plural(got, "argument"))],
            notes=optional(signature and f"signature: `{signature}`"),
        )


class MissingArgument(UserError, code="E0304"):
    """A call omits a required argument of an op."""

    def __init__(self, loc: Loc, op: str, param: str, signature: str = "") -> None:
        super().__init__(
            f"`{op}` needs the argument `{param}`",
            [Label(loc, f"`{param}` is missing")],
            notes=optional(signature and f"signature: `{signature}`"),
        )


class DuplicateArgument(UserError, code="E0305"):
    """A call passes one argument twice, by position and by keyword."""

    def __init__(self, loc: Loc, op: str, param: str) -> None:
        super().__init__(
            f"`{op}` got the argument `{param}` twice",
            [Label(loc, "already given by position")],
        )


class ShapeMismatch(UserError, code="E0306"):
    """The shapes of two operands are incompatible."""

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


class DTypeMismatch(UserError, code="E0307"):
    """The element types of two operands differ, but the op needs them to be equal."""

    def __init__(
        self, op: str, lhs_loc: Loc, lhs: object, rhs_loc: Loc, rhs: object, hint: str = ""
    ) -> None:
        super().__init__(
            f"`{op}` needs equal dtypes, got `{lhs}` and `{rhs}`",
            [Label(lhs_loc, f"`{lhs}`"), Label(rhs_loc, f"`{rhs}`")],
            helps=[hint or f"cast one side, for example `pl.cast(..., {lhs})`"],
        )


class RankMismatch(UserError, code="E0308"):
    """A shape, an offset or an operand has the wrong number of dimensions."""

    def __init__(self, loc: Loc, op: str, what: str, got: int, expected: int | str) -> None:
        super().__init__(
            f"{what} of `{op}` has rank {got}, expected {expected}",
            [Label(loc, f"rank {got}")],
        )


class BadArgument(UserError, code="E0309"):
    """An argument of an op is of the wrong kind."""

    def __init__(
        self, loc: Loc, op: str, param: str, got: str, expected: str, helps: Sequence[str] = ()
    ) -> None:
        super().__init__(
            f"argument `{param}` of `{op}` must be {expected}",
            [Label(loc, f"this is {got}")],
            helps=helps,
        )


class NonConstantShape(UserError, code="E0310"):
    """The shape of a tile depends on a run-time value."""

    def __init__(self, loc: Loc, op: str, index: int) -> None:
        super().__init__(
            f"shape of `{op}` is not constant in axis {index}",
            [Label(loc, "known only at run time")],
            helps=["use a constant shape and pass the run-time extent as `valid_shape=`"],
        )


class ZeroSizeDim(UserError, code="E0311"):
    """A shape has an extent of zero or less."""

    def __init__(self, loc: Loc, what: str, shape: Sequence[object], index: int) -> None:
        super().__init__(
            f"{what} has extent {shape[index]} in axis {index}",
            [Label(loc, f"shape `{shape_text(shape)}`")],
            helps=["every extent must be at least 1"],
        )


class ReshapeCount(UserError, code="E0312"):
    """`pl.reshape` changes the number of elements."""

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


class InnerDimMismatch(UserError, code="E0313"):
    """The inner dimensions of a matrix product differ."""

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


class AccumulatorMismatch(UserError, code="E0314"):
    """The accumulator does not match the matrix product."""

    def __init__(self, loc: Loc, op: str, got: str, expected: str) -> None:
        super().__init__(
            f"accumulator of `{op}` is `{got}`, expected `{expected}`",
            [Label(loc, f"this is `{got}`")],
        )


class DTypeNotAllowed(UserError, code="E0315"):
    """An op does not support this element type."""

    def __init__(
        self, loc: Loc, op: str, dtype: object, allowed: Iterable[object], hint: str = ""
    ) -> None:
        super().__init__(
            f"`{op}` does not support `{dtype}`",
            [Label(loc, f"this is `{dtype}`")],
            helps=[f"`{op}` supports {quoted_names(allowed)}", *optional(hint)],
        )


class BadAxis(UserError, code="E0316"):
    """An axis is out of range for the operand's rank, or given twice."""

    def __init__(self, loc: Loc, op: str, axis: object, rank: int) -> None:
        super().__init__(
            f"axis {axis} of `{op}` is invalid for a value of rank {rank}",
            [Label(loc, f"must be one of {-rank} to {rank - 1}, each at most once")],
        )


class BadChoice(UserError, code="E0318"):
    """An option has a value that is not one of its choices."""

    def __init__(
        self, loc: Loc, op: str, param: str, got: object, choices: Sequence[object]
    ) -> None:
        super().__init__(
            f"argument `{param}` of `{op}` cannot be `{got}`",
            [Label(loc, "not one of its choices")],
            helps=[
                *did_you_mean(near(str(got), map(str, choices))),
                f"it is one of {quoted_names(choices)}",
            ],
        )


class NotConstant(UserError, code="E0319"):
    """An argument that must be known at compile time is a run-time value."""

    def __init__(self, loc: Loc, op: str, param: str, help: str = "") -> None:
        super().__init__(
            f"argument `{param}` of `{op}` must be a compile-time constant",
            [Label(loc, "known only at run time")],
            helps=optional(help),
        )


class CastUnsupported(UserError, code="E0320"):
    """There is no conversion between these two element types, or not with this rounding mode."""

    def __init__(self, loc: Loc, source: object, target: object, mode: str, why: str = "") -> None:
        super().__init__(
            f"cannot cast `{source}` to `{target}` with mode `{mode}`",
            [Label(loc)],
            notes=optional(why),
        )


class SortGeometry(UserError, code="E0321"):
    """The shape of a sort or merge operand does not fit the sorting network."""

    def __init__(self, loc: Loc, op: str, shape: Sequence[object], needs: str) -> None:
        super().__init__(
            f"`{op}` cannot sort shape `{shape_text(shape)}`",
            [Label(loc, f"`{shape_text(shape)}`")],
            notes=[f"it needs {needs}"],
        )


class ConstantOutOfRange(UserError, code="E0322"):
    """A constant does not fit its type."""

    def __init__(self, loc: Loc, value: object, dtype: object, low: object, high: object) -> None:
        shown = integer_text(value) if isinstance(value, int) else value
        super().__init__(
            f"constant {shown} does not fit `{dtype}`",
            [Label(loc, f"`{dtype}` holds {low} to {high}")],
        )


class OperandKind(UserError, code="E0323"):
    """A Python operator is used on values that it does not support."""

    def __init__(self, loc: Loc, operator: str, kinds: Sequence[str]) -> None:
        super().__init__(
            f"operator `{operator}` does not work on {quoted_names(kinds, 'and')}", [Label(loc)]
        )


class NoSuchForm(UserError, code="E0324"):
    """The arguments of a call match none of the op's forms."""

    def __init__(self, loc: Loc, op: str, forms: Iterable[str]) -> None:
        super().__init__(
            f"these arguments match no form of `{op}`",
            [Label(loc)],
            notes=["its forms are\n" + "\n".join(f"`{form}`" for form in forms)],
        )


class WrongMemorySpace(UserError, code="E0325"):
    """A tile is in a memory space that the op cannot access, or is moved to one."""

    def __init__(
        self, loc: Loc, op: str, param: str, space: str, allowed: Sequence[str], how: str = ""
    ) -> None:
        super().__init__(
            f"`{param}` of `{op}` cannot be in `pl.Mem.{space}`",
            [Label(loc, f"`pl.Mem.{space}`")],
            helps=[f"it must be in {quoted_names(f'pl.Mem.{m}' for m in allowed)}", *optional(how)],
        )
