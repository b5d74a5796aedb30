"""`tilelet optimise`: search rewritings and tile sizes of a script together."""

from __future__ import annotations

import json
from pathlib import Path

from tilelet.cli.advise import advice_setting
from tilelet.cli.commands.speed import OptimiseCommand
from tilelet.cli.profile import machines_for, show_failure
from tilelet.cli.recording import record
from tilelet.diag.files import rewrite_script
from tilelet.diag.tables import show
from tilelet.optimise.search import optimise
from tilelet.scripts import exit_codes


def optimise_command(options: OptimiseCommand) -> int:
    """Search and print the result; return 0 whether or not something faster was found."""
    setting = advice_setting(machines_for(options), options)
    if not options.target.is_model:  # a shipped program has no script to rewrite
        first = record(options.target, options, options.platform)
        if first.code:
            return show_failure(first, options)
    found = optimise(
        options.target,
        setting,
        candidates=options.candidates,
        jobs=options.jobs,
        executor=options.executor,
        unproved=options.unproved,
    )
    if options.format == "json":
        print(json.dumps(found.to_data(), indent=1, ensure_ascii=False))
    else:
        show(found.parts())
    if options.in_place and found.text != found.original:
        rewrite_script(Path(options.target.name), found.text)
    return exit_codes.PASSED
