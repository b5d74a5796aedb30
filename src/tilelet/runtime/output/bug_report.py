"""Reports of bugs in Tilelet, with a file that reproduces them."""

from __future__ import annotations

import platform
import sys
import traceback

import numpy as np

from tilelet import __version__
from tilelet.diag.internal import InternalError
from tilelet.ir.core import Program
from tilelet.runtime.output.run_directory import RunDirectory


def bug_text(error: BaseException, program: object, directory: RunDirectory) -> str:
    """Return the message for a bug in Tilelet, and try to write `report/reproducer.txt`."""
    if isinstance(error, InternalError):
        message = str(error)
    else:
        summary = "".join(traceback.format_exception_only(error)).strip()
        message = str(InternalError(summary))
    try:
        path = write_reproducer(error, program, directory)
    except OSError:
        return f"{message}\n{_traceback(error)}"
    return f"{message}\nwhat is needed to reproduce it is in {path}"


def write_reproducer(error: BaseException, program: object, directory: RunDirectory) -> str:
    """Write `report/reproducer.txt`; return its path."""
    return str(directory.write_text(_reproducer(error, program), "report", "reproducer.txt"))


def _reproducer(error: BaseException, program: object) -> str:
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    parts = [
        f"Tilelet {__version__}, {versions}, {platform.system()} {platform.machine()}",
        f"command: {' '.join(sys.argv)}",
        _traceback(error),
        _program_text(program),
        *([error.details] if isinstance(error, InternalError) and error.details else []),
    ]
    return "\n\n".join(parts) + "\n"


def _program_text(program: object) -> str:
    if not isinstance(program, Program):
        return f"program: {program!r}"
    try:
        from tilelet.ir.printer import print_program

        return print_program(program)
    except Exception as error:  # the printer itself may be broken
        return f"program {program.name} (cannot be printed: {error!r})"


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
