"""Proofs that two programs write the same memory for all inputs."""

from __future__ import annotations

from collections.abc import Mapping

from tilelet.dataclasses import dataclass
from tilelet.equivalence.execute import Outcome, execute
from tilelet.equivalence.memory import Buffer, UnprovableError
from tilelet.ir.core import Op, Program, Value, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType, TensorType, TileType


@dataclass(frozen=True)
class Proof:
    """Whether two programs are proved equal, or why not."""

    holds: bool
    why: str = ""


class Equivalence:
    """Compares rewritten programs with one original.

    rounding  ignore the order of FP32 sums, unless an op of the original amplifies small
              differences of its operands
    budget    elements that may be hashed for each program; None: `MAX_WORK`
    """

    def __init__(
        self, original: Program, *, rounding: bool = False, budget: int | None = None
    ) -> None:
        self._rounding = rounding and not is_discontinuous(original)
        self._budget = budget
        self._original = self._executed(original)

    def _executed(self, program: Program) -> Outcome | str:
        try:
            return execute(program, rounding=self._rounding, budget=self._budget)
        except UnprovableError as error:
            return str(error)

    def proof(self, rewritten: Program) -> Proof:
        """Prove that a program writes the same as the original, and fails only where the original
        does.
        """
        old = self._original
        if self._rounding and is_discontinuous(rewritten):
            return Proof(False, "it compares or selects by elements that are rounded otherwise")
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


def is_discontinuous(program: Program) -> bool:
    """Whether rounding may change more than the last bits: by comparisons, sorts, indices, control.

    Only elementwise ops with floating-point results, reductions, products and moves of elements
    are regarded as continuous. Control may depend on a floating-point element read as a scalar.
    """
    return any(not _is_continuous(op) for f in program.functions.values() for op in walk(f.body))


def _is_continuous(op: Op) -> bool:
    if not any(map(has_floats, op.operands)):
        return True
    spec = op.spec
    if op.name == "read" or Trait.JUMPS in spec.traits:
        return False
    if spec.reference is None:  # control, windows, loads and stores
        return True
    known = Trait.ELEMENTWISE in spec.traits or Trait.GEMM in spec.traits
    known = known or spec.reduces is not None or bool(spec.moves)
    return known and all(map(has_floats, op.results))


def has_floats(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, (ScalarType, TensorType, TileType)) and kind.dtype.is_float


def prove_equal(
    original: Program, rewritten: Program, *, rounding: bool = False, budget: int | None = None
) -> Proof:
    """Prove that a rewritten program leaves the same memory as the original."""
    return Equivalence(original, rounding=rounding, budget=budget).proof(rewritten)


def _is_same(
    name: str, old: Mapping[str, Buffer], new: Mapping[str, Buffer], modulus: int | None
) -> bool:
    a, b = old[name], new[name]
    if a.size != b.size:
        return False
    if a.data is None and b.data is None:
        return True  # an input that neither writes
    before, after = a.elements(), b.elements()
    if modulus is not None:
        before, after = before % modulus, after % modulus
    return bool((before == after).all())
