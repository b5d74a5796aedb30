"""The import state of a running script, for calls of its functions after it has ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ImportState:
    """The present import path and modules, for goldens and comparators that import when called."""

    def __init__(self) -> None:
        self._path, self._finders = list(sys.path), list(sys.meta_path)
        self._modules = dict(sys.modules)

    @contextlib.contextmanager
    def active(self) -> Generator[None]:
        """Find imports as they were found then."""
        now = list(sys.path), list(sys.meta_path)
        gone = {name: m for name, m in self._modules.items() if name not in sys.modules}
        sys.path[:], sys.meta_path[:] = self._path, self._finders
        sys.modules.update(gone)
        try:
            yield
        finally:
            sys.path[:], sys.meta_path[:] = now
            for name in gone:
                sys.modules.pop(name, None)

    def calling(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that runs in this state."""

        def call(*arguments: P.args, **named: P.kwargs) -> R:
            with self.active():
                return function(*arguments, **named)

        return call
