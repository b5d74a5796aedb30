"""Overhead of a small call, and of a small script."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilelet.language as pl
from tilelet.bench import torch_forms
from tilelet.bench.report import Goal
from tilelet.bench.runner import Bench
from tilelet.bench.startup import warm_environment
from tilelet.runtime.programs.compiler import compile_program

SMALL_CALL = Goal("seconds", 20e-6, is_upper=True)
SHELL = Goal("seconds", 0.3, is_upper=True)
_CALLS = 200  # in a row, as in a loop

_HELLO = """\
import numpy as np
import tilelet.language as pl

@pl.jit
def add(a: pl.Tensor[[64, 128], pl.FP32], b: pl.Tensor[[64, 128], pl.FP32],
        out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.add(a[r : r + 16, :], b[r : r + 16, :])
    return out

x = np.ones((64, 128), np.float32)
assert (add(x, x) == 2).all()
"""


@pl.jit
def add(
    a: pl.Tensor[[16, 128], pl.FP32],
    b: pl.Tensor[[16, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(a[:, :], b[:, :])
    return out


def calls(bench: Bench) -> None:
    """Time the same small sum by each way to call it; the minimum of many runs."""
    a, b, out = (np.ones((16, 128), np.float32) for _ in range(3))
    rounds = 5 if bench.is_quick else 50
    compiled = compile_program(add)
    forms: dict[str, Callable[[], object]] = {
        "a @pl.jit function": lambda: add(a, b, out),
        "compile_program of it": lambda: compiled(a, b, out),
        "NumPy": lambda: np.add(a, b, out=out),
    }
    if torch_forms.is_installed():
        import torch

        x, y, z = (torch_forms.tensor(array) for array in (a, b, out))
        forms["torch"] = lambda: torch.add(x, y, out=z)
        forms["a @pl.jit function, torch tensors"] = lambda: add(x, y, z)
    with bench.guard("small call"):
        bench.say("call: a sum of 16 x 128 numbers")
        least = dict.fromkeys(forms, float("inf"))
        for _ in range(rounds):
            for name, form in forms.items():
                least[name] = min(least[name], _seconds(form))
        for name, seconds in least.items():
            row = bench.add(name)
            row.figures["seconds"] = seconds
            if name.startswith("a @pl.jit function"):
                row.goals = [] if bench.is_quick else [SMALL_CALL]
    with tempfile.TemporaryDirectory(prefix="tilelet-") as folder:
        _scripts(bench, Path(folder))


def _scripts(bench: Bench, folder: Path) -> None:
    """Time the script from the shell and its checks; caches are in `folder`."""
    with bench.guard("script"):
        bench.say("call: a script from the shell")
        row = bench.add("tilelet run hello.py", goals=[] if bench.is_quick else [SHELL])
        clock, processor = _script_seconds(folder, 3 if bench.is_quick else 10)
        row.figures["seconds"], row.note = clock, f"{processor:.2f} s of processor time"
    with bench.guard("checks"):
        bench.say("call: the checks that a run makes")
        rounds = 1 if bench.is_quick else 10
        _, without = _script_seconds(folder, rounds, "--no-checks")
        for name, again in (("checks of hello.py, new text", True), ("the same text again", False)):
            _, checked = _script_seconds(folder, rounds, forgets_checks=again)
            row = bench.add(name)
            row.figures["seconds"] = max(checked - without, 0.0)
            row.note = f"of processor time, beside {without:.2f} s without checks"


def _seconds(form: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(_CALLS):
        form()
    return (time.perf_counter() - begin) / _CALLS


def _script_seconds(
    folder: Path, rounds: int, *options: str, forgets_checks: bool = False
) -> tuple[float, float]:
    """Wall-clock and processor time: the minimum of some runs after a first one, which fills the
    caches in `folder`. A checked program is checked again only if that is forgotten.
    """
    script = folder / "hello.py"
    script.write_text(_HELLO, encoding="utf-8")
    environment = warm_environment(str(folder))
    command = [sys.executable, "-m", "tilelet.cli", "run", *options, str(script)]
    clock: list[float] = []
    processor: list[float] = []
    for _ in range(rounds + 1):
        if forgets_checks:
            shutil.rmtree(folder / "checked", ignore_errors=True)
        begin, before = time.perf_counter(), os.times()
        subprocess.run(  # noqa: S603 - this Python, no shell
            command, env=environment, capture_output=True, check=True
        )
        after = os.times()
        clock.append(time.perf_counter() - begin)
        used = after.children_user + after.children_system
        processor.append(used - before.children_user - before.children_system)
    return min(clock[1:]), min(processor[1:])
