"""Small modelled runs, and a slow reader of the page's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.device.recording import recorded

from tilelet.device.machine.description import load_machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.ir.core import Program
from tilelet.report.columns import unpack

SLOW = """
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def twice(x: pl.Tensor[[512, 128], pl.FP32], out: pl.Out[pl.Tensor[[512, 128], pl.FP32]]):
    half = pl.create_tensor([512, 128], pl.FP32)
    for r in pl.parallel(0, 512, 8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
            half[r : r + 8, :] = pl.mul(x[r : r + 8, :], 0.5)
    for r in pl.parallel(0, 512, 8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="second"):
            out[r : r + 8, :] = pl.exp(half[r : r + 8, :])
    return out

specs = [
    TensorSpec("x", [512, 128], pl.FP32, 0.5),
    TensorSpec("out", [512, 128], pl.FP32, is_output=True),
]
run_jit(twice, specs)
"""
"""A script with loops that can be merged."""


def device_run(program: Program, name: str = "", **arguments: Any) -> DeviceRun:
    tasks, compiled = recorded(program, **arguments)
    return DeviceRun(Recorded(name or program.name, compiled, tasks), load_machine("a2a3"))


def column(data: bytes, name: str, run: int = 0) -> list[Any]:
    """One column, byte by byte."""
    header, columns = unpack(data)
    entry = header["runs"][run]["columns"][name]
    count, width = entry["count"], int(entry["type"][1:])
    values = []
    for i in range(count):
        raw = bytes(columns[entry["at"] + plane * count + i] for plane in range(width))
        values.append(np.frombuffer(raw, f"<{entry['type']}")[0].item())
    if entry.get("delta"):
        values = [int(v) for v in np.cumsum(values) % 2**32]
    return values
