"""Run a shipped program by name."""

from __future__ import annotations

from tilelet.diag.catalogue.command import FileMissing
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.text import near
from tilelet.runtime.output.bug_report import bug_text
from tilelet.runtime.session import Session
from tilelet.scripts.exit_codes import COULD_NOT_RUN
from tilelet.scripts.script import ScriptExit


def run_model(target: str, now: Session) -> ScriptExit:
    """Run a program by name; the options of its own script are in `sys.argv`."""
    from tilelet.models import registry
    from tilelet.models.qwen3.script import main

    try:
        model, variant = registry.resolve(target)
    except registry.UnknownModelError as error:
        names = [f"{n}:{v}" for n, m in registry.models().items() for v in m.variants]
        close = near(target, names)
        missing = FileMissing(target, close or [str(k) for k in error.known])
        return ScriptExit(COULD_NOT_RUN, [missing.diagnostic])
    try:
        return ScriptExit(main(model, variant=variant))
    except SystemExit as stop:
        return ScriptExit(stop.code if isinstance(stop.code, int) else 1)
    except UserErrors as errors:
        return ScriptExit(COULD_NOT_RUN, list(errors.diagnostics), errors.truncated)
    except UserError as error:
        return ScriptExit(COULD_NOT_RUN, [error.diagnostic])
    except Exception as error:
        return ScriptExit(COULD_NOT_RUN, bug=bug_text(error, target, now.run_directory(variant)))
