"""`tilelet lsp`: the language server on stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import sys

from tilelet.cli.commands.agents import LspCommand
from tilelet.cli.options import DEFAULT_MACHINE
from tilelet.device.machine.description import load_machine
from tilelet.diag.catalogue.command import MissingModule


def lsp_command(options: LspCommand) -> int:
    """Serve until the client disconnects."""
    try:
        from tilelet.lsp.server import make_server
    except ModuleNotFoundError as error:
        raise MissingModule(error.name or "pygls", "`tilelet lsp`", "lsp") from None
    server = make_server()
    server.analyzer.machine = load_machine(options.platform or DEFAULT_MACHINE)
    # The server closes its streams; what prints to stdout must not reach the client.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            server.start_io(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
        finally:
            server.stop()  # also if the client vanished without a shutdown request
    return 0
