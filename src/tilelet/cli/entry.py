"""The `tilelet` command. Ctrl-C while it is being imported ends it without a traceback."""

from __future__ import annotations

import sys


def main() -> int:
    """Import the command line and run it; return the exit code."""
    try:
        from tilelet.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
