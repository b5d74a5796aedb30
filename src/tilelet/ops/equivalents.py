"""Names from torch, NumPy and Triton, and what to write in `pl` instead.

Names are without their module: `torch.sigmoid`, `pl.sigmoid` and `x.sigmoid()` are the same entry.
Each replacement is code with `x`, `y` (tiles `[16, 64]` in FP32), `w` (`[64, 16]`), `mask` and
`idx`; entries that need more than code have a remark. Names that `pl` also has need no entry.
"""

from __future__ import annotations

from typing import NamedTuple

from tilelet.ir.spec import REGISTRY


class Equivalent(NamedTuple):
    """Code to write instead (may be empty), and a remark."""

    code: str
    remark: str = ""

    @property
    def help(self) -> str:
        """Return a help line for a message."""
        if not self.code:
            return self.remark
        return f"write `{self.code}`" + (f": {self.remark}" if self.remark else "")


_SIGMOID = "pl.recip(pl.add(pl.exp(pl.neg(x)), 1.0))"
_MATMUL = Equivalent("pl.matmul(x, w, out_dtype=pl.FP32)")
_ZEROS = Equivalent("pl.full([16, 64], dtype=pl.FP32, value=0.0)")
_EMPTY = Equivalent("pl.create_tensor([16, 64], dtype=pl.FP32)", "memory that nothing has written")
_CAST = Equivalent("pl.cast(x, pl.BF16)")
_RESHAPE = Equivalent("pl.reshape(x, [32, 32])")
_SUM = Equivalent("pl.row_sum(x)", "one sum per row; `pl.col_sum(x)`: one per column")
_MAX = Equivalent("pl.row_max(x)", "of each row; `pl.maximum(x, y)` is elementwise")
_MIN = Equivalent("pl.row_min(x)", "of each row; `pl.minimum(x, y)` is elementwise")
_COMPARE = Equivalent('pl.cmp(x, y, cmp_type="gt")', 'or "ge", "lt", "le", "eq", "ne"')
_SORT = Equivalent("", "sort with `pl.sort32` and `pl.mrgsort`, as examples/09_topk.py does")
_EXPAND = Equivalent(
    "pl.row_expand_add(x, pl.row_sum(y))", "the `row_expand` and `col_expand` ops broadcast"
)
_PRINT = Equivalent(
    "pl.dump(x)", "the values, when it runs; `pl.static_print(x)`: the type, when it is compiled"
)
_INDEX = Equivalent("pl.get_block_idx()", "in a `pl.spmd` scope")
_ATOMIC = Equivalent("", "add into a tensor with `pl.assemble(out, x, [0, 0], atomic=...)`")
_ROUND = Equivalent('pl.cast(x, pl.INT32, mode="floor")', 'or "ceil", "trunc", "rint"')

EQUIVALENTS: dict[str, Equivalent] = {
    # Activations
    "sigmoid": Equivalent(_SIGMOID),
    "expit": Equivalent(_SIGMOID),
    "silu": Equivalent(f"pl.mul(x, {_SIGMOID})"),
    "swish": Equivalent(f"pl.mul(x, {_SIGMOID})"),
    "tanh": Equivalent("pl.sub(pl.mul(pl.recip(pl.add(pl.exp(pl.mul(x, -2.0)), 1.0)), 2.0), 1.0)"),
    "gelu": Equivalent(
        "pl.mul(x, pl.recip(pl.add(pl.exp(pl.mul(x, -1.702)), 1.0)))", "its sigmoid approximation"
    ),
    "softmax": Equivalent(
        "pl.exp(pl.row_expand_sub(x, pl.row_max(x)))",
        "then divide by its `pl.row_sum` with `pl.row_expand_div`",
    ),
    "layer_norm": Equivalent("", "examples/05_layernorm.py shows it"),
    "rms_norm": Equivalent("", "examples/04_rmsnorm.py shows it"),
    "leaky_relu": Equivalent("pl.lrelu(x, 0.01)"),
    # Elementwise
    "where": Equivalent('pl.sel(pl.cmp(x, 0.0, cmp_type="gt"), x, y)'),
    "select": Equivalent("pl.sel(mask, x, y)"),
    "masked_fill": Equivalent("pl.sels(mask, x, None, 0.0)", "the number goes where the mask is 0"),
    "pow": Equivalent("pl.mul(x, x)", "or `pl.exp(pl.mul(pl.log(x), p))` for any power p"),
    "power": Equivalent("pl.mul(x, x)", "or `pl.exp(pl.mul(pl.log(x), p))` for any power p"),
    "square": Equivalent("pl.mul(x, x)"),
    "absolute": Equivalent("pl.abs(x)"),
    "fabs": Equivalent("pl.abs(x)"),
    "negative": Equivalent("pl.neg(x)"),
    "multiply": Equivalent("pl.mul(x, y)"),
    "subtract": Equivalent("pl.sub(x, y)"),
    "divide": Equivalent("pl.div(x, y)"),
    "true_divide": Equivalent("pl.div(x, y)"),
    "reciprocal": Equivalent("pl.recip(x)"),
    "exp2": Equivalent("pl.exp(pl.mul(x, 0.6931471805599453))"),
    "log2": Equivalent("pl.mul(pl.log(x), 1.4426950408889634)"),
    "clamp": Equivalent("pl.minimum(pl.maximum(x, -1.0), 1.0)"),
    "clip": Equivalent("pl.minimum(pl.maximum(x, -1.0), 1.0)"),
    "floor": _ROUND,
    "ceil": _ROUND,
    "round": _ROUND,
    "trunc": _ROUND,
    "fma": Equivalent("pl.add(pl.mul(x, y), y)"),
    "gt": _COMPARE,
    "greater": _COMPARE,
    "less": _COMPARE,
    "equal": _COMPARE,
    "logical_and": Equivalent("pl.mul(mask, mask)", "of masks of 0 and 1"),
    "logical_or": Equivalent("pl.maximum(mask, mask)", "of masks of 0 and 1"),
    # Products
    "dot": _MATMUL,
    "mm": _MATMUL,
    "einsum": _MATMUL,
    "linear": _MATMUL,
    "bmm": Equivalent("", "`pl.batch_matmul` multiplies 3-D operands, batch by batch"),
    # Reductions
    "sum": _SUM,
    "mean": Equivalent("pl.mul(pl.row_sum(x), 1.0 / 64)", "of each row of 64 columns"),
    "reduce_sum": _SUM,
    "reduce_max": _MAX,
    "reduce_min": _MIN,
    "max": _MAX,
    "amax": _MAX,
    "min": _MIN,
    "amin": _MIN,
    "prod": Equivalent("pl.row_prod(x)"),
    "argmax": Equivalent("pl.row_argmax(x)"),
    "argmin": Equivalent("pl.row_argmin(x)"),
    "sort": _SORT,
    "argsort": _SORT,
    "topk": _SORT,
    # Creation and shapes
    "zeros": _ZEROS,
    "zeros_like": _ZEROS,
    "ones": Equivalent("pl.full([16, 64], dtype=pl.FP32, value=1.0)"),
    "ones_like": Equivalent("pl.full([16, 64], dtype=pl.FP32, value=1.0)"),
    "full_like": _ZEROS,
    "empty": _EMPTY,
    "empty_like": _EMPTY,
    "iota": Equivalent("pl.arange(0, [1, 64])"),
    "view": _RESHAPE,
    "flatten": _RESHAPE,
    "squeeze": _RESHAPE,
    "unsqueeze": _RESHAPE,
    "expand_dims": _RESHAPE,
    "T": Equivalent("pl.transpose(x, 0, 1)", "for an operand of `pl.matmul`, `b_trans=True`"),
    "t": Equivalent("pl.transpose(x, 0, 1)", "for an operand of `pl.matmul`, `b_trans=True`"),
    "trans": Equivalent("pl.transpose(x, 0, 1)", "for an operand of `pl.matmul`, `b_trans=True`"),
    "permute": Equivalent("pl.transpose(x, 0, 1)", "two axes at a time"),
    "swapaxes": Equivalent("pl.transpose(x, 0, 1)"),
    "cat": Equivalent("pl.concat(x, y)", "side by side, two at a time"),
    "concatenate": Equivalent("pl.concat(x, y)", "side by side, two at a time"),
    "hstack": Equivalent("pl.concat(x, y)"),
    "vstack": Equivalent("", "store both parts below each other: `out[0:16, :] = x`"),
    "expand": _EXPAND,
    "expand_as": _EXPAND,
    "broadcast_to": _EXPAND,
    "repeat": _EXPAND,
    "index_select": Equivalent(
        "", "take rows with `pl.slice` and `pl.read` of the index, or `pl.gather`"
    ),
    "take": Equivalent("", "take elements with `pl.gather`, rows with `pl.slice`"),
    "astype": _CAST,
    "to": _CAST,
    "type": _CAST,
    "float": Equivalent("pl.cast(x, pl.FP32)"),
    "half": Equivalent("pl.cast(x, pl.FP16)"),
    "bfloat16": _CAST,
    "int": Equivalent("pl.cast(x, pl.INT32)"),
    "copy": Equivalent("", "values are never changed in place: use `x` again"),
    "clone": Equivalent("", "values are never changed in place: use `x` again"),
    "contiguous": Equivalent("", "tiles are contiguous: use `x` as it is"),
    "size": Equivalent("x.shape[0]"),
    "numel": Equivalent("x.shape[0] * x.shape[1]"),
    "item": Equivalent("pl.read(x, [0, 0])"),
    "len": Equivalent("x.shape[0]"),
    # Triton
    "program_id": _INDEX,
    "num_programs": Equivalent("pl.get_block_num()", "in a `pl.spmd` scope"),
    "cdiv": Equivalent("(64 + 15) // 16"),
    "atomic_add": _ATOMIC,
    "index_add": _ATOMIC,
    "static_range": Equivalent("", "`for i in pl.unroll(4):` repeats the body"),
    "device_print": _PRINT,
    "print": _PRINT,
    "print_": _PRINT,
    # Operators
    "@": _MATMUL,
    "**": Equivalent("pl.mul(x, x)", "or `pl.exp(pl.mul(pl.log(x), p))` for any power p"),
    "//": Equivalent('pl.cast(pl.div(x, y), pl.INT32, mode="floor")'),
    "%": Equivalent("pl.fmod(x, y)"),
    "<<": Equivalent("", "of integers: `pl.shl`"),
    ">>": Equivalent("", "of integers: `pl.shr`"),
    "&": Equivalent("", "of integers: `pl.and_`"),
    "|": Equivalent("", "of integers: `pl.or_`"),
    "^": Equivalent("", "of integers: `pl.xor`"),
    "not": Equivalent("pl.sub(1.0, mask)", "of a mask of 0 and 1"),
}


def equivalent(name: str) -> str:
    """Return a help line for a name of another library; empty if unknown."""
    last = name.rpartition(".")[2]
    if last in EQUIVALENTS:
        return EQUIVALENTS[last].help
    if name != f"pl.{last}" and last in REGISTRY:
        return f"write `pl.{last}`"
    return ""


def equivalents_markdown() -> str:
    """Return the table for docs/ops.md, with synonyms in one row."""
    rows: dict[Equivalent, list[str]] = {}
    for name, found in EQUIVALENTS.items():
        rows.setdefault(found, []).append(name)
    lines = ["| elsewhere | here |", "|---|---|"]
    for found, names in rows.items():
        shown = f"`{found.code}`" if found.code else ""
        text = "; ".join(part for part in (shown, found.remark) if part)
        elsewhere = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {elsewhere} | {text} |".replace("`|`", "`\\|`"))
    return "\n".join(lines)
