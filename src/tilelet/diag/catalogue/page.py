"""Reports of a run (E16xx)."""

from __future__ import annotations

from tilelet.diag.core import UserError


class NoRunDirectory(UserError):
    """The path given to `tilelet report` or `tilelet view` is not a run directory.

    `tilelet profile kernel.py` creates one under `build_output/`, or in `--build-dir DIR`, and
    prints its name. `tilelet view` also takes a script and profiles it first.
    """

    code = "E1601"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            f"`{path}` is not a run directory: {problem}",
            helps=["`tilelet profile kernel.py` creates one and prints its name"],
        )


class DamagedRun(UserError):
    """The data of a run directory cannot be read: another version of Tilelet wrote it, or part of
    it is missing.

    Profile the script again with this version. The HTML page that was written for the older run
    stays readable.
    """

    code = "E1602"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"cannot read {file}: {problem}",
            helps=["profile the script again: `tilelet profile kernel.py`"],
        )


class CannotServe(UserError):
    """`tilelet view` could not open a port on this machine.

    It listens on 127.0.0.1 only, on a port that the system chooses. If a sandbox forbids that,
    `tilelet report RUN_DIR` writes the same page as a file.
    """

    code = "E1603"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"cannot serve on 127.0.0.1: {problem}",
            helps=["`tilelet report RUN_DIR` writes the same page as a file"],
        )
