"""Print diagnostics on the terminal, or as a machine-readable document."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tilelet.diag.core import Diagnostic
from tilelet.diag.formats import to_json
from tilelet.diag.render import render_all, render_text, text_width, use_color
from tilelet.diag.sarif import to_sarif
from tilelet.diag.text import wrap_lines


def show_problems(found: Sequence[Diagnostic], style: str, script: str = "") -> None:
    """Print the errors of a command that failed on `script`."""
    if style == "json":
        print(to_json(found))
    elif style == "sarif":
        print(to_sarif(found, script=script))
    else:
        print_findings(found)


def print_text(text: str) -> None:
    """Print a text on stdout, wrapped to the terminal width."""
    print(wrap_lines(text, text_width(sys.stdout)) if sys.stdout.isatty() else text)


def print_findings(found: Sequence[Diagnostic], truncated: bool = False) -> None:
    """Print messages with their source, and their number if there are several."""
    color, width = use_color(sys.stderr), text_width(sys.stderr)
    if len(found) == 1:
        print(render_text(found[0], color, width=width), file=sys.stderr)
    elif found:
        print(render_all(found, color, width=width, truncated=truncated), file=sys.stderr)
