"""The tasks, in three levels: single ops, fused chains, layers and data-dependent programs.

A row-wise task is a line of a table in `tasks.toml`: an expression of tiles and the same in NumPy.
Its script, with specs, golden and a naive kernel of one row per task, is made from the line.
Products are made from their sizes. The programs of the last level are the examples that ship with
Tilelet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilelet.device.machine.description import parse_toml

_FILE = Path(__file__).with_suffix(".toml")
_TEXTS = parse_toml(_FILE.read_text(encoding="utf-8"), _FILE.name)

SHAPES = {"x": "[ROWS, COLS]", "y": "[ROWS, COLS]", "z": "[ROWS, COLS]", "w": "[1, COLS]",
          "v": "[1, COLS]", "s": "[ROWS, 1]"}  # fmt: skip
"""Inputs by name: tensors, a row of weights, a column of scales."""
OUTPUTS = {"rows": "[ROWS, COLS]", "column": "[ROWS, 1]"}

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
    lines: list[str] = _TEXTS[table].strip().splitlines()
    return [[cell.strip() for cell in line.split("|")] for line in lines]


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
    script: str = _TEXTS["script"]
    text = script.format(
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
    found = [_row_wise(1, line) for line in _cells("single")]
    found += [_row_wise(2, line) for line in _cells("fused")]
    found += [_product(line) for line in _cells("products")]
    found += [_example(examples, stem) for stem in _EXAMPLES]
    return {task.name: task for task in found}
