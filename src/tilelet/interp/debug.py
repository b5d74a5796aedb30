"""`breakpoint()` in a kernel: open a debugger on the kernel's values, or print a summary."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tilelet.diag.core import Loc
from tilelet.dtypes import Array
from tilelet.interp.debugger import has_debugger, stop_in_kernel
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.ir.core import Op
from tilelet.numerics.casts import as_computable
from tilelet.tasks.window import TileValue, Window


@lowers("breakpoint")
def lower_breakpoint(low: Lowering, op: Op) -> Step:
    names = op.args["names"]
    assert isinstance(names, tuple)
    get, loc, state = low.get(op.args["values"]), op.loc, low.state
    kernel = low.function.name
    printed = False

    def step(frame: Frame) -> None:
        nonlocal printed
        if not state.execute:
            return
        values = {str(n): user_view(v) for n, v in zip(names, get(frame))}
        if has_debugger():
            stop_in_kernel(values, loc, kernel)
        elif not printed:
            # In a loop only the first stop is printed, because nobody can answer at the others.
            printed = True
            print(summary(values, loc), file=sys.stderr)

    return step


@lowers("dump")
def lower_dump(low: Lowering, op: Op) -> Step:
    names = op.args["names"]
    assert isinstance(names, tuple)
    get, loc, state = low.get(op.args["values"]), op.loc, low.state

    def step(frame: Frame) -> None:
        if state.execute:
            dump([str(n) for n in names], [user_view(v) for v in get(frame)], loc)

    return step


def dump(names: Sequence[str], values: Sequence[object], loc: Loc) -> None:
    """Print the arguments of `pl.dump` in one write, because other threads may print, too."""
    lines = [f"{loc}:"]
    for name, value in zip(names, values):
        text = _array_text(cast("Array", value)) if isinstance(value, np.ndarray) else repr(value)
        lines.append(f"  {value}" if isinstance(value, str) else f"  {name} = {text}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def user_view(value: object) -> Any:
    """Return a run-time value as the user sees it: the valid part of a tile, a tensor's memory."""
    if isinstance(value, TileValue):
        return value.cut.copy()
    if isinstance(value, Window):
        return value.array
    return value


def summary(values: Mapping[str, object], loc: Loc) -> str:
    """Summarize each value on one line."""
    lines = [f"breakpoint at {loc}:"]
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        text = _array_text(cast("Array", value)) if isinstance(value, np.ndarray) else repr(value)
        lines.append(f"  {name:{width}} = {text}")
    return "\n".join(lines)


def _array_text(array: Array) -> str:
    kind = f"{array.dtype}{list(array.shape)}"
    if array.size == 0:
        return kind
    numbers = as_computable(array).astype(np.float64)
    first = ", ".join(f"{x:.6g}" for x in numbers.reshape(-1)[:4])
    more = ", ..." if array.size > 4 else ""
    nans = int(np.isnan(numbers).sum())
    low, high = (np.nanmin(numbers), np.nanmax(numbers)) if nans < array.size else (np.nan,) * 2
    not_numbers = f", {nans} NaN" if nans else ""
    return f"{kind} [{first}{more}] min {low:.6g} max {high:.6g}{not_numbers}"
