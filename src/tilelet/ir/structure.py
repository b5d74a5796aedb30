"""Structural ops: control flow, scopes, calls. They have blocks and no user-visible function.

Arguments, blocks and results of each:

for     args start, stop, step, init (tuple); kind ("range", "parallel", "pipeline", "unroll"),
        chunk (int or None), policy ("leading_full" or "guarded"), stage (int or None)
        block: params (index, *carried), ends in yield(values=next carried); results: carried
while   args init; blocks: cond (params carried; ends in yield of one BOOL), body (params carried;
        ends in yield); results: carried
if      args cond; blocks: then, else (no params, end in yield); results: joined values
scope   args kind (in-core: "incore", "spmd", "implied" = made by the frontend; grouping
        control-plane ops only: "chunked", "manual", "cluster", "runtime", "graph", "chip"),
        hint (name hint or None), split (SplitMode name or None),
        count (spmd: number of blocks, else None), deps (tuple of task ids), no_dep (tuple of
        Values passed without dependency tracking), predicate (as of a call; may be missing),
        options (tuple of further (key, value) pairs),
        task_id (bool: the last result is the task's id)
        block: params (block index,) for spmd, else (); ends in yield(values)
        results: one per yielded value (a yielded tile becomes a GM tensor: it is spilled; a
        yielded tensor is the same GM memory), then the task id if task_id
call    args callee (function name), operands (tuple); deps, no_dep (tuple of operand positions),
        predicate (None or (tensor, indices, comparison such as ">", literal)), count (spmd blocks
        or None), options (tuple of further (key, value) pairs), task_id (bool)
        results: one per value the callee returns, then the task id if task_id. A result for
        which the callee returns one of its parameters is the same GM memory as that operand.
yield   args values (tuple); ends a block
return  args values (tuple); ends a function body
undef   a value that no path has defined yet: poison
"""

from __future__ import annotations

from tilelet.ir.spec import OpSpec, register


def _structural(name: str, terminator: bool = False) -> OpSpec:
    """Define a structural op, whose result types are set by its builder."""
    return register(OpSpec(name, structural=True, terminator=terminator, section="structure"))


FOR = _structural("for")
WHILE = _structural("while")
IF = _structural("if")
SCOPE = _structural("scope")
CALL = _structural("call")
YIELD = _structural("yield", terminator=True)
RETURN = _structural("return", terminator=True)
UNDEF = _structural("undef")

IN_CORE_KINDS = frozenset({"incore", "spmd", "implied"})
