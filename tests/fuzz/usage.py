"""CPU time of a process and its descendants, independent of the machine's load."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_ASLEEP = "SIZ"  # states of threads that wait for an event, not for a core
# Fields of /proc/PID/stat behind the name of the command.
_STATE, _SESSION, _TIMES = 0, 3, slice(11, 15)  # utime, stime and those of reaped children


@dataclass(frozen=True)
class Usage:
    """cpu: seconds; is_asleep: every thread waits for an event."""

    cpu: float
    is_asleep: bool


def session_usage(session: int) -> Usage:
    """Usage of all processes of a session; wall time on systems without /proc."""
    if not _PROC.joinpath("self/stat").exists():
        return Usage(time.monotonic(), False)
    ticks, is_asleep = 0, True
    for process in _PROC.glob("[0-9]*"):
        for fields in _stats(process / "stat"):
            if int(fields[_SESSION]) != session:
                continue
            ticks += sum(map(int, fields[_TIMES]))
            threads = (fields for path in process.glob("task/*/stat") for fields in _stats(path))
            is_asleep &= all(fields[_STATE] in _ASLEEP for fields in threads)
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), is_asleep)


def _stats(path: Path) -> Iterator[list[str]]:
    """Yield the fields behind the command, or nothing if the process ended meanwhile."""
    try:
        text = path.read_text()
    except OSError:
        return
    yield text.rpartition(")")[2].split()
