"""Checks of a recorded run (E11xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, plural


class UnknownCheck(UserError):
    """There is no check of this name.

    `tilelet check --only` and `tilelet.check(only=...)` take names of checks, separated by commas.
    The message lists them.
    """

    code = "E1101"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no check `{name}`",
            notes=[f"checks: {', '.join(known)}"],
            helps=did_you_mean(near(name, known)),
        )


class NeverWritten(UserError):
    """Some elements of an output are not written by any task.

    Outputs start undefined: on a board such elements hold whatever was in that memory before. A
    comparison may pass all the same, when the simulator starts from zeros or the golden leaves the
    same elements out. Write them, or declare the tensor as `pl.InOut` if it keeps its contents.
    """

    code = "E1110"
    example = """
        for r in pl.parallel(0, 48, 16):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
        return out
        """

    def __init__(
        self,
        tensor: str,
        count: int,
        total: int,
        regions: Sequence[str],
        declared: Loc,
        neighbour: Loc | None = None,
        where: str = "",
    ) -> None:
        labels = [Label(neighbour, f"writes beside them{where}")] if neighbour else []
        labels.append(Label(declared, "the output"))
        super().__init__(
            f"{count} of {plural(total, 'element')} of output `{tensor}` are never written",
            labels,
            notes=[f"not written: {', '.join(regions)}"],
            helps=[
                "extend the loop or the window of the statement that writes beside them"
                if neighbour
                else f"store something into `{tensor}`",
                f"if `{tensor}` is to keep what it holds there, declare it `pl.InOut`",
            ],
        )


class UndefinedOutput(UserError):
    """What is stored into an output was computed from memory that nobody wrote.

    `create_tensor` and `create_tile` give memory without contents, and elements outside the valid
    region of a tile are padding without contents. Whatever is computed from them is undefined, and
    differs from run to run on a board. Write the memory first (`pl.full`), start the accumulation
    with its first term, or fill the padding (`pl.fillpad`).
    """

    code = "E1111"
    example = """
        with pl.at(level=pl.Level.CORE_GROUP):
            acc = pl.create_tensor([16, 64], pl.FP32)
            out[0:16, :] = pl.add(acc, x[0:16, :])
        """

    def __init__(
        self,
        tensor: str,
        count: int,
        regions: Sequence[str],
        stored: Loc,
        source: str,
        taken: Loc,
        where: str = "",
    ) -> None:
        labels = [Label(taken, f"takes undefined elements of {source}")]
        if stored != taken:
            labels.append(Label(stored, f"stores what comes of them{where}"))
        super().__init__(
            f"{plural(count, 'element')} of output `{tensor}` come from undefined memory",
            labels,
            notes=[f"undefined: {', '.join(regions)}"],
            helps=[f"write {source} before it is read"],
        )


class UndefinedDecides(UserError):
    """Undefined memory decides a branch, the bounds of a loop, or where a window lies.

    The number was read from memory that nobody wrote. Which way the program goes then differs from
    run to run. Write the memory first.
    """

    code = "E1112"

    def __init__(self, use: str, loc: Loc, source: str, taken: Loc) -> None:
        labels = [Label(loc, f"{use} is decided here")]
        if taken != loc:
            labels.append(Label(taken, f"takes undefined elements of {source}"))
        super().__init__(
            f"{use} depends on undefined elements of {source}",
            labels,
            helps=[f"write {source} before it is read"],
        )
