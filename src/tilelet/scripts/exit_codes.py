"""Exit codes of `tilelet`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilelet.diag.core import UserError

if TYPE_CHECKING:
    from tilelet.runtime.session import Session
    from tilelet.scripts.script import ScriptExit

PASSED = 0
FINDINGS = 1
"""A mismatch, a refusal by the machine, or an outdated page."""

WRONG_USAGE = 2
"""A usage error: an unknown option or an invalid value."""

COULD_NOT_RUN = 3
"""A valid request failed."""

# Conventional codes after SIGINT and SIGPIPE.
INTERRUPTED, BROKEN_PIPE = 130, 141

ON_EXIT: list[Callable[[int], None]] = []
"""Called with the exit code when a command has ended and printed what it has to say."""


def of_error(error: UserError) -> int:
    """Return the exit code of a command that ended with `error`."""
    from tilelet.diag.catalogue import checks, command, device, page, portability, sampling, tuner

    usage = (
        checks.UnknownCheck,
        page.NoRunDirectory,
        command.BadFlag,
        command.UnknownCode,
        command.UnknownEngine,
        command.UnknownExample,
        command.UnknownSection,
        device.UnknownMachine,
        device.MachineSyntax,
        device.MachineFieldMissing,
        device.MachineFieldUnknown,
        device.MachineFieldValue,
        device.MachineContradiction,
        device.UnknownPeriod,
        device.NothingToCompare,
        portability.UnknownDialect,
        sampling.BadSampling,
        tuner.UnknownKnob,
        tuner.ChangesProblem,
        tuner.BadExecutor,
    )
    return WRONG_USAGE if isinstance(error, usage) else COULD_NOT_RUN


def of_script(outcome: ScriptExit, now: Session) -> int:
    """Return the exit code of a script that exited with 1, depending on the session's results.

    Any other code is the script's own.
    """
    return outcome.code if outcome.code not in (PASSED, FINDINGS) else now.exit_code or outcome.code


def of_findings(found: bool, otherwise: int = PASSED) -> int:
    """Return the exit code of a command that reports findings."""
    return FINDINGS if found else otherwise
