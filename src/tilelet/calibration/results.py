"""Measurements of a board: lane records, or a hand-written file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.device import BadResults, NoResults

RECORDS = (
    "chip_swimlane_records.json",
    "l2_swimlane_records.json",
    "l2_perf_records.json",
)
"""Names of the record files, newest first."""


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


def _load(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadResults(str(path), str(error)) from None
    if not isinstance(data, dict):
        raise BadResults(str(path), "it holds no object")
    return cast("dict[str, Any]", data)


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
    times = {
        str(name): _number(path, us, f"the time of `{name}`")
        for name, us in cast("dict[str, Any]", kernels).items()
    }
    return Measured(None if total is None else _number(path, total, "`total_us`"), times)


def _from_records(path: Path) -> Measured:
    data = _load(path)
    try:
        hertz = float(data["metadata"]["clock_freq_hz"])
        us = 1e6 / hertz
        stamps = cast("list[dict[str, int]]", data.get("aicpu_tasks") or [])
        begin = [row["dispatch_cycles"] for row in stamps]
        end = [row["finish_cycles"] for row in stamps]
        total = (max(end) - min(begin)) * us if stamps else None
        names = _names(path.parent)
        spent: dict[str, list[float]] = {}
        for row in cast("list[dict[str, int]]", data["aicore_tasks"]):
            kernel = names.get(int(row["task_token_raw"]))
            if kernel is not None:
                took = (row["end_cycles"] - row["start_cycles"]) * us
                spent.setdefault(kernel, []).append(took)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BadResults(str(path), f"not as the profiler writes it: {error!r}") from None
    return Measured(total, {name: sum(each) / len(each) for name, each in spent.items()})


def _names(folder: Path) -> dict[int, str]:
    """Return the kernel of each task, from deps.json and the name map next to the records."""
    maps = sorted(folder.glob("name_map*.json"))
    tasks = folder / "deps.json"
    if not maps or not tasks.is_file():
        return {}
    called = {int(key): str(name) for key, name in _load(maps[0]).items() if str(key).isdigit()}
    found: dict[int, str] = {}
    for row in _load(tasks).get("tasks", []):
        ids = [int(i) for i in row["kernel_ids"] if int(i) >= 0]
        if ids and ids[0] in called:
            name = called[ids[0]]
            # A mixed kernel has a function for each kind of core.
            found[int(row["task_id"])] = name.removesuffix("_aic") if len(ids) > 1 else name
    return found
