"""Small programs on every engine and model, whose results must agree."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from tests import kernels

from tilelet.cpu.run.engine import CpuEngine
from tilelet.device.machine.description import load_machine
from tilelet.device.run import DeviceRun, Recorded
from tilelet.interp.interpreter import Interpreter


def run(program: Any, **arguments: Any) -> dict[str, Any]:
    """Return the arguments as the program leaves them.

    Interpreted before and after all passes and from its printed text, and run natively: all give
    the same bits. The modelled device gives its tasks a time.
    """
    if hasattr(program, "specialize"):
        names = [p.name for p in program.parameters]
        program = program.specialize(*(arguments[n] for n in names))
    expected = kernels.run(program, **arguments)
    passed = kernels.lowered(program)
    given = {n: copy.deepcopy(a) for n, a in arguments.items()}
    CpuEngine().run(passed, given)
    for name, array in expected.items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(given[name], array, err_msg=f"{name} of the engine")
    again = {n: copy.deepcopy(a) for n, a in arguments.items()}
    tasks = Interpreter().run(passed, again, execute=True).tasks
    recorded = Recorded(program.name, passed, tasks)
    if len(tasks):
        assert DeviceRun(recorded, load_machine("a2a3")).profile.total_us > 0
    return expected
