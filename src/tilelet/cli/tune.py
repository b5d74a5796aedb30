"""`tilelet tune`: better tile sizes for a script, without editing it."""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path

from tilelet.cli.messages import show_problems
from tilelet.cli.options import DeviceOptions, TuneOptions
from tilelet.cli.recording import record
from tilelet.diag.formats import to_json
from tilelet.diag.sarif import to_sarif
from tilelet.diag.tables import show
from tilelet.scripts import exit_codes
from tilelet.tune.evaluate import Question
from tilelet.tune.knobs import Setting
from tilelet.tune.tuner import Request, tune


def tune_command(options: TuneOptions) -> int:
    """0 whether or not something better was found; 130 if the search was interrupted."""
    _check_script(options)
    first = record(options.target, options, options.machines[0])
    if first.code:
        if options.format != "text":
            show_problems(first.diagnostics, options.format, options.target.name)
        return first.code
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
        document = json.loads(to_json([]))
        document["tuning"] = outcome.to_data()
        print(json.dumps(document, indent=1, ensure_ascii=False))
    elif options.format == "sarif":
        print(to_sarif(outcome.diagnostics(), script=options.target.name))
    else:
        show(outcome.parts())
    return exit_codes.INTERRUPTED if outcome.interrupted else exit_codes.PASSED


def _check_script(options: DeviceOptions) -> None:
    """The machines and the period must exist before anything is run."""
    from tilelet.device.machine.description import load_machine

    for name in options.machines:
        load_machine(name).period(options.period)


def variation(text: str) -> tuple[str, tuple[Setting, ...]]:
    """`K_CHUNK=128,256`, or only `K_CHUNK`: then the tuner chooses the values."""
    name, equals, values = text.partition("=")
    if not name or (equals and not values.strip(", ")):
        raise argparse.ArgumentTypeError(f"`{text}`: write NAME=VALUE,VALUE or only NAME")
    found: list[Setting] = []
    for value in filter(None, (v.strip() for v in values.split(","))):
        if re.fullmatch(r"\d{1,9}", value):
            found.append(int(value))
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", value):
            found.append(value)
        else:
            raise argparse.ArgumentTypeError(f"`{value}` is neither a number nor a name")
    return name, tuple(dict.fromkeys(found))


def budget(text: str) -> tuple[int, float]:
    """Candidates and seconds: `200`, `60s`, `5m`."""
    found = re.fullmatch(r"(\d{1,9})(s|m)?", text.strip())
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"`{text}`: write 200 (candidates), 60s or 5m")
    amount, unit = int(found[1]), found[2]
    if unit is None:
        return amount, math.inf
    return 10**9, float(amount * (60 if unit == "m" else 1))


def results_file(text: str) -> Path:
    from tilelet.cli.usage import new_file

    return new_file(text)
