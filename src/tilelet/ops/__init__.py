"""Ops: one definition each. Importing this package fills `registry.REGISTRY`."""

from tilelet.ops import (
    bitwise,
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
    selection,
    structure,
    tasks,
)

__all__ = [
    "bitwise",
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
    "selection",
    "structure",
    "tasks",
]
