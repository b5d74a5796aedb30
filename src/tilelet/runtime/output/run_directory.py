"""The run directory: `build_output/<Program>_<YYYYMMDD_HHMMSS>/`, created on first write.

passes_dump/   one readable file per pass       (--dump-passes)
data/in, out   arguments and golden outputs     (save_data)
report/        the comparison's report, reproducers of bugs in Tilelet
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

from tilelet.dtypes import Array
from tilelet.runtime.data.array_files import save_array

ROOT = "build_output"
_MAX_NAME = 120  # characters of a user's name in a file name; most systems allow 255


def build_root() -> Path:
    """Return the parent of all run directories: `TILELET_BUILD_DIR`, else `./build_output`."""
    chosen = os.environ.get("TILELET_BUILD_DIR") or os.environ.get("PYPTO_PROG_BUILD_DIR")
    return Path(chosen) if chosen else Path(ROOT)


class RunDirectory:
    """One run's directory. Nothing exists on disk before the first `path` call."""

    def __init__(self, program: str, root: Path | None = None, exact: Path | None = None) -> None:
        """`exact`: a directory chosen by the user; default: a new one under `root`."""
        self._program = file_name(program) or "program"
        self._root = root
        self._path = exact

    @property
    def exists(self) -> bool:
        return self._path is not None and self._path.is_dir()

    def path(self, *parts: str) -> Path:
        """Return a path inside the directory, creating its parent."""
        if self._path is None:
            self._path = _unique(self._root or build_root(), self._program)
        self._path.mkdir(parents=True, exist_ok=True)
        inside = self._path.joinpath(*parts)
        inside.parent.mkdir(parents=True, exist_ok=True)
        return inside

    @property
    def root(self) -> Path:
        """The directory itself, created if needed."""
        self.path()
        assert self._path is not None
        return self._path

    def save_array(self, group: str, name: str, array: Array) -> Path:
        """Store an argument under `data/in` or `data/out`."""
        return save_array(self.path("data", group, f"{file_name(name)}.npz"), array)

    def write_text(self, text: str, *parts: str) -> Path:
        target = self.path(*parts)
        target.write_text(text, encoding="utf-8")
        return target


def _unique(root: Path, program: str) -> Path:
    """Create a unique directory: two runs within one second must not share one."""
    stamp = time.strftime("%Y%m%d_%H%M%S")
    name = f"{program}_{stamp}"
    for attempt in range(1000):
        candidate = root / (name if attempt == 0 else f"{name}_{attempt}")
        try:
            candidate.mkdir(parents=True)
        except FileExistsError:
            continue
        return candidate
    raise FileExistsError(f"{root / name}: too many runs within one second")


def file_name(name: str) -> str:
    """Return a user's name as one path component without separators, of limited length."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    plain = re.sub(r"^\.+", lambda dots: "_" * len(dots[0]), plain)
    if len(plain) <= _MAX_NAME:
        return plain
    rest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{plain[:_MAX_NAME]}-{rest}"
