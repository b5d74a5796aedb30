"""Scalars of a program for isl: affine forms, definitions of quotients and the like, conditions.

A scalar is an affine form of terms. A term is a loop index, a parameter, an extent, or an unknown
scalar; a quotient or remainder by a constant, a minimum or a maximum is a term with a `Meaning`,
which `Points` turns into constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilelet.analysis.affine import Affine, affine_of
from tilelet.dataclasses import dataclass
from tilelet.ir.core import Arg, Op, Value, scalar_dtype
from tilelet.ir.spec import Trait
from tilelet.ir.types import SymDim, TensorType

Term = Value | SymDim
Form = Affine[Term]

Condition = Callable[[Callable[[Form], str]], str]
"""Returns a constraint, given a function that formats a form."""


@dataclass(frozen=True)
class Meaning:
    """The definition of a term: `min`, `max`, or truncating `floordiv`, `mod` by a constant."""

    operation: str
    left: Form
    right: Form

    def constraint(self, name: str, fresh: Callable[[], str], text: Callable[[Form], str]) -> str:
        """Return the constraint that defines variable `name`; `fresh` creates another variable."""
        a, b = f"({text(self.left)})", f"({text(self.right)})"
        if self.operation in ("min", "max"):
            order = "<=" if self.operation == "min" else ">="
            return f"(({name} = {a} and {a} {order} {b}) or ({name} = {b} and {b} {order} {a}))"
        divisor, quotient = self.right.constant, name
        exact = ""
        if self.operation == "mod":
            quotient = fresh()
            exact = f"{name} = {a} - {divisor} * {quotient} and "
        return (
            f"{exact}(({a} >= 0 and {divisor} * {quotient} <= {a} and "
            f"{a} < {divisor} * {quotient} + {divisor}) or ({a} < 0 and "
            f"{divisor} * {quotient} - {divisor} < {a} and {a} <= {divisor} * {quotient}))"
        )


class Forms:
    """Forms of the scalars of one function at one call site.

    given     the values of its scalar parameters there; None if unknown
    shapes    the shapes of its tensor parameters there
    meanings  definitions of terms, for all call sites
    """

    def __init__(
        self,
        definition: Mapping[Value, Op],
        meanings: dict[Value, Meaning],
        given: Mapping[Value, Form | None] | None = None,
        shapes: Mapping[Value, tuple[int | SymDim, ...]] | None = None,
    ) -> None:
        self._definition = definition
        self._meanings = meanings
        self._given = given or {}
        self._shapes = shapes or {}
        self._terms: dict[Value, Form | None] = {}

    def of(self, arg: Arg) -> Form | None:
        """Return the form of a scalar, or None if unknown."""
        found = affine_of(arg, self._definition)
        if found is None:
            return None
        total: Form = Affine(found.constant)
        for term, factor in found.terms:
            if term not in self._terms:
                self._terms[term] = self._term(term)
            form = self._terms[term]
            if form is None:
                return None
            total = total.plus(form.times(factor))
        return total

    def _term(self, term: Value) -> Form | None:
        if term in self._given:
            return self._given[term]
        itself: Form = Affine(0, ((term, 1),))
        op = self._definition.get(term)
        if op is None:
            return itself
        if Trait.SHAPE_ONLY in op.spec.traits:
            return self._extent(op) or itself
        meaning = self._meaning(op)
        if meaning is None:
            return itself
        # The term has another definition at another call of this function.
        own = Value(term.name, term.type, term.loc)
        self._meanings[own] = meaning
        return Affine(0, ((own, 1),))

    def _extent(self, op: Op) -> Form | None:
        tensor, axis = op.args.get("tensor"), op.args.get("axis")
        if not isinstance(tensor, Value) or not isinstance(axis, int):
            return None
        shape = self._shapes.get(tensor)
        if shape is None and isinstance(tensor.type, TensorType) and not self._shapes:
            shape = tensor.type.shape
        return None if shape is None else extent_form(shape[axis])

    def _meaning(self, op: Op) -> Meaning | None:
        operation = op.name.removeprefix("scalar.")
        if operation not in ("floordiv", "mod", "min", "max") or not _of_integers(op):
            return None
        left, right = self.of(op.args["lhs"]), self.of(op.args["rhs"])
        if left is None or right is None:
            return None
        if operation in ("floordiv", "mod") and (right.terms or right.constant <= 0):
            return None
        return Meaning(operation, left, right)

    def condition(self, arg: Arg, holds: bool) -> Condition | None:
        """Return that a condition holds, or that it does not; None if unknown."""
        op = self._definition.get(arg) if isinstance(arg, Value) else None
        if op is None:
            return None
        operation = op.name.removeprefix("scalar.")
        if operation == "not":
            return self.condition(op.args["x"], not holds)
        if operation in ("and", "or"):
            parts = [self.condition(op.args[side], holds) for side in ("lhs", "rhs")]
            return _join_conditions(parts, "and" if (operation == "and") == holds else "or")
        sign = _SIGNS.get(operation)
        if sign is None or not _of_integers(op):
            return None
        left, right = self.of(op.args["lhs"]), self.of(op.args["rhs"])
        if left is None or right is None:
            return None
        which = sign[0] if holds else sign[1]
        return lambda text: f"({text(left)} {which} {text(right)})"


_SIGNS = {
    "lt": ("<", ">="),
    "le": ("<=", ">"),
    "gt": (">", "<="),
    "ge": (">=", "<"),
    "eq": ("=", "!="),
    "ne": ("!=", "="),
}


def _join_conditions(parts: list[Condition | None], how: str) -> Condition | None:
    known = [part for part in parts if part is not None]
    if not known or (how == "or" and len(known) < len(parts)):
        return None
    return lambda text: "(" + f" {how} ".join(part(text) for part in known) + ")"


def _of_integers(op: Op) -> bool:
    dtypes = [scalar_dtype(op.args[side]) for side in ("lhs", "rhs")]
    return all(dtype is not None and dtype.is_integer for dtype in dtypes)


def extent_form(extent: int | SymDim) -> Form:
    return Affine(extent) if isinstance(extent, int) else Affine(0, ((extent, 1),))
