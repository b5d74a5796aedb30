"""Kernel text in a dialect: forms that the dialect does not take, written as the findings say."""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import types
from collections.abc import Callable, Sequence

from tilelet.diag.core import Diagnostic, Fix
from tilelet.dialects import check
from tilelet.dialects.data import Dialect
from tilelet.ir.core import Program

# A fix may uncover another mistake in the same place; more often than this none does.
_ROUNDS = 8
_serial = itertools.count()


@dataclasses.dataclass
class Rewriter:
    """Makes the fixes of all findings; what has none is left in `remaining`.

    read  the program of the text that the last call returned
    """

    dialect: Dialect
    language: types.ModuleType
    program: Callable[[types.ModuleType], Program]
    remaining: list[Diagnostic] = dataclasses.field(default_factory=list[Diagnostic])
    read: Program | None = None

    def __call__(self, text: str) -> str:
        for _ in range(_ROUNDS):
            self.read = self.program(self._load(text))
            self.remaining = check(self.read, self.dialect)
            fixes = [d.fixes for d in self.remaining if d.fixes]
            if not fixes:
                return text
            text = apply_fixes(text, fixes)
        self.read = self.program(self._load(text))
        return text

    def _load(self, text: str) -> types.ModuleType:
        """The text as a module in which `pl` is the language: its kernels, ready to be read."""
        path = f"<export {next(_serial)}>"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        module = types.ModuleType("exported")
        module.__dict__["pl"] = self.language
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - it was just written
        return module


def apply_fixes(text: str, groups: Sequence[Sequence[Fix]]) -> str:
    """The text with the fixes made, from the end; of two that overlap, the inner one."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def span(fix: Fix) -> tuple[int, int]:
        at = fix.loc
        return starts[at.line - 1] + at.col, starts[at.end_line - 1] + at.end_col

    chosen: list[tuple[int, int, str]] = []
    for group in sorted(groups, key=lambda fixes: span(fixes[0])[1] - span(fixes[0])[0]):
        spans = [(*span(fix), fix.text) for fix in group]
        if not any(a < d and c < b for a, b, _ in spans for c, d, _ in chosen):
            chosen += spans
    data = text.encode()
    for start, end, new in sorted(chosen, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()
