"""Seeds of random generators: a script draws the same numbers in every run."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import random
import sys
import types
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilelet.runtime.arrays import loaded_torch

# Seeds that people choose are smaller; what torch draws for a process that chose none is not.
_LARGEST_CHOSEN = 1 << 53


def torch_seed() -> int:
    """What the script passed to `torch.manual_seed`; 0 if it did not, or without torch."""
    torch = loaded_torch()
    chosen = int(torch.initial_seed()) if torch else 0
    return chosen if chosen < _LARGEST_CHOSEN else 0


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Python's, NumPy's and torch's generators start from `seed`; restored afterwards."""
    torch = loaded_torch()
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch_state = (torch.initial_seed(), torch.get_rng_state()) if torch else None
    if torch:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch and torch_state:
            torch.default_generator.manual_seed(torch_state[0])
            torch.set_rng_state(torch_state[1])


@contextmanager
def repeatable(seed: int) -> Generator[None]:
    """A script's own draws repeat from run to run: also those of a torch that it has yet to import.

    What the script seeds itself counts, as everywhere.
    """
    start = zlib.crc32(f"script {seed}".encode())
    finder = _TorchFinder(start)
    with seeded(start):
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Lets Python find torch, and seeds it as soon as it is imported."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _SeedingLoader(spec.loader, self._seed)
        return spec


class _SeedingLoader(importlib.abc.Loader):
    def __init__(self, loader: Any, seed: int) -> None:
        self._loader = loader
        self._seed = seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        module.default_generator.manual_seed(self._seed)
