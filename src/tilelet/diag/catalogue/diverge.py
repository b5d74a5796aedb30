"""Where a program goes wrong (E115x): what `tilelet diverge` finds."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Diagnostic, Label, Loc, UserError


class FirstWrongStatement(UserError):
    """Outputs do not match the golden, and this is the statement where that begins.

    The tiles of the program are compared with the arrays that the golden computes. What lies
    between the last that agrees and the first that does not is changed, one op at a time, in the
    ways in which programs are usually wrong: operands exchanged, another offset, another op,
    rounding mode or pad value, a missing scale, a lost accumulation. A change that makes all
    outputs right is shown as the help. Without one, the message names the first statement that
    does not agree: the mistake is there, or in one of those it lists.
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


def _unstored(loc: Loc, what: str) -> Label:
    return Label(loc, f"{what}: is it to be stored?")


class NeverWritten(UserError):
    """Elements of an output do not match the golden because no statement wrote them.

    A store is missing, or a loop ends too early. The message names the elements, and the statement
    that writes those beside them.
    """

    code = "E1152"

    def __init__(
        self,
        region: str,
        loc: Loc | None,
        notes: Sequence[str] = (),
        unstored: Sequence[tuple[Loc, str]] = (),
    ) -> None:
        labels = [Label(loc, "this writes the elements beside them")] if loc else []
        labels += [_unstored(*one) for one in unstored]
        super().__init__(f"no statement writes `{region}`", labels=labels, notes=notes)


class ReadBeforeWritten(UserError):
    """A wrong output was computed from memory that nobody had written.

    Memory of `pl.create_tensor` holds nothing in particular until it is written. Write all of it
    before it is read, or read only what is written (`valid_shape`).
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
        labels += [_unstored(*one) for one in unstored]
        super().__init__(f"`{region}` is read before it is written", labels=labels, notes=notes)


class BeyondRounding(UserError):
    """The result of a statement is further from the same computation in double than rounding to
    the nearest number can explain.

    Every value is computed in double, too, without the roundings of the program, with a bound of
    what these may have done. A cast that cuts off (`mode="trunc"`, `"floor"`, `"ceil"`) is biased:
    errors add up instead of cancelling. A number beyond the largest of its type is infinite.
    """

    code = "E1154"

    def __init__(
        self, what: str, loc: Loc, label: str, notes: Sequence[str] = (), helps: Sequence[str] = ()
    ) -> None:
        super().__init__(what, labels=[Label(loc, label)], notes=notes, helps=helps)


class RoundingOnly(UserError):
    """Outputs do not match the golden, but the same program in double does: the logic is right.

    Rounding makes the difference. The statement is the one after which the relative error has grown
    most. Use a wider type there, another order of summation, or a tolerance that fits the types.
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
    """Outputs are right in the order of the program, but a task may read memory before, or while,
    another one writes it: nothing orders the two on a device.

    `tilelet check --only race` says more: which rule leaves it open, and other orders.
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
    """With this op made wrong, the script's comparison still passes.

    Ops are made wrong one at a time: their result zeroed, the op left out, another value in the
    padding. What the golden does not notice, it does not test. The helps say what would: comparing
    further outputs, a tighter tolerance, other inputs, or smaller sizes, of which the op has a
    larger share.
    """

    code = "W1156"

    def __init__(self, op: str, loc: Loc, kinds: Sequence[str], remedies: Sequence[str]) -> None:
        super().__init__(
            f"`pl.{op}` could be wrong without the golden noticing: {', '.join(kinds)}",
            labels=[Label(loc, "the comparison passes all the same")],
            helps=[f"this would notice: {text}" for text in remedies],
        )
