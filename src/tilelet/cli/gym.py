"""`tilelet gym`: tasks, their references, and the scores of candidates."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tilelet.cli.commands.agents import GYM_ACTIONS, GymCommand
from tilelet.cli.examples import example_files
from tilelet.cli.pages import print_text, write_text
from tilelet.diag.catalogue.command import BadFlag, FileMissing
from tilelet.diag.table_html import parts_html
from tilelet.diag.tables import show
from tilelet.diag.text import did_you_mean, near, ticked
from tilelet.gym.score import Board, score_folder
from tilelet.gym.tasks import Task, tasks
from tilelet.scripts import exit_codes


def gym_command(options: GymCommand) -> int:
    """Run the gym; return 1 if a scored candidate is not right, else 0."""
    if options.action not in GYM_ACTIONS:
        actions = ticked(GYM_ACTIONS, "and")
        raise BadFlag(f"`tilelet gym` has no action `{options.action}`", [f"it has {actions}"])
    known = tasks(example_files()[0].parent)
    if options.action == "list":
        return _list(known, options)
    if not options.names:
        what = "a task" if options.action == "show" else "a folder"
        raise BadFlag(f"`tilelet gym {options.action}` needs {what}", [])
    if options.action == "show":
        for name in options.names:
            if name not in known:
                raise BadFlag(f"there is no task `{name}`", did_you_mean(near(name, known)))
            print_text(known[name].script)
        return exit_codes.PASSED
    return _score(known, options)


def _list(known: dict[str, Task], options: GymCommand) -> int:
    if options.format == "json":
        data = [{"name": t.name, "level": t.level, "about": t.about} for t in known.values()]
        print(json.dumps({"version": 1, "tasks": data}, indent=1))
        return exit_codes.PASSED
    width = max(map(len, known))
    lines = [f"{t.level}  {t.name:<{width}}  {t.about}" for t in known.values()]
    print_text("\n".join(lines))
    return exit_codes.PASSED


def _score(known: dict[str, Task], options: GymCommand) -> int:
    folders = [Path(name) for name in options.names]
    for folder in folders:
        if not folder.is_dir():
            raise FileMissing(str(folder), [])
    board = Board(
        {
            str(folder): score_folder(folder, known, jobs=options.jobs, executor=options.executor)
            for folder in folders
        }
    )
    if options.format == "json":
        print(board.to_json())
    else:
        show(board.parts())
        for name, scores in board.entries.items():
            wrong = [s for s in scores if s.status not in ("right", "not tried")]
            print_text("\n".join(f"{name}/{s.task}.py: {s.status}: {s.why}" for s in wrong))
    if options.html is not None:
        title = "<!doctype html><meta charset=utf-8><title>Leaderboard</title><h1>Leaderboard</h1>"
        write_text(options.html, title + parts_html(board.parts()))
    states = Counter(s.status for scores in board.entries.values() for s in scores)
    return exit_codes.of_findings(bool(states.keys() - {"right", "not tried"}))
