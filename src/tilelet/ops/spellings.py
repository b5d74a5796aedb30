"""Alternative spellings of op calls: other names and orders of parameters.

An op has one signature, that of its function. The language has renamed parameters between its
versions, uses different names in `pl`, `pl.tensor` and `pl.tile`, and accepts arguments that only
affect a device. The tables here map such calls to the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelet.ir.core import Arg, Value
from tilelet.ir.spec import OpSpec
from tilelet.ir.types import Mem, TensorType, TileType
from tilelet.syntax.enums import PadValue

_FIRST = ("input", "tile", "tensor", "data", "value", "src")
"""Other names of an operand `x`."""

_TILE_AND_VECTOR = {"lhs": "x", "rhs": "row_vec"}
_TILE_AND_COLUMN = {"lhs": "x", "rhs": "col_vec"}

_NAMES: dict[str, dict[str, str]] = {
    **{
        f"row_expand_{name}": _TILE_AND_VECTOR
        for name in ("add", "sub", "mul", "div", "max", "min", "expdif")
    },
    **{
        f"col_expand_{name}": _TILE_AND_COLUMN
        for name in ("add", "sub", "mul", "div", "max", "min", "expdif")
    },
    **{f"part_{name}": {"src0": "lhs", "src1": "rhs"} for name in ("add", "mul", "max", "min")},
    "row_expand": {
        "lhs": "target",
        "rhs": "row_vec",
        "tile": "target",
        "src": "target",
        "input": "target",
    },
    "col_expand": {"lhs": "target", "rhs": "col_vec", "tensor": "target", "tile": "target"},
    "read": {"offset": "indices"},
    "write": {"dst": "x", "offset": "indices"},
    "set_validshape": {"valid_rows": "rows", "valid_cols": "cols"},
    "store": {"output_tensor": "tensor"},
    "cast": {"dtype": "target_type"},
    "gather": {"indices": "index"},
    "scatter": {"indexes": "index"},
    "array.create": {"extent": "length"},
    "gather_row": {"dst": "acc"},
    "expand_clone": {"input": "src"},
    "mrgsort": {"excuted": "executed"},
    "load_scale": {"mx_layout": "layout"},
}

SCRATCH = "scratch memory of the device"
COUNTS = "memory for the used length of each list, which nothing reads"
PRECISION = "results are always those of the precise form"
PHASE = "it controls the device's accumulator; the sum is the same"
LAYOUT = "the device's memory layout of a tile"
PLACE = "a source location, which Tilelet knows"

_WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "log": {"high_precision": PRECISION},
    "rsqrt": {"tmp": SCRATCH},
    "row_expand_add": {"tmp": SCRATCH},
    "transpose": {"tmp_tile": SCRATCH},
    "rem": {"tmp": SCRATCH, "high_precision": PRECISION},
    "rems": {"tmp": SCRATCH},
    "fmod": {"high_precision": PRECISION},
    "sort32": {"tmp": SCRATCH},
    "mrgsort": {"executed": COUNTS},
    "gemv": {"acc_phase": PHASE},
    "gemv_acc": {"acc_phase": PHASE},
    "gemv_bias": {"acc_phase": PHASE},
    "mgather": {"scratch": SCRATCH},
    "scatter_update": {"scratch": SCRATCH},
    "cast": {"tmp": SCRATCH},
    "ci": {"tmp": SCRATCH},
    "store": {"st_phase": PHASE},
    "move": {"blayout": LAYOUT, "slayout": LAYOUT},
    "create_tile": {"transpose": LAYOUT, "flat_layout": LAYOUT},
    **{
        f"system.{name}": {"span": PLACE}
        for name in (
            *("task_invalid", "cacheinvalid", "set_ffts", "sync_set", "sync_wait", "fence"),
            *("bar_all", "bar_m", "bar_v", "sync_dst", "sync_src"),
            *("available_cluster_count", "available_aiv_count"),
        )
    },
}


def parameter_of_keyword(spec: OpSpec, keyword: str) -> str:
    """Return the parameter that a keyword refers to; the keyword itself if it is no alias."""
    if keyword in spec.signature.parameters:
        return keyword
    if keyword in _FIRST and "x" in spec.signature.parameters:
        return "x"
    return _NAMES.get(spec.name, {}).get(keyword, keyword)


def without_effect(spec: OpSpec) -> dict[str, str]:
    """Return the parameters that are accepted and ignored, each with the reason."""
    return _WITHOUT_EFFECT.get(spec.name, {})


# Memory spaces by number, as used until February 2026.
_SPACES = {1: Mem.Vec, 2: Mem.Mat, 3: Mem.Left, 4: Mem.Right}


def meaning_of(param: str, value: Arg) -> Arg:
    """Return the meaning of a value given for a parameter."""
    if param == "target_memory" and isinstance(value, int):
        return _SPACES.get(value, value)
    if param == "layout" and isinstance(value, str):
        return value.upper()
    return value


# --- orders ---------------------------------------------------------------------------------------

Order = tuple[str, ...]


def _is_shaped(values: Sequence[Arg], at: int) -> bool:
    arg = values[at] if at < len(values) else None
    return isinstance(arg, Value) and isinstance(arg.type, (TensorType, TileType))


def _order_of_load(values: Sequence[Arg]) -> Order | None:
    """The valid shape has come before the memory since summer 2026."""
    if len(values) > 3 and not isinstance(values[3], Mem):
        return ("tensor", "offsets", "shapes", "valid_shape", "target_memory", "clamp")
    return None


def _order_of_store(values: Sequence[Arg]) -> Order | None:
    """The shape came before the tensor until spring 2026, and was omitted for a while."""
    if len(values) == 4 and isinstance(values[2], tuple):
        return ("tile", "offsets", "shapes", "tensor")
    shapes = len(values) > 3 and isinstance(values[3], tuple)
    return ("tile", "offsets", "tensor", "shapes") if shapes else None


def _order_of_slice(values: Sequence[Arg]) -> Order | None:
    """Dropped axes have come before the padding since May 2026, for a while before `clamp`."""
    head = ("x", "shape", "offset", "valid_shape")
    if len(values) > 4 and isinstance(values[4], (PadValue, float)):
        return (*head, "pad_value")
    if len(values) == 6 and isinstance(values[5], bool):
        return (*head, "drop_dims", "clamp")
    return (*head, "drop_dims", "pad_value", "clamp")


def _order_of_gather_row(values: Sequence[Arg]) -> Order | None:
    head = ("acc", "src", "dst_offset", "src_offset", "shapes")
    if len(values) > 5 and isinstance(values[5], tuple):
        return (*head, "valid_shape", "transpose")
    return None


def _order_of_mrgsort(values: Sequence[Arg]) -> Order | None:
    """The memory for the counts came before `exhausted` until May 2026."""
    if len(values) > 5 and _is_shaped(values, 5):
        return ("src0", "src1", "src2", "src3", "tmp", "executed", "exhausted")
    if 3 <= len(values) <= 5 and isinstance(values[-1], bool):
        return (*(f"src{i}" for i in range(len(values) - 1)), "exhausted")
    return None


def _order_of_matmul_acc(values: Sequence[Arg]) -> Order | None:
    """The tile-level form has no transposed operands: its fourth argument is the condition."""
    return ("acc", "lhs", "rhs", "init_cond") if len(values) == 4 else None


def _order_of_tensor_random(_: Sequence[Arg]) -> Order | None:
    """The tensor form has no valid region."""
    counters = tuple(f"counter{i}" for i in range(4))
    return ("key0", "key1", *counters, "shape", "dtype", "rounds")


_ORDERS: dict[str, Callable[[Sequence[Arg]], Order | None]] = {
    "tensor.random": _order_of_tensor_random,
    "random": _order_of_tensor_random,
    "tile.random": lambda _: None,
    "load": _order_of_load,
    "store": _order_of_store,
    "gather": lambda values: ("x", "index", "tmp") if _is_shaped(values, 1) else None,
    "scatter": lambda values: ("x", "src", "index") if _is_shaped(values, 1) else None,
    "rsqrt": lambda values: ("x", "tmp") if _is_shaped(values, 1) else None,
    "tile.matmul_acc": _order_of_matmul_acc,
    "tile.batch_matmul_acc": lambda _: ("acc", "lhs", "rhs"),
    "tile.gather_compare": lambda _: ("x", "kvalue", "tmp"),
    "scatter_update": lambda values: ("input", "index", "src") if _is_shaped(values, 1) else None,
    "log": lambda _: ("x", "high_precision"),
    "row_expand_add": lambda _: ("x", "row_vec", "tmp"),
    "transpose": lambda _: ("x", "axis1", "axis2", "tmp_tile"),
    "rem": lambda _: ("lhs", "rhs", "tmp", "high_precision"),
    "rems": lambda _: ("lhs", "rhs", "tmp"),
    "gemv": lambda _: ("lhs", "rhs", "acc_phase"),
    "gemv_acc": lambda _: ("acc", "lhs", "rhs", "acc_phase"),
    "gemv_bias": lambda _: ("lhs", "rhs", "bias", "acc_phase"),
    "move": lambda _: ("tile", "target_memory", "blayout", "slayout"),
    "create_tile": lambda _: ("shape", "dtype", "target_memory", "transpose"),
    "div": lambda _: ("lhs", "rhs", "high_precision"),
    "slice": _order_of_slice,
    "gather_row": _order_of_gather_row,
    "mrgsort": _order_of_mrgsort,
    "fmod": lambda _: ("lhs", "rhs", "high_precision"),
    "sort32": lambda _: ("src", "idx", "tmp"),
    "create_tensor": lambda _: ("shape", "dtype", "layout", "manual_dep", "init_value"),
}  # fmt: skip


def order(spec: OpSpec, public: str, values: Sequence[Arg]) -> Order | None:
    """Return the parameters for positional arguments, if not in signature order.

    public: the name as spelled in the call, with `tile.` or `tensor.`
    """
    rule = _ORDERS.get(public) or _ORDERS.get(spec.name)
    return rule(values) if rule is not None else None
