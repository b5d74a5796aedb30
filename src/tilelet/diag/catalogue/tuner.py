"""The tuner (E14xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, quoted_names


class UnknownKnob(UserError, code="E1401"):
    """`--vary` names something that the program does not have."""

    def __init__(self, name: str, known: Sequence[str], program: str) -> None:
        close = did_you_mean(near(name, known))
        listed = [f"it has {quoted_names(known, 'and')}"] if known and not close else []
        super().__init__(f"`{program}` has no `{name}` to vary", helps=close or listed)


class NothingToVary(UserError, code="E1402"):
    """Nothing in the program can be varied."""

    def __init__(self, program: str, why_not: Mapping[str, str]) -> None:
        super().__init__(
            f"nothing in `{program}` can be varied",
            notes=[f"`{name}`: {why}" for name, why in why_not.items()],
            helps=[
                "name the tile sizes at the top of the script",
                "or select what to vary: `--vary TILE=64,128`",
            ],
        )


class NothingFits(UserError, code="E1403"):
    """Neither the original program nor any candidate can be modelled."""

    def __init__(self, program: str, tried: int, reasons: Sequence[str]) -> None:
        super().__init__(
            f"none of {tried:,} candidates of `{program}` can be modelled",
            notes=reasons,
            helps=["`tilelet check` reports what does not fit, and where"],
        )


class ChangesProblem(UserError, code="E1404"):
    """A value given to `--vary` changes the program's parameters, or what they are given."""

    def __init__(self, name: str, value: object) -> None:
        super().__init__(
            f"`{name}={value}` changes the program's parameters or lengths, and with them the "
            "problem it solves"
        )


class OtherResults(UserError, code="E1405"):
    """The results file cannot be continued."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"`{path}` cannot be continued: {why}", helps=["name a file that does not exist yet"]
        )


class BadExecutor(UserError, code="E1406"):
    """The address of the executor is invalid."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"`{address}` is not an executor address",
            helps=["write `dask://HOST:PORT`, or use `--jobs N`"],
        )


class SchedulerUnreachable(UserError, code="E1407"):
    """The scheduler does not respond."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"no scheduler responds at `{address}`", notes=[why] if why else [])


class WorkersLost(UserError, code="E1408"):
    """All workers died, and no new ones could be started."""

    def __init__(self, why: str) -> None:
        super().__init__("all workers died", notes=[why] if why else [])


class BetterValue(Caution, code="W1401"):
    """Another value would improve the program, according to the model."""

    severity = "note"

    def __init__(self, loc: Loc, name: str, now: object, then: object, gain: str) -> None:
        super().__init__(f"`{name}`: {then} instead of {now} gives {gain}", [Label(loc)])
