"""The exception for bugs in Tilelet itself, separate from the user's mistakes."""

from __future__ import annotations

from tilelet.diag.core import Loc


class InternalError(Exception):
    """Tilelet broke one of its own invariants; `function`, `op` and `loc` say where.

    details  what a reproducer should contain besides the program
    """

    details: str = ""

    def __init__(
        self, problem: str, function: str = "", op: str = "", loc: Loc | None = None
    ) -> None:
        self.problem = problem
        self.function = function
        self.op = op
        self.loc = loc
        super().__init__(problem)

    def __str__(self) -> str:
        lines = [f"internal error: {self.problem}"]
        if self.op:
            lines.append(f"  in op: {self.op}")
        if self.function:
            lines.append(f"  in function: {self.function}")
        if self.loc is not None and self.loc.line:
            lines.append(f"  from source: {self.loc}")
        lines.append(
            "this is a bug in Tilelet, not in your program; please report it with the program"
        )
        return "\n".join(lines)
