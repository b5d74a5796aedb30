"""What `tilelet.diverge` returns: an answer that notebooks show as a page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from tilelet.dataclasses import dataclass, field
from tilelet.divergence.answer import Answer
from tilelet.runtime.inspection.shown import NotebookResult


@dataclass(repr=False)
class ShownAnswer(Answer, NotebookResult):
    """An answer with its page: outputs against the golden, and the first wrong statement."""

    page: Callable[[], bytes] = field(default=bytes, compare=False)
    _view = "numbers"

    def _page(self) -> tuple[str, bytes]:
        return self.name, self.page()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return f"<{self.lines()[0].strip()}>"
