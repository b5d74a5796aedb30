"""Ops: one definition each. Importing this package fills `registry.REGISTRY`."""

from tilelet.ops import (
    broadcast,
    cast,
    creation,
    elementwise,
    gather_sort,
    matmul,
    movement,
    padding,
    reduction,
    scalar,
    structure,
    tasks,
)

__all__ = [
    "broadcast",
    "cast",
    "creation",
    "elementwise",
    "gather_sort",
    "matmul",
    "movement",
    "padding",
    "reduction",
    "scalar",
    "structure",
    "tasks",
]
