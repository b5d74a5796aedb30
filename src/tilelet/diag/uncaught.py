"""Mistakes that nobody catches: the message and nothing around it, at a prompt and in a script.

It names the line and what to do; frames of the compiler around it would only hide that. Where
another `sys.excepthook` is in force it stays so. Notebooks ask the exception itself
(`UserError._render_traceback_`).
"""

from __future__ import annotations

import sys
from types import TracebackType

from tilelet.diag.core import UserError, UserErrors


def install() -> None:
    """Let Python show uncaught mistakes so."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, (UserError, UserErrors)):
        print(message_of(error), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


def message_of(error: UserError | UserErrors) -> str:
    """The message; if it names no line of a kernel, with the line that led to it."""
    from tilelet.diag.tracebacks import give_place

    if isinstance(error, UserError):
        give_place(error)
    return str(error)
