"""Files that the user asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tilelet.diag.catalogue.command import CannotWrite


def write_text(path: Path, text: str, *, make_folder: bool = True) -> None:
    """Write a file, and its folder if `make_folder`; raise `CannotWrite` if that is impossible."""
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(str(path), error.strerror or str(error)) from error


def read_script(path: Path) -> str:
    """Return the text of a script in the encoding that it declares, as Python reads it."""
    return path.read_text(encoding=_encoding(path))


def rewrite_script(path: Path, text: str) -> None:
    """Replace a script, keeping its encoding, line ends and mode; raise `CannotWrite` on failure.

    The text is complete before it takes the place of the old one: a full disk costs the user
    nothing.
    """
    place = path.resolve()
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        newline = "\r\n" if b"\r\n" in place.read_bytes() else "\n"
        unfinished.write_text(text, encoding=_encoding(place), newline=newline)
        shutil.copymode(place, unfinished)
        unfinished.replace(place)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise CannotWrite(str(path), error.strerror or str(error)) from error


def _encoding(path: Path) -> str:
    import tokenize

    with path.open("rb") as file:
        return tokenize.detect_encoding(file.readline)[0]
