"""`tilelet gym`: tasks, their references, and the scores of candidates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilelet.cli.commands.agents import GYM_ACTIONS, GymCommand
from tilelet.cli.examples import example_files
from tilelet.cli.messages import print_text
from tilelet.diag.catalogue.command import BadFlag, FileMissing
from tilelet.diag.files import write_text
from tilelet.diag.table_html import parts_html
from tilelet.diag.tables import show
from tilelet.diag.text import did_you_mean, near, quoted_names
from tilelet.gym.improve import improve_all, improvement_table, median_ratio
from tilelet.gym.score import NAIVE, NOT_TRIED, Board, candidates, score_entry
from tilelet.gym.tasks import Task, tasks
from tilelet.scripts import exit_codes


def gym_command(options: GymCommand) -> int:
    """Run the gym; return 1 if a scored candidate is not right, else 0."""
    if options.action not in GYM_ACTIONS:
        actions = quoted_names(GYM_ACTIONS, "and")
        raise BadFlag(f"`tilelet gym` has no action `{options.action}`", [f"it has {actions}"])
    known = tasks(example_files()[0].parent)
    if options.action == "list":
        return _list(known, options)
    if not options.names:
        what = "a folder" if options.action != "show" else "a task"
        raise BadFlag(f"`tilelet gym {options.action}` needs {what}", [])
    if options.action == "show":
        return _show(_chosen_tasks(known, options.names), options)
    return _score(known, options) if options.action == "score" else _optimise(known, options)


def _chosen_tasks(known: dict[str, Task], names: Sequence[str]) -> list[Task]:
    for name in names:
        if name not in known:
            raise BadFlag(f"there is no task `{name}`", did_you_mean(near(name, known)))
    return [known[name] for name in names]


def _list(known: dict[str, Task], options: GymCommand) -> int:
    if options.format == "json":
        data = [{"name": t.name, "level": t.level, "about": t.about} for t in known.values()]
        print(json.dumps({"version": 1, "tasks": data}, indent=1))
        return exit_codes.PASSED
    width = max(map(len, known))
    lines = [f"{t.level}  {t.name:<{width}}  {t.about}" for t in known.values()]
    print_text("\n".join(lines))
    return exit_codes.PASSED


def _show(chosen: Sequence[Task], options: GymCommand) -> int:
    if options.format == "json":
        data = [
            {"name": t.name, "level": t.level, "about": t.about, "script": t.script} for t in chosen
        ]
        print(json.dumps({"version": 1, "tasks": data}, indent=1))
    else:
        for task in chosen:
            print_text(task.script)
    return exit_codes.PASSED


def _score(known: dict[str, Task], options: GymCommand) -> int:
    for name in options.names:
        if name == NAIVE or Path(name).is_dir():
            continue
        if not Path(name).exists():
            raise FileMissing(name, what="folder")
        helps = ["give a folder of kernels, named by their tasks: `my/softmax.py`"]
        raise BadFlag(f"`tilelet gym score`: `{name}` is not a folder", helps)
    board = Board(
        {
            name: score_entry(
                candidates(name, known), known, jobs=options.jobs, executor=options.executor
            )
            for name in options.names
        }
    )
    if options.format == "json":
        print(board.to_json())
    else:
        show(board.parts())
        for name, scores in board.entries.items():
            wrong = [s for s in scores if s.status not in ("right", NOT_TRIED)]
            print_text("\n".join(f"{name}/{s.task}.py: {s.status}: {s.why}" for s in wrong))
    if options.html is not None:
        title = "<!doctype html><meta charset=utf-8><title>Leaderboard</title><h1>Leaderboard</h1>"
        write_text(options.html, title + parts_html(board.parts(), max_rows=len(known)))
    if options.markdown is not None:
        write_text(options.markdown, board.markdown())
    states = Counter(s.status for scores in board.entries.values() for s in scores)
    return exit_codes.of_findings(bool(states.keys() - {"right", NOT_TRIED}))


def _optimise(known: dict[str, Task], options: GymCommand) -> int:
    """Optimise the naive kernels, and write the results to a folder."""
    folder, *names = options.names
    if Path(folder).exists() and not Path(folder).is_dir():
        helps = ["give a folder for the optimised kernels, then tasks"]
        raise BadFlag(f"`tilelet gym optimise`: `{folder}` is not a folder", helps)
    chosen = _chosen_tasks(known, names) if names else list(known.values())
    found = improve_all(chosen, jobs=options.jobs, executor=options.executor)
    for one in found:
        write_text(Path(folder) / f"{one.task}.py", one.text)
    if options.format == "json":
        data = {
            "version": 1,
            "median": round(median_ratio(found), 4),
            "tasks": [one.to_data() for one in found],
        }
        print(json.dumps(data, indent=1))
    else:
        show([improvement_table(found)])
    return exit_codes.PASSED
