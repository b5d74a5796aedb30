"""Op definitions, one module per family; importing this package fills `ir.spec.REGISTRY`.

To add an op, write a function in the module of its family: its signature is that of the `pl` call,
its docstring the manual, and `@op(...)` gives inference, reference and properties (`ir/spec.py`).
Then run `make docs`. Every engine runs the op by its reference; C of its own is in `cpu/emit/`.
"""

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
