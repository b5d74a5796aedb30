"""`tilelet verdict`: everything about a script in one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.advice.verdict import COULD_NOT_RUN, ScriptVerdict, Wanted, verdict_of
from tilelet.cli.commands.debug import VerdictCommand
from tilelet.cli.messages import print_findings
from tilelet.cli.profile import machines_for
from tilelet.diag.sarif import to_sarif
from tilelet.diag.tables import show
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import RecordingOptions

if TYPE_CHECKING:
    from tilelet.oracle.judgement import CandidateVerdict


def verdict_command(options: VerdictCommand) -> int:
    """Print the verdict; return 0 if right without findings, 1 if not, 3 if the script could not
    run.
    """
    if options.against is not None:
        return _against(options, options.against)
    found = verdict_of(
        options.target,
        Wanted(
            machines_for(options),
            options.period,
            RecordingOptions(
                platform=options.platform,
                seed=options.seed,
                build_dir=options.build_dir,
                pypto=options.pypto,
                golden=options.golden,
            ),
            options.strength,
        ),
    )
    return _answer(found, options, could_run=found.status != COULD_NOT_RUN)


def _against(options: VerdictCommand, reference: str) -> int:
    from tilelet.oracle.judgement import REFUSED, judge_candidate
    from tilelet.oracle.reference import load_reference

    against = load_reference(reference, seed=options.seed)
    found = judge_candidate(options.target.name, against, machines_for(options))
    return _answer(found, options, could_run=found.status != REFUSED)


def _answer(
    found: ScriptVerdict | CandidateVerdict, options: VerdictCommand, *, could_run: bool
) -> int:
    """Print the answer as the command line asks for it; return the exit code."""
    if options.format == "json":
        print(found.to_json())
    elif options.format == "sarif":
        print(to_sarif(found.diagnostics, script=options.target.name))
    else:
        print_findings(found.diagnostics)
        show(found.parts())
    return exit_codes.of_findings(not found.ok) if could_run else exit_codes.COULD_NOT_RUN
