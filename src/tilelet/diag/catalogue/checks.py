"""Checks of a recorded run (E11xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Consequence, Label, Loc, UserError
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


class Race(UserError):
    """Two tasks access the same bytes, at least one writes, and nothing orders them.

    The runtime orders tasks only by their tensor arguments, the directions of these arguments, and
    `deps=`. A task waits for earlier writers of its In and InOut arguments. It does not wait for
    earlier readers, and a task that only writes does not wait for earlier writers (this rule
    changed over time: see `--period`). Arguments in `no_dep_args`, tensors with `manual_dep=True`
    and tasks in `pl.manual_scope()` are ordered by `deps=` only. On a board the two tasks may run
    in either order or at the same time; on a CPU, Tilelet runs them in program order. Add the
    dependency that the message names.
    """

    code = "E1102"
    consequence = Consequence.WRONG
    example = """
        for i in pl.range(4):
            with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[acc]):
                acc[:, :] = pl.add(acc[:, :], x[i * 16 : i * 16 + 16, :])
        """

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


class ParallelDependence(UserError):
    """Iterations of a `pl.parallel` loop access the same bytes, and at least one writes.

    `pl.parallel` declares that iterations are independent, and compilers may rely on it. Whether
    the runtime happens to order them depends on its period and on how arguments are passed. Use
    `pl.range`, or give every iteration its own part of the tensor.
    """

    code = "E1103"
    consequence = Consequence.WRONG
    example = """
        for i in pl.parallel(4):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc[:, :] = pl.add(acc[:, :], x[i * 16 : i * 16 + 16, :])
        """

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
                *([f"first {first[1]}"] if first[0] == second[0] else []),
                *([witness] if witness else []),
            ],
            helps=[f"use `pl.range`, or give each iteration its own part of `{tensor}`"],
        )


class NeverWritten(UserError):
    """Some elements of an output are not written by any task.

    Outputs start undefined: on a board these elements contain whatever was in memory. A comparison
    may still pass if the simulator starts from zeros or the golden leaves the same elements out.
    Write them, or declare the tensor as `pl.InOut` if it keeps its contents.
    """

    code = "E1110"
    consequence = Consequence.WRONG
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
        neighbour: tuple[Loc, str] | None = None,
    ) -> None:
        labels = [Label(*neighbour)] if neighbour else []
        labels.append(Label(declared, "this output"))
        super().__init__(
            f"{count} of {plural(total, 'element')} of output `{tensor}` are never written",
            labels,
            notes=[f"not written: {', '.join(regions)}"],
            helps=[
                "extend the loop or the window of that statement, or move the window"
                if neighbour
                else f"store something into `{tensor}`",
                f"if `{tensor}` should keep its contents there, declare it `pl.InOut`",
            ],
        )


class UndefinedOutput(UserError):
    """A value stored into an output was computed from uninitialized memory.

    `create_tensor` and `create_tile` return uninitialized memory, and elements outside the valid
    region of a tile are uninitialized padding. Anything computed from them is undefined and differs
    from run to run on a board. Initialize the memory first (`pl.full`), start the accumulation with
    its first term, or fill the padding (`pl.fillpad`).
    """

    code = "E1111"
    consequence = Consequence.WRONG
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


class UndefinedDecides(UserError):
    """Uninitialized memory decides a branch, a loop bound, or the position of a window.

    The value was read from memory that nothing has written, so the control flow may differ from run
    to run. Write the memory first.
    """

    code = "E1112"
    consequence = Consequence.WRONG

    def __init__(self, use: str, loc: Loc, source: str, taken: Loc) -> None:
        labels = [Label(loc, f"{use} is decided here")]
        if taken != loc:
            labels.append(Label(taken, f"uses undefined elements of {source}"))
        super().__init__(
            f"{use} depends on undefined elements of {source}",
            labels,
            helps=[f"write {source} before it is read"],
        )


class ToleranceTooTight(Caution):
    """The tolerance is below the rounding error of the output's dtype.

    Results that round to neighboring values of that dtype already fail, and rounding along the way
    makes such differences normal (the message gives the typical error for this program's dtypes and
    reduction lengths). Whether the comparison passes then depends on the summation order and the
    inputs. Raise the tolerance, or store a wider dtype.
    """

    code = "W1120"

    def __init__(self, output: str, rtol: float, atol: float, error: float, loc: Loc) -> None:
        super().__init__(
            f"tolerance of `{output}` is below its rounding error: rtol {rtol:g} and atol "
            f"{atol:g}, but {error:.2g} is typical",
            [Label(loc, "this output")],
            helps=[f"use `rtol={2 * error:.1g}`, or compute in a wider dtype"],
        )


class ToleranceTooLoose(Caution):
    """The tolerance is so large that an output of all zeros would pass.

    A relative tolerance of 1 or more checks nothing. The message gives the typical rounding error
    of this program: a tolerance of a few times that error passes and still catches mistakes.
    """

    code = "W1121"

    def __init__(self, output: str, rtol: float, error: float, loc: Loc) -> None:
        super().__init__(
            f"tolerance of `{output}` accepts zeros in place of every value: rtol {rtol:g}",
            [Label(loc, "this output")],
            notes=[f"its rounding error is typically {error:.2g}"],
            helps=[f"`rtol={max(4 * error, 1e-5):.1g}` is enough"],
        )


class OutOfBounds(UserError):
    """A window is not inside its tensor, in a task of this run.

    The check followed the kernel's windows without executing it; the note shows the error that
    `tilelet run` would report. Correct the offset or the extent, or make the tensor larger.
    """

    code = "E1130"
    consequence = Consequence.WRONG

    def __init__(self, problem: str, loc: Loc | None, task: int, made: Loc | None = None) -> None:
        labels = [Label(loc, "this window")] if loc else []
        labels += [Label(made, "the tensor is created here")] if made else []
        super().__init__(
            f"task {task}: {problem}",
            labels,
            helps=["correct the offset or the extent; `clamp=True` limits a window to its tensor"],
        )
