"""Imports without garbage collection."""

from __future__ import annotations

import contextlib
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
        if again or not gc.get_freeze_count():
            gc.freeze()
        if pause:
            gc.enable()
