"""Checks of a recorded run (E11xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Consequence, Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, plural


class UnknownCheck(UserError, code="E1101"):
    """There is no check of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no check `{name}`",
            notes=[f"checks: {', '.join(known)}"],
            helps=did_you_mean(near(name, known)),
        )


class Race(UserError, code="E1102", consequence=Consequence.WRONG):
    """Two tasks access the same bytes, at least one writes, and nothing orders them."""

    def __init__(
        self,
        tensor: str,
        first: tuple[Loc, str],
        second: tuple[Loc, str],
        region: str,
        rule: str,
        remedy: str,
        count: int = 1,
        witness: str = "",
    ) -> None:
        more = f" (and {count - 1} more such pairs)" if count > 1 else ""
        super().__init__(
            f"race on `{tensor}`: nothing orders two accesses to {region}{more}",
            [Label(second[0], second[1]), Label(first[0], first[1])],
            notes=[rule, *([witness] if witness else [])],
            helps=[remedy],
        )


class ParallelDependence(UserError, code="E1103", consequence=Consequence.WRONG):
    """Iterations of a `pl.parallel` loop access the same bytes, and at least one writes."""

    def __init__(
        self,
        tensor: str,
        first: tuple[Loc, str],
        second: tuple[Loc, str],
        loop: Loc,
        region: str,
        witness: str = "",
    ) -> None:
        super().__init__(
            f"iterations of `pl.parallel` are not independent: both access {region}",
            [
                Label(second[0], second[1]),
                *([Label(first[0], first[1])] if first[0] != second[0] else []),
                Label(loop, "declares that its iterations are independent"),
            ],
            notes=[
                *([f"first {first[1]}"] if first[0] == second[0] and first != second else []),
                *([witness] if witness else []),
            ],
            helps=[f"use `pl.range`, or give each iteration its own part of `{tensor}`"],
        )
        self.causes = (loop,)


class NeverWritten(UserError, code="E1110", consequence=Consequence.WRONG):
    """Some elements of an output are not written by any task."""

    def __init__(
        self,
        tensor: str,
        count: int,
        total: int,
        regions: Sequence[str],
        declared: Loc,
        neighbor: tuple[Loc, str] | None = None,
    ) -> None:
        labels = [Label(*neighbor)] if neighbor else []
        labels.append(Label(declared, "this output"))
        super().__init__(
            f"{count} of {plural(total, 'element')} of output `{tensor}` are never written",
            labels,
            notes=[f"not written: {', '.join(regions)}"],
            helps=[
                "extend the loop or the window of that statement, or move the window"
                if neighbor
                else f"store something into `{tensor}`",
                f"if `{tensor}` should keep its contents there, declare it `pl.InOut`",
            ],
        )


class UndefinedOutput(UserError, code="E1111", consequence=Consequence.WRONG):
    """A value stored into an output was computed from uninitialized memory."""

    def __init__(
        self,
        tensor: str,
        count: int,
        regions: Sequence[str],
        stored: Loc,
        source: str,
        taken: Loc,
        where: str = "",
        writer: tuple[Loc, str] | None = None,
        writer_first: bool = False,
    ) -> None:
        labels = [Label(taken, f"uses undefined elements of {source}")]
        if stored != taken:
            labels.append(Label(stored, f"stores values computed from them{where}"))
        if writer is not None:
            labels.insert(0 if writer_first else len(labels), Label(*writer))
        super().__init__(
            f"{plural(count, 'element')} of output `{tensor}` come from undefined memory",
            labels,
            notes=[f"undefined: {', '.join(regions)}"],
            helps=[f"write {source} before it is read"],
        )
        self.causes = (source,)


class UndefinedDecides(UserError, code="E1112", consequence=Consequence.WRONG):
    """Uninitialized memory decides a branch, a loop bound, or the position of a window."""

    def __init__(self, use: str, loc: Loc, source: str, taken: Loc) -> None:
        labels = [Label(loc, f"{use} is decided here")]
        if taken != loc:
            labels.append(Label(taken, f"uses undefined elements of {source}"))
        super().__init__(
            f"{use} depends on undefined elements of {source}",
            labels,
            helps=[f"write {source} before it is read"],
        )
        self.causes = (source,)


class ToleranceTooTight(Caution, code="W1120"):
    """The tolerance is below the rounding error of the output's dtype."""

    def __init__(self, output: str, rtol: float, atol: float, error: float, loc: Loc) -> None:
        super().__init__(
            f"tolerance of `{output}` is below its rounding error: rtol {rtol:g} and atol "
            f"{atol:g}, but {error:.2g} is typical",
            [Label(loc, "this output")],
            helps=[f"use `rtol={2 * error:.1g}`, or compute in a wider dtype"],
        )


class ToleranceTooLoose(Caution, code="W1121"):
    """The tolerance is so large that an output of all zeros would pass."""

    def __init__(self, output: str, rtol: float, error: float, loc: Loc) -> None:
        super().__init__(
            f"tolerance of `{output}` accepts zeros in place of every value: rtol {rtol:g}",
            [Label(loc, "this output")],
            notes=[f"its rounding error is typically {error:.2g}"],
            helps=[f"`rtol={max(4 * error, 1e-5):.1g}` is enough"],
        )


class OutOfBounds(UserError, code="E1130", consequence=Consequence.WRONG):
    """A window is not inside its tensor, in a task of this run."""

    def __init__(self, problem: str, loc: Loc | None, task: int, made: Loc | None = None) -> None:
        labels = [Label(loc, "this window")] if loc else []
        labels += [Label(made, "the tensor is created here")] if made else []
        super().__init__(
            f"task {task}: {problem}",
            labels,
            helps=["correct the offset or the extent; `clamp=True` limits a window to its tensor"],
        )
