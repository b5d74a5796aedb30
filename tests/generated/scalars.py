"""Random scalars: integers that wrap and truncate, FP32 numbers, conditions, offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.generated.core import Expr, GmT, Run, ScalarT, TileT, Writer
from tests.generated.oracle import Tile

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _quotient(p: int, q: int) -> int:
    return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


# Division of run-time integers truncates toward zero.
TRUNCATED: dict[str, Callable[[int, int], int]] = {
    "//": _quotient,
    "%": lambda p, q: p - q * _quotient(p, q),
}


def number_text(number: int) -> str:
    return str(number) if number >= 0 else f"({number})"


def wrapped(value: int, dtype: str) -> int:
    bits = 32 if dtype == "INT32" else 64
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


class Scalars(Writer):
    """Scalar expressions over the names in `self.env`."""

    def __init__(self, choices: Any, style: str) -> None:
        super().__init__(choices, style)
        self.helpers: list[Any] = []
        self.constants: dict[str, int] = {}
        # Tiles placed by `pl.load` make products in Acc, which the cube unit cannot read again.
        self.loads_by_hand = choices.chance(25)

    def integer(self, depth: int = 2) -> Expr:
        """An integer scalar of any size, wrapping in its type."""
        names = self.names(lambda t: isinstance(t, ScalarT) and t.dtype in ("INDEX", "INT32"))
        kind = self.choices.number(0, 10 if depth else 2)
        if kind <= 1 and names:
            return self._scalar_name(self.choices.pick(names))
        if kind == 2 and self.constants:
            return self._captured()
        if kind <= 2 or not names:
            number = self.choices.number(-9, 20)
            return Expr(number_text(number), lambda _: number, ScalarT(""))
        if kind == 10:
            return self._extreme(depth)
        if kind == 9:
            return self._quotient(depth)
        if kind == 8:
            return self._element_read() or self.integer(depth - 1)
        if kind == 7:
            a, b = self.integer(depth - 1), self.integer(depth - 1)
            name = self.choices.pick(("min", "max"))
            choose: Callable[..., int] = min if name == "min" else max
            return self._typed(f"pl.{name}({a.text}, {b.text})", a, b, choose)
        if kind in (5, 6):
            return self._division(depth)
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        if kind == 3 and self.choices.chance(30):
            amount = self.choices.number(0, 5)
            if not a.type.dtype:
                return a
            symbol = self.choices.pick(("<<", ">>"))
            by = Expr(str(amount), lambda _: amount, ScalarT(""))
            shift = (lambda p, q: p << q) if symbol == "<<" else (lambda p, q: p >> q)
            return self._typed(f"({a.text} {symbol} {amount})", a, by, shift)
        symbol = self.choices.pick(("+", "-", "*"))
        return self._typed(f"({a.text} {symbol} {b.text})", a, b, _ARITHMETIC[symbol])

    def _typed(self, text: str, a: Expr, b: Expr, operation: Callable[[int, int], int]) -> Expr:
        """A scalar op: a plain number takes the other's type; INDEX is wider than INT32."""
        dtypes = {a.type.dtype, b.type.dtype} - {""}
        if not dtypes:  # two plain numbers: Python's arithmetic
            return Expr(text, lambda r: operation(a.value(r), b.value(r)), ScalarT(""))
        if len(dtypes) == 2:
            # A known number takes the other's type, an unknown one stays an INDEX.
            for one, other in ((a, b), (b, a)):
                if one.type.is_constant:  # pyright: ignore[reportAttributeAccessIssue]
                    return other
        dtype = "INDEX" if "INDEX" in dtypes else "INT32"
        is_constant = all(t.is_constant or not t.dtype for t in (a.type, b.type))  # pyright: ignore[reportAttributeAccessIssue]
        type_ = ScalarT(dtype, is_constant=is_constant)
        return Expr(text, lambda r: wrapped(operation(a.value(r), b.value(r)), dtype), type_)

    def _division(self, depth: int) -> Expr:
        """Run-time and kernel scalars truncate quotients, unlike captured Python numbers."""
        a = self.integer(depth - 1)
        divisor = self.choices.pick((2, 3, 7, -2, -5, -1, 1))
        if not a.type.dtype:
            return a
        symbol = self.choices.pick(("//", "%"))
        by = Expr(str(divisor), lambda _: divisor, ScalarT(""))
        return self._typed(f"({a.text} {symbol} {number_text(divisor)})", a, by, TRUNCATED[symbol])

    def _quotient(self, depth: int) -> Expr:
        """A division by a number that is known at run time and is not zero."""
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        if not a.type.dtype or not b.type.dtype:
            return a
        name, limit = self.choices.pick((("max", 1), ("min", -1)))
        choose: Callable[..., int] = max if name == "max" else min
        by = Expr(
            f"pl.{name}({b.text}, {limit})",
            lambda r: choose(b.value(r), limit),
            ScalarT(b.type.dtype),
        )
        symbol = self.choices.pick(("//", "%"))
        return self._typed(f"({a.text} {symbol} {by.text})", a, by, TRUNCATED[symbol])

    def _extreme(self, depth: int) -> Expr:
        """Arithmetic with a number at the end of its type's range."""
        a = self.integer(depth - 1)
        if not a.type.dtype or a.type.is_constant:  # pyright: ignore[reportAttributeAccessIssue]
            return a
        by = self._limit_of(a.type.dtype)
        symbol = self.choices.pick(("//", "%", "+", "-", "*", "min", "max"))
        if symbol in ("min", "max"):
            choose: Callable[..., int] = min if symbol == "min" else max
            return self._typed(f"pl.{symbol}({a.text}, {by.text})", a, by, choose)
        operation = {**_ARITHMETIC, **TRUNCATED}[symbol]
        return self._typed(f"({a.text} {symbol} {by.text})", a, by, operation)

    def _limit_of(self, dtype: str) -> Expr:
        top = (1 << (31 if dtype == "INT32" else 63)) - 1
        number = self.choices.pick((top, -top - 1, top - 1, -top, top // 2 + 1))
        return Expr(number_text(number), lambda _: number, ScalarT(""))

    def long_sum(self, terms: int) -> Expr:
        """An expression as deep as it is long."""
        total = self.integer(0)
        for _ in range(terms):
            total = self._typed(
                f"({total.text} {(symbol := self.choices.pick(('+', '-', '*')))} "
                f"{(number := self.choices.number(0, 5))})",
                total,
                Expr(str(number), lambda _, n=number: n, ScalarT("")),
                _ARITHMETIC[symbol],
            )
        return total

    def _captured(self) -> Expr:
        """An expression of captured constants alone, which Python evaluates (floor division)."""
        name = self.choices.pick(list(self.constants))
        value = self.constants[name]
        symbol = self.choices.pick(("", "//", "%", "**"))
        if not symbol:
            return Expr(name, lambda _: value, ScalarT(""))
        by = {"//": 2, "%": 5, "**": 2}[symbol]
        found = {"//": value // 2, "%": value % 5, "**": value**2}[symbol]
        return Expr(f"({name} {symbol} {by})", lambda _: found, ScalarT(""))

    def _scalar_name(self, name: str) -> Expr:
        found = self.env[name]
        assert isinstance(found, ScalarT)
        type_ = ScalarT(found.dtype, is_constant=found.is_constant)
        return Expr(name, lambda r: r.env[name], type_)

    def _element_read(self) -> Expr | None:
        """One element of an INT32 tensor or tile."""
        names = self.readable("INT32")
        if not names:
            return None
        name = self.choices.pick(names)
        text, at = self._element(name)
        return Expr(text, lambda r: int(_data(r.env[name])[at(r)]), ScalarT("INT32"))

    def readable(self, dtype: str) -> list[str]:
        return self.names(
            lambda t: isinstance(t, (TileT, GmT)) and t.dtype == dtype and len(t.shape) == 2
        )

    def _element(self, name: str) -> tuple[str, Callable[[Run], tuple[int, ...]]]:
        found = self.env[name]
        assert isinstance(found, (TileT, GmT))
        offsets = [self.offset(extent - 1) for extent in found.shape]
        inside = ", ".join(o.text for o in offsets)
        form = self.choices.number(0, 1)
        text = f"{name}[{inside}]" if form else f"pl.read({name}, [{inside}])"
        return text, lambda r: tuple(o.value(r) for o in offsets)

    def real(self) -> Expr:
        """An FP32 scalar: a literal, or an element times a literal."""
        names = self.readable("FP32")
        literal = self.choices.pick((2.0, 0.5, -1.5, 0.1))
        if not names or self.choices.chance(40):
            return Expr(repr(literal), lambda _: np.float32(literal), ScalarT(""))
        name = self.choices.pick(names)
        text, at = self._element(name)

        def element(r: Run) -> Any:
            return np.float32(_data(r.env[name])[at(r)])

        if self.choices.chance(50):
            return Expr(text, element, ScalarT("FP32"))

        def scaled(r: Run) -> Any:
            with np.errstate(all="ignore"):
                return element(r) * np.float32(literal)

        return Expr(f"({text} * {literal!r})", scaled, ScalarT("FP32"))

    def clamped(self, low: int, high: int, depth: int = 2) -> Expr:
        """An integer expression within [low, high], with a run-time value if there is one."""
        inner = self.integer(depth)
        if not inner.type.dtype:
            names = self.names(lambda t: isinstance(t, ScalarT) and t.dtype == "INDEX")
            if names:
                a = self._scalar_name(self.choices.pick(names))
                inner = self._typed(f"({a.text} + {inner.text})", a, inner, _ARITHMETIC["+"])
        return Expr(
            f"pl.min(pl.max({inner.text}, {low}), {high})",
            lambda r: min(max(inner.value(r), low), high),
            ScalarT(inner.type.dtype, low, high),
        )

    def offset(self, limit: int) -> Expr:
        """A position in [0, limit]: a number or the name of a scalar."""
        fitting = self.names(
            lambda t: (
                isinstance(t, ScalarT) and t.dtype == "INDEX" and t.low >= 0 and t.high <= limit
            )
        )
        if fitting and self.choices.chance(60):
            return self._scalar_name(self.choices.pick(fitting))
        number = self.choices.number(0, limit)
        return Expr(str(number), lambda _: number, ScalarT(""))

    def condition(self) -> Expr:
        """A BOOL that is unknown at compile time, if there is a run-time scalar."""
        a, b = self.clamped(-50, 50), self.integer(1)
        if a.type.dtype and self.choices.chance(10):
            b = self._limit_of(a.type.dtype)
        symbol = self.choices.pick(("<", "<=", ">", ">=", "==", "!="))
        compare = COMPARISONS[symbol]
        first = Expr(
            f"{a.text} {symbol} {b.text}",
            lambda r: compare(a.value(r), b.value(r)),
            ScalarT("BOOL"),
        )
        form = self.choices.number(0, 5)
        if form == 5:
            return Expr(f"not ({first.text})", lambda r: not first.value(r), ScalarT("BOOL"))
        if form == 4:
            c = self.clamped(-9, 9, 1)
            joined = self.choices.pick(("and", "or"))
            both = (lambda p, q: p and q) if joined == "and" else (lambda p, q: p or q)
            return Expr(
                f"({first.text}) {joined} ({c.text} > 0)",
                lambda r: both(first.value(r), c.value(r) > 0),
                ScalarT("BOOL"),
            )
        return first


def _data(x: Any) -> Any:
    return x.data if isinstance(x, Tile) else x
