"""The page as a widget of notebooks, where anywidget is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from typing import Any

from tilelet.diag.catalogue.command import MissingModule
from tilelet.report.html import page_html

VIEWS = ("timeline", "source", "kernels", "memory", "graph", "numbers")

_SCRIPT = """
function render({ model, el }) {
  const text = new Blob([model.get("page")], { type: "text/html" });
  const address = URL.createObjectURL(text);
  const show = () => {
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts allow-downloads");
    frame.title = "Tilelet";
    frame.style.cssText = "width:100%;border:1px solid #8884;resize:vertical;background:#fff";
    frame.style.height = `${model.get("height")}px`;
    frame.src = `${address}#view=${model.get("view")}`;
    el.replaceChildren(frame);
  };
  model.on("change:view", show);
  model.on("change:height", show);
  show();
  return () => URL.revokeObjectURL(address);
}
export default { render };
"""


def page_widget(title: str, data: bytes, view: str) -> Any:
    """Return a widget that shows a page; its traits `view` and `height` can be set."""
    made = _widget_class()
    return made(page=page_html(title, data), view=view)


def is_shown_by_widgets() -> bool:
    """Return whether a Jupyter kernel is running that can show widgets."""
    return "ipykernel" in sys.modules and importlib.util.find_spec("anywidget") is not None


@cache
def _widget_class() -> Any:
    try:
        base: Any = importlib.import_module("anywidget").AnyWidget
        traits = importlib.import_module("traitlets")
    except ModuleNotFoundError as error:
        raise MissingModule(error.name or "anywidget", "a widget", "notebook") from None

    class PageWidget(base):
        """A page in a frame of its own, without access to the notebook."""

        _esm = _SCRIPT
        page = traits.Unicode("").tag(sync=True)
        view = traits.Enum(VIEWS, VIEWS[0]).tag(sync=True)
        height = traits.Int(560).tag(sync=True)

    return PageWidget
