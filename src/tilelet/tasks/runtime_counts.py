"""Tasks as the device's runtime counts them, which is what a swimlane of a board shows.

It counts an allocation of tensors as a task, and a mixed kernel's cube and vector half as one
each. Ours are the executions of scopes, the figures that are published.
"""

from __future__ import annotations

import math

from tilelet.ir.core import Block, Function, Program, walk
from tilelet.ir.spec import REGISTRY, Engine
from tilelet.ir.types import TensorType
from tilelet.tasks.stream import TaskStream

ALLOC = "alloc"
# Tensors that one call of the runtime allocates at most.
_PER_CALL = 16


def allocations(block: Block) -> int:
    """Calls that allocate the tensors which one execution of a block's own statements makes."""
    made = sum(
        op.name == "create_tensor" and isinstance(op.results[0].type, TensorType)
        for op in block.ops
    )
    return math.ceil(made / _PER_CALL)


def is_mixed(kernel: Function) -> bool:
    """Whether a kernel needs the cube and computes on the vector unit as well."""
    specs = [REGISTRY[op.name] for op in walk(kernel.body) if op.name in REGISTRY]
    engines = {spec.engine for spec in specs if spec.is_compute}
    return {Engine.CUBE, Engine.VEC} <= engines


def runtime_counts(program: Program, tasks: TaskStream) -> dict[str, int]:
    """Tasks by kernel; halves of mixed kernels apart, allocations at the end."""
    counts: dict[str, int] = {}
    for name, count in tasks.counts().items():
        kernel = program.functions.get(name)
        halves = ("_aic", "_aiv") if kernel is not None and is_mixed(kernel) else ("",)
        counts |= {f"{name}{half}": count for half in halves}
    if tasks.allocations:
        counts[ALLOC] = tasks.allocations
    return counts
