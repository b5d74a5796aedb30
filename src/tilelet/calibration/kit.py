"""Small scripts to run on a board: each isolates one effect and runs unmodified under PyPTO.

A script contains one program of several kernels; `board.py` fits a machine to the times of those
kernels and of the whole program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tilelet.dataclasses import dataclass

_AT = 'with pl.at(level=pl.Level.CORE_GROUP, name_hint="{}"):'


@dataclass(frozen=True)
class Tensor:
    """An argument; `start` is its initializer, as an expression of the script.

    output  "Out", "InOut" if it is also read, or empty
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "FP32"
    start: str = "torch.ones"
    output: str = ""

    @property
    def annotation(self) -> str:
        kind = f"pl.Tensor[[{', '.join(map(str, self.shape))}], pl.{self.dtype}]"
        return f"pl.{self.output}[{kind}]" if self.output else kind

    @property
    def spec(self) -> str:
        torch = {"FP32": "float32", "BF16": "bfloat16", "INT32": "int32"}[self.dtype]
        last = ", is_output=True" if self.output else f", init_value={self.start}"
        return f'TensorSpec("{self.name}", {list(self.shape)}, torch.{torch}{last})'


@dataclass(frozen=True)
class KitScript:
    """One script: its effect, its tensors, and the body of its program, line by line.

    timed  what is compared: its kernels, or the program as a whole
    """

    name: str
    effect: str
    tensors: tuple[Tensor, ...]
    body: tuple[str, ...]
    timed: str = "kernels"

    def script(self) -> str:
        outputs = [t.name for t in self.tensors if t.output]
        parameters = "".join(f"    {t.name}: {t.annotation},\n" for t in self.tensors)
        specs = "".join(f"        {t.spec},\n" for t in self.tensors)
        body = "".join(f"    {line}\n" if line else "\n" for line in self.body)
        return _FRAME.format(
            effect=self.effect,
            name=self.name,
            parameters=parameters,
            body=body,
            outputs=", ".join(outputs),
            specs=specs,
        )


_FRAME = '''\
"""{effect}

One script of a calibration kit. Run it on a board with PyPTO and keep the records of its lanes:
README.md in this folder says how.
"""

import argparse

import pypto.language as pl
import torch
from golden import TensorSpec, run_jit


@pl.jit
def {name}(
{parameters}):
{body}    return {outputs}


def specs():
    return [
{specs}    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", default="a2a3")
    parser.add_argument("-d", "--device", type=int, default=0)
    options = parser.parse_args()
    run_jit(
        fn={name},
        specs=specs(),
        runtime_cfg=dict(
            platform=options.platform, device_id=options.device, enable_l2_swimlane=True
        ),
    )
'''

README = """\
# Calibration kit

Each script shows one effect of the hardware or its runtime. On a machine with a board and PyPTO:

```sh
for script in *.py; do python "$script" -p a2a3 -d 0; done
```

Every run leaves a folder with the records of its lanes: chip_swimlane_records.json (or
l2_swimlane_records.json), deps.json and name_map.json, whatever their folder is called. Put those
three files of each script into results/NAME/, NAME being the script's without .py. Then, anywhere:

```sh
tilelet calibrate fit results --like a2a3 -o my_board.toml
tilelet profile your_kernel.py -p my_board.toml
```

Instead of such a folder there may be results/NAME.json, made by hand:
`{"total_us": 215.3, "kernels": {"tiny": 1.1}}`, with the average execution time of each kernel.
Scripts that were not run are left out; the report says what the rest could not determine.
`graph.py` needs a runtime that takes graphs: add `--period 2026-09` to `tilelet calibrate fit`.
"""


def write_kit(folder: Path) -> list[Path]:
    """Write all scripts and their README; return the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{case.name}.py": case.script() for case in CASES} | {"README.md": README}
    written: list[Path] = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


# Bodies


def _kernel(name: str, lines: Sequence[str]) -> Iterator[str]:
    yield _AT.format(name)
    yield from (f"    {line}" for line in lines)


def _all(*kernels: Iterator[str]) -> tuple[str, ...]:
    return tuple(line for kernel in kernels for line in kernel)


def _sum_kernel(
    name: str, rows: int, columns: int, steps: int, loop: str, deep: bool
) -> Iterator[str]:
    """Load one tile per iteration and accumulate it; with `deep`, tiles follow each other
    downwards.
    """
    if deep:
        tile = f"x[i * {rows} : i * {rows} + {rows}, 0:{columns}]"
    else:
        tile = f"x[0:{rows}, i * {columns} : i * {columns} + {columns}]"
    return _kernel(
        name,
        [
            f"total = y[0:{rows}, 0:{columns}]",
            f"for i in {loop.format(steps)}:",
            f"    total = pl.add(total, {tile})",
            f"y[0:{rows}, 0:{columns}] = total",
        ],
    )


_WIDTHS = (16, 32, 64, 128, 256)
"""Row lengths in FP32 numbers, 64 bytes to 1 KB; tiles have 16 KB."""


def _row_kernels(suffix: str, loop: str) -> tuple[str, ...]:
    made = (_sum_kernel(f"rows_{4 * n}{suffix}", 4096 // n, n, 32, loop, False) for n in _WIDTHS)
    return _all(*made)


_X, _Y = Tensor("x", (256, 8192)), Tensor("y", (256, 256), output="Out")
_TALL = Tensor("x", (4096, 256))


def _stores(width: int) -> Iterator[str]:
    rows = 4096 // width
    return _kernel(
        f"store_{4 * width}",
        [
            f"tile = x[0:{rows}, 0:{width}]",
            "for i in pl.range(32):",
            f"    y[0:{rows}, i * {width} : i * {width} + {width}] = tile",
        ],
    )


def _products(width: int, loop: str, suffix: str = "") -> Iterator[str]:
    """Emit `[16, 4096] @ [4096, width]`, in steps of 128."""
    return _kernel(
        f"product_{2 * width}{suffix}",
        [
            f"acc = pl.matmul(a[:, 0:128], w[0:128, 0:{width}], out_dtype=pl.FP32)",
            f"for k in {loop}:",
            "    acc = pl.matmul_acc(",
            "        acc,",
            "        a[:, k * 128 : k * 128 + 128],",
            f"        w[k * 128 : k * 128 + 128, 0:{width}],",
            "    )",
            f"c[0:16, 0:{width}] = acc",
        ],
    )


def _drains(rows: int) -> Iterator[str]:
    return _kernel(
        f"drain_{rows}",
        [
            f"left = a[0:{rows}, :]",
            "right = b[:, :]",
            "for i in pl.range(16):",
            f"    c[i * {rows} : i * {rows} + {rows}, :] = pl.matmul(",
            "        left, right, out_dtype=pl.FP32",
            "    )",
        ],
    )


def _repeat_kernel(
    name: str, rows: int, columns: int, *lines: str, steps: int = 64
) -> Iterator[str]:
    """Emit ops on tiles that stay on chip; `t` is the tile, `u` another."""
    return _kernel(
        name,
        [
            f"t = x[0:{rows}, 0:{columns}]",
            f"u = x[0:{rows}, 0:{columns}]",
            f"for i in pl.range({steps}):",
            *(f"    {line}" for line in lines),
            f"y[0:{rows}, 0:{columns}] = t",
        ],
    )


_SMALL = Tensor("x", (64, 64)), Tensor("y", (64, 64), output="Out")
_CUBE = (
    Tensor("a", (16, 4096), "BF16"),
    Tensor("w", (4096, 512), "BF16"),
    Tensor("c", (16, 512), output="Out"),
)

CASES: tuple[KitScript, ...] = (
    KitScript(
        "dispatch",
        "Independent tasks of almost no work: what submitting and handing out a task costs.",
        (Tensor("x", (2048, 64)), Tensor("y", (2048, 64), output="Out")),
        (
            "for i in pl.parallel(256):",
            f"    {_AT.format('tiny')}",
            "        y[i * 8 : i * 8 + 8, :] = pl.add(x[i * 8 : i * 8 + 8, :], 1.0)",
        ),
        "program",
    ),
    KitScript(
        "graph",
        "The same tasks as one graph: what unfolding it costs (runtimes since September 2026).",
        (Tensor("x", (2048, 64)), Tensor("y", (2048, 64), output="Out")),
        (
            'with pl.graph(name_hint="whole"):',
            "    for i in pl.parallel(256):",
            f"        {_AT.format('node')}",
            "            y[i * 8 : i * 8 + 8, :] = pl.add(x[i * 8 : i * 8 + 8, :], 1.0)",
        ),
        "program",
    ),
    KitScript(
        "chain",
        "Tasks that wait for each other: from the end of a producer to the start of its consumer.",
        (Tensor("y", (8, 64), output="InOut"),),
        (
            "for i in pl.range(128):",
            f"    {_AT.format('link')}",
            "        y[0:8, :] = pl.add(y[0:8, :], 1.0)",
        ),
        "program",
    ),
    KitScript(
        "blocks",
        "One task of many blocks: what each block costs the schedulers.",
        (Tensor("x", (3840, 64)), Tensor("y", (3840, 64), output="Out")),
        (
            'for b in pl.spmd(480, name_hint="block"):',
            "    y[b * 8 : b * 8 + 8, :] = pl.add(x[b * 8 : b * 8 + 8, :], 1.0)",
        ),
        "program",
    ),
    KitScript(
        "start",
        "One kernel of almost no work: what a kernel costs before size matters.",
        _SMALL,
        _all(_kernel("start", ["y[0:8, 0:64] = pl.add(x[0:8, 0:64], 1.0)"])),
    ),
    KitScript(
        "rows",
        "The same bytes from memory in rows of 64 bytes to 1 KB.",
        (_X, _Y),
        _row_kernels("", "pl.range({})"),
    ),
    KitScript(
        "rows_again",
        "The same rows twice: the second time they are in L2.",
        (_X, _Y),
        (*_row_kernels("", "pl.range({})"), *_row_kernels("_again", "pl.range({})")),
    ),
    KitScript(
        "rows_pipelined",
        "The same rows with two buffers: latency is hidden, the rate of a core is left.",
        (_X, _Y),
        _row_kernels("", "pl.pipeline({}, stage=2)"),
    ),
    KitScript(
        "sizes",
        "Contiguous transfers of 1 to 32 KB.",
        (_TALL, _Y),
        _all(*(_sum_kernel(f"size_{n}", n, 256, 64, "pl.range({})", True) for n in (1, 4, 16, 32))),
    ),
    KitScript(
        "stores",
        "The same bytes stored in rows of 64 bytes to 1 KB.",
        (Tensor("x", (256, 256)), Tensor("y", (256, 8192), output="Out")),
        _all(*map(_stores, _WIDTHS)),
    ),
    KitScript(
        "stream",
        "All vector cores read at once: what memory sustains.",
        (Tensor("x", (48 * 256, 2048)), Tensor("y", (48 * 8, 2048), output="Out")),
        (
            'for b in pl.spmd(48, name_hint="stream"):',
            "    total = x[b * 256 : b * 256 + 8, :]",
            "    for i in pl.pipeline(1, 32, stage=2):",
            "        total = pl.add(total, x[b * 256 + i * 8 : b * 256 + i * 8 + 8, :])",
            "    y[b * 8 : b * 8 + 8, :] = total",
        ),
        "program",
    ),
    KitScript(
        "cube_loads",
        "Weights for the cube in rows of 128 bytes to 1 KB.",
        _CUBE,
        _all(*(_products(n, "pl.range(1, 32)") for n in (64, 128, 256, 512))),
    ),
    KitScript(
        "cube_loads_pipelined",
        "The same with two buffers.",
        _CUBE,
        _all(*(_products(n, "pl.pipeline(1, 32, stage=2)") for n in (64, 128, 256))),
    ),
    *(
        KitScript(
            f"shared_{cores}",
            f"The same rows, 8 KB apart, for the cubes of {cores} cores at once.",
            (
                Tensor("x", (128, 4096), "BF16"),
                Tensor("w", (4096, 24 * 64), "BF16"),
                Tensor("y", (128, 24 * 64), output="Out"),
            ),
            (
                f'for b in pl.spmd({cores}, name_hint="shared_{cores}"):',
                "    left = x[:, 0:128]",
                "    right = w[0:128, b * 64 : b * 64 + 64]",
                "    acc = pl.matmul(left, right, out_dtype=pl.FP32)",
                "    for k in pl.pipeline(1, 32, stage=2):",
                "        left = x[:, k * 128 : k * 128 + 128]",
                "        right = w[k * 128 : k * 128 + 128, b * 64 : b * 64 + 64]",
                "        acc = pl.matmul_acc(acc, left, right)",
                "    y[:, b * 64 : b * 64 + 64] = acc",
            ),
        )
        for cores in (1, 8, 24)
    ),
    KitScript(
        "fixpipe",
        "Products leave the cube: 16 to 128 rows of 512 bytes.",
        (
            Tensor("a", (128, 64), "BF16"),
            Tensor("b", (64, 128), "BF16"),
            Tensor("c", (2048, 128), output="Out"),
        ),
        _all(*map(_drains, (16, 64, 128))),
    ),
    KitScript(
        "cube_shapes",
        "Products of operands that stay on chip.",
        (
            Tensor("a", (128, 256), "BF16"),
            Tensor("b", (256, 128), "BF16"),
            Tensor("c", (128, 128), output="Out"),
        ),
        _all(
            *(
                _kernel(
                    f"cube_{rows}",
                    [
                        f"left = a[0:{rows}, :]",
                        "right = b[:, :]",
                        "acc = pl.matmul(left, right, out_dtype=pl.FP32)",
                        "for i in pl.range(63):",
                        "    acc = pl.matmul_acc(acc, left, right)",
                        f"c[0:{rows}, :] = acc",
                    ],
                )
                for rows in (16, 64, 128)
            )
        ),
    ),
    KitScript(
        "vector_ops",
        "Vector instructions on 16 KB.",
        _SMALL,
        _all(
            _repeat_kernel("add", 64, 64, "t = pl.add(t, u)"),
            _repeat_kernel("mul", 64, 64, "t = pl.mul(t, u)"),
            _repeat_kernel("exp", 64, 64, "t = pl.exp(pl.mul(t, 0.0))"),
            _repeat_kernel("div", 64, 64, "t = pl.div(t, u)"),
        ),
    ),
    KitScript(
        "banks",
        "Sums of tiles of 64, 65 and 66 rows of 256 bytes: those of 65 follow each other half a row"
        " of banks apart, so that the operands of an instruction do not meet in one.",
        (Tensor("x", (72, 64)), Tensor("y", (72, 64), output="Out")),
        _all(
            *(
                _repeat_kernel(f"banks_{n}", n, 64, "t = pl.add(t, u)", steps=256)
                for n in (64, 65, 66)
            )
        ),
    ),
    KitScript(
        "small_ops",
        "Vector instructions on 64 bytes: what an instruction costs before size matters.",
        _SMALL,
        _all(
            _repeat_kernel("small_add", 1, 16, "t = pl.add(t, u)", steps=256),
            _repeat_kernel("small_mul", 1, 16, "t = pl.mul(t, u)", steps=256),
        ),
    ),
    KitScript(
        "reductions",
        "Reductions and broadcasts along rows.",
        _SMALL,
        _all(_repeat_kernel("row_sum", 64, 64, "t = pl.row_expand_mul(u, pl.row_sum(t))")),
    ),
    KitScript(
        "element_reads",
        "Single numbers read one after the other: the scalar unit's cache.",
        (
            Tensor("index", (512,), "INT32", "torch.zeros"),
            Tensor("y", (8, 64), output="Out"),
        ),
        _all(
            _kernel(
                "near",
                [
                    "for i in pl.range(512):",
                    "    n = pl.read(index, [i])",
                    "    if n > 0:",
                    "        y[0:1, :] = pl.full([1, 64], dtype=pl.FP32, value=1.0)",
                ],
            )
        ),
    ),
    KitScript(
        "element_chase",
        "Single numbers whose place the one before tells: every read misses the cache.",
        (
            Tensor("index", (65536,), "INT32", "torch.zeros"),
            Tensor("y", (8, 64), output="Out"),
        ),
        _all(
            _kernel(
                "far",
                [
                    "for i in pl.range(128):",
                    "    n = pl.read(index, [i * 512])",
                    "    if n > 0:",
                    "        y[0:1, :] = pl.full([1, 64], dtype=pl.FP32, value=1.0)",
                ],
            )
        ),
    ),
    KitScript(
        "gather",
        "Elements picked by an index, and by a pattern.",
        (
            Tensor("x", (64, 64)),
            Tensor("index", (64, 64), "INT32", "torch.zeros"),
            Tensor("y", (64, 64), output="Out"),
        ),
        _all(
            _kernel(
                "gather",
                [
                    "t = x[:, :]",
                    "places = index[:, :]",
                    "for i in pl.range(16):",
                    "    t = pl.gather(t, dim=-1, index=places)",
                    "y[:, :] = t",
                ],
            )
        ),
    ),
    KitScript(
        "sort",
        "Sorting 2048 numbers: runs of 32, then merges.",
        (Tensor("x", (1, 2048)), Tensor("y", (1, 4096), output="Out")),
        _all(
            _kernel(
                "sort",
                [
                    "places = pl.arange(0, [1, 2048], dtype=pl.UINT32)",
                    "pairs = pl.sort32(x[:, :], places)",
                    "pairs = pl.mrgsort(pairs, block_len=64)",
                    "pairs = pl.mrgsort(pairs, block_len=256)",
                    "pairs = pl.mrgsort(pairs, block_len=1024)",
                    "y[:, :] = pairs",
                ],
            )
        ),
    ),
    KitScript(
        "handover",
        "A product, a sum, a product: tiles go from the cube to the vector unit and back.",
        (
            Tensor("a", (64, 64), "BF16"),
            Tensor("b", (64, 64), "BF16"),
            Tensor("y", (64, 64), output="Out"),
        ),
        _all(
            _kernel(
                "handover",
                [
                    "t = pl.cast(a[:, :], target_type=pl.FP32)",
                    "right = b[:, :]",
                    "for i in pl.range(32):",
                    "    s = pl.matmul(",
                    "        pl.cast(t, target_type=pl.BF16), right, out_dtype=pl.FP32",
                    "    )",
                    "    t = pl.mul(s, 0.01)",
                    "y[:, :] = t",
                ],
            )
        ),
    ),
)
