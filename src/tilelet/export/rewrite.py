"""Rewriting of kernel text for a dialect by the fixes of its findings."""

from __future__ import annotations

import itertools
import linecache
import types
from collections.abc import Callable, Sequence

from tilelet import dataclasses
from tilelet.diag.core import Diagnostic, Fix
from tilelet.diag.editing import Edit, SourceText
from tilelet.dialects import check
from tilelet.dialects.data import Dialect
from tilelet.ir.core import Program

# Maximum number of rounds: a fix may uncover another finding.
_ROUNDS = 8
_serial = itertools.count()


@dataclasses.dataclass
class TextRewriter:
    """Applies the fixes of all findings; those without a fix are in `remaining`.

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
        """Import the text as a module in which `pl` is the language."""
        path = f"<export {next(_serial)}>"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        module = types.ModuleType("exported")
        module.__dict__["pl"] = self.language
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - it was just written
        return module


def apply_fixes(text: str, groups: Sequence[Sequence[Fix]]) -> str:
    """Return the text with the fixes applied; of two groups that overlap, the inner one."""
    source = SourceText(text)
    chosen: list[Edit] = []
    edits = [[source.fix(fix) for fix in group] for group in groups]
    for group in sorted(edits, key=lambda fixes: fixes[0].end - fixes[0].start):
        if not any(a.start < b.end and b.start < a.end for a in group for b in chosen):
            chosen += group
    return source.edited(chosen)
