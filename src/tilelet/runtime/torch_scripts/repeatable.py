"""Reproducible random numbers of a script, also from modules it has not imported yet.

This is the entry of the plugin for torch scripts: only a script that imports torch loads the rest.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, cast

from tilelet.runtime.data.arrays import loaded_torch
from tilelet.runtime.data.seeds import seeded_generators
from tilelet.runtime.gc_pause import no_garbage


@contextmanager
def repeatable(seed: int, *, deferred: bool = False) -> Generator[None]:
    """Make a script's random numbers reproducible, also those of a torch imported later.

    Seeds that the script sets take precedence. NumPy's generators, which take as long to import as
    the rest of NumPy, are seeded only when imported.

    deferred: draw large torch tensors on first access
    """
    start = zlib.crc32(f"script {seed}".encode())
    with ExitStack() as stack:

        def seed_torch(module: ModuleType) -> None:
            module.default_generator.manual_seed(start)
            if deferred:
                from tilelet.runtime.torch_scripts.deferred import Deferring

                stack.enter_context(Deferring())

        stack.enter_context(seeded_generators(start, numpy="numpy.random" in sys.modules))
        finder = _Finder({"torch": seed_torch, "numpy.random": lambda module: module.seed(start)})
        sys.meta_path.insert(0, finder)
        stack.callback(sys.meta_path.remove, finder)
        torch = loaded_torch()
        if torch:
            seed_torch(torch)
        yield


class _Finder:
    """Import hook that seeds torch and NumPy's generators when they are imported."""

    def __init__(self, actions: Mapping[str, Callable[[Any], object]]) -> None:
        self._actions = actions

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._actions:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Any", _Loader(spec.loader, self._actions[fullname]))
        return spec


class _Loader:
    """Loads a module, then calls a function with it."""

    def __init__(self, loader: Any, then: Callable[[Any], object]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        with no_garbage(again=True):
            self._loader.exec_module(module)
        self._then(module)
