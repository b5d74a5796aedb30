"""Candidates judged against a reference (E18xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import quoted_names


class NotEvaluated(UserError, code="E1801"):
    """A kernel uses a name whose value is known only by executing Python."""

    def __init__(self, loc: Loc, name: str, why: str, defined: Loc | None = None) -> None:
        labels = [Label(loc, "used here")]
        if defined is not None and defined != loc:
            labels.append(Label(defined, "defined here"))
        super().__init__(
            f"`{name}` is not known without executing the file",
            labels,
            notes=[why],
            helps=["write its value as a constant"],
        )


class WorkLimit(UserError, code="E1802"):
    """A candidate takes more work or memory than the judge allows."""

    def __init__(self, what: str, limit: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"the candidate takes too much: {what}",
            [Label(loc, "reached here")] if loc is not None else [],
            notes=[f"the limit is {limit}"],
        )


class OtherSignature(UserError, code="E1803"):
    """A candidate does not take the arguments of the reference."""

    def __init__(self, loc: Loc, differences: Sequence[str]) -> None:
        super().__init__(
            "the signature is not that of the reference",
            [Label(loc, differences[0])],
            notes=list(differences[1:]),
            helps=["use the names, types and directions of the reference"],
        )


class NotAReference(UserError, code="E1804"):
    """A script cannot be a reference."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} is not a reference: {why}",
            helps=["call `run(program, specs, golden_fn=...)` in it"],
        )


class NotOneCandidate(UserError, code="E1805"):
    """A candidate file has no program, or several that could be meant."""

    def __init__(self, path: str, programs: Sequence[tuple[str, Loc]]) -> None:
        names = list(dict.fromkeys(name for name, _ in programs))
        found = f"{quoted_names(names, 'and')} could be meant" if names else "it has no program"
        helps = ["keep one program, or give one the name of the reference's"]
        if len(names) == 1:
            found, helps = f"it has {len(programs)} programs `{names[0]}`", ["keep one of them"]
        super().__init__(
            f"{path} is not a candidate: {found}",
            [Label(loc, f"`{name}`") for name, loc in programs],
            helps=helps,
        )


class WrongOnOtherInputs(UserError, code="E1806"):
    """A candidate passes the reference's inputs and is wrong on others."""

    def __init__(self, loc: Loc, inputs: str, what: str) -> None:
        super().__init__(
            f"wrong on other inputs: {inputs}",
            [Label(loc, "passes the reference's inputs")],
            [what],
        )


class WithoutTheWork(UserError, code="E1807"):
    """A candidate passes a comparison without doing the work."""

    def __init__(self, loc: Loc, kind: str, evidence: str) -> None:
        super().__init__(f"{kind}: {evidence}", [Label(loc, "this program")])
