"""`pl.system.syncall()`: all blocks of a launch wait for each other.

Blocks run one after the other here. So the statements after a barrier become a launch of their own,
and a loop or branch that contains a barrier moves around such launches:

    for core in pl.spmd(4):              for i in pl.range(3):
        for i in pl.range(3):                for core in pl.spmd(4):
            first(core, i)         ->            first(core, i)
            pl.system.syncall()              for core in pl.spmd(4):
            second(core, i)                      second(core, i)

Scalars that a block computes once, such as its first row, are recomputed in each launch.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence

from tilelet.diag.catalogue.ops import UnknownKeyword
from tilelet.diag.catalogue.scopes import BarrierInKernel, OnlyInScope
from tilelet.frontend.context import Context
from tilelet.frontend.dispatch import call
from tilelet.frontend.nameflow import target_names
from tilelet.ir.core import Block, Op, Value, walk
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import TensorType
from tilelet.syntax import pipes as markers

_POSITIONS = ("get_block_idx", "get_block_num", "get_subblock_idx", "min", "max", "cast", "dim")

Launch = ast.For | ast.With


def has_barrier(statements: Sequence[ast.stmt]) -> bool:
    return any(_is_barrier(n) for s in statements for n in ast.walk(s))


def launches(launch: Launch) -> list[ast.stmt]:
    """Split a launch at its barriers; return the launches inside their loops and branches."""
    stored = Counter(name for s in ast.walk(launch) for name in _stores(s))
    return list(_spread(launch, launch.body, [], stored))


def _spread(
    launch: Launch, body: Sequence[ast.stmt], numbers: list[ast.stmt], stored: Counter[str]
) -> Iterator[ast.stmt]:
    """Split a body at its barriers; `numbers` are the scalars to recompute in each launch."""
    run: list[ast.stmt] = []
    numbers = list(numbers)

    def flush() -> Iterator[ast.stmt]:
        if run:
            part = copy.copy(launch)
            part.body = [*_needed_numbers(numbers, run), *run]
            yield part
            numbers.extend(s for s in run if _is_number(s, stored))
            run.clear()

    for s in body:
        if isinstance(s, ast.Expr) and _is_barrier(s.value):
            yield from flush()
        elif isinstance(s, (ast.For, ast.While, ast.If)) and has_barrier([s]):
            yield from flush()
            around = copy.copy(s)
            around.body = list(_spread(launch, s.body, numbers, stored))
            if isinstance(around, ast.If):
                around.orelse = list(_spread(launch, s.orelse, numbers, stored))
            yield around
        else:
            run.append(s)
    yield from flush()


def _is_barrier(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "syncall"
    )


def _stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _is_number(s: ast.stmt, stored: Counter[str]) -> bool:
    """Return whether `s` computes a scalar from scalars that are constant during the launch."""
    if (
        not isinstance(s, ast.Assign)
        or len(s.targets) != 1
        or not isinstance(s.targets[0], ast.Name)
    ):
        return False
    if stored[s.targets[0].id] > 1:
        return False
    callees: set[ast.AST] = set()
    for n in ast.walk(s.value):
        if isinstance(n, ast.Call):
            if not isinstance(n.func, ast.Attribute) or n.func.attr not in _POSITIONS:
                return False
            callees.update(ast.walk(n.func))
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)
    plain += (ast.operator, ast.unaryop, ast.cmpop, ast.expr_context, ast.Attribute, ast.keyword)
    nodes = [n for n in ast.walk(s.value) if n not in callees]
    names = [n.id for n in nodes if isinstance(n, ast.Name)]
    return all(isinstance(n, plain) for n in nodes) and all(stored[name] <= 1 for name in names)


def _needed_numbers(numbers: Sequence[ast.stmt], run: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return those of `numbers` that the run reads, directly or indirectly."""
    wanted = {n.id for s in run for n in ast.walk(s) if isinstance(n, ast.Name)}
    needed: list[ast.stmt] = []
    for s in reversed(numbers):
        assert isinstance(s, ast.Assign)
        if target_names(s.targets[0]) & wanted:
            needed.insert(0, s)
            wanted |= {n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)}
    return needed


# --- in hand-written kernels ----------------------------------------------------------------------


@call(markers.syncall)
def _lower(ctx: Context, node: ast.Call) -> None:
    """Lower a barrier in a kernel that is launched elsewhere."""
    if not ctx.in_scope:
        raise OnlyInScope(ctx.loc(node), "pl.system.syncall")
    allowed = list(inspect.signature(markers.syncall).parameters)
    for keyword in node.keywords:
        if keyword.arg not in allowed:
            raise UnknownKeyword(ctx.loc(keyword), "system.syncall", keyword.arg or "**", allowed)
    ctx.emit(REGISTRY["system.bar_all"], {}, (), ctx.loc(node))
    ctx.barriers.append(ctx.ops[-1])


def check_kernel(ctx: Context, ops: Sequence[Op]) -> None:
    """Reject a barrier that orders accesses to memory that the blocks of a kernel share."""
    for barrier in ctx.barriers:
        before: list[Op] = []
        after: list[Op] = []
        passed = False
        for op in ops:
            inner = list(walk(Block((), (op,))))
            here = barrier in inner  # a loop around a barrier runs on both sides of it
            if not passed or here:
                before += inner
            passed = passed or here
            if passed:
                after += inner
        first, then = _memory(ctx, before), _memory(ctx, after)
        shared = (first[0] & (then[0] | then[1])) | (first[1] & then[0])
        if shared:
            memory = min(shared, key=lambda value: (value.loc.line, value.loc.col))
            raise BarrierInKernel(barrier.loc, memory.name, memory.loc)
    ctx.barriers.clear()


def _memory(ctx: Context, ops: Sequence[Op]) -> tuple[set[Value], set[Value]]:
    """Return the tensors of the kernel that these ops write, and those they read."""
    written: set[Value] = set()
    read: set[Value] = set()
    for op in ops:
        targets = [op.args[name] for name in op.spec.writes]
        for value in op.operands:
            storage = ctx.facts.storage_of(value)
            if storage is not None and isinstance(value.type, TensorType) and not op.blocks:
                (written if value in targets else read).add(storage)
    return written, read
