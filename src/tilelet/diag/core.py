"""Source locations, and the one exception type that carries a message to the user."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable

from tilelet.dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Loc:
    """A span of source text; the end is exclusive and lines count from 1.

    Columns count from 0 in UTF-8 bytes, as in `ast`; renderings show characters. `caller` is the
    call site if this text was inlined; messages show the whole chain.
    """

    file: str
    line: int
    col: int = 0
    end_line: int = 0
    end_col: int = 0
    caller: Loc | None = None

    def called_from(self, caller: Loc | None) -> Loc:
        """Append one inlining step to the end of the chain."""
        if caller is None:
            return self
        return replace(self, caller=self.caller.called_from(caller) if self.caller else caller)

    @property
    def callers(self) -> list[Loc]:
        """The call sites through which this span was inlined, innermost first."""
        return [self.caller, *self.caller.callers] if self.caller else []

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col + 1}"


UNKNOWN = Loc("<unknown>", 0)


@dataclass(frozen=True, slots=True)
class Label:
    """Text at one span; the first label of a diagnostic is the primary one (drawn with ^^^)."""

    loc: Loc
    text: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """Replacement text for a span; applying all fixes of a message corrects the mistake."""

    loc: Loc
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message, ready to render as text, JSON or SARIF."""

    code: str  # "E0203", "W0102"
    severity: str  # "error", "warning" or "note"
    message: str  # one line, lower case, no full stop
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()

    @property
    def loc(self) -> Loc | None:
        return self.labels[0].loc if self.labels else None


class Consequence(enum.Enum):
    """What a finding means on the board."""

    REFUSED = "would not run"
    WRONG = "may give other results"
    SLOW = "costs time"


class UserError(Exception):
    """A mistake in the user's program or command, with its location; one subclass per mistake.

    A subclass names its code (`class NestedScope(UserError, code="E0402")`), takes what the message
    needs in `__init__`, and builds the diagnostic with
    `super().__init__(message, labels=[...], notes=[...], helps=[...])`. `tilelet explain CODE`
    prints its docstring and the section of that code in the Markdown file beside its module.
    `consequence` says what a finding of the checks means on the board; findings that share an entry
    of `causes` are reported as one.
    """

    code = "E0000"
    severity = "error"
    consequence: Consequence | None = None
    causes: tuple[Hashable, ...] = ()

    def __init_subclass__(cls, code: str = "", consequence: Consequence | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.consequence = consequence or cls.consequence

    def __init__(
        self,
        message: str,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        helps: Iterable[str] = (),
        fixes: Iterable[Fix] = (),
    ) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(
            self.code,
            self.severity,
            message,
            tuple(labels),
            tuple(notes),
            tuple(helps),
            tuple(fixes),
        )

    def __str__(self) -> str:
        from tilelet.diag.render import render_text

        return render_text(self.diagnostic, color=False)

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a traceback."""
        from tilelet.diag.uncaught import message_of

        return message_of(self).splitlines()


class Caution(UserError, code="W0000"):
    """A diagnostic that does not stop the run; never raised, only added to a `Sink`."""

    severity = "warning"


class UserErrors(Exception):
    """Several mistakes found in one compilation (at most `Sink.limit`), in source order."""

    def __init__(self, diagnostics: Iterable[Diagnostic], truncated: bool = False) -> None:
        self.diagnostics = tuple(diagnostics)
        self.truncated = truncated
        super().__init__(f"{len(self.diagnostics)} errors")

    def __str__(self) -> str:
        from tilelet.diag.render import render_text

        text = "\n".join(render_text(d, color=False) for d in self.diagnostics)
        return text + ("\nerror: stopped after ten errors" if self.truncated else "")

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a traceback."""
        from tilelet.diag.uncaught import message_of

        return message_of(self).splitlines()


class TooManyErrors(Exception):
    """Raised inside the compiler to stop after `Sink.limit` errors; `Sink.finish` reports them."""


@dataclass
class Sink:
    """Collects the diagnostics of one compilation, so that one run reports several mistakes."""

    limit: int = 10
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.diagnostics if d.severity == "error"]

    @property
    def warnings(self) -> list[Diagnostic]:
        return [d for d in self.diagnostics if d.severity != "error"]

    def add(self, problem: UserError) -> None:
        """Record `problem` once per code and location; stop the compilation at the limit."""
        d = problem.diagnostic
        if any(
            d.code == o.code and d.loc == o.loc and d.message == o.message for o in self.diagnostics
        ):
            return
        self.diagnostics.append(d)
        if d.severity == "error" and len(self.errors) >= self.limit:
            raise TooManyErrors

    def finish(self) -> None:
        """Raise the collected errors, if any."""
        if self.errors:
            raise UserErrors(self.errors, truncated=len(self.errors) >= self.limit)
