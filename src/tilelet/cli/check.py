"""`tilelet check`: the verdict on every program that a script runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilelet.checks.registry import chosen_checks
from tilelet.checks.verdict import MAX_TASKS, Shared, Subject, Verdict, verdict_on
from tilelet.cli.commands.write import CheckCommand
from tilelet.cli.messages import print_findings, print_text
from tilelet.cli.page import wants_page, write_page
from tilelet.cli.portable import nearest_release, print_places
from tilelet.cli.profile import machines_for, period_of, show_failure
from tilelet.cli.recording import record
from tilelet.diag.catalogue.command import BadFlag
from tilelet.diag.core import Diagnostic
from tilelet.diag.formats import to_data
from tilelet.diag.sarif import to_sarif
from tilelet.diag.text import escape_controls
from tilelet.ranks.schedules import Schedules
from tilelet.runtime.handlers.base import Explore, RanksRun
from tilelet.runtime.progress import progress
from tilelet.scripts import exit_codes


def check_command(options: CheckCommand) -> int:
    """Run the requested checks; return 1 if there are findings."""
    from tilelet.report.document import check_document

    checks = chosen_checks(options.only)
    machines = machines_for(options)
    verdicts: list[Verdict] = []
    subjects: list[Subject] = []
    schedules: list[Schedules] = []
    cores = machines[0].cores
    clusters = options.clusters or cores.clusters
    on = clusters, clusters * cores.vectors_per_cluster
    explore = ranks_explorer(schedules, options.replay, on)
    recording = record(
        options.target, options, options.platform, MAX_TASKS, keep_arguments=True, explore=explore
    )
    for run in recording.runs:
        shared = Shared()
        for machine in machines:
            period = period_of(machine, options.period, machines)
            subject = Subject(
                run,
                run.arguments,
                machine,
                period,
                run.comparison,
                options.budget,
                options.seed,
                shared=shared,
            )
            with progress(f"checking {run.name} on {machine.name}"):
                verdicts.append(verdict_on(subject, checks))
            subjects.append(subject)
    if recording.code and not recording.runs and all(found.ok for found in schedules):
        return show_failure(recording, options)
    for flag, is_given in (("replay", options.replay is not None), ("clusters", options.clusters)):
        if is_given and not schedules:
            raise BadFlag(
                f"`--{flag}` is for programs of several ranks; `{options.target.name}` has one"
            )
    if wants_page(options):
        checked = [(s.device_run, v.to_data()) for s, v in zip(subjects, verdicts)]
        write_page(options, options.target.name, lambda: check_document(checked))
    found = [*_diagnostics(verdicts), *(d for s in schedules for d in s.diagnostics)]
    dialect, foreign = None, list[Diagnostic]()
    if recording.session.imports_pypto and not options.only:
        dialect, foreign = nearest_release(recording)
        found += foreign
    if options.format == "json":
        document = to_data([*recording.diagnostics, *found])
        document["verdicts"] = [verdict.to_data() for verdict in verdicts]
        if schedules:
            document["schedules"] = [s.to_data() for s in schedules]
        print(json.dumps(document, indent=2, ensure_ascii=False))
    elif options.format == "sarif":
        print(to_sarif([*recording.diagnostics, *found], script=options.target.name))
    else:
        print_findings(found)
        for subject, verdict in zip(subjects, verdicts):
            if options.memory:
                _show_memory(subject)
            print_text(escape_controls("\n".join(verdict.lines())))
        for explored in schedules:
            print_text(escape_controls(explored.line()))
        if foreign and dialect:
            print_places(options.target.name, dialect, foreign)
    refused = any(d.severity == "error" for d in foreign)
    is_ok = not refused and all(v.ok for v in (*verdicts, *schedules))
    return exit_codes.of_findings(not is_ok, recording.code)


def ranks_explorer(
    schedules: list[Schedules], replay: str | None, cores: tuple[int, int]
) -> Explore:
    """Return a handler that explores programs of several ranks, or replays a seed.

    cores  clusters and vector lanes of each rank
    """

    def explore(run: RanksRun) -> bool:
        from tilelet.ranks.explore import Explorer
        from tilelet.runtime.programs.engines import runs_natively

        explorer = Explorer(
            run.name,
            run.program,
            run.arguments,
            run.config,
            cores=cores,
            kept=run.kept,
            is_native=runs_natively(run.program),
        )
        with progress(f"exploring the schedules of {run.name}"):
            found = explorer.explore() if replay is None else explorer.replayed(replay)
        schedules.append(found)
        return found.can_run

    return explore


def _diagnostics(verdicts: Sequence[Verdict]) -> list[Diagnostic]:
    return list(dict.fromkeys(d for verdict in verdicts for d in verdict.diagnostics))


def _show_memory(subject: Subject) -> None:
    from tilelet.device.memory.report import budget_table, memory_map_parts, memory_table
    from tilelet.diag.tables import show

    run = subject.device_run
    show([*memory_map_parts(run.plans), memory_table(run.plans), budget_table(run.kernels)])
