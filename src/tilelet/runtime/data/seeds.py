"""Seeds of random generators, which make runs of a script reproducible."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from tilelet.runtime.data.arrays import loaded_torch

# Seeds that people choose are smaller; the random seed of a torch process is larger.
_MAX_CHOSEN = 1 << 53


def torch_seed() -> int:
    """Return the seed passed to `torch.manual_seed`; 0 if none, or without torch."""
    torch = loaded_torch()
    chosen = int(torch.initial_seed()) if torch else 0
    return chosen if chosen < _MAX_CHOSEN else 0


@contextmanager
def seeded_generators(seed: int, *, numpy: bool = True) -> Generator[None]:
    """Seed the generators of Python, NumPy and torch, and restore them afterwards."""
    torch = loaded_torch()
    python_state = random.getstate()
    numpy_state = np.random.get_state() if numpy else None  # noqa: NPY002
    torch_state = (torch.initial_seed(), torch.get_rng_state()) if torch else None
    if torch:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy:
        np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy_state is not None:
            np.random.set_state(numpy_state)  # noqa: NPY002
        if torch and torch_state:
            torch.default_generator.manual_seed(torch_state[0])
            torch.set_rng_state(torch_state[1])
