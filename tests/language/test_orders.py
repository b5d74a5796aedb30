"""Calls by position in every order that a version of the language had for their parameters.

Each line is an op with the parameters of one version, in that version's names and order. A call
that gives all of them by position means the same as one that gives them by those names.

One order of May and June 2026 is left out: a sixth argument of `load` was `transpose` then, and has
been `clamp` since.
"""

from __future__ import annotations

import pytest

import tilelet.language as pl
from tilelet.ir.printer import print_program

ORDERS = """
load(tensor, offsets, shapes, target_memory)
load(tensor, offsets, shapes, target_memory, valid_shapes)
load(tensor, offsets, shapes, target_memory, valid_shapes, transpose)
load(tensor, offsets, shapes, valid_shapes, target_memory)
load(tensor, offsets, shapes, valid_shapes, target_memory, clamp)
load(tensor, offsets, shapes, valid_shape, target_memory, clamp)
store(tile, offsets, shapes, output_tensor)
store(tile, offsets, output_tensor)
store(tile, offsets, output_tensor, shapes)
slice(input, shape, offset)
slice(input, shape, offset, valid_shape)
tile.slice(tile, shape, offset, valid_shape, pad_value)
tensor.slice(tensor, shape, offset, valid_shape, drop_dims, pad_value)
slice(input, shape, offset, valid_shape, drop_dims, clamp)
slice(input, shape, offset, valid_shape, drop_dims, pad_value, clamp)
move(tile, target_memory)
move(tile, target_memory, transpose)
move(tile, target_memory, blayout, slayout)
tile.create(shape, dtype, target_memory, transpose)
create_tensor(shape, dtype, layout, manual_dep, init_value)
full(shape, dtype, value)
ci(start, shape, dtype, descending)
fillpad(value, pad_value)
cast(input, target_type, mode)
set_validshape(input, valid_rows, valid_cols)
assemble(target, source, offset)
concat(src0, src1)
transpose(input, axis1, axis2)
tile.transpose(tile, axis1, axis2, tmp_tile)
row_expand(src)
row_expand(target, row_vec)
row_expand(lhs, rhs)
tile.row_expand_add(tile, row_vec, tmp)
col_expand(target, col_vec)
col_expand(lhs, rhs)
expand_clone(src, target)
expand_clone(input, target)
rsqrt(input, high_precision)
tile.rsqrt(tile, tmp)
log(input, high_precision)
tile.rem(lhs, rhs, tmp, high_precision)
tile.fmod(lhs, rhs, high_precision)
tile.sel(mask, lhs, rhs, tmp)
cmp(lhs, rhs, cmp_type)
tile.cmps(lhs, rhs, cmp_type)
tile.addc(lhs, rhs, rhs2)
row_sum(tile, tmp_tile)
col_sum(tile, tmp_tile)
matmul(lhs, rhs, out_dtype, a_trans, b_trans, c_matrix_nz)
matmul_acc(acc, lhs, rhs, a_trans, b_trans)
matmul_acc(acc, lhs, rhs, a_trans, b_trans, init_cond)
tile.matmul_acc(acc, lhs, rhs, init_cond)
tile.gemv(lhs, rhs, acc_phase)
sort32(src, idx)
tile.sort32(src, idx, tmp)
tile.mrgsort(src0, src1, src2, src3, tmp, executed, exhausted)
tile.mrgsort(src0, src1, src2, src3, tmp, excuted, exhausted)
tile.mrgsort(src0, src1, src2, src3, tmp, exhausted)
tensor.mrgsort(src0, src1, exhausted)
tensor.mrgsort(src0, src1, src2, src3, exhausted)
gather(input, dim, index)
tile.gather(src, indices, tmp)
scatter(input, dim, index, src)
gather_row(acc, src, dst_offset, src_offset, shapes, transpose)
gather_row(dst, src, dst_offset, src_offset, shapes, valid_shape, transpose)
"""

T, BF, INDEX, ROW = "t", "bf", "idx", "row"
COMMON = {
    **dict.fromkeys(
        [
            "tile",
            "input",
            "value",
            "src",
            "src0",
            "src1",
            "src2",
            "src3",
            "target",
            "lhs",
            "rhs",
            "acc",
        ],
        T,
    ),
    **dict.fromkeys(["tmp", "tmp_tile", "executed", "excuted", "source", "rhs2"], T),
    "tensor": "x",
    "output_tensor": "out",
    "offsets": "[0, 0]",
    "offset": "[0, 0]",
    "shapes": "[16, 32]",
    "shape": "[16, 32]",
    "valid_shape": "[8, 32]",
    "valid_shapes": "[8, 32]",
    "target_memory": "pl.Mem.Vec",
    "transpose": "False",
    "clamp": "True",
    "pad_value": "pl.PadValue.zero",
    "drop_dims": "None",
    "blayout": "None",
    "slayout": "None",
    "layout": "None",
    "manual_dep": "False",
    "dtype": "pl.FP32",
    "init_value": "None",
    "start": "0",
    "descending": "False",
    "target_type": "pl.BF16",
    "mode": '"rint"',
    "valid_rows": "8",
    "valid_cols": "32",
    "axis1": "0",
    "axis2": "1",
    "row_vec": ROW,
    "col_vec": "t[0:1, :]",
    "dim": "-1",
    "high_precision": "True",
    "mask": "pl.cmp(t, t)",
    "cmp_type": "1",
    "index": INDEX,
    "indices": INDEX,
    "out_dtype": "pl.FP32",
    "a_trans": "False",
    "b_trans": "False",
    "c_matrix_nz": "False",
    "init_cond": "True",
    "acc_phase": "None",
    "exhausted": "True",
    "idx": "pl.cast(idx, pl.UINT32)",
    "dst_offset": "[0, 0]",
    "src_offset": "[0, 0]",
}
SPECIAL: dict[str, dict[str, str]] = {
    "full": {"value": "1.5"},
    "assemble": {"target": "acc"},
    "create_tensor": {"layout": "pl.TensorLayout.ND"},
    "ci": {"shape": "[1, 32]", "dtype": "pl.INT32"},
    "slice": {"valid_shape": "[8, 32]"},
    "tensor.slice": {"tensor": T},
    "move": {"tile": "m", "target_memory": "pl.Mem.Left"},
    "row_expand": {"rhs": ROW},
    "col_expand": {"rhs": "t[0:1, :]"},
    "tile.cmps": {"rhs": "1.0"},
    "matmul": {"lhs": BF, "rhs": BF},
    "matmul_acc": {"lhs": BF, "rhs": BF, "acc": "acc"},
    "tile.matmul_acc": {"lhs": BF, "rhs": BF, "acc": "acc"},
    "tile.gemv": {"lhs": "bf[0:1, :]", "rhs": BF},
    **dict.fromkeys(
        ("tile.mrgsort", "tensor.mrgsort"),
        {f"src{i}": "pairs" for i in range(4)} | {"tmp": "pairs"},
    ),
    "sort32": {"src": "t[0:1, :]", "idx": "pl.cast(idx[0:1, :], pl.UINT32)"},
    "tile.sort32": {"src": "t[0:1, :]", "idx": "pl.cast(idx[0:1, :], pl.UINT32)"},
    "gather_row": {
        "acc": "l1",
        "dst": "l1",
        "src": "x",
        "shapes": "[1, 32]",
        "valid_shape": "[1, 16]",
    },
}
BODY = """
@pl.program
class P:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        b: pl.Tensor[[32, 32], pl.BF16],
        i: pl.Tensor[[16, 32], pl.INT32],
        out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
    ) -> pl.Tensor[[16, 32], pl.FP32]:
        with pl.incore():
            t = pl.load(x, [0, 0], [16, 32])
            m = pl.load(b, [0, 0], [32, 32], target_memory=pl.Mem.Mat)
            bf = pl.slice(b, [32, 32], [0, 0])
            idx = pl.slice(i, [16, 32], [0, 0])
            row = pl.row_sum(t)
            acc = pl.matmul(bf, bf, out_dtype=pl.FP32)
            pairs = pl.sort32(t[0:1, :], pl.cast(idx[0:1, :], pl.UINT32))
            l1 = pl.create_l1([16, 32], pl.FP32)
            {call}
            out = pl.store(t, [0, 0], out)
        return out
"""


def _meaning(op: str, arguments: list[str]) -> str:
    bound = "out" if op == "store" else "y"
    text = BODY.replace("{call}", f"{bound} = pl.{op}({', '.join(arguments)})")
    # The two spellings of a parameter are parameters of the op.
    return print_program(pl.parse(text, "orders.py")).replace("valid_shapes", "valid_shape")


@pytest.mark.parametrize("line", ORDERS.split("\n")[1:-1])
def test_by_position_as_by_name(line: str) -> None:
    op, _, rest = line.rstrip(")").partition("(")
    names = rest.split(", ")
    texts = [{**COMMON, **SPECIAL.get(op, {})}[name] for name in names]
    by_name = _meaning(op, [f"{name}={text}" for name, text in zip(names, texts)])
    assert _meaning(op, texts) == by_name
