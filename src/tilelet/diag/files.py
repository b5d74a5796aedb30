"""Files that the user asked for."""

from __future__ import annotations

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
