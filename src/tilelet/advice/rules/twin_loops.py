"""Rule twin-loops: merge two loops of tasks over the same blocks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import is_made, is_number
from tilelet.advice.source import Body, Source, names_bound, names_needed, names_read
from tilelet.advice.windows import loads_in, stores_in
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.editing import Edit
from tilelet.diag.text import quoted_names


class TwinLoops(Caution, code="W1326"):
    """Two consecutive loops of tasks iterate over the same blocks."""

    def __init__(
        self, first: Loc, second: Loc, header: str, handed: Sequence[str], shared: Sequence[str]
    ) -> None:
        what = (
            f"{quoted_names(handed[:2], 'and')} go{'es' if len(handed) == 1 else ''} through memory"
            if handed
            else f"both load {quoted_names(shared[:1], 'and')}"
        )
        super().__init__(
            f"two loops over `{header}`: {what}",
            [Label(first, "first loop"), Label(second, "the same blocks again")],
            helps=["merge the loops, then the scopes of each block"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    source = subject.source
    for body in source.bodies():
        for i, first in enumerate(body):
            second = _twin(source, body, i)
            if second is None or not isinstance(first, ast.For):
                continue
            handed = _handed_on(source, first, second)
            if handed is None or not _may_be_one(body, first, second):
                continue
            shared = sorted(_loaded_windows(source, first) & _loaded_windows(source, second))
            kernels = subject.kernels_in(first.lineno, second.end_lineno or 0)
            if kernels and (handed or shared):
                problem = TwinLoops(
                    source.loc(first), source.loc(second), source.of(first.iter), handed, shared
                )
                yield subject.advice(problem, kernels, _edits(source, body, first, second))


def _twin(source: Source, body: Body, i: int) -> ast.For | None:
    """Return the next loop of tasks if its range equals that of the i-th statement."""
    first = body[i]
    if not _launches(source, first):
        return None
    for other in body[i + 1 :]:
        if isinstance(other, ast.For):
            same = isinstance(first, ast.For) and ast.dump(other.iter) == ast.dump(first.iter)
            return other if same and _launches(source, other) else None
        if not (is_number(source, other) or is_made(source, other)):
            return None
    return None


def _launches(source: Source, node: ast.stmt) -> bool:
    """Whether a statement is a loop that launches tasks."""
    if not isinstance(node, ast.For) or source.loop(node) not in ("range", "parallel"):
        return False
    is_plain = isinstance(node.target, ast.Name) and not node.orelse
    return (
        is_plain
        and not source.is_in_scope(node)
        and any(isinstance(n, ast.With) and source.is_scope(n) for n in ast.walk(node))
    )


def _handed_on(source: Source, first: ast.For, second: ast.For) -> list[str] | None:
    """Return tensors that the first loop writes and the second reads block by block.

    None if the second loop also reads other blocks.
    """
    index = source.of(first.target)
    stores = [window for window, _, _ in stores_in(source, first)]
    written = {window.tensor for window in stores}
    needed = names_needed(second.body) & names_bound(first)
    back = names_needed(first.body) & names_bound(second.body)
    if (needed - written - {index}) or back - written:
        return None  # values other than tensors are passed
    both = {window.tensor for window, _, _ in stores_in(source, second)} & written
    reads = [window for window in loads_in(source, second) if window.tensor in written]
    at_reads = {id(n) for window in reads for n in ast.walk(window.node)}
    own: set[int] = set()
    if both:
        own = {id(n) for _, _, s in stores_in(source, second) for n in ast.walk(s)}
    for node in ast.walk(second):
        is_use = isinstance(node, ast.Name) and node.id in written
        if is_use and id(node) not in at_reads | own:
            return None  # used as a whole, or in a way that the text does not show
    # The window must depend on the iteration.
    moving = {index} | names_bound(first.body)
    for window in reads:
        same = [at for at in stores if at.is_at(window)]
        if not same or not window.names & moving:
            return None
    return sorted({window.tensor for window in reads})


def _may_be_one(body: Body, first: ast.For, second: ast.For) -> bool:
    """Whether the statements between the loops are independent of the first loop."""
    between = body[body.index(first) + 1 : body.index(second)]
    bound = names_bound(first)
    return not (names_read(between) & bound or names_bound(between) & (bound | names_read(first)))


def _loaded_windows(source: Source, loop: ast.For) -> set[str]:
    """Return windows that a loop's tasks load, with the loop variable renamed."""
    name = source.of(loop.target)
    own = re.compile(rf"\b{re.escape(name)}\b")
    return {own.sub("i", ast.unparse(window.node)) for window in loads_in(source, loop)}


def _edits(source: Source, body: Body, first: ast.For, second: ast.For) -> list[Edit]:
    """Append the second body to the first; statements between them move before both."""
    end_of_first = first.end_lineno or 0
    between = source.lines(end_of_first + 1, second.lineno - 1)
    shift = first.body[0].col_offset - second.body[0].col_offset
    start = second.body[0].lineno
    while source.lines(start - 1, start - 1).strip().startswith("#"):
        start -= 1
    moved = source.indented(start, second.end_lineno or 0, shift)
    names = source.of(first.target), source.of(second.target)
    if names[0] != names[1]:
        moved = f"{' ' * first.body[0].col_offset}{names[1]} = {names[0]}\n{moved}"
    statements: Sequence[ast.stmt] = body[body.index(first) + 1 : body.index(second)]
    if not statements:
        return [source.replace_lines(end_of_first + 1, second.end_lineno or 0, between + moved)]
    return [
        source.replace_lines(first.lineno, first.lineno - 1, between),
        source.replace_lines(end_of_first + 1, second.end_lineno or 0, moved),
    ]


RULE = Rule("twin-loops", TwinLoops, find, rewrites=True, needs_proof=True)
