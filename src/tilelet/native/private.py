"""Private folders and files, which only this user can have written.

A folder is trusted if it is this user's own, nobody else may write to it, and nobody else can put
another one in its place: its parents belong to this user or to the system. Permissions are not
repaired, because the contents may have been changed before. A file is opened once, then checked and
used by its descriptor.
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

KEY = "key"  # the file with the secret key of a trusted folder
_KEY_BYTES = 32
_MAX_LINKS = 40  # maximum number of symbolic links in a path, as in Linux
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(OSError):
    """Another user could have written a file; the text says which and why."""


def make_folder(path: Path) -> Path:
    """Return a trusted folder, created if needed; raise `NotPrivateError` or `OSError`."""
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
    """Raise `NotPrivateError` if the absolute `path` is not a trusted folder."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise NotPrivateError(f"`{path}` is {what}")
    _check_own(found, str(path))
    _check_parents(path)


def open_folder(path: Path) -> int:
    """Open a folder inside a trusted one."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_own(os.fstat(fd), str(path))
    except NotPrivateError:
        os.close(fd)
        raise
    return fd


def open_file(path: str | Path, folder: int | None = None) -> int:
    """Open a regular file of this user, in the open `folder` if given."""
    # Non-blocking, because it may be a pipe without a writer.
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
    """Return all bytes of an open file, regardless of its position."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return file.read()


def key_of(folder: Path) -> bytes:
    """Return the secret key of a trusted folder, creating it if needed."""
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
            path.unlink(missing_ok=True)  # incomplete, by a process that was killed
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
    """Return a keyed digest of the parts."""
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
    """Check all parents: whoever can rename one of them can replace `path`."""
    if not hasattr(os, "getuid"):
        return
    # In a container the system's files may belong to a user id other than 0.
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
    """Whether the group with write access is this user's own, without other members."""
    if found.st_mode & stat.S_IWOTH:
        return False
    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    is_own = user.pw_gid == group.gr_gid and user.pw_name == group.gr_name
    return is_own and set(group.gr_mem) <= {user.pw_name}
