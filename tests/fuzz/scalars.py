"""Programs of arithmetic on scalars of every type, in the control program and in tasks."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from tests.fuzz.drawing import SCOPE, Draw

_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
_FLOATS = ("FP32", "FP16", "BF16")
_DTYPES = (*_INTEGERS, *_FLOATS)
_LENGTH = 8
_LITERALS = ("0", "1", "2", "3", "7", "100", "-1", "-5")
_REALS = ("0.0", "0.5", "-1.5", "3.0", "1e10")


class _Scalars:
    """Draws expressions over parameters, elements of tensors and bound names."""

    def __init__(self, d: Draw) -> None:
        self.d = d
        self.names: dict[str, str] = {}
        self.count = 0

    def value(self, dtype: str, depth: int) -> str:
        """Draw a scalar of a type."""
        d = self.d
        if depth <= 0:
            names = [n for n, t in self.names.items() if t == dtype]
            read = f"pl.read(x_{dtype}, [{d.one(*range(_LENGTH))}])"
            return d.one(read, read, *names, *names)
        a, b = self.value(dtype, depth - 1), self.operand(dtype, depth - 1)
        forms = [
            *(f"({a} {symbol} {b})" for symbol in ("+", "-", "*")),
            *(f"pl.{name}({a}, {b})" for name in ("min", "max")),
            self.converted(dtype, depth),
            self.converted(dtype, depth),
        ]
        if dtype in _FLOATS:
            forms += [f"({a} / {b})", f"(-{a})"]
        else:
            divisor = self.nonzero(dtype, depth - 1)
            shift = d.one("1", "5", f"({a} % 70)", f"pl.cast({a} % 9, pl.{dtype})", b)
            forms += [f"({a} // {divisor})", f"({a} % {divisor})", f"(~{a})", f"(-{a})"]
            forms += [f"({a} << {shift})", f"({a} >> {shift})"]
        return d.one(*forms)

    def operand(self, dtype: str, depth: int) -> str:
        literals = _REALS if dtype in _FLOATS else _LITERALS[:6] if dtype[0] == "U" else _LITERALS
        return self.d.one(self.value(dtype, depth), self.value(dtype, depth), self.d.one(*literals))

    def nonzero(self, dtype: str, depth: int) -> str:
        return self.d.one("3", "7", f"pl.max({self.value(dtype, depth)}, 1)")

    def converted(self, dtype: str, depth: int) -> str:
        """Draw a value of another type, or of two, that is cast to this one."""
        d, other, more = self.d, self.d.one(*_DTYPES), self.d.one(*_DTYPES)
        a, b = self.value(other, depth - 1), self.value(more, depth - 1)
        mixed = d.one(
            a,
            a,
            f"({a} {d.one('+', '-', '*', '/')} {b})",
            f"pl.{d.one('min', 'max')}({a}, {b})",
        )
        return f"pl.cast({mixed}, pl.{dtype})"

    def condition(self) -> str:
        d = self.d
        first, other = d.one(*_DTYPES), d.one(*_DTYPES)
        a, b = self.value(first, 1), d.one(self.value(first, 1), self.value(other, 1))
        text = f"{a} {d.one('<', '<=', '>', '>=', '==', '!=')} {b}"
        return d.one(text, text, f"not ({text})", f"({text}) and ({b} > 0)", f"({text}) or {b} < 3")

    def statements(self) -> list[str]:
        """Draw bindings, branches and a loop that carries a number, and store the results."""
        d = self.d
        lines: list[str] = []
        for _ in range(d.one(2, 4)):
            dtype = d.one(*_DTYPES)
            self.count += 1
            name = f"s{self.count}"
            lines.append(f"{name} = pl.cast({self.value(dtype, 2)}, pl.{dtype})")
            self.names[name] = dtype
            change = f"{name} = pl.cast({self.value(dtype, 1)}, pl.{dtype})"
            form = d.one("", "if", "for")
            if form == "if":
                lines += [f"if {self.condition()}:", f"    {change}"]
            elif form == "for":
                lines += [f"for i{self.count} in pl.range({d.one(1, 3)}):", f"    {change}"]
            place = d.one(*range(_LENGTH))
            lines.append(f"pl.write(r_{dtype}, [{place}], {name})")
        return lines


def scalars(d: Draw) -> str:
    for dtype in _DTYPES:
        d.given(f"x_{dtype}", (_LENGTH,), dtype)
    drawn = _Scalars(d)
    for dtype in ("INT32", "INT64", "FP32", "UINT8", "INT16", "UINT64"):
        d.given(f"p_{dtype}", (), dtype)
        drawn.names[f"p_{dtype}"] = dtype
    d.direction = "InOut"
    for dtype in _DTYPES:
        d.made(f"r_{dtype}", (_LENGTH,), dtype)
    parts: list[str] = []
    for _ in range(d.one(1, 2)):
        before = dict(drawn.names)
        lines = drawn.statements()
        if d.one(0, 1):
            lines = [SCOPE, *(f"    {line}" for line in lines)]
            drawn.names = before
        parts += lines
    return "\n" + textwrap.indent("\n".join(parts), " " * 4) + "\n"


FAMILIES: dict[str, Callable[[Draw], str]] = {"scalars": scalars}
