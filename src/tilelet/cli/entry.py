"""The `tilelet` command. While it is being imported, Ctrl-C is an end too, not a traceback."""

from __future__ import annotations

import sys


def main() -> int:
    """Import the command line and run it; the result is the exit code."""
    try:
        from tilelet.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
