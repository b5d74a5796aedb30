"""Output of rank processes: only the first prints, but each may report its failure."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None

_stderr = 2  # where a rank reports its failure
MAX_DISCARDED = 1 << 16
"""Bytes of discarded errors that a failing rank reports; the last are the message."""


def silence() -> None:
    """Print nothing from now on, except by `say`; errors are kept for `discarded_errors`."""
    global _stderr  # noqa: PLW0603
    sys.stdout.flush()
    sys.stderr.flush()
    _stderr = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(_temporary_file(), 2)


def discarded_errors() -> str:
    """Return the end of what this process has written to stderr since `silence`."""
    sys.stderr.flush()
    if _stderr == 2:
        return ""
    size = os.fstat(2).st_size
    data = os.pread(2, MAX_DISCARDED, max(size - MAX_DISCARDED, 0))
    return data.decode(errors="replace").strip()


def _temporary_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


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
