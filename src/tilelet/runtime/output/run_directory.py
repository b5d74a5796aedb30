"""The run directory: `build_output/<Program>_<YYYYMMDD_HHMMSS>/`, made when something is written.

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

from tilelet.runtime.data.array_files import save_array
from tilelet.runtime.data.arrays import Array

ROOT = "build_output"
_LONGEST_NAME = 120  # of what the user calls a thing, in the name of a file; most systems take 255


def build_root() -> Path:
    """The folder of all run directories: `TILELET_BUILD_DIR`, else `build_output` here."""
    chosen = os.environ.get("TILELET_BUILD_DIR") or os.environ.get("PYPTO_PROG_BUILD_DIR")
    return Path(chosen) if chosen else Path(ROOT)


class RunDirectory:
    """One run's directory. Nothing exists on disk before the first `path` call."""

    def __init__(self, program: str, root: Path | None = None, exact: Path | None = None) -> None:
        """`exact` is a directory the user chose; else a new one is made under `root`."""
        self._program = file_name(program) or "program"
        self._root = root
        self._path = exact

    @property
    def exists(self) -> bool:
        return self._path is not None and self._path.is_dir()

    def path(self, *parts: str) -> Path:
        """A path inside the directory; its parent exists afterwards."""
        if self._path is None:
            self._path = _unique(self._root or build_root(), self._program)
        self._path.mkdir(parents=True, exist_ok=True)
        inside = self._path.joinpath(*parts)
        inside.parent.mkdir(parents=True, exist_ok=True)
        return inside

    @property
    def root(self) -> Path:
        """The directory itself, made if need be."""
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
    """A directory of our own: two runs within one second must not share one."""
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
    """A name of the user's as one part of a path: never another folder, and not too long."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    plain = re.sub(r"^\.+", lambda dots: "_" * len(dots[0]), plain)
    if len(plain) <= _LONGEST_NAME:
        return plain
    rest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{plain[:_LONGEST_NAME]}-{rest}"
