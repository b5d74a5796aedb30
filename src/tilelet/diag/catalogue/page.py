"""Reports of a run (E16xx)."""

from __future__ import annotations

from tilelet.diag.core import UserError


class NoRunDirectory(UserError, code="E1601"):
    """The path given to `tilelet report` or `tilelet view` is not a run directory."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            f"`{path}` is not a run directory: {problem}",
            helps=["`tilelet profile kernel.py` creates one and prints its name"],
        )


class DamagedRun(UserError, code="E1602"):
    """The data of a run directory cannot be read: another version of Tilelet wrote it, or part of
    it is missing.
    """

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"cannot read {file}: {problem}",
            helps=["profile the script again: `tilelet profile kernel.py`"],
        )


class CannotServe(UserError, code="E1603"):
    """`tilelet view` could not open a port on this machine."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"cannot serve on 127.0.0.1: {problem}",
            helps=["`tilelet report RUN_DIR` writes the same page as a file"],
        )
