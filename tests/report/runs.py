"""Small modelled runs, and a slow reader of the page's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.device.recording import recorded

from tilelet.device.machine.description import load_machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.ir.core import Program
from tilelet.report.columns import unpack


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
