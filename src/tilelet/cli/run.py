"""`tilelet run` and `tilelet tasks`: a script under Tilelet's session, and its exit code."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Generator

from tilelet.checks.registry import unchecked_line
from tilelet.cli.messages import print_findings
from tilelet.cli.options import RunOptions
from tilelet.diag.catalogue.command import UnknownEngine
from tilelet.diag.formats import to_data
from tilelet.diag.render import render_line, use_color
from tilelet.diag.sarif import to_sarif
from tilelet.runtime import session
from tilelet.runtime.handlers.count import Count
from tilelet.runtime.handlers.execute import Execute
from tilelet.runtime.output.run_directory import build_root
from tilelet.runtime.programs import engines
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.script import ScriptExit
from tilelet.scripts.stand_ins import stand_ins


def run_command(options: RunOptions) -> int:
    """Run the script; 0 pass, 1 mismatch, 2 usage, 3 could not run, else the script's own code."""
    counts = options.name == "tasks"
    rank = 0
    if options.ranks == "mpi":
        from tilelet.ranks.launch import end_rank, start_rank

        rank = start_rank()
        exit_codes.ON_EXIT.append(end_rank)
    build_dir = options.build_dir
    if rank:
        build_dir = (build_dir or build_root()) / f"rank{rank}"
    now = Session(
        Count(options.as_runtime) if counts else Execute(options.checks),
        dump_passes=options.dump_passes,
        build_dir=build_dir,
        over_mpi=options.ranks == "mpi",
        seed=options.seed,
        platform=options.platform,  # for scripts that do not pass it on
        quiet_diagnostics=options.format != "text",
        engine=options.engine,
        keep_c=options.keep_c or options.keep_plan or options.keep_c_in is not None,
        keep_c_in=options.keep_c_in,
        keep_plan=options.keep_plan,
        seed_valid=options.seed_valid,
        save_data=options.save_data,
        strict=options.strict,
    )
    now.golden_cache = now.golden_cache and not options.no_golden_cache
    if not counts and now.chosen_engine not in (None, *engines.engine_names()):
        raise UnknownEngine(now.chosen_engine or "", engines.engine_names())
    stdout = sys.stdout
    with (
        session.active(now),
        _output_apart(options.format),
        stand_ins(options.pypto, options.golden, now),
    ):
        outcome = options.target.run(now)
        now.diagnostics += outcome.errors
        if options.format == "text":
            print_problems(outcome, now)
            unchecked = unchecked_line(now.unchecked)
            if unchecked:
                now.say_once(f"note: {unchecked}")
    if options.format == "json":
        print(_json(now), file=stdout)
    elif options.format == "sarif":
        print(to_sarif(now.diagnostics, script=options.target.name), file=stdout)
    return exit_codes.of_script(outcome, now)


@contextlib.contextmanager
def _output_apart(style: str) -> Generator[None]:
    """Reserve stdout for the document in machine formats: redirect other output to stderr."""
    if style == "text":
        yield
    else:
        with contextlib.redirect_stdout(sys.stderr):
            yield


def print_problems(outcome: ScriptExit, now: Session) -> None:
    """Print the problems that the script has not shown itself."""
    for result in now.results:
        if not result.passed and not result.error_was_read:
            print(result.error, file=sys.stderr)
    if outcome.traceback:
        print(outcome.traceback, file=sys.stderr)
    if outcome.bug:
        print(outcome.bug, file=sys.stderr)
    if outcome.errors and outcome.traceback:
        print(render_line(outcome.errors[0], use_color(sys.stderr)), file=sys.stderr)
    else:
        print_findings(outcome.errors, outcome.truncated)


def _json(now: Session) -> str:
    """The document of diagnostics, with results and task counts added to it."""
    document = to_data(now.diagnostics)
    document["results"] = [
        {
            "name": result.test_name,
            "passed": result.passed,
            "validated": result.validated,
            "seconds": result.execution_time,
            "where": [where.to_data() for where in result.where],
            "divergence": result.answer.to_data()["divergence"] if result.answer else None,
        }
        for result in now.results
    ]
    document["tasks"] = [
        {
            "program": table.program,
            "total": table.total,
            "kernels": table.tasks,
            **({"blocks": table.blocks} if table.blocks else {}),
        }
        for table in now.task_tables
    ]
    if now.verdicts:
        document["verdicts"] = [verdict.to_data() for verdict in now.verdicts]
    if now.profiles:
        document["profiles"] = [profile.to_data() for profile in now.profiles]
    return json.dumps(document, indent=2, ensure_ascii=False)
