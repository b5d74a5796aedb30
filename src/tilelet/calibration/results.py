"""Measurements of a board: lane records, or a hand-written file.

The public runtime has changed its records twice; all three layouts are read:

until May 2026   one row per execution, in microseconds: `tasks`, with the function's id
June 2026        one object per execution and core, in ticks: `aicore_tasks`, `aicpu_tasks`
since July 2026  the same fields as arrays
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.device import BadResults, NoResults
from tilelet.diag.json_types import JsonObject

RECORDS = (
    "chip_swimlane_records*.json",
    "l2_swimlane_records*.json",
    "l2_perf_records*.json",
    "perf_swimlane*.json",
)
"""Names of the record files, newest first; some versions add the date."""

_CORE_FIELDS = ("core_id", "task_token_raw", "reg_task_id", "start_cycles", "end_cycles")
_CPU_FIELDS = ("core_id", "reg_task_id", "dispatch_cycles", "finish_cycles")


@dataclass(frozen=True)
class Measured:
    """One script: its total time, and the average execution time of each kernel."""

    total_us: float | None
    kernels: Mapping[str, float]


def read_results(folder: Path, cases: tuple[str, ...]) -> dict[str, Measured]:
    """Read the measurements by script; scripts without any are left out."""
    found: dict[str, Measured] = {}
    for name in cases:
        by_hand = folder / f"{name}.json"
        if by_hand.is_file():
            found[name] = _by_hand(by_hand)
            continue
        records = [p for kind in RECORDS for p in sorted((folder / name).rglob(kind))]
        if records:
            found[name] = _from_records(records[0])
    if not found:
        raise NoResults(str(folder), cases[0])
    return found


def _load(path: Path) -> JsonObject:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadResults(str(path), str(error)) from None
    if not isinstance(data, dict):
        raise BadResults(str(path), "it holds no object")
    return cast("JsonObject", data)


def _number(path: Path, value: object, what: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e12:
        raise BadResults(str(path), f"{what} is not a time")
    return float(value)


def _by_hand(path: Path) -> Measured:
    data = _load(path)
    total = data.get("total_us")
    kernels = data.get("kernels", {})
    if not isinstance(kernels, dict):
        raise BadResults(str(path), "`kernels` is not an object of times by name")
    return _measured(path, total, cast("JsonObject", kernels))


def _measured(path: Path, total: object, kernels: Mapping[str, object]) -> Measured:
    """Return the times, which must be positive numbers."""
    times = {name: _number(path, us, f"the time of `{name}`") for name, us in kernels.items()}
    return Measured(None if total is None else _number(path, total, "the total"), times)


def _from_records(path: Path) -> Measured:
    data = _load(path)
    try:
        if "aicore_tasks" in data:
            total, spent = _by_core(data, path.parent)
        else:
            total, spent = _by_task(data, path.parent)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadResults(str(path), f"not as the profiler writes it: {error!r}") from None
    means = {name: sum(each) / len(each) for name, each in spent.items()}
    return _measured(path, total, means)


Spent = dict[str, list[float]]
"""Execution times in microseconds, by kernel."""


def _by_core(data: JsonObject, folder: Path) -> tuple[float | None, Spent]:
    """Read records of cores and of schedulers, in ticks of a clock."""
    us = 1e6 / float(data["metadata"]["clock_freq_hz"])
    rows = cast("list[object]", data.get("aicpu_tasks") or [])
    stamps = [_fields(row, _CPU_FIELDS) for row in rows]
    begin = [row["dispatch_cycles"] for row in stamps]
    end = [row["finish_cycles"] for row in stamps]
    kernels = _kernels_of_tasks(folder)
    spent: Spent = {}
    for each in data["aicore_tasks"]:
        row = _fields(each, _CORE_FIELDS)
        kernel = kernels.get(row["task_token_raw"] % 2**64)
        if kernel is not None:
            took = (row["end_cycles"] - row["start_cycles"]) * us
            spent.setdefault(kernel, []).append(took)
    return (max(end) - min(begin)) * us if stamps else None, spent


def _fields(row: Any, names: tuple[str, ...]) -> dict[str, int]:
    """Return a row's fields by name; newer files have arrays, which may have more fields."""
    if isinstance(row, list):
        values = cast("list[object]", row)
        return {name: int(cast("int", value)) for name, value in zip(names, values, strict=False)}
    return {name: int(row[name]) for name in names}


def _by_task(data: JsonObject, folder: Path) -> tuple[float | None, Spent]:
    """Read records of executions, in microseconds."""
    called = _function_names(folder)
    spent: Spent = {}
    begin: list[float] = []
    end: list[float] = []
    for row in data["tasks"]:
        if row.get("finish_time_us", 0) > 0:
            begin.append(float(row["dispatch_time_us"]))
            end.append(float(row["finish_time_us"]))
        name = called.get(int(row["func_id"]))
        if name is not None:
            took = float(row["end_time_us"]) - float(row["start_time_us"])
            spent.setdefault(_of_both(name, called), []).append(took)
    return max(end) - min(begin) if end else None, spent


def _of_both(name: str, called: Mapping[int, str]) -> str:
    """Return the kernel of a function; a mixed kernel has one for each kind of core."""
    for end, other in (("_aic", "_aiv"), ("_aiv", "_aic")):
        if name.endswith(end) and name.removesuffix(end) + other in called.values():
            return name.removesuffix(end)
    return name


def _function_names(folder: Path) -> dict[int, str]:
    """Return the name of each function, from the name map next to the records."""
    maps = sorted(folder.glob("name_map*.json"))
    if not maps:
        return {}
    names = _load(maps[0])
    known = names.get("callable_id_to_name", names)
    return {int(key): str(name) for key, name in known.items() if str(key).isdigit()}


def _kernels_of_tasks(folder: Path) -> dict[int, str]:
    """Return the kernel of each task, from deps.json and the name map next to the records."""
    tasks = folder / "deps.json"
    called = _function_names(folder)
    if not called or not tasks.is_file():
        return {}
    found: dict[int, str] = {}
    for row in _load(tasks).get("tasks", []):
        ids = [int(i) for i in row["kernel_ids"] if int(i) >= 0]
        if ids and ids[0] in called:
            found[int(row["task_id"]) % 2**64] = _of_both(called[ids[0]], called)
    return found
