"""User-facing diagnostics: source locations, messages, and their three renderings.

The mistakes are in `tilelet.diag.catalogue`, one class each.
"""

from tilelet.diag.core import (
    UNKNOWN,
    Caution,
    Diagnostic,
    Label,
    Loc,
    Sink,
    TooManyErrors,
    UserError,
    UserErrors,
)
from tilelet.diag.formats import to_json
from tilelet.diag.render import render_all, render_line, render_text, use_color
from tilelet.diag.sarif import to_sarif
from tilelet.diag.text import near

__all__ = [
    "UNKNOWN",
    "Caution",
    "Diagnostic",
    "Label",
    "Loc",
    "Sink",
    "TooManyErrors",
    "UserError",
    "UserErrors",
    "near",
    "render_all",
    "render_line",
    "render_text",
    "to_json",
    "to_sarif",
    "use_color",
]
