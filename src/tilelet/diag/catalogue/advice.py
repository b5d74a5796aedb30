"""What would make a program faster or clearer (W13xx), and why nothing can be said (E13xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.text import plural, ticked


class CannotAdvise(UserError):
    """The script runs nothing that could be looked at, or does not run.

    Advice is about what a script runs: `tilelet run` says what is wrong with it.
    """

    code = "E1301"

    def __init__(self, script: str, why: str) -> None:
        super().__init__(f"no advice about `{script}`: {why}")


class RoundTrip(Caution):
    """A scope hands values to the next one through global memory.

    Each scope is a task of its own: what one makes and the next one uses is stored, and loaded
    again, and the second waits until the first has ended. In one scope it stays on chip.
    """

    code = "W1301"

    def __init__(self, first: Loc, second: Loc, names: Sequence[str]) -> None:
        super().__init__(
            f"{ticked(names, 'and')} {'goes' if len(names) == 1 else 'go'} through global memory "
            "from this scope to the next",
            [Label(first, "made here"), Label(second, "used here")],
            helps=["make one scope of both"],
        )


class SharedOperand(Caution):
    """Two scopes, one after the other, load the same window.

    In one scope it is loaded once. K and V projections, or gate and up, are the usual case: both
    read the same normalised rows.
    """

    code = "W1302"

    def __init__(self, first: Loc, second: Loc, windows: Sequence[str]) -> None:
        super().__init__(
            f"two scopes load {ticked(windows[:2], 'and')}",
            [Label(first, "loaded here"), Label(second, "and again here")],
            helps=["make one scope of both, which loads it once"],
        )


class AddedProduct(Caution):
    """A product is added to a sum by the vector unit.

    The cube adds to its accumulator while it multiplies: `pl.matmul_acc` needs no second pass over
    the result, and no trip from the cube to the vector unit.
    """

    code = "W1303"

    def __init__(self, loc: Loc, accumulator: str) -> None:
        super().__init__(
            f"a product is added to `{accumulator}` by the vector unit",
            [Label(loc)],
            helps=["`pl.matmul_acc` adds while it multiplies"],
        )


class DeadFill(Caution):
    """Memory is filled with a constant, and every element of it is written before it is read.

    The fill takes tasks, bandwidth, and often makes the writers wait for it.
    """

    code = "W1304"

    def __init__(self, loc: Loc, names: Sequence[str]) -> None:
        super().__init__(
            f"nobody reads what {ticked(names, 'and')} {'is' if len(names) == 1 else 'are'} "
            "filled with here",
            [Label(loc)],
            helps=["leave it out: all of it is written later"],
        )


class SumInMemory(Caution):
    """A sum is read from global memory, added to, and written back in every iteration.

    The tasks of one sum wait for each other, and each moves the sum twice. If the loops change
    places, the sum stays on chip until it is complete; what the outer loop makes is kept in memory
    for it.
    """

    code = "W1305"

    def __init__(self, loc: Loc, outer: Loc, window: str, chunk: str) -> None:
        super().__init__(
            f"`{window}` is read and written again for every `{chunk}`",
            [Label(loc, "one addition"), Label(outer, "repeated by this loop")],
            helps=[f"keep all `{chunk}` in memory, and sum up in a loop of its own"],
        )


class SequentialLoop(Caution):
    """A loop is sequential although its iterations do not depend on each other.

    `pl.parallel` tells the runtime so, and tasks of several iterations run at once.
    """

    code = "W1306"

    def __init__(self, loc: Loc, variable: str) -> None:
        super().__init__(
            f"iterations of `{variable}` do not depend on each other",
            [Label(loc)],
            helps=["`pl.parallel` lets them run at once"],
        )


class SmallTasks(Caution):
    """Tasks run for less time than it takes to submit, hand out and complete them.

    Larger tiles, more work in a scope, or `pl.spmd` (one submission for many blocks) help.
    """

    code = "W1307"

    def __init__(self, loc: Loc, kernel: str, tasks: int, each: float, overhead: float) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` run for {each:.2f} us each, and take "
            f"{overhead:.2f} us to hand out",
            [Label(loc)],
            helps=["do more in each: larger tiles, scopes that are one, or `pl.spmd`"],
        )


class FewTasks(Caution):
    """A kernel has fewer tasks than there are cores, and the program waits for it.

    Smaller tiles, or an inner dimension that is cut into parts, give the other cores work.
    """

    code = "W1308"

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` for {cores} cores",
            [Label(loc)],
            helps=["cut the work into more tasks: smaller tiles, or parts of the inner dimension"],
        )


class UnevenWave(Caution):
    """The last tasks of a kernel leave most cores idle.

    A number of tasks that is a multiple of the cores, or longest tasks first, evens that out.
    """

    code = "W1309"

    def __init__(self, loc: Loc, kernel: str, tasks: int, cores: int, left: int) -> None:
        super().__init__(
            f"{plural(tasks, 'task')} of `{kernel}` on {cores} cores: the last {left} run alone",
            [Label(loc)],
            helps=[f"choose tiles so that the tasks are a multiple of {cores}"],
        )


class OrchestratorBound(Caution):
    """The cores wait for tasks to be submitted.

    One orchestrator submits all tasks, one after the other. Fewer tasks are the remedy: larger
    scopes, `pl.spmd`, or chunks.
    """

    code = "W1310"

    def __init__(self, loc: Loc, tasks: int, share: float, kernel: str, of_it: int) -> None:
        super().__init__(
            f"for {share:.0%} of the time the cores wait until {tasks:,} tasks are submitted",
            [Label(loc, f"`{kernel}`: {of_it:,} of them")],
            helps=["submit fewer tasks: larger scopes, `pl.spmd`, or `chunk=`"],
        )


class ShortRows(Caution):
    """A transfer has rows shorter than what global memory moves at a time.

    The rest of each piece is moved and thrown away.
    """

    code = "W1311"

    def __init__(
        self, loc: Loc, tensor: str, rows: int, row_bytes: int, granule: int, machine: str
    ) -> None:
        super().__init__(
            f"{rows} rows of {row_bytes} bytes of `{tensor}`: {machine} moves {granule} at a time",
            [Label(loc)],
            helps=["make the tile wider, or lay the tensor out so that rows are longer"],
        )


class EmptyBuffers(Caution):
    """A kernel that waits for global memory uses little of the memory on chip.

    Larger tiles move more with each transfer, and are reused more often.
    """

    code = "W1312"

    def __init__(self, loc: Loc, kernel: str, memory: str, share: float) -> None:
        super().__init__(
            f"`{kernel}` waits for global memory, and fills {share:.0%} of {memory} at most",
            [Label(loc)],
            helps=["larger tiles, or two in turn (`pl.pipeline`); `tilelet tune` finds sizes"],
        )


class RepeatedRead(Caution):
    """A loop reads the same element of a tensor in every iteration.

    A scalar read from global memory takes about a microsecond. Read once, in front of the loop.
    """

    code = "W1313"

    def __init__(self, loc: Loc, loop: Loc, what: str) -> None:
        super().__init__(
            f"`{what}` is read again in every iteration",
            [Label(loc), Label(loop, "of this loop")],
            helps=["read it once, in front of the loop"],
        )


class MissingRoot(Caution):
    """A mean of squares plus a small constant is used without its root.

    That is how RMSNorm and LayerNorm begin, and they go on with the reciprocal square root. A
    golden with the same mistake agrees with it.
    """

    code = "W1314"

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "a mean of squares plus a small constant is used without its square root",
            [Label(loc)],
            helps=["normalisation multiplies by `pl.rsqrt` of it"],
        )


class HiddenEquality(Caution):
    """A quotient is right only while two constants are equal.

    The script names them differently, so that somebody will change one of them.
    """

    code = "W1315"

    def __init__(self, loc: Loc, quotient: str, step: str, divisor: str) -> None:
        super().__init__(
            f"`{quotient}` is right only while `{step}` equals `{divisor}`",
            [Label(loc)],
            helps=[f"`assert {step} == {divisor}`, or divide by `{step}`"],
        )


class StaleConstant(Caution):
    """A comment or docstring names a constant with another value than it has."""

    code = "W1316"

    def __init__(self, loc: Loc, name: str, said: int, value: int) -> None:
        super().__init__(
            f"the text says that `{name}` is {said}: it is {value}",
            [Label(loc)],
            helps=[f"write {value}"],
        )


class LookAlike(Caution):
    """A comment or docstring has a character that looks like one of the language."""

    code = "W1317"
    severity = "note"

    def __init__(self, loc: Loc, character: str, meant: str) -> None:
        super().__init__(
            f"U+{ord(character):04X} looks like `{meant}`",
            [Label(loc)],
            helps=[f"write `{meant}`"],
        )
