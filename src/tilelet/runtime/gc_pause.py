"""Imports without garbage collection."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Generator


@contextlib.contextmanager
def no_garbage(*, again: bool = False) -> Generator[None]:
    """Disable garbage collection during imports: nothing allocated there is garbage.

    Collecting it would take a tenth of a short run and a fifth of an import of torch.

    again  freeze once more, although real garbage of a long-running process would stay as well
    """
    pause = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if again:
            gc.freeze()
        else:
            _freeze_once()
        if pause:
            gc.enable()


@functools.cache
def _freeze_once() -> None:
    """Freeze what the first imports allocated: counting frozen objects takes milliseconds."""
    gc.freeze()
