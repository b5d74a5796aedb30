"""Rule small-tasks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import is_number
from tilelet.advice.source import Source, number_of
from tilelet.advice.use import MIN_SHARE, cores_of, place_of
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit
from tilelet.diag.text import plural


class SmallTasks(Caution, code="W1307"):
    """Tasks take less time to run than to submit, dispatch and complete."""

    def __init__(self, loc: Loc, tasks: int, blocks: int, each: float, overhead: float) -> None:
        count, ways = plural(tasks, "task"), "larger tiles, merged scopes, or `pl.spmd`"
        if blocks != tasks:
            count += f" of {plural(blocks, 'block')}"
            ways = "larger tiles, or fewer blocks that loop over several"
        super().__init__(
            "tasks of this scope take less time to run than to dispatch",
            [Label(loc)],
            notes=[f"{count}: {each:.2f} us each, {overhead:.2f} us to dispatch"],
            helps=[f"do more work per task: {ways}"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find kernels whose tasks take less time to run than to dispatch.

    If a loop launches them, an automatic scope around it can put several iterations into a task.
    """
    source = subject.source
    for run in subject.runs:
        runtime = run.machine.period(run.period)
        for kernel in run.summary.kernels:
            blocks = run.summary.blocks(kernel)
            if not blocks:
                continue
            each = kernel.exec_us / blocks
            # A task is submitted once; each of its blocks is dispatched.
            overhead = runtime.head_us + runtime.tail_us + runtime.dispatch_us
            overhead += runtime.submit_us * kernel.tasks / blocks
            share = kernel.tasks * runtime.submit_us / max(run.summary.total_us, 1e-9)
            if kernel.tasks >= 100 and each < overhead and share > MIN_SHARE:
                loc = place_of(subject, kernel)
                problem = SmallTasks(loc, kernel.tasks, blocks, each, overhead)
                loop = _loop_of(source, loc.line)
                cores = cores_of(run.summary, kernel)
                edits = _add_chunk(source, loop, cores) if loop is not None else None
                yield subject.advice(problem, [kernel], edits)


def _loop_of(source: Source, line: int) -> ast.For | None:
    """Return the loop that consists of scalar statements and the scope at a line."""
    for loop in source.nodes:
        if not isinstance(loop, ast.For) or source.loop(loop) not in ("range", "parallel"):
            continue
        scope = loop.body[-1]
        if not isinstance(scope, ast.With) or not source.is_scope(scope) or scope.lineno != line:
            continue
        if not source.is_in_scope(loop) and all(is_number(source, s) for s in loop.body[:-1]):
            return loop
    return None


def _add_chunk(source: Source, loop: ast.For, cores: int) -> list[Edit] | None:
    """Put the loop into an automatic scope, with a chunk size that leaves no core idle."""
    assert isinstance(loop.iter, ast.Call)
    arguments = [number_of(a, source.numbers) for a in loop.iter.args]
    numbers = [a for a in arguments if a is not None]
    if len(numbers) != len(arguments) or loop.iter.keywords or loop.orelse or numbers[2:] == [0]:
        return None
    scope = loop.body[-1]
    assert isinstance(scope, ast.With)
    count = len(range(*numbers))
    chunk = 1
    while count % (2 * chunk) == 0 and count // (2 * chunk) >= cores:
        chunk *= 2
    if chunk == 1 or not _is_plain(source, scope):
        return None
    pl = source.language
    texts = [source.of(a) for a in loop.iter.args]
    bounds = ["0", *texts] if len(texts) == 1 else texts
    header = f"{pl}.at(level={pl}.Level.CORE_GROUP, optimizations=[{pl}.auto_chunk])"
    around = f"{pl}.parallel({', '.join([*bounds, f'chunk={chunk}'])})"
    margin = " " * loop.col_offset
    unit = loop.body[0].col_offset - loop.col_offset
    before = source.indented(loop.lineno + _header_lines(loop), scope.lineno - 1, unit)
    shift = loop.col_offset + 2 * unit - scope.body[0].col_offset
    body = source.indented(scope.lineno + _header_lines(scope), scope.end_lineno or 0, shift)
    text = (
        f"{margin}with {header}:\n"
        f"{margin}{' ' * unit}for {source.of(loop.target)} in {around}:\n{before}{body}"
    )
    return [source.replace_lines(loop.lineno, loop.end_lineno or 0, text)]


def _is_plain(source: Source, scope: ast.With) -> bool:
    """Whether a scope has no options, which would be there for a reason."""
    call = scope.items[0].context_expr
    assert isinstance(call, ast.Call)
    return all(k.arg in ("level", "name_hint") for k in call.keywords) and (
        source.call_of(call) in ("at", "incore")
    )


def _header_lines(node: ast.For | ast.With) -> int:
    """Return the number of lines of a `for` or `with` header."""
    end = node.iter if isinstance(node, ast.For) else node.items[-1].context_expr
    return (end.end_lineno or node.lineno) - node.lineno + 1


RULE = Rule("small-tasks", SmallTasks, find, rewrites=True)
