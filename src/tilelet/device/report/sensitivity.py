"""Sensitivity of a modelled total to the parameters of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilelet.device.machine.description import Machine, with_fields
from tilelet.device.schedule.simulate import Timeline, replay_roughly

NUDGE = 0.1
MAX_SHOWN = 3


def _paths(names: Sequence[str], *fields: str) -> tuple[str, ...]:
    return tuple(f"paths.{name}.{field}" for name in names for field in fields)


_LOADS = ("gm_to_l1", "gm_to_ub")

GROUPS: Mapping[str, tuple[str, ...]] = {
    "latency of L2": _paths(_LOADS, "latency_cycles"),
    "latency of memory": _paths(_LOADS, "cold_latency_cycles"),
    "rate of a core from L2": _paths(_LOADS, "bytes_per_cycle"),
    "rate of a core from memory": _paths(_LOADS, "cold_bytes_per_cycle"),
    "cost of a row": _paths(_LOADS, "row_cycles"),
    "issue of a load": _paths(_LOADS, "fixed_cycles"),
    "store": _paths(("ub_to_gm",), "fixed_cycles", "latency_cycles", "cold_latency_cycles"),
    "rate of FIXPIPE": _paths(("l0c_to_gm",), "bytes_per_cycle"),
    "FIXPIPE per row": _paths(("l0c_to_gm",), "row_cycles", "fixed_cycles"),
    "start of a kernel": ("body.start_cycles",),
    "issue of an instruction": ("body.issue_cycles",),
    "mask of a vector op": ("body.mask_cycles",),
    "wait of one pipe for another": ("body.sync_cycles",),
    "hand-over between cube and vector": ("body.exchange_cycles",),
    "access of a single element": ("body.element_cycles", "body.miss_cycles"),
    "vector instructions": ("vector.*",),
    "sustained memory rate": ("gm.efficiency",),
    "rate of a slice of L2": ("gm.l2_gbs",),
    "scheduler time per block": ("runtime.*.dispatch_us", "runtime.*.complete_us"),
    "submission of a task": ("runtime.*.submit_us",),
    "task of a graph": ("runtime.*.node_us",),
    "hand-over of a block": ("runtime.*.head_us", "runtime.*.tail_us"),
}
"""Groups of machine fields that are scaled together; `*` stands for all entries of a table."""


def fields_of(machine: Machine, group: str) -> list[str]:
    """Return the full names of a group's fields on one machine."""
    found: list[str] = []
    for name in GROUPS[group]:
        if name == "vector.*":
            each = (f"vector.{kind}.{part}" for kind in machine.vector for part in _VECTOR)
            found.extend(each)
        elif "*" in name:
            found.extend(name.replace("*", period) for period in machine.runtime)
        else:
            found.append(name)
    return found


_VECTOR = ("slope", "constant")


def field_value(machine: Machine, name: str) -> float:
    """Return a field by its full name, such as `paths.gm_to_l1.row_cycles`."""
    node: Any = machine
    # Names of periods have no dots, so every part is one step.
    for part in name.split("."):
        node = node[part] if hasattr(node, "keys") else getattr(node, part)
    return float(node)


def scale_parameters(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """Return the machine with groups of parameters multiplied; a share stays at most 1."""
    changes: dict[str, float] = {}
    for group, factor in factors.items():
        for name in fields_of(machine, group):
            value = field_value(machine, name) * factor
            changes[name] = min(value, 1.0) if name == "gm.efficiency" else value
    return with_fields(machine, changes)


def sensitivities(line: Timeline) -> dict[str, float]:
    """Return for each group the percentage by which the total changes if it grows by one per cent.

    Largest first.
    """
    machines = [scale_parameters(line.machine, {group: 1 + NUDGE}) for group in GROUPS]
    found = {
        group: (other.total_us / line.total_us - 1) / NUDGE if line.total_us else 0.0
        for group, other in zip(GROUPS, replay_roughly(line, machines))
    }
    return dict(sorted(found.items(), key=lambda item: (-abs(item[1]), item[0])))
