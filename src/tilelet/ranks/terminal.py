"""Output of rank processes: only the first prints, but each may report its failure."""

from __future__ import annotations

import os
import sys

_stderr = 2  # where a rank reports its failure


def silence() -> None:
    """Discard what this process prints, except by `say`."""
    global _stderr  # noqa: PLW0603
    sys.stdout.flush()
    sys.stderr.flush()
    _stderr = os.dup(2)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


def say(text: str) -> None:
    """Write to the terminal from any rank."""
    os.write(_stderr, text.encode(errors="replace"))
