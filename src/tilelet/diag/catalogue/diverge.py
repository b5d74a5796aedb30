"""Findings of `tilelet diverge` (E115x)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Diagnostic, Label, Loc, UserError


class FirstWrongStatement(UserError, code="E1151"):
    """Outputs do not match the golden, and a change of this statement corrects them."""

    def __init__(
        self,
        what: str,
        loc: Loc,
        label: str,
        agrees: Sequence[tuple[Loc, str]] = (),
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:
        labels = [Label(loc, label), *(Label(place, text) for place, text in agrees)]
        super().__init__(what, labels=labels, notes=notes, helps=helps)


class DivergenceBounded(UserError, code="E1158"):
    """Outputs do not match the golden, and the mistake is in one of the listed statements."""

    def __init__(
        self,
        what: str,
        places: Sequence[tuple[Loc, str]],
        notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:
        labels = [Label(place, text) for place, text in places]
        super().__init__(what, labels=labels, notes=notes, helps=helps)


class DivergenceNotFound(UserError, code="E1159"):
    """Outputs do not match the golden, and nothing that was tried says where."""

    def __init__(self, output: str, notes: Sequence[str] = ()) -> None:
        what = f"`{output}` differs from the golden; the statement was not found"
        super().__init__(what, notes=notes)


def _unstored_label(loc: Loc, what: str) -> Label:
    return Label(loc, f"{what}: should it be stored?")


class NeverWritten(UserError, code="E1152"):
    """Elements of an output do not match the golden because no statement wrote them."""

    def __init__(
        self,
        region: str,
        loc: Loc | None,
        notes: Sequence[str] = (),
        unstored: Sequence[tuple[Loc, str]] = (),
    ) -> None:
        labels = [Label(loc, "writes the neighboring elements")] if loc else []
        labels += [_unstored_label(*one) for one in unstored]
        super().__init__(f"no statement writes `{region}`", labels=labels, notes=notes)


class ReadBeforeWritten(UserError, code="E1153"):
    """A wrong output was computed from uninitialized memory."""

    def __init__(
        self,
        region: str,
        loc: Loc,
        writer: tuple[Loc, str] | None,
        notes: Sequence[str] = (),
        unstored: Sequence[tuple[Loc, str]] = (),
        writer_first: bool = False,
    ) -> None:
        labels = [Label(loc, "read here")]
        if writer is not None:
            labels.insert(0 if writer_first else 1, Label(*writer))
        labels += [_unstored_label(*one) for one in unstored]
        super().__init__(f"`{region}` is read before it is written", labels=labels, notes=notes)


class BeyondRounding(UserError, code="E1154"):
    """The error of a statement's result exceeds what round-to-nearest can explain."""

    def __init__(
        self, what: str, loc: Loc, label: str, notes: Sequence[str] = (), helps: Sequence[str] = ()
    ) -> None:
        super().__init__(what, labels=[Label(loc, label)], notes=notes, helps=helps)


class RoundingOnly(UserError, code="E1155"):
    """Outputs do not match the golden only because of rounding: in double precision they match."""

    def __init__(
        self, output: str, loc: Loc | None, notes: Sequence[str] = (), kind: str = "rounding"
    ) -> None:
        labels = [Label(loc, f"{kind}: the error grows most here")] if loc else []
        super().__init__(
            f"`{output}` differs from the golden by rounding only", labels=labels, notes=notes
        )


class StaleRead(UserError, code="E1157"):
    """Outputs are correct in program order, but on a device nothing orders a task that reads memory
    after the task that writes it.
    """

    def __init__(self, race: Diagnostic, reader: Loc) -> None:
        others = [label for label in race.labels if label.loc != reader]
        super().__init__(
            f"stale read (race): {race.message}",
            labels=[Label(reader, "stale read"), *others],
            notes=race.notes,
            helps=race.helps,
        )


class CouldBeWrong(Caution, code="W1156"):
    """The comparison still passes if this op is wrong."""

    def __init__(self, op: str, loc: Loc, kinds: Sequence[str], remedies: Sequence[str]) -> None:
        super().__init__(
            f"`pl.{op}` could be wrong without the golden noticing: {', '.join(kinds)}",
            labels=[Label(loc, "the comparison still passes")],
            helps=[f"would catch it: {text}" for text in remedies],
        )
