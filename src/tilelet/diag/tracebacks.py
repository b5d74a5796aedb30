"""Tracebacks of the user's code, without Tilelet's own frames."""

from __future__ import annotations

import sysconfig
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType

from tilelet.diag.core import Label, Loc, UserError

_PACKAGE = Path(__file__).resolve().parent.parent
_PYTHON = Path(sysconfig.get_path("stdlib")).resolve()


def in_package(frame: traceback.FrameSummary) -> bool:
    """Whether a frame belongs to Tilelet; its model programs count as a user's."""
    path = Path(frame.filename).resolve()
    return path.is_relative_to(_PACKAGE) and not path.is_relative_to(_PACKAGE / "models")


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an exception that are not Tilelet's."""
    return [f for f in traceback.extract_tb(error.__traceback__) if not in_package(f)]


def user_traceback(error: BaseException) -> str:
    """What Python would print, reduced to the user's frames."""
    lines = traceback.format_list(user_frames(error)) + traceback.format_exception_only(error)
    return "".join(["Traceback (most recent call last):\n", *lines]).rstrip()


def give_place(error: UserError, frame: FrameType | None = None) -> None:
    """A message about no line of a kernel points at the line of the script that led to it.

    `frame`: where the search goes on outwards, if the exception itself has met no line of the user.
    """
    if error.diagnostic.labels:
        return
    frames = [f for f in user_frames(error) if _is_of_user(f)]
    if not frames and frame is not None:
        stack = traceback.extract_stack(frame)
        frames = [f for f in stack if not in_package(f) and _is_of_user(f)]
    if not frames:
        return
    at = frames[-1]
    line = at.lineno or 0
    col = getattr(at, "colno", None) or 0  # columns are known from Python 3.11 on
    end_line = getattr(at, "end_lineno", None) or line
    loc = Loc(at.filename, line, col, end_line, getattr(at, "end_colno", None) or 0)
    error.diagnostic = replace(error.diagnostic, labels=(Label(loc, "in this call"),))


def _is_of_user(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is code a user wrote.

    Not of Python's own library, and not made by `dataclasses` or the import system.
    """
    path = Path(frame.filename).resolve()
    is_python = path.is_relative_to(_PYTHON) and "site-packages" not in path.parts
    return bool(frame.line) and not is_python
