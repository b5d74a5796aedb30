"""What a target runs, recorded; problems of the script are shown as `tilelet run` shows them."""

from __future__ import annotations

from tilelet.cli.options import DeviceOptions
from tilelet.cli.run import print_problems
from tilelet.scripts import recording
from tilelet.scripts.recording import Recording, RecordingOptions
from tilelet.scripts.target import Target


def record(
    target: Target,
    options: DeviceOptions,
    platform: str | None = None,
    *,
    tasks: bool = True,
) -> Recording:
    """Record `target` as the command line asks for it."""
    found = recording.record(
        target,
        RecordingOptions(
            platform=platform,
            execute=options.execute,
            tasks=tasks,
            seed=options.seed,
            build_dir=options.build_dir,
            quiet=options.format != "text",
            pypto=options.pypto,
            golden=options.golden,
        ),
    )
    if options.format == "text":
        print_problems(found.outcome, found.session, options, target)
    return found
