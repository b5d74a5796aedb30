"""Folders and files that only this user can have written: all that a cache may trust.

A folder is trusted if it is this user's own, nobody else may write to it, and nobody else can put
another one in its place: its parents belong to this user or to the system. Nothing is repaired, for
what others could write to once may hold anything since then. A file is opened once, and what is
checked and used is what is behind that descriptor.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import hmac
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

KEY = "key"  # a file of a trusted folder: the secret that its digests are made with
_KEY_BYTES = 32
_MAX_LINKS = 40  # symbolic links in one path, as Linux has it
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(OSError):
    """Somebody else could have written this; the text says what it is and why."""


def make_folder(path: Path) -> Path:
    """A trusted folder, made if it is not there; `NotPrivateError` or `OSError` if it cannot be."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links unchecked
    missing: list[Path] = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        _check_parents(folder)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        path = folder
    check_folder(path)
    return path


def check_folder(path: Path) -> None:
    """`NotPrivateError` if `path`, which must be absolute, is no trusted folder."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise NotPrivateError(f"`{path}` is {what}")
    _check_own(found, str(path))
    _check_parents(path)


def open_folder(path: Path) -> int:
    """The descriptor of a folder in a trusted one."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_own(os.fstat(fd), str(path))
    except NotPrivateError:
        os.close(fd)
        raise
    return fd


def open_file(path: str | Path, folder: int | None = None) -> int:
    """The descriptor of a regular file of this user's own, in the open `folder` if one is given."""
    # Not blocking: somebody may have put a pipe there, which nobody ever writes to.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=folder)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivateError(f"`{path}` is no file")
        _check_own(found, str(path))
    except NotPrivateError:
        os.close(fd)
        raise
    return fd


def contents(fd: int) -> bytes:
    """All bytes of an open file, wherever its position is."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return file.read()


def key_of(folder: Path) -> bytes:
    """The secret of a trusted folder, made if it has none; `OSError` if it cannot be."""
    path = folder / KEY
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError):
            fd = open_file(path)
            try:
                found = contents(fd)
            finally:
                os.close(fd)
            if len(found) == _KEY_BYTES:
                return found
            path.unlink(missing_ok=True)  # half of one, by a process that was killed
        _make_key(path)
    raise NotPrivateError(f"`{path}` cannot be made")


def _make_key(path: Path) -> None:
    draft = path.with_name(f"{KEY}-{os.urandom(8).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass  # another process was faster
        except OSError:  # a file system without hard links
            draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


def digest(key: bytes, parts: Iterable[bytes | memoryview]) -> str:
    """A digest of the parts that nobody can make who does not know the key."""
    sums = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hmac.new(key, sums, hashlib.sha256).hexdigest()


def _check_own(found: os.stat_result, what: str) -> None:
    if not hasattr(os, "getuid"):
        return
    if found.st_uid != os.getuid():
        raise NotPrivateError(f"`{what}` belongs to another user")
    _check_mode(found, what)


def _check_mode(found: os.stat_result, what: str) -> None:
    if found.st_mode & _OTHERS_WRITE and not _is_for_one(found):
        raise NotPrivateError(f"others may write to `{what}`")


def _check_parents(path: Path, links: int = 0) -> None:
    """Whoever may rename one of the folders above `path` may replace all that is in it."""
    if not hasattr(os, "getuid"):
        return
    # In a container the system's files may belong to a number that is not 0 here.
    trusted = {0, os.getuid(), Path("/").stat().st_uid}
    for folder in reversed(path.parents):
        found = folder.lstat()
        if found.st_uid not in trusted:
            raise NotPrivateError(f"`{folder}` belongs to another user")
        if stat.S_ISLNK(found.st_mode):
            if links == _MAX_LINKS:
                raise NotPrivateError(f"`{folder}` is a symbolic link without end")
            target = Path(os.path.abspath(folder.parent / folder.readlink()))  # noqa: PTH100
            _check_parents(target / "inside", links + 1)
        elif not found.st_mode & stat.S_ISVTX:
            _check_mode(found, str(folder))


def _is_for_one(found: os.stat_result) -> bool:
    """Whether the group that may write is this user's own, of which nobody else is a member."""
    if found.st_mode & stat.S_IWOTH:
        return False
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    is_own = user.pw_gid == group.gr_gid and user.pw_name == group.gr_name
    return is_own and set(group.gr_mem) <= {user.pw_name}
