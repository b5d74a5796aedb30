"""Random programs of several ranks: kernels that compute between, before and after exchanges.

In each round a block sends something to a peer's slot of that round, signals, computes, waits for
its own slot, and goes on with what has arrived. Slots and cells are used once, so every schedule
gives the same results.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS = 16, 32
FAULTY = ("x", "z", "inbox")  # tensors that an erroneous program reads past their end
_serial = itertools.count()

TEXT = """
import tilelet.language as pl
import tilelet.language.distributed as pld

ADD, GE = pld.NotifyOp.AtomicAdd, pld.WaitCmp.Ge
RANKS, BLOCKS, ROUNDS = {ranks}, {blocks}, {rounds}
ALL = BLOCKS * 16


@pl.jit
def chip(
    x: pl.Tensor[[ALL, 32], pl.FP32],
    n: pl.Tensor[[8], pl.INT32],
    y: pl.Out[pl.Tensor[[ALL, 32], pl.FP32]],
    z: pl.Out[pl.Tensor[[ALL, 32], pl.FP32]],
    inbox: pld.DistributedTensor[[ROUNDS * ALL, 32], pl.FP32],
    cells: pld.DistributedTensor[[ROUNDS * BLOCKS, 16], pl.INT32],
):
    for b in pl.spmd(BLOCKS):
{body}
    return y, z


@pl.jit.host
def main(
    x: pl.Tensor[[RANKS, ALL, 32], pl.FP32],
    n: pl.Tensor[[8], pl.INT32],
    y: pl.Out[pl.Tensor[[RANKS, ALL, 32], pl.FP32]],
    z: pl.Out[pl.Tensor[[RANKS, ALL, 32], pl.FP32]],
):
    inbox_buf = pld.alloc_window_buffer([ROUNDS * ALL, 32], dtype=pl.FP32)
    cells_buf = pld.alloc_window_buffer([ROUNDS * BLOCKS, 16], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        inbox = pld.window(inbox_buf, [ROUNDS * ALL, 32], dtype=pl.FP32)
        cells = pld.window(cells_buf, [ROUNDS * BLOCKS, 16], dtype=pl.INT32)
        chip(x[r], n, y[r], z[r], inbox, cells, device=r)
"""


class RankProgram:
    """The text of a random program, and arguments for it; `fails`: it ends with an error."""

    def __init__(self, seed: int, *, fails: bool = False) -> None:
        self._draw = draw = random.Random(seed)
        self.ranks, self.blocks = draw.choice([2, 3, 4]), draw.choice([1, 2])
        self.rounds = draw.choice([1, 2, 3])
        self._lines: list[str] = []
        self._write(2, "row = b * 16")
        self._write(2, "ctx = pld.get_comm_ctx(inbox)")
        self._write(2, f"peer = (pld.rank(ctx) + {draw.randrange(self.ranks)}) % pld.nranks(ctx)")
        self._write(2, "a = pl.slice(x, [16, 32], [row, 0])")
        self._write(2, "c = pl.mul(a, 0.5)")
        self._write(2, "z[row : row + 16, :] = c")
        self._write(2, f"k = pl.read(n, [{draw.randrange(8)}])")
        self._statements(2)
        if draw.random() < 0.5:
            self._write(2, "for r in pl.range(ROUNDS):")
            self._round(3, "r")
        else:
            for r in range(self.rounds):
                self._round(2, str(r))
        self._statements(2)
        if fails:
            self._write(2, f"c = pl.slice({draw.choice(FAULTY)}, [16, 32], [(k + 8) * 16, 0])")
        self._write(2, "y[row : row + 16, :] = pl.add(a, pl.mul(c, 0.375))")
        sizes = {"ranks": self.ranks, "blocks": self.blocks, "rounds": self.rounds}
        self.text = TEXT.format(**sizes, body="\n".join(self._lines))

    def arguments(self) -> dict[str, Any]:
        draw = np.random.default_rng(self.ranks)
        shape = self.ranks, self.blocks * ROWS, COLUMNS
        return {
            "x": draw.standard_normal(shape, np.float32),
            "n": np.arange(1, 9, dtype=np.int32),
            "y": np.zeros(shape, np.float32),
            "z": np.zeros(shape, np.float32),
        }

    def load(self, folder: Path) -> Any:
        """Return the host function, imported from a file as a user's module is."""
        name = f"generated_ranks_{next(_serial)}"
        path = folder / f"{name}.py"
        path.write_text(self.text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module.main

    def _write(self, depth: int, line: str) -> None:
        self._lines.append("    " * depth + line)

    def _round(self, depth: int, r: str) -> None:
        draw, slot = self._draw, f"({r} * BLOCKS + b)"
        if draw.random() < 0.5:
            self._write(depth, f"pld.tensor.remote_store({draw.choice('ac')}, inbox, peer=peer,")
            self._write(depth, f"                        offsets=[{slot} * 16, 0])")
        else:
            self._write(depth, f"z[row : row + 16, :] = {draw.choice('ac')}")
            self._write(depth, f"pld.tensor.put(inbox, peer, z, [{slot} * 16, 0], [row, 0],")
            self._write(depth, "               [16, 32])")
        self._write(depth, f"pld.system.notify(cells, peer=peer, offsets=[{slot}, 0], value=1,")
        self._write(depth, "                  op=ADD)")
        self._statements(depth)
        self._write(depth, f"pld.system.wait(cells, offsets=[{slot}, 0], expected=1, cmp=GE)")
        self._write(depth, f"got = pl.slice(inbox, [16, 32], [{slot} * 16, 0])")
        self._write(depth, f"{draw.choice('ac')} = pl.add(pl.mul(a, 0.25), got)")
        self._statements(depth)

    def _statements(self, depth: int) -> None:
        for _ in range(self._draw.randrange(4)):
            self._statement(depth)

    def _statement(self, depth: int) -> None:
        draw = self._draw
        to, tile = draw.choice("ac"), draw.choice("ac")
        kind = draw.randrange(10)
        if kind == 0:
            self._write(depth, f"for i in pl.range({draw.randrange(1, 4)}):")
            self._assign(depth + 1, to, tile, "pl.slice(x, [16, 32], [row, 0])")
            if draw.random() < 0.5:
                self._write(depth + 1, "k = k + i")
        elif kind == 1:
            self._write(depth, f"if k > {draw.randrange(6)}:")
            self._assign(depth + 1, to, tile, "c")
            self._write(depth, "else:")
            self._assign(depth + 1, to, tile, "a")
        elif kind == 2:
            self._write(depth, f"k = (k + pl.read(n, [{draw.randrange(8)}])) % 8 + 1")
        elif kind == 3:  # partially valid
            self._write(
                depth, "some = pl.slice(x, [16, 32], [row, 0], valid_shape=[k % 8 + 1, 32])"
            )
            self._write(
                depth, f"{to} = pl.add(pl.fillpad(some, pad_value=pl.PadValue.zero), {tile})"
            )
        elif kind == 4:
            self._write(depth, f"product = pl.matmul({tile}, a, b_trans=True)")
            self._write(depth, f"{to} = pl.mul(pl.matmul(product, c), 0.01)")
        elif kind == 5:
            self._write(depth, f"{to} = pl.row_expand_sub({tile}, pl.row_max({tile}))")
        elif kind == 6:
            self._write(depth, f"z[row : row + 16, :] = {tile}")
            self._write(depth, f"{to} = pl.add(pl.slice(z, [16, 32], [row, 0]), {tile})")
        elif kind == 7:
            self._write(depth, f"{to} = pl.mul({tile}, pl.cast(k, pl.FP32))")
        else:
            self._assign(depth, to, tile, "c")

    def _assign(self, depth: int, to: str, tile: str, other: str) -> None:
        expression = self._draw.choice(
            [
                f"pl.add({tile}, {other})",
                f"pl.sub({tile}, pl.mul({other}, 0.5))",
                f"pl.abs(pl.minimum({tile}, {other}))",
                f"pl.cast(pl.cast({tile}, pl.BF16), pl.FP32)",
            ]
        )
        self._write(depth, f"{to} = {expression}")
