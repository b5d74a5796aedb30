"""Processes of MPI for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.limits import HUNG

BIN = Path(sys.executable).parent
MPIEXEC = shutil.which("mpiexec", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
needs_mpiexec = pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec")


def process_command(count: int, *arguments: str) -> list[str]:
    """Return the command that runs `tilelet` with these arguments in `count` processes."""
    assert MPIEXEC is not None
    return [MPIEXEC, "-n", str(count), sys.executable, "-m", "tilelet.cli", *arguments]


def run_processes(
    count: int, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `tilelet` with these arguments in `count` processes."""
    return subprocess.run(
        process_command(count, *arguments),
        check=False,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HUNG,
    )
