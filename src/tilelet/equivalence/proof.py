"""Whether two programs leave the same in memory, for all inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilelet.equivalence.execute import Outcome, execute
from tilelet.equivalence.memory import Buffer, UnprovableError
from tilelet.ir.core import Program


@dataclass(frozen=True)
class Proof:
    """Whether two programs were shown to be equal; else why not, in a line."""

    holds: bool
    why: str = ""


class Equivalence:
    """Compares rewritten programs with one original.

    rounding  FP32 sums and products may be summed in another order
    budget    elements that may be hashed for each program; None: `MAX_WORK`
    """

    def __init__(
        self, original: Program, *, rounding: bool = False, budget: int | None = None
    ) -> None:
        self._rounding = rounding
        self._budget = budget
        self._original = self._executed(original)

    def _executed(self, program: Program) -> Outcome | str:
        try:
            return execute(program, rounding=self._rounding, budget=self._budget)
        except UnprovableError as error:
            return str(error)

    def proof(self, rewritten: Program) -> Proof:
        """Show that a program writes what the original writes, and fails only where that fails."""
        old = self._original
        new = old if isinstance(old, str) else self._executed(rewritten)
        if isinstance(old, str) or isinstance(new, str):
            return Proof(False, new if isinstance(new, str) else "")
        if old.parameters != new.parameters or old.returned != new.returned:
            return Proof(False, "it has other parameters or results")
        for name in old.buffers:
            if not _is_same(name, old.buffers, new.buffers, old.modulus):
                return Proof(False, f"`{name}` is not shown to be the same")
        if not new.obligations <= old.obligations:
            return Proof(False, "it may fail where the original does not")
        return Proof(True)


def prove_equal(
    original: Program, rewritten: Program, *, rounding: bool = False, budget: int | None = None
) -> Proof:
    """Show that a rewritten program leaves the same in memory as the original."""
    return Equivalence(original, rounding=rounding, budget=budget).proof(rewritten)


def _is_same(
    name: str, old: Mapping[str, Buffer], new: Mapping[str, Buffer], modulus: int | None
) -> bool:
    a, b = old[name], new[name]
    if a.size != b.size:
        return False
    if a.data is None and b.data is None:
        return True  # an input that neither has written
    before, after = a.elements(), b.elements()
    if modulus is not None:
        before, after = before % modulus, after % modulus
    return bool((before == after).all())
