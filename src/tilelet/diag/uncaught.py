"""Uncaught user errors: print only the message, at a prompt and in a script.

The message names the line and what to do; the compiler's frames would only hide it. An existing
`sys.excepthook` is kept. Notebooks use `UserError._render_traceback_`.
"""

from __future__ import annotations

import sys
from types import TracebackType

from tilelet.diag.core import UserError, UserErrors


def install() -> None:
    """Install the exception hook for uncaught user errors."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, (UserError, UserErrors)):
        print(message_of(error), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, traceback)


def message_of(error: UserError | UserErrors) -> str:
    """Return the message, with the script line that led to it if it names no kernel line."""
    from tilelet.diag.tracebacks import give_place

    if isinstance(error, UserError):
        give_place(error)
    return str(error)
