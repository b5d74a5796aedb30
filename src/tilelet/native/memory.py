"""Available memory."""

from __future__ import annotations

import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
# Files with limit, usage and statistics of the control group, versions 2 and 1.
_GROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
    ),
)


def available_memory() -> int | None:
    """Return the bytes that can be allocated without swapping; None if unknown.

    In a container, this is the rest of its limit: exceeding it kills the process.
    """
    known = [n for n in (_of_the_machine(), _of_the_group()) if n is not None]
    return min(known, default=None)


def _of_the_machine() -> int | None:
    found = _number_after(_read(Path("/proc/meminfo")), "MemAvailable:")
    if found is not None:
        return found * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _of_the_group() -> int | None:
    """Return the rest of the control group's limit; None without a limit."""
    for names in _GROUP_FILES:
        limit, used, statistics = (_read(_GROUPS / name).strip() for name in names)
        if limit.isdecimal() and used.isdecimal():
            # Inactive page cache counts as used, but can be reclaimed.
            cached = _number_after(statistics, "inactive_file") or 0
            return max(0, int(limit) - int(used) + cached)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _number_after(text: str, name: str) -> int | None:
    """Return the number after a name at the beginning of a line."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None
