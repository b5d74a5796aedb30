"""Cache of verdicts without findings: an unchanged program is not checked again.

An entry's name is a hash over the program's text, the sizes and scalars it is called with, the
machine, and the code of the checks. Programs with data-dependent control flow are not cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilelet import __version__
from tilelet.dtypes import Arguments
from tilelet.ir.core import Program, walk
from tilelet.ir.types import ScalarType
from tilelet.native import cache, private

# Packages that verdicts depend on; they change between releases during development.
_DECIDING = ("analysis", "checks", "device", "tasks")
_MAX_ENTRIES = 10_000


def key_of(program: Program, arguments: Arguments, platform: str) -> str | None:
    """Return the name of the entry; None if array contents may change the verdict."""
    from tilelet.ir.printer import print_program

    if cache.is_off() or _data_decides(program):
        return None
    digest = hashlib.sha256(repr((__version__, platform, _stamp())).encode())
    digest.update(print_program(program).encode())
    for name, value in arguments.items():
        known: object = value
        if isinstance(value, np.ndarray) and value.shape:
            known = value.shape, str(value.dtype)
        digest.update(repr((name, known)).encode())
    return digest.hexdigest()


def find(key: str) -> dict[str, str] | None:
    """Return what an earlier verdict did not examine, by check; None if there is no earlier
    verdict.
    """
    with contextlib.suppress(OSError, ValueError):
        folder = _folder()
        fd = private.open_file(folder / key)
        try:
            seal, _, text = private.contents(fd).decode().partition("\n")
            return json.loads(text) if seal == _seal(folder, key, text) else None
        finally:
            os.close(fd)
    return None


def remember(key: str, unchecked: Mapping[str, str]) -> None:
    """Store a verdict; on a disk error the program is simply checked again."""
    text = json.dumps(dict(unchecked))
    with contextlib.suppress(OSError):
        folder = _folder()
        draft = folder / f"draft-{os.urandom(8).hex()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(f"{_seal(folder, key, text)}\n{text}")
            draft.rename(folder / key)
        finally:
            draft.unlink(missing_ok=True)
        _prune(folder)


def _folder() -> Path:
    try:
        return private.make_folder(cache.user_folder() / "checked")
    except (RuntimeError, ValueError) as error:  # no home directory; a path with a null byte
        raise NotADirectoryError(str(error)) from None


def _seal(folder: Path, key: str, text: str) -> str:
    return private.digest(private.key_of(folder), [key.encode(), text.encode()])


def _prune(folder: Path) -> None:
    entries = [path for path in folder.iterdir() if path.name != private.KEY]
    if len(entries) > _MAX_ENTRIES:
        for path in sorted(entries, key=lambda p: p.stat().st_mtime)[: len(entries) // 2]:
            path.unlink(missing_ok=True)


def _data_decides(program: Program) -> bool:
    """Whether a scalar is read from a tensor or tile, so that data may affect control flow."""
    return any(
        isinstance(result.type, ScalarType)
        and op.name != "tensor.dim"
        and not op.spec.structural
        and any(not isinstance(v.type, ScalarType) for v in op.operands)
        for function in program.functions.values()
        for op in walk(function.body)
        for result in op.results
    )


def _stamp() -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    package = Path(__file__).parents[2]
    for name in _DECIDING:
        for folder, _, files in os.walk(package / name):
            for file in sorted(files):
                if file.endswith((".py", ".c", ".h", ".toml")):
                    state = os.stat(os.path.join(folder, file))  # noqa: PTH116, PTH118 - many of them
                    found.append((file, state.st_mtime_ns, state.st_size))
    return found
