"""`tilelet tune`: better tile sizes for a script, without editing it."""

from __future__ import annotations

from tilelet.cli.commands.speed import TuneCommand
from tilelet.cli.profile import machines_for, show_failure
from tilelet.cli.recording import record
from tilelet.diag.sarif import to_sarif
from tilelet.diag.tables import show
from tilelet.scripts import exit_codes
from tilelet.scripts.answers import document
from tilelet.tuning.evaluate import Question
from tilelet.tuning.tuner import Request, tune


def tune_command(options: TuneCommand) -> int:
    """Return 0 whether or not something better was found; 130 if the search was interrupted."""
    machines_for(options)  # report an unknown machine or period before running anything
    first = record(options.target, options, options.machines[0])
    if first.code:
        return show_failure(first, options)
    question = Question(
        options.target,
        options.machines,
        options.period,
        options.seed,
        options.pypto,
        options.golden,
    )
    candidates, seconds = options.budget
    outcome = tune(
        Request(
            question,
            vary=dict(options.vary),
            objective=options.objective,
            candidates=candidates,
            seconds=seconds,
            method=options.method,
            seed=options.search_seed,
            jobs=options.jobs,
            executor=options.executor,
            results=options.results,
            verify=options.verify,
        )
    )
    if options.format == "json":
        name, found = options.target.name, outcome.diagnostics()
        print(document("tune", name, options.machines, found, tuning=outcome.to_data()))
    elif options.format == "sarif":
        print(to_sarif(outcome.diagnostics(), script=options.target.name))
    else:
        show(outcome.parts())
    return exit_codes.INTERRUPTED if outcome.interrupted else exit_codes.PASSED
