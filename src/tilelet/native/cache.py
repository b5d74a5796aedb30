"""Cache of compiled programs: verified, atomic, and limited in size.

An entry is a folder `cpu/<key>` that appears by one rename, so readers and other writers see all of
it or nothing. Its file `seal` holds a digest of its name and of every file in it, made with a
secret that only this user can read; an entry that does not agree with it, or that somebody else
could have written, is discarded and rebuilt.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hmac
import itertools
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TypeVar

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.core import UserError
from tilelet.native import private

SEAL = "seal"
DRAFT = "new-"
ABANDONED = 3600.0  # seconds after which a draft is considered abandoned
TRIM_EVERY = 300.0  # seconds between two scans of all entries
STAMP = "trimmed"  # a file whose time is that of the last scan
IN_USE = 60.0  # seconds after its last use in which an entry is not removed
DEFAULT_CAP = 1 << 30
BUILD_BYTES = 16 << 20  # bytes of disk that suffice for any build
_DESCRIPTORS = Path("/proc/self/fd")
Build = Callable[[Path], None]
T = TypeVar("T")


class UnusableError(Exception):
    """An entry is intact but unusable; the text says why."""


@dataclass(frozen=True)
class Entry:
    """Verified files, each by its open descriptor."""

    files: Mapping[str, int]

    def copy(self, suffix: str, folder: Path) -> list[Path]:
        """Copy the files with a suffix."""
        return [
            _copy(fd, folder / name) for name, fd in self.files.items() if name.endswith(suffix)
        ]

    def load(self, name: str, *needed: str, lasting: bool = False) -> ctypes.CDLL:
        """Load a shared library with the `needed` functions; raise `UnusableError` if it fails.

        `lasting`: its path stays valid for the life of this process, for debuggers.
        """
        if name not in self.files:
            raise UnusableError(f"there is no {name}")
        fd = self.files[name]
        if _DESCRIPTORS.exists() and not lasting:
            path = _unique_path(fd)
        else:
            path = str(_copy(fd, _lasting_folder() / name))
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise UnusableError(str(error)) from None
        missing = [function for function in needed if not hasattr(library, function)]
        if missing:
            raise UnusableError(f"{name} has no `{missing[0]}`")
        return library


def _copy(fd: int, target: Path) -> Path:
    target.write_bytes(private.contents(fd))
    return target


def _lasting_folder() -> Path:
    """Return a folder that is removed when this process ends."""
    folder = _new_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_loads = itertools.count()


def _unique_path(fd: int) -> str:
    """Return a path of an open file that was never used before.

    The loader identifies libraries by path, and descriptor numbers are reused, so the path encodes
    a serial number by redundant components.
    """
    steps = "".join("/." if bit == "1" else "/" for bit in f"{next(_loads):b}")
    return f"/proc/self{steps}/fd/{fd}"


def user_folder() -> Path:
    """Return the cache root: `TILELET_CACHE_DIR`, else `tilelet` in the user's cache folder."""
    chosen = os.environ.get("TILELET_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilelet"


def is_off() -> bool:
    return os.environ.get("TILELET_NO_CACHE", "0") not in ("", "0")


def open_root() -> Path:
    """Return the folder of compiled programs; raise `OSError` without a private folder."""
    try:
        return private.make_folder(user_folder() / "cpu")
    except (RuntimeError, ValueError) as error:  # a user without a home; a path with a null byte
        raise NotADirectoryError(str(error)) from None


def cache_root() -> Path | None:
    """Return the folder of compiled programs; None if caching is off or not possible."""
    try:
        return None if is_off() else open_root()
    except OSError:
        return None


def size_cap() -> int:
    """Return the size limit of all entries in bytes (`TILELET_CACHE_MB`)."""
    text = os.environ.get("TILELET_CACHE_MB", "")
    if not (text.isascii() and text.isdecimal()):
        return DEFAULT_CAP
    return int(text) << 20 if len(text) < 12 else sys.maxsize


def has(key: str) -> bool:
    """Whether there is an entry, which may be damaged."""
    root = cache_root()
    return root is not None and (root / key).is_dir()


def use(key: str, build: Build, take: Callable[[Entry], T]) -> T:
    """Return `take(files)` of cached files, or of files that `build` creates.

    Cached files that `take` finds unusable are rebuilt. Without a usable cache, files are built in
    a temporary folder, which is removed afterwards.
    """
    root = cache_root()
    if root is not None:
        try:
            with _sound(root, key) as found:
                if found is not None:
                    with contextlib.suppress(OSError):
                        os.utime(root / key)
                    return take(found)
        except UnusableError:
            _remove(root / key)
        if _build_into(root, root / key, build):
            with _sound(root, key) as made:
                if made is not None:
                    return take(made)
    with _temporary() as folder, _open_files(_build_in(folder, build)) as made:
        return take(made)


@contextlib.contextmanager
def _temporary() -> Generator[Path]:
    """Create a temporary folder."""
    folder = _new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    """Create a temporary folder; raise `CannotWrite` if that is impossible."""
    try:
        return Path(tempfile.mkdtemp(prefix="tilelet-"))
    except OSError as error:
        raise CannotWrite("a temporary folder", error.strerror or str(error)) from None


def _build_in(folder: Path, build: Build) -> Path:
    try:
        build(folder)
        _close_to_others(folder)
    except OSError as error:
        raise CannotWrite.of(error, str(folder)) from None
    return folder


def _build_into(root: Path, place: Path, build: Build) -> bool:
    """Build a new entry, replacing an old one; return False on a disk error."""
    try:
        key = private.key_of(root)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=root))
    except OSError:
        return False
    try:
        build(draft)
        _close_to_others(draft)
        _seal(draft, key, place.name)
        made = _move(draft, place)
        _trim(root, keep=place)
        return made
    except OSError:
        return False
    except UserError:
        if shutil.disk_usage(root).free < BUILD_BYTES:
            return False  # the cause of the compiler's failure
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, place: Path) -> bool:
    """Publish the draft, unless another process was faster."""
    for _ in range(3):
        with contextlib.suppress(OSError):
            draft.rename(place)
            return True
        with _sound(place.parent, place.name) as found:
            if found is not None:
                return True
        _remove(place)  # a damaged entry, or one that is just being removed
    return False


def _remove(place: Path) -> None:
    """Remove an entry, or whatever is in its place."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            place.unlink()


@contextlib.contextmanager
def _open_files(folder: Path) -> Generator[Entry]:
    """Open the files of a folder; raise `NotPrivateError` if others could have written one."""
    with contextlib.ExitStack() as stack:
        fd = private.open_folder(folder)
        stack.callback(os.close, fd)
        files: dict[str, int] = {}
        for name in sorted(os.listdir(fd)):  # noqa: PTH208 - of what was opened
            files[name] = private.open_file(name, fd)
            stack.callback(os.close, files[name])
        yield Entry(files)


def _digest(entry: Entry, key: bytes, name: str) -> str:
    parts = [name.encode()]
    for file, fd in entry.files.items():
        if file != SEAL:
            parts += [file.encode(), private.contents(fd)]
    return private.digest(key, parts)


def _close_to_others(folder: Path) -> None:
    """Make files private: compilers use the umask, which may let others write."""
    for path in folder.iterdir():
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))


def _seal(folder: Path, key: bytes, name: str) -> None:
    with _open_files(folder) as entry:
        text = _digest(entry, key, name)
    (folder / SEAL).write_text(text, encoding="ascii")
    (folder / SEAL).chmod(0o600)


@contextlib.contextmanager
def _sound(root: Path, name: str) -> Generator[Entry | None]:
    """Return an unmodified entry, or None."""
    with contextlib.ExitStack() as stack:
        try:
            entry = stack.enter_context(_open_files(root / name))
            known = private.contents(entry.files[SEAL])
            found = _digest(entry, private.key_of(root), name).encode()
        except (OSError, KeyError):
            yield None
            return
        yield entry if hmac.compare_digest(known, found) else None


def _trim(root: Path, keep: Path) -> None:
    """Remove the least recently used entries until the rest is below the limit."""
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
