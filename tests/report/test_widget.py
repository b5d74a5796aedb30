"""Results as notebook widgets: the page in a frame if anywidget is installed, else markup."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import tilelet
import tilelet.language as pl
from tilelet.diag.catalogue.command import BadFlag, MissingModule
from tilelet.report import widget
from tilelet.runtime import TensorSpec

WIDGET = "application/vnd.jupyter.widget-view+json"


@pl.jit
def double(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.mul(x[:, :], 3.0)
    return out


def golden(tensors: dict[str, Any]) -> None:
    tensors["out"][:] = 2.0 * tensors["x"]


SPECS = [
    TensorSpec("x", [16, 64], pl.FP32, lambda: np.random.default_rng(0).normal(size=(16, 64))),
    TensorSpec("out", [16, 64], pl.FP32, is_output=True),
]


@pytest.fixture
def profile() -> Any:
    x = np.ones((16, 64), np.float32)
    return tilelet.profile(double, x, np.zeros_like(x))


@pytest.fixture
def without_anywidget(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget._widget_class.cache_clear()
    yield
    widget._widget_class.cache_clear()


@pytest.mark.usefixtures("without_anywidget")
def test_without_anywidget_notebooks_get_markup(
    profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    shown = profile._repr_mimebundle_(include=None, exclude=None)
    assert set(shown) == {"text/plain", "text/html"}
    assert "<svg" in shown["text/html"]
    with pytest.raises(MissingModule, match="anywidget"):
        profile.widget()
    markup = types.ModuleType("marimo")
    monkeypatch.setattr(markup, "Html", lambda text: ("html", text), raising=False)
    monkeypatch.setitem(sys.modules, "marimo", markup)
    assert profile._display_()[0] == "html"


def test_a_terminal_gets_no_widget(profile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert WIDGET not in profile._repr_mimebundle_()


def test_widgets_hold_the_page_and_their_view(
    profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anywidget")
    assert profile.widget().view == "timeline"
    memory = profile.widget("memory")
    assert memory.view == "memory"
    assert memory.page.startswith("<!doctype html>")
    monkeypatch.setattr(widget, "is_shown_by_widgets", lambda: True)
    assert {WIDGET, "text/html", "text/plain"} <= set(profile._repr_mimebundle_())
    assert profile._display_().view == "timeline"


def test_there_is_no_other_view(profile: Any) -> None:
    with pytest.raises(BadFlag, match="no view `bytes`"):
        profile.widget("bytes")


def test_a_divergence_is_shown_with_its_numbers() -> None:
    found = tilelet.diverge(double, SPECS, golden)
    assert found.divergence is not None
    shown = found._repr_mimebundle_()
    assert "a change of this statement corrects the outputs" in shown["text/html"]
    title, data = found._page()
    assert title == "double"
    assert data.startswith(b"TLPAGE")
    if widget.importlib.util.find_spec("anywidget"):
        assert found.widget().view == "numbers"
