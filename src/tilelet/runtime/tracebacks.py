"""Tracebacks of the user's code, without Tilelet's own frames."""

from __future__ import annotations

import traceback
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


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
