"""Output of rank processes: only the first prints, but each may report its failure."""

from __future__ import annotations

import os
import stat
import sys
import time

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None

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
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(_stderr, data) :]


def wait_until_read(seconds: float = 5.0) -> None:
    """Wait until the process manager has taken what was said: it drops the rest when it aborts."""
    end = time.monotonic() + seconds
    while unread_bytes() and time.monotonic() < end:
        time.sleep(1e-3)


def unread_bytes() -> int:
    """Return how many bytes wait in the pipe of stderr; 0 if it is no pipe."""
    if fcntl is None or termios is None or not stat.S_ISFIFO(os.fstat(_stderr).st_mode):
        return 0
    count = fcntl.ioctl(_stderr, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)
