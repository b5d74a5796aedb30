"""The tuner (E14xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, ticked


class UnknownKnob(UserError):
    """`--vary` names something that the program does not have.

    What can be varied: whole numbers that a script gives a name at its top, defaults of parameters
    of its functions (`function.parameter`), `chunk=`, `stage=` and split modes where they stand
    (`chunk@88` is the one in line 88), and the sizes of a program that ships with Tilelet.
    """

    code = "E1401"

    def __init__(self, name: str, known: Sequence[str], program: str) -> None:
        close = did_you_mean(near(name, known))
        listed = [f"it has {ticked(known, 'and')}"] if known and not close else []
        super().__init__(f"`{program}` has no `{name}` to vary", helps=close or listed)


class NothingToVary(UserError):
    """No number of the program can be varied.

    A number is left alone if another one changes the program's parameters (it is a size of the
    problem, not of a tile), if the program does not depend on it, or if the program refuses every
    other value that was tried.
    """

    code = "E1402"

    def __init__(self, program: str, why_not: Mapping[str, str]) -> None:
        super().__init__(
            f"nothing in `{program}` can be varied",
            notes=[f"`{name}`: {why}" for name, why in why_not.items()],
            helps=[
                "give tile sizes names at the top of the script",
                "or name what to vary: `--vary TILE=64,128`",
            ],
        )


class NothingFits(UserError):
    """Neither the program as it stands nor any candidate can be modelled.

    Tiles that are too large for the machine are dropped before anything is modelled, and so is what
    the script or the compiler refuses. The notes say what was met most often.
    """

    code = "E1403"

    def __init__(self, program: str, tried: int, reasons: Sequence[str]) -> None:
        super().__init__(
            f"none of {tried:,} candidates of `{program}` can be modelled",
            notes=reasons,
            helps=["`tilelet check` says what does not fit, and where"],
        )


class ChangesProblem(UserError):
    """A value given to `--vary` changes the parameters of the program.

    Then it computes something else, and its time cannot be compared.
    """

    code = "E1404"

    def __init__(self, name: str, value: object) -> None:
        super().__init__(
            f"`{name}={value}` changes the program's parameters, so that it solves another problem"
        )


class OtherResults(UserError):
    """The file of results cannot be continued.

    It belongs to the script, arguments, machine and version of Tilelet that it was begun with.
    """

    code = "E1405"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"`{path}` cannot be continued: {why}", helps=["name a file that does not exist yet"]
        )


class BadExecutor(UserError):
    """The address of the executor cannot be read.

    `dask://HOST:PORT` is a running scheduler of dask. Without `--executor`, `--jobs` processes on
    this machine do the work.
    """

    code = "E1406"

    def __init__(self, address: str) -> None:
        super().__init__(
            f"`{address}` is no executor", helps=["write `dask://HOST:PORT`, or use `--jobs N`"]
        )


class SchedulerUnreachable(UserError):
    """Nobody answers at the address of the scheduler.

    `dask scheduler` prints the address it listens at.
    """

    code = "E1407"

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"no scheduler answers at `{address}`", notes=[why] if why else [])


class WorkersLost(UserError):
    """All workers are gone, and no new ones can be had.

    A worker that dies is replaced where that is possible. What was measured is kept, if a file was
    named with `--results`.
    """

    code = "E1408"

    def __init__(self, why: str) -> None:
        super().__init__("all workers are lost", notes=[why] if why else [])


class BetterValue(Caution):
    """Another value of a number would make the program better, by the model.

    The tuner found it together with the other notes of the same run: they count as one change.
    """

    code = "W1401"
    severity = "note"
    example = """
        TILE = 64

        @pl.jit
        def kernel(
            x: pl.Tensor[[1024, 128], pl.FP32], out: pl.Out[pl.Tensor[[1024, 128], pl.FP32]]
        ):
            for r in pl.parallel(0, 1024, TILE):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + TILE, :] = pl.exp(x[r : r + TILE, :])
            return out
        """

    def __init__(self, loc: Loc, name: str, now: object, then: object, gain: str) -> None:
        super().__init__(f"`{name}`: {then} instead of {now} gives {gain}", [Label(loc)])
