"""Affine index expressions: a constant plus a sum of multiples of terms."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from tilelet.analysis.scalars import Domain, apply
from tilelet.dataclasses import dataclass
from tilelet.ir.core import Arg, Op, Value
from tilelet.ir.fold import number_of

Term = TypeVar("Term", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Affine(Generic[Term]):
    """`constant + sum(factor * term)`, with terms in order of first use and no zero factor."""

    constant: int
    terms: tuple[tuple[Term, int], ...] = ()

    def plus(self, other: Affine[Term], sign: int = 1) -> Affine[Term]:
        terms = dict(self.terms)
        for term, factor in other.terms:
            terms[term] = terms.get(term, 0) + sign * factor
        kept = tuple((t, f) for t, f in terms.items() if f)
        return Affine(self.constant + sign * other.constant, kept)

    def times(self, factor: int) -> Affine[Term]:
        terms = tuple((t, f * factor) for t, f in self.terms) if factor else ()
        return Affine(self.constant * factor, terms)

    def same_terms(self, other: Affine[Term]) -> bool:
        """Whether the two differ by a constant."""
        return self.terms == other.terms or dict(self.terms) == dict(other.terms)


class AffineForms(Domain[Affine[Term]]):
    """Sums, differences and multiples of affine forms; other ops have no affine form."""

    def constant(self, number: int) -> Affine[Term]:
        return Affine(number)

    def number(self, a: Affine[Term]) -> int | None:
        return None if a.terms else a.constant

    def add(self, a: Affine[Term], b: Affine[Term]) -> Affine[Term]:
        return a.plus(b)

    def subtract(self, a: Affine[Term], b: Affine[Term]) -> Affine[Term]:
        return a.plus(b, -1)

    def scale(self, a: Affine[Term], factor: int) -> Affine[Term]:
        return a.times(factor)


_OF_VALUES: AffineForms[Value] = AffineForms()


def affine_of(arg: Arg, definition: Mapping[Value, Op]) -> Affine[Value] | None:
    """Return `arg` in terms of values that are not sums, differences or multiples themselves."""
    if not isinstance(arg, Value):
        number = number_of(arg)
        return Affine(number) if isinstance(number, int) else None
    op = definition.get(arg)
    found = None
    if op is not None:
        found = apply(_OF_VALUES, op, lambda a: affine_of(a, definition))
    return found if found is not None else Affine(0, ((arg, 1),))


Product = tuple[Value, ...]


def product(a: Affine[Product], b: Affine[Product]) -> Affine[Product]:
    """Multiply two forms; the factors of each product term are in a fixed order."""
    made = b.times(a.constant).plus(Affine(0, a.times(b.constant).terms))
    for left, factor in a.terms:
        for right, other in b.terms:
            values = tuple(sorted((*left, *right), key=id))
            made = made.plus(Affine(0, ((values, factor * other),)))
    return made


def constant_difference(x: Arg, y: Arg, definition: Mapping[Value, Op]) -> int | None:
    """Return `x - y` if it is a constant."""
    a, b = affine_of(x, definition), affine_of(y, definition)
    if a is None or b is None or not a.same_terms(b):
        return None
    return a.constant - b.constant
