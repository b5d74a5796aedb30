"""Tasks as the device's runtime counts them, as shown in the swimlanes of a board.

The runtime counts an allocation of tensors as a task, and the cube and vector halves of a mixed
kernel as one each. Tilelet counts executions of scopes, as published figures do.
"""

from __future__ import annotations

import math

from tilelet.ir.core import Block, Function, Program, walk
from tilelet.ir.spec import REGISTRY, Engine
from tilelet.ir.types import TensorType
from tilelet.tasks.stream import TaskStream

ALLOC = "alloc"
# Maximum number of tensors per allocation call of the runtime.
_PER_CALL = 16


def allocations(block: Block) -> int:
    """Count the allocation calls in one execution of a block's own statements."""
    made = sum(
        op.name == "create_tensor" and isinstance(op.results[0].type, TensorType)
        for op in block.ops
    )
    return math.ceil(made / _PER_CALL)


def is_mixed(kernel: Function) -> bool:
    """Return whether a kernel uses both the cube and the vector unit."""
    specs = [REGISTRY[op.name] for op in walk(kernel.body) if op.name in REGISTRY]
    engines = {spec.engine for spec in specs if spec.is_compute}
    return {Engine.CUBE, Engine.VEC} <= engines


def runtime_counts(program: Program, tasks: TaskStream) -> dict[str, int]:
    """Count tasks by kernel, with the halves of mixed kernels separate and allocations last."""
    counts: dict[str, int] = {}
    for name, count in tasks.counts().items():
        kernel = program.functions.get(name)
        halves = ("_aic", "_aiv") if kernel is not None and is_mixed(kernel) else ("",)
        counts |= {f"{name}{half}": count for half in halves}
    if tasks.allocations:
        counts[ALLOC] = tasks.allocations
    return counts
