"""Op definitions; importing this package fills `registry.REGISTRY`."""

from tilelet.ir import structure
from tilelet.ops import (
    bitwise,
    block_scaled,
    broadcast,
    cast,
    creation,
    elementwise,
    gather_scatter,
    matmul,
    padding,
    prefetch,
    reduction,
    scalar,
    selection,
    sorting,
    tasks,
    transfers,
    views,
)

__all__ = [
    "bitwise",
    "block_scaled",
    "broadcast",
    "cast",
    "creation",
    "elementwise",
    "gather_scatter",
    "matmul",
    "padding",
    "prefetch",
    "reduction",
    "scalar",
    "selection",
    "sorting",
    "structure",
    "tasks",
    "transfers",
    "views",
]
