"""Write the program after every pass to a directory, as readable and re-parsable `pl` text."""

from __future__ import annotations

from pathlib import Path

from tilelet.diag.files import write_text
from tilelet.ir.core import Program


class PassDumper:
    """`passes_dump/`: `00_frontend.py`, then one numbered file per pass.

    The dumper itself is the `after` callback of `passes.pipeline.run_passes`.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._count = 0

    def frontend(self, program: Program) -> Path:
        """Write the program as the frontend built it."""
        self._count = 0
        return self._write("00_frontend.py", program)

    def __call__(self, pass_name: str, program: Program) -> Path:
        """Write the program as `pass_name` (`split_chunks`) left it."""
        self._count += 1
        camel = "".join(word.capitalize() for word in pass_name.split("_"))
        return self._write(f"{self._count:02d}_after_{camel}.py", program)

    def _write(self, name: str, program: Program) -> Path:
        path = self.directory / name
        write_text(path, program.as_python())
        return path
