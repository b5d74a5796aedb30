"""Results in notebooks: a widget where anywidget is installed, plain markup elsewhere."""

from __future__ import annotations

import abc
import importlib
from typing import Any


class NotebookResult(abc.ABC):
    """A result with a page.

    A subclass gives the page, its first view, and the markup for notebooks without widgets.
    """

    _view = "timeline"

    @abc.abstractmethod
    def _page(self) -> tuple[str, bytes]:
        """Return the title and the packed data of the page."""

    @abc.abstractmethod
    def _repr_html_(self) -> str: ...

    def widget(self, view: str | None = None) -> Any:
        """Return the page as a widget; view: timeline, source, kernels, memory, graph, numbers."""
        from tilelet.diag.catalogue.command import BadFlag
        from tilelet.report.widget import VIEWS, page_widget

        if view not in (None, *VIEWS):
            raise BadFlag(f"there is no view `{view}`", [f"there are {', '.join(VIEWS)}"])
        return page_widget(*self._page(), view or self._view)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Jupyter: the widget, with the markup for readers that cannot show it."""
        from tilelet.report.widget import is_shown_by_widgets

        static = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if not is_shown_by_widgets():
            return static
        shown = self.widget()._repr_mimebundle_()
        return {**(shown[0] if isinstance(shown, tuple) else shown or {}), **static}

    def _display_(self) -> Any:
        """marimo: the widget, or the markup."""
        from tilelet.diag.catalogue.command import MissingModule

        try:
            return self.widget()
        except MissingModule:
            marimo = importlib.import_module("marimo")
            return marimo.Html(self._repr_html_())
