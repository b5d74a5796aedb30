"""The page of a run (E16xx)."""

from __future__ import annotations

from tilelet.diag.core import UserError


class NoRunDirectory(UserError):
    """`tilelet report` and `tilelet view` were given something that is no run directory.

    `tilelet profile kernel.py` makes one under `build_output/` and prints its name; with
    `--build-dir DIR` it is made there. `tilelet view` takes a script, too, and profiles it first.
    """

    code = "E1601"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            f"`{path}` is no run directory: {problem}",
            helps=["`tilelet profile kernel.py` makes one, and prints where"],
        )


class DamagedRun(UserError):
    """The data of a run directory cannot be read: another version of Tilelet wrote it, or part of
    it is missing.

    Nothing is shown rather than something wrong. Profile the script again with this version; the
    page of an older run stays readable in the HTML file that was made then.
    """

    code = "E1602"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"cannot read {file}: {problem}",
            helps=["profile the script again: `tilelet profile kernel.py`"],
        )


class CannotServe(UserError):
    """`tilelet view` could not open a port on this machine.

    It serves on 127.0.0.1 only, on a port that the system chooses. Some sandboxes allow none:
    `tilelet report RUN_DIR` writes the same page as a file.
    """

    code = "E1603"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"cannot serve on 127.0.0.1: {problem}",
            helps=["`tilelet report RUN_DIR` writes the same page as a file"],
        )
