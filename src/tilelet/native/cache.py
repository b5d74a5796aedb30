"""Compiled programs on disk: found by their key, checked, replaced whole, kept below a size.

An entry is a folder `cpu/<key>` that appears by one rename, so readers and other writers see all of
it or nothing. Its file `sums` holds the hash of every file; an entry that does not agree with it is
thrown away and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.core import UserError

SUMS = "sums"
DRAFT = "new-"
ABANDONED = 3600.0  # seconds after which a draft is what a killed process has left
TRIM_EVERY = 300.0  # seconds between two looks at all entries, which may be thousands
STAMP = "trimmed"  # a file: when somebody looked last
IN_USE = 60.0  # seconds after its last use in which nobody takes an entry away
DEFAULT_CAP = 1 << 30
ROOM = 16 << 20  # bytes of disk that any build gets by with
Build = Callable[[Path], None]


def cache_root() -> Path | None:
    """The folder of compiled programs; None if caching is off or no private folder can be had."""
    if os.environ.get("TILELET_NO_CACHE", "0") not in ("", "0"):
        return None
    try:
        chosen = os.environ.get("TILELET_CACHE_DIR")
        root = (Path(chosen) if chosen else _user_cache() / "tilelet") / "cpu"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return root if _is_private(root) else None
    except (OSError, RuntimeError):  # the latter: nobody knows where this user's home is
        return None


def _user_cache() -> Path:
    chosen = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else Path.home() / ".cache"


def _is_private(folder: Path) -> bool:
    """Code that is loaded from here must be ours: nobody else may write to the folder."""
    found = folder.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return False
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)
    return True


def size_cap() -> int:
    """Bytes that all entries together may take (`TILELET_CACHE_MB`)."""
    text = os.environ.get("TILELET_CACHE_MB", "")
    return int(text) << 20 if text.isdecimal() else DEFAULT_CAP


@contextlib.contextmanager
def entry(key: str, build: Build) -> Iterator[Path]:
    """A folder with what `build` makes, from the cache if it is there.

    Without a usable cache it is a temporary folder, which is gone afterwards.
    """
    root = cache_root()
    if root is not None:
        found = root / key
        if _is_sound(found):
            with contextlib.suppress(OSError):
                os.utime(found)
            yield found
            return
        made = _build_into(root, found, build)
        if made is not None:
            yield made
            return
    with _temporary() as folder:
        yield _built(folder, build)


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    """A folder for now; `CannotWrite` if there is no place for one."""
    try:
        folder = tempfile.mkdtemp(prefix="tilelet-")
    except OSError as error:
        raise CannotWrite("a temporary folder", error.strerror or str(error)) from None
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _built(folder: Path, build: Build) -> Path:
    try:
        build(folder)
    except OSError as error:
        raise CannotWrite(str(error.filename or folder), error.strerror or str(error)) from None
    return folder


def _build_into(root: Path, place: Path, build: Build) -> Path | None:
    """Build a new entry; None if the disk does not take it."""
    try:
        draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=root))
    except OSError:
        return None
    try:
        build(draft)
        _write_sums(draft)
        made = _move(draft, place)
        _trim(root, keep=place)
        return made
    except OSError:
        return None
    except UserError:
        if shutil.disk_usage(root).free < ROOM:
            return None  # that is why the compiler failed
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, place: Path) -> Path | None:
    """Put the draft in its place, unless another process was faster."""
    for _ in range(3):
        with contextlib.suppress(OSError):
            draft.rename(place)
            return place
        if _is_sound(place):
            return place
        # A damaged entry, or one that is just being removed.
        shutil.rmtree(place, ignore_errors=True)
    return None


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name != SUMS)


def _sums(folder: Path) -> str:
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in _files(folder)]
    return "".join(lines)


def _write_sums(folder: Path) -> None:
    (folder / SUMS).write_text(_sums(folder), encoding="utf-8")


def _is_sound(folder: Path) -> bool:
    try:
        return bool(_files(folder)) and (folder / SUMS).read_text(encoding="utf-8") == _sums(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _trim(root: Path, keep: Path) -> None:
    """Remove the entries that were not used for longest until the rest is below the cap."""
    now, stamp = time.time(), root / STAMP
    try:
        if stamp.exists() and stamp.stat().st_mtime > now - TRIM_EVERY:
            return
        stamp.touch()
        folders = [p for p in root.iterdir() if p.is_dir() and p != keep]
        entries = [(p.stat().st_mtime, _size(p), p) for p in folders]
    except OSError:
        return
    drafts = [e for e in entries if e[2].name.startswith(DRAFT)]
    for used, _, path in drafts:
        if used < now - ABANDONED:
            shutil.rmtree(path, ignore_errors=True)
    entries = [e for e in entries if e not in drafts]
    left = sum(size for _, size, _ in entries) + _size(keep)
    for used, size, path in sorted(entries):
        if left <= size_cap() or used > now - IN_USE:
            return
        shutil.rmtree(path, ignore_errors=True)
        left -= size


def _size(folder: Path) -> int:
    try:
        return sum(p.stat().st_size for p in folder.iterdir())
    except OSError:
        return 0
