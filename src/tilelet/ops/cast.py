"""Conversion between element types."""

# Op bodies are `...`: an op consists of its signature and its manual.
# ruff: noqa: PIE790

from __future__ import annotations

from tilelet import dtypes, numerics
from tilelet.diag.catalogue.ops import BadChoice, CastUnsupported
from tilelet.dtypes import Array, DType
from tilelet.ir.spec import Call, Cost, Trait, op
from tilelet.ir.types import TileType
from tilelet.numerics.casts import MODES
from tilelet.ops import infer, limits, valid
from tilelet.ops.annotations import Shaped
from tilelet.ops.families import VECTOR
from tilelet.syntax.enums import RoundMode

__all__ = ["cast"]


def mode_name(mode: str | int | RoundMode) -> str:
    """Return the name of a rounding mode given as a name, a code or an enum member, or raise."""
    if isinstance(mode, str) and mode.lower() in MODES:
        return mode.lower()
    if isinstance(mode, int) and 0 <= mode < len(MODES):
        return MODES[mode]
    raise ValueError(f"no rounding mode {mode!r}")


def check_mode(call: Call) -> str:
    """Check that the argument `mode` names a rounding mode."""
    try:
        return mode_name(call["mode"])
    except ValueError:
        raise BadChoice(call.at("mode"), call.shown, "mode", call["mode"], MODES) from None


def _infer(call: Call) -> infer.Types:
    x = infer.tile(call, "x")
    target = infer.dtype(call, "target_type")
    mode = check_mode(call)
    if target is dtypes.TASK_ID:
        why = "a task id is not a number"
        raise CastUnsupported(call.at("target_type"), x.dtype, target, mode, why)
    if target in dtypes.BLOCK_SCALED:
        why = "block-scaled data is made by the host"
        raise CastUnsupported(call.at("target_type"), x.dtype, target, mode, why)
    return (TileType(x.shape, target, infer.vector_space(call, "x")),)


def _cast(x: Array, target_type: DType, mode: str | int) -> Array:
    return numerics.cast(x, target_type, mode_name(mode))


@op(
    infer=_infer,
    reference=_cast,
    family=VECTOR,
    valid=valid.kept("x"),
    traits=Trait.POINTWISE,
    cost=Cost.CAST,
    limits=(limits.SAME_DTYPE,),
)
def cast(x: Shaped, target_type: DType, mode: str | int | RoundMode = "round") -> Shaped:
    """Convert the elements of `x` to another type.

    x: any dtype; a scalar works too, with the default mode. HF8, INT4 and UINT4 have no other ops
        than casts and those that move elements
    target_type: the dtype of the result
    mode: how a value between two representable ones is rounded: "rint" to nearest, ties to even;
        "round" to nearest, ties away from zero (the default, and unlike torch on exact ties);
        "floor", "ceil", "trunc"; "odd" to the odd neighbor; "none" for conversions that need no
        rounding. The codes 0 to 6 stand for none, rint, round, floor, ceil, trunc, odd
    result: x's shape. Float to integer saturates, NaN becomes 0; integer to integer saturates

    Example: `y = pl.cast(acc, pl.BF16, mode="rint")`
    """
    ...
