"""Findings of `tilelet diverge` (E115x)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Diagnostic, Label, Loc, UserError


class FirstWrongStatement(UserError):
    """Outputs do not match the golden, and this is the first wrong statement.

    The tiles of the program are compared with the arrays that the golden computes. Between the last
    tile that agrees and the first that does not, ops are mutated one at a time, in the ways in
    which programs are usually wrong: swapped operands, another offset, another op, rounding mode or
    pad value, a missing scale, a lost accumulation. If a mutation makes all outputs correct, it is
    shown as the help. Otherwise the message names the first statement that disagrees: the mistake
    is there, or in one of the listed statements.
    """

    code = "E1151"

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


def _unstored_label(loc: Loc, what: str) -> Label:
    return Label(loc, f"{what}: should it be stored?")


class NeverWritten(UserError):
    """Elements of an output do not match the golden because no statement wrote them.

    A store is missing, or a loop ends too early. The message names the elements and the statement
    that writes their neighbors.
    """

    code = "E1152"

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


class ReadBeforeWritten(UserError):
    """A wrong output was computed from uninitialized memory.

    The contents of `pl.create_tensor` are undefined until written. Write all of it before reading
    it, or read only the part that is written (`valid_shape`).
    """

    code = "E1153"

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


class BeyondRounding(UserError):
    """The error of a statement's result exceeds what round-to-nearest can explain.

    Every value is also computed in double precision without the program's rounding, with a bound on
    the rounding error. A cast that truncates (`mode="trunc"`, `"floor"`, `"ceil"`) is biased: its
    errors accumulate instead of cancelling. A value above the largest one of its dtype becomes
    infinite.
    """

    code = "E1154"

    def __init__(
        self, what: str, loc: Loc, label: str, notes: Sequence[str] = (), helps: Sequence[str] = ()
    ) -> None:
        super().__init__(what, labels=[Label(loc, label)], notes=notes, helps=helps)


class RoundingOnly(UserError):
    """Outputs do not match the golden only because of rounding: in double precision they match.

    The statement shown is the one after which the relative error grows most. Use a wider dtype
    there, another summation order, or a tolerance that fits the dtypes.
    """

    code = "E1155"

    def __init__(
        self, output: str, loc: Loc | None, notes: Sequence[str] = (), kind: str = "rounding"
    ) -> None:
        labels = [Label(loc, f"{kind}: the error grows most here")] if loc else []
        super().__init__(
            f"`{output}` differs from the golden by rounding only", labels=labels, notes=notes
        )


class StaleRead(UserError):
    """Outputs are correct in program order, but on a device nothing orders a task that reads memory
    after the task that writes it.

    `tilelet check --only race` gives details: which ordering rule does not apply, and other
    possible orders.
    """

    code = "E1157"

    def __init__(self, race: Diagnostic, reader: Loc) -> None:
        others = [label for label in race.labels if label.loc != reader]
        super().__init__(
            f"stale read (race): {race.message}",
            labels=[Label(reader, "stale read"), *others],
            notes=race.notes,
            helps=race.helps,
        )


class CouldBeWrong(Caution):
    """The comparison still passes if this op is wrong.

    Ops are mutated one at a time: the result is zeroed, the op is skipped, or the padding gets
    another value. What the golden does not notice, it does not test. The help lines list what would
    catch the mistake: comparing more outputs, a tighter tolerance, other inputs, or smaller sizes,
    where the op has a larger share in the result.
    """

    code = "W1156"

    def __init__(self, op: str, loc: Loc, kinds: Sequence[str], remedies: Sequence[str]) -> None:
        super().__init__(
            f"`pl.{op}` could be wrong without the golden noticing: {', '.join(kinds)}",
            labels=[Label(loc, "the comparison still passes")],
            helps=[f"would catch it: {text}" for text in remedies],
        )
