"""Running a script, or a program that ships with Tilelet, only to record its tasks."""

from __future__ import annotations

import sys

from tilelet.cli.options import DeviceOptions
from tilelet.cli.run import print_problems
from tilelet.runtime.handlers.base import Explore
from tilelet.scripts import recording
from tilelet.scripts.recording import Recording, RecordingOptions
from tilelet.scripts.target import Target


def record(
    target: Target,
    options: DeviceOptions,
    platform: str | None = None,
    most_tasks: int | None = None,
    keep_arguments: bool = False,
    explore: Explore | None = None,
) -> Recording:
    """Record `target` as the command line asks for it."""
    found = recording.record(
        target,
        RecordingOptions(
            platform=platform,
            execute=options.execute,
            seed=options.seed,
            build_dir=options.build_dir,
            quiet=options.format != "text",
            pypto=options.pypto,
            golden=options.golden,
            most_tasks=most_tasks,
            keep_arguments=keep_arguments,
        ),
        explore,
    )
    if options.format == "text":
        print_problems(found.outcome, found.session)
        if found.code and found.is_silent:
            print(f"note: the script ended with exit code {found.code}", file=sys.stderr)
    return found
