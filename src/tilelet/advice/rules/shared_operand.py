"""Rule shared-operand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from tilelet.advice.core import Advice, Rule, Subject
from tilelet.advice.merging import neighbors
from tilelet.advice.source import Source, names_bound, names_needed
from tilelet.diag.core import Caution, Label, Loc
from tilelet.diag.text import quoted_names


class SharedOperand(Caution, code="W1302"):
    """Two consecutive scopes load the same window."""

    def __init__(self, first: Loc, second: Loc, windows: Sequence[str]) -> None:
        super().__init__(
            f"two scopes load {quoted_names(windows[:2], 'and')}",
            [Label(first, "loaded here"), Label(second, "loaded again here")],
            helps=["merge the two scopes, so that it is loaded once"],
        )


def find(subject: Subject) -> Iterator[Advice]:
    """Find consecutive scopes that load the same window, such as K and V, or gate and up."""
    source = subject.source
    for first, second, kernels, edits in neighbors(subject):
        shared = sorted(_loaded_windows(source, first) & _loaded_windows(source, second))
        if shared and not names_needed(second.body) & names_bound(first.body):
            problem = SharedOperand(source.loc(first), source.loc(second), shared)
            yield subject.advice(problem, kernels, edits)


def _loaded_windows(source: Source, scope: ast.With) -> set[str]:
    """Return the windows that a scope loads, as text."""
    found: set[str] = set()
    for node in ast.walk(scope):
        is_load = isinstance(node, ast.Call) and source.call_of(node) in ("slice", "load")
        if is_load or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)):
            # Locals of an inlined helper have numeric suffixes: `k0_3` and `k0_4`.
            found.add(re.sub(r"(?<=\w)_\d+\b", "", ast.unparse(node)))
    return found


RULE = Rule("shared-operand", SharedOperand, find, rewrites=True, needs_proof=True)
