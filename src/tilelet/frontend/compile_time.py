"""Compile-time Python in kernel text: outside names, attributes, calls and plain expressions."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Python:
    """Evaluates with Python itself, because the text is the user's own program.

    `tilelet.static` overrides all methods for text that must not be executed.
    """

    def builtin(self, name: str) -> Any:
        """Return a name that no module defines; `AttributeError` if there is none."""
        return getattr(builtins, name)

    def attribute(self, base: object, name: str) -> Any:
        """Return `base.name`; `AttributeError` if there is none."""
        return getattr(base, name)

    def call(
        self, callee: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Any:
        """Call a function whose arguments are compile-time values."""
        return callee(*args, **kwargs)

    def expression(self, node: ast.expr, file: str, names: Mapping[str, object]) -> Any:
        """Evaluate an expression made only of captured objects."""
        return eval(compile(ast.Expression(node), file, "eval"), dict(names))  # noqa: S307


PYTHON = Python()
