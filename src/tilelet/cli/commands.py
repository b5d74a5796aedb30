"""The commands of `tilelet`, in the order of its help."""

from __future__ import annotations

from tilelet.cli.arguments import (
    advise,
    calibrate,
    device,
    diverge,
    export,
    generate,
    layer,
    maintain,
    page,
    run,
    tools,
    tune,
    verdict,
)

COMMANDS = {
    command.name: command
    for command in (
        run.RUN,
        run.TASKS,
        device.PROFILE,
        device.CHECK,
        diverge.DIVERGE,
        device.COMPARE,
        page.REPORT,
        page.VIEW,
        export.EXPORT,
        verdict.VERDICT,
        advise.ADVISE,
        tune.TUNE,
        generate.GENERATE,
        layer.LAYER,
        calibrate.CALIBRATE,
        tools.EXPLAIN,
        tools.EXAMPLES,
        tools.LIST,
        tools.DEMO,
        tools.DOCTOR,
        tools.BENCH,
        tools.COMPLETION,
        tools.VERSION,
        maintain.DOCS,
        maintain.WALKTHROUGH,
    )
}
