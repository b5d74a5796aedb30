"""The tasks, in three levels: single ops, fused chains, layers and data-dependent programs.

A row-wise task is a line of a table: an expression of tiles and the same in NumPy. Its script, with
specs, golden and a naive kernel of one row per task, is made from the line. Products are made
from their sizes. The programs of the last level are the examples that ship with Tilelet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SCRIPT = '''"""{about}"""

import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS, COLS{more_sizes}, TILE = {rows}, {cols}{more_values}, {tile}


@pl.jit
def {name}(
{parameters}
):
{kernel}
    return out


def golden(tensors):
{reads}
    tensors["out"][:] = {golden}


def draw(seed, shape, low, high):
    return lambda: np.random.default_rng(seed).uniform(low, high, shape)


SPECS = [
{specs}
    TensorSpec("out", {out}, pl.FP32, is_output=True),
]

if __name__ == "__main__":
    result = run_jit({name}, SPECS, golden_fn=golden, rtol={tolerance}, atol={tolerance})
    print(result)
    raise SystemExit(not result.passed)
'''

SHAPES = {"x": "[ROWS, COLS]", "y": "[ROWS, COLS]", "z": "[ROWS, COLS]", "w": "[1, COLS]",
          "v": "[1, COLS]", "s": "[ROWS, 1]"}  # fmt: skip
"""Inputs by name: tensors, a row of weights, a column of scales."""
OUTPUTS = {"rows": "[ROWS, COLS]", "column": "[ROWS, 1]"}

# name | inputs | tiles | NumPy | lowest and highest input
_SINGLE = """
add        | xy | pl.add(x, y)                | x + y
sub        | xy | pl.sub(x, y)                | x - y
mul        | xy | pl.mul(x, y)                | x * y
div        | xy | pl.div(x, y)                | x / y                           | 0.5 2
maximum    | xy | pl.maximum(x, y)            | np.maximum(x, y)
minimum    | xy | pl.minimum(x, y)            | np.minimum(x, y)
neg        | x  | pl.neg(x)                   | -x
abs        | x  | pl.abs(x)                   | np.abs(x)
exp        | x  | pl.exp(x)                   | np.exp(x)
log        | x  | pl.log(x)                   | np.log(x)                       | 0.5 2
sqrt       | x  | pl.sqrt(x)                  | np.sqrt(x)                      | 0.5 2
recip      | x  | pl.recip(x)                 | 1 / x                           | 0.5 2
relu       | x  | pl.relu(x)                  | np.maximum(x, 0)
scale      | x  | pl.mul(x, 0.125)            | x * 0.125
shift      | x  | pl.add(x, 3.0)              | x + 3.0
row_sum    | x  | pl.row_sum(x)               | x.sum(1, keepdims=True)
row_max    | x  | pl.row_max(x)               | x.max(1, keepdims=True)
row_min    | x  | pl.row_min(x)               | x.min(1, keepdims=True)
scale_rows | xs | pl.row_expand_mul(x, s)     | x * s
scale_cols | xw | pl.col_expand_mul(x, w)     | x * w
bias       | xw | pl.col_expand_add(x, w)     | x + w
shift_rows | xs | pl.row_expand_add(x, s)     | x + s
divide_rows| xs | pl.row_expand_div(x, s)     | x / s                           | 0.5 2
square     | x  | pl.mul(x, x)                | x * x
"""
_FUSED = """
axpy           | xy  | pl.add(pl.mul(x, 2.0), y) | 2.0 * x + y
silu           | x   | pl.div(x, pl.add(pl.exp(pl.neg(x)), 1.0)) | x / (1 + np.exp(-x))
sigmoid        | x   | pl.recip(pl.add(pl.exp(pl.neg(x)), 1.0)) | 1 / (1 + np.exp(-x))
swiglu         | xy  | pl.mul(pl.div(x, pl.add(pl.exp(pl.neg(x)), 1.0)), y) | x / (1 + np.exp(-x)) * y
softplus       | x   | pl.log(pl.add(pl.exp(x), 1.0)) | np.log1p(np.exp(x))
tanh           | x   | pl.div(pl.sub(pl.exp(pl.mul(x, 2.0)), 1.0), pl.add(pl.exp(pl.mul(x, 2.0)), 1.0)) | np.tanh(x) | 0.5 2
affine         | xwv | pl.col_expand_add(pl.col_expand_mul(x, w), v) | x * w + v
bias_relu      | xw  | pl.relu(pl.col_expand_add(x, w)) | np.maximum(x + w, 0)
residual       | xyw | pl.add(pl.col_expand_add(x, w), y) | x + w + y
clamp          | x   | pl.minimum(pl.maximum(x, pl.full([TILE, COLS], dtype=pl.FP32, value=-0.5)), pl.full([TILE, COLS], dtype=pl.FP32, value=0.5)) | np.clip(x, -0.5, 0.5)
distance       | xy  | pl.row_sum(pl.mul(pl.sub(x, y), pl.sub(x, y))) | ((x - y) ** 2).sum(1, keepdims=True)
dot_rows       | xy  | pl.row_sum(pl.mul(x, y)) | (x * y).sum(1, keepdims=True)
norm2          | x   | pl.sqrt(pl.row_sum(pl.mul(x, x))) | np.sqrt((x * x).sum(1, keepdims=True))
center         | x   | pl.row_expand_sub(x, pl.mul(pl.row_sum(x), 1.0 / COLS)) | x - x.mean(1, keepdims=True)
max_scale      | x   | pl.row_expand_div(x, pl.row_max(pl.abs(x))) | x / np.abs(x).max(1, keepdims=True)
logsumexp      | x   | pl.log(pl.row_sum(pl.exp(x))) | np.log(np.exp(x).sum(1, keepdims=True))
softmax        | x   | pl.row_expand_div(pl.exp(pl.row_expand_sub(x, pl.row_max(x))), pl.row_sum(pl.exp(pl.row_expand_sub(x, pl.row_max(x))))) | np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
scaled_residual| xys | pl.add(pl.row_expand_mul(x, s), y) | x * s + y
gated          | xyz | pl.add(pl.mul(x, y), pl.mul(pl.sub(x, y), z)) | x * y + (x - y) * z
rmsnorm        | xw  | pl.col_expand_mul(pl.row_expand_div(x, pl.sqrt(pl.add(pl.mul(pl.row_sum(pl.mul(x, x)), 1.0 / COLS), 1e-6))), w) | x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w
"""  # noqa: E501
# name | rows | inner | columns | epilogue of tiles | the same in NumPy
_PRODUCTS = """
matmul_square   | 256 | 256 | 256  | acc                | a @ b
matmul_wide     | 64  | 256 | 1024 | acc                | a @ b
matmul_deep     | 64  | 1024| 256  | acc                | a @ b
matmul_relu     | 256 | 256 | 256  | pl.relu(acc)       | np.maximum(a @ b, 0)
matmul_scaled   | 128 | 512 | 256  | pl.mul(acc, 0.125) | (a @ b) * 0.125
matmul_silu     | 128 | 256 | 256  | pl.div(acc, pl.add(pl.exp(pl.neg(acc)), 1.0)) | (a @ b) / (1 + np.exp(-(a @ b)))
"""  # noqa: E501
_EXAMPLES = ("06_rope", "07_gemm_epilogue", "08_multi_projection", "09_topk", "10_int8_matmul",
             "11_flash_attention", "12_paged_decode_attention", "13_moe_layer", "14_chunked_scan",
             "05_layernorm")  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A task: its level, what it asks for, and the script that is its reference."""

    name: str
    level: int
    about: str
    script: str


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _row_wise(level: int, line: list[str]) -> Task:
    name, inputs, tiles, golden, *ends = line
    low, high = ends[0].split() if ends else ("-1", "1")
    is_column = "keepdims" in golden and not any(c in tiles for c in ("row_expand", "col_expand"))
    out = OUTPUTS["column" if is_column else "rows"]
    loads = [
        f"            {n} = {n}_in[{'r : r + TILE' if n not in 'wv' else ':'}, :]" for n in inputs
    ]
    kernel = [
        "    for r in pl.parallel(0, ROWS, TILE):",
        "        with pl.at(level=pl.Level.CORE_GROUP):",
        *loads,
        f"            out[r : r + TILE, :] = {tiles}",
    ]
    about = f"{name}: out = {golden}, for {', '.join(inputs)}."
    shapes = {n: (f"{n}_in", SHAPES[n]) for n in inputs}
    return _task(name, level, about, kernel, golden, shapes, out, (low, high), (512, 1024, 1))


def _product(line: list[str]) -> Task:
    name, rows, inner, cols, tiles, golden = line
    kernel = [
        "    for r in pl.parallel(0, ROWS, TILE):",
        "        for c in pl.parallel(0, COLS, 64):",
        "            with pl.at(level=pl.Level.CORE_GROUP):",
        "                acc = pl.matmul(a[r : r + TILE, 0:64], b[0:64, c : c + 64])",
        "                for k in pl.range(64, INNER, 64):",
        "                    left = a[r : r + TILE, k : k + 64]",
        "                    acc = pl.matmul_acc(acc, left, b[k : k + 64, c : c + 64])",
        f"                out[r : r + TILE, c : c + 64] = {tiles}",
    ]
    shapes = {"a": ("a", "[ROWS, INNER]"), "b": ("b", "[INNER, COLS]")}
    return _task(name, 3, f"{name}: out = {golden}.", kernel, golden, shapes, OUTPUTS["rows"],
                 ("-1", "1"), (int(rows), int(cols), 16), int(inner))  # fmt: skip


def _task(
    name: str,
    level: int,
    about: str,
    kernel: list[str],
    golden: str,
    inputs: dict[str, tuple[str, str]],
    out: str,
    ends: tuple[str, str],
    sizes: tuple[int, int, int],
    inner: int = 0,
) -> Task:
    lines = {n: f"    {p}: pl.Tensor[{shape}, pl.FP32]," for n, (p, shape) in inputs.items()}
    specs = [
        f'    TensorSpec("{p}", {shape}, pl.FP32, draw({i}, {shape}, {ends[0]}, {ends[1]})),'
        for i, (p, shape) in enumerate(inputs.values(), 1)
    ]
    reads = [f'    {n} = tensors["{p}"].astype(np.float64)' for n, (p, _) in inputs.items()]
    rows, cols, tile = sizes
    text = SCRIPT.format(
        about=about,
        name=name,
        more_sizes=", INNER" if inner else "",
        more_values=f", {inner}" if inner else "",
        rows=rows,
        cols=cols,
        tile=tile,
        parameters="\n".join([*lines.values(), f"    out: pl.Out[pl.Tensor[{out}, pl.FP32]],"]),
        kernel="\n".join(kernel),
        reads="\n".join(reads),
        golden=golden,
        specs="\n".join(specs),
        out=out,
        tolerance="1e-3" if inner else "1e-4",
    )
    return Task(name, level, about, text)


def _example(folder: Path, stem: str) -> Task:
    text = (folder / f"{stem}.py").read_text(encoding="utf-8")
    about = " ".join(text.split('"""')[1].split("\n\n")[0].split())
    return Task(stem.partition("_")[2], 3, about, text)


def tasks(examples: Path) -> dict[str, Task]:
    """Return all tasks by name; `examples` is the folder of the examples."""
    found = [_row_wise(1, line) for line in _cells(_SINGLE)]
    found += [_row_wise(2, line) for line in _cells(_FUSED)]
    found += [_product(line) for line in _cells(_PRODUCTS)]
    found += [_example(examples, stem) for stem in _EXAMPLES]
    return {task.name: task for task in found}
