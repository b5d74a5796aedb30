"""Imports without Python's collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def no_garbage(*, again: bool = False) -> Generator[None]:
    """For imports: all that they make stays. To look for garbage among it, then and in all later
    collections, takes a tenth of a short run, and a fifth of an import of torch.

    again  although it was done before: real garbage of a process that goes on would stay as well
    """
    pause = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if again or not gc.get_freeze_count():
            gc.freeze()
        if pause:
            gc.enable()
