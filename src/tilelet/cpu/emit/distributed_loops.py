"""Split a kernel that is a single loop over matrix products into one task per iteration.

The iterations run on all threads, in program order where they touch the same memory, and beside
tasks that read adjacent columns of the same matrix. Counts and recorded streams show one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.plan.products import RECOMPUTABLE
from tilelet.ir.core import Block, Function, Op, Program, Value, walk
from tilelet.ir.rebuild import Builder, clone_ops, return_op, substitute, substitute_all
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType
from tilelet.ir.views import CallView, ForView, yielded_values

MAX_ITERATIONS = 64


def one_iteration(kernel: Function, program: Program) -> tuple[Function, int]:
    """Return the kernel as one iteration, which reads its number like a block index, and the
    iteration count.
    """
    *before, last = kernel.body.ops[:-1] or [None]
    if last is None or last.name != "for" or not _is_loop_of_products(last):
        return kernel, 1
    view = ForView(last)
    if not all(o is not None and _is_repeatable(o) for o in before):
        return kernel, 1
    if not _carries_same_memory(view, kernel, program.functions) or _has_blocks(kernel, program):
        return kernel, 1
    start = Builder(last.loc, in_scope=True)
    iteration = start.emit("get_block_idx", result="iteration")
    first, _, step = view.bounds
    index = start.scalar("add", start.scalar("mul", iteration, step), first, result=view.index.name)
    mapping = {view.index: index, **dict(zip(view.carried, view.init))}
    body = clone_ops(view.body.ops[:-1], mapping)
    handed_on = substitute_all(yielded_values(view.body), mapping)
    results = dict(zip(last.results, handed_on))
    returned = [substitute(r, results) for r in kernel.returned]
    ops = [*(o for o in before if o is not None), *start.ops, *body, return_op(returned)]
    iterations = view.trip_count
    assert iterations is not None
    return replace(kernel, body=Block(kernel.body.params, tuple(ops))), iterations


def _is_loop_of_products(op: Op) -> bool:
    iterations = ForView(op).trip_count
    has_product = any(Trait.GEMM in o.spec.traits for o in walk(op.blocks[0]))
    return iterations is not None and 2 <= iterations <= MAX_ITERATIONS and has_product


def _is_repeatable(op: Op) -> bool:
    """Whether an op before the loop computes a scalar, so that each iteration may repeat it."""
    return bool(op.spec.traits & RECOMPUTABLE)


def _carries_same_memory(
    view: ForView, kernel: Function, functions: Mapping[str, Function]
) -> bool:
    """Whether the loop carries only tensors that are the same memory in every iteration."""
    aliases = Aliases(kernel.body, functions)
    for value, init, handed in zip(view.carried, view.init, yielded_values(view.body)):
        if not isinstance(value.type, TensorType):
            return False
        ends = [aliases.end(v) if isinstance(v, Value) else None for v in (value, init, handed)]
        if ends[0] is None or any(end is not ends[0] for end in ends):
            return False
    return True


def _has_blocks(kernel: Function, program: Program) -> bool:
    """Whether the kernel reads a block index, or is called with a block count."""
    if any(Trait.OF_BLOCK in o.spec.traits for o in walk(kernel.body)):
        return True
    calls = [o for f in program.functions.values() for o in walk(f.body) if o.name == "call"]
    return any(CallView(o).callee == kernel.name and o.args["count"] is not None for o in calls)
