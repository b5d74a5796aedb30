"""The kernel of an assemble that has to copy: load and store, tile by tile, in one task."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.ir.core import Arg, Block, Direction, Function, FunctionKind, Op, Value
from tilelet.ir.rebuild import Builder, call_op, fresh, index_value, return_op, substitute_all
from tilelet.ir.types import Dim, TensorType

TILE_BYTES = 32 * 1024
"""A small part of the vector memory of every device."""


def emit_copy(b: Builder, assemble: Op, functions: dict[str, Function]) -> Value:
    """Add a kernel that does `assemble` and emit its call; the result is the updated target."""
    target, source, offset = (assemble.args[k] for k in ("target", "source", "offset"))
    assert isinstance(target, Value) and isinstance(source, Value) and isinstance(offset, tuple)
    name = _fresh_name(functions)
    scalars = tuple(dict.fromkeys(v for v in offset if isinstance(v, Value)))
    functions[name] = _kernel(name, target, source, offset, scalars, b.loc)
    result = fresh(assemble.result)
    b.add(call_op(name, (source, target, *scalars), (result,), b.loc))
    return result


def _fresh_name(functions: dict[str, Function]) -> str:
    n = 0
    while f"copy_{n}" in functions:
        n += 1
    return f"copy_{n}"
