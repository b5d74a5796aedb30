"""What the exit code of `tilelet` means. Every command decides it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelet.diag.core import UserError

if TYPE_CHECKING:
    from tilelet.runtime.session import Session
    from tilelet.scripts.script import ScriptExit

PASSED = 0
FINDINGS = 1
"""A mismatch, something that a machine would refuse, a page that is not up to date."""

WRONG_USAGE = 2
"""What was typed cannot be meant: an unknown option, a value that an option cannot have."""

COULD_NOT_RUN = 3
"""What was asked for is clear, and could not be done."""

# What a process leaves behind after SIGINT and SIGPIPE, by convention.
INTERRUPTED, BROKEN_PIPE = 130, 141


def of_error(error: UserError) -> int:
    """The code of a command that ended with `error`, whichever command it is."""
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
    """A script that notices a failure exits with 1; the session knows whether it was a mismatch.

    Any other code is the script's own.
    """
    return outcome.code if outcome.code not in (PASSED, FINDINGS) else now.exit_code or outcome.code


def of_findings(found: bool, otherwise: int = PASSED) -> int:
    """The code of a command that looks for problems."""
    return FINDINGS if found else otherwise
