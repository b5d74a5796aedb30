"""Random loops around one window, with known accesses of every iteration.

Offsets and bounds are sums, multiples, quotients, remainders, minima and maxima of loop indices and
of a parameter; loops are triangular, run backwards, or stand under a condition.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

ROWS = 512
FIRST = 128
"""Where row 0 of an offset is, so that it may be negative."""

Env = dict[str, int]


def quotient(a: int, b: int) -> int:
    return abs(a) // b * (1 if a >= 0 else -1)


def remainder(a: int, b: int) -> int:
    return a - b * quotient(a, b)


@dataclass(frozen=True)
class Expression:
    """An integer expression, as kernel text and as Python text."""

    text: str
    python: str

    def at(self, env: Env) -> int:
        names = {"quotient": quotient, "remainder": remainder, "min": min, "max": max}
        return eval(self.python, names, dict(env))


@dataclass
class Nest:
    kind: str
    index: str
    start: Expression
    stop: Expression
    step: int

    def values(self, env: Env) -> range:
        return range(self.start.at(env), self.stop.at(env), self.step)


@dataclass
class Affine:
    """Return `y[write] = y[read] + 1` in nested loops, under an optional condition."""

    loops: list[Nest]
    write: Expression
    read: Expression | None
    condition: Expression | None
    rows: int
    no_dep: bool
    text: str = ""
    extent: int = ROWS

    @property
    def sizes(self) -> list[int]:
        """Values of the parameter that distinguish programs."""
        return list(range(6)) if any("n" in x.stop.python for x in self.loops) else [1]

    def iterations(self, n: int) -> Iterator[Env]:
        yield from self._nested(self.loops, {"n": n})

    def _nested(self, loops: list[Nest], env: Env) -> Iterator[Env]:
        if not loops:
            if self.condition is None or self.condition.at(env):
                yield env
            return
        for value in loops[0].values(env):
            yield from self._nested(loops[1:], {**env, loops[0].index: value})

    def windows(self, env: Env) -> list[tuple[range, bool]]:
        """Return the rows that an iteration touches, and whether it writes them."""
        found = [(self._window(self.write, env), True)]
        return found if self.read is None else [*found, (self._window(self.read, env), False)]

    def _window(self, offset: Expression, env: Env) -> range:
        start = FIRST + offset.at(env)
        return range(start, start + self.rows)

    def disturbs(self, a: Env, b: Env) -> bool:
        """Whether two iterations touch the same rows, and nothing orders them."""
        loop = next((x for x in self.loops if a[x.index] != b[x.index]), None)
        if loop is None or not (self.no_dep or loop.kind == "parallel"):
            return False
        return any(
            (writes or also) and set(mine) & set(other)
            for mine, writes in self.windows(a)
            for other, also in self.windows(b)
        )


def literal(n: int) -> Expression:
    return Expression(str(n), str(n))


def _index(rnd: random.Random, names: list[str]) -> Expression:
    """Draw a quasi-affine expression of these names."""
    name = rnd.choice(names)
    kind = rnd.randrange(7)
    k = rnd.choice([2, 3, 4])
    if kind == 0:
        return Expression(f"({name} // {k})", f"quotient({name}, {k})")
    if kind == 1:
        return Expression(f"({name} % {k})", f"remainder({name}, {k})")
    if kind == 2:
        return Expression(f"pl.min({name}, {k})", f"min({name}, {k})")
    if kind == 3:
        return Expression(f"pl.max({name}, {k})", f"max({name}, {k})")
    if kind == 4:
        return Expression(f"({name} - {k})", f"({name} - {k})")
    return Expression(name, name)


def _offset(rnd: random.Random, names: list[str], rows: int) -> Expression:
    """Draw a sum of indices whose factors often keep windows disjoint."""
    if rnd.random() < 0.3:
        name, k = rnd.choice(names), rnd.choice([2, 3, 4])
        a, b = rnd.choice([rows * k, rows * k, rows]), rnd.choice([rows, rows, rows // 2])
        return Expression(
            f"{name} // {k} * {a} + {name} % {k} * {b}",
            f"quotient({name}, {k}) * {a} + remainder({name}, {k}) * {b}",
        )
    parts = [_index(rnd, names) for _ in range(rnd.choice([1, 1, 2]))]
    parts += [Expression(names[0], names[0])] if rnd.random() < 0.4 else []
    factors = [rnd.choice([rows, rows, 2 * rows, 4 * rows, -rows, rows // 2]) for _ in parts]
    return Expression(
        " + ".join(f"{p.text} * {f}" for p, f in zip(parts, factors)),
        " + ".join(f"{p.python} * {f}" for p, f in zip(parts, factors)),
    )


def _loop(rnd: random.Random, outer: list[str], index: str, parametric: bool) -> Nest:
    kind = rnd.choice(["parallel", "parallel", "range"])
    start, stop, step = literal(0), literal(rnd.choice([2, 3, 5])), 1
    choice = rnd.random()
    if outer and choice < 0.25:
        stop = Expression(f"{outer[-1]} + 1", f"{outer[-1]} + 1")
    elif outer and choice < 0.4:
        start, stop = Expression(outer[-1], outer[-1]), literal(4)
    elif choice < 0.6:
        step = rnd.choice([2, 3])
        stop = literal(step * rnd.choice([2, 3]))
    elif choice < 0.75 and kind == "range":
        start, stop, step = literal(rnd.choice([3, 4])), literal(-1), -1
    elif parametric:
        stop = Expression("n", "n")
    return Nest(kind, index, start, stop, step)


def generate(seed: int) -> Affine:
    rnd = random.Random(seed)
    parametric = rnd.random() < 0.3
    loops: list[Nest] = []
    for index in "ijk"[: rnd.choice([1, 2, 2, 3])]:
        loops.append(_loop(rnd, [x.index for x in loops], index, parametric))
    names = [x.index for x in loops]
    rows = rnd.choice([2, 4])
    condition = None
    if rnd.random() < 0.4:
        left, sign = _index(rnd, names), rnd.choice(["<", "<=", ">", ">=", "==", "!="])
        right = rnd.choice(["0", "1", "2", *names])
        condition = Expression(f"{left.text} {sign} {right}", f"{left.python} {sign} {right}")
    made = Affine(
        loops,
        _offset(rnd, names, rows),
        _offset(rnd, names, rows) if rnd.random() < 0.3 else None,
        condition,
        rows,
        rnd.random() < 0.5,
        extent=rnd.choice([ROWS, FIRST + 16, FIRST + 32]),
    )
    made.text = _text(rnd, made)
    return made


def _text(rnd: random.Random, made: Affine) -> str:
    in_kernel = rnd.random() < 0.5  # where scalars are computed
    lines = [
        "@pl.program",
        "class Program:",
        "    @pl.function(type=pl.FunctionType.Opaque)",
        f"    def main(self, x: pl.Tensor[[{made.rows}, 64], pl.FP32], n: pl.Scalar[pl.INDEX],",
        f"             y: pl.InOut[pl.Tensor[[{made.extent}, 64], pl.FP32]]):",
    ]
    indent = "        "
    for x in made.loops:
        bounds = f"{x.start.text}, {x.stop.text}, {x.step}"
        lines.append(f"{indent}for {x.index} in pl.{x.kind}({bounds}):")
        indent += "    "
    offsets = {"w": made.write, **({"r": made.read} if made.read else {})}
    numbers = [f"{name} = {FIRST} + {form.text}" for name, form in offsets.items()]
    no_dep = ", no_dep_args=[y]" if made.no_dep else ""
    scope = f"with pl.at(level=pl.Level.CORE_GROUP{no_dep}):"
    test = f"if {made.condition.text}:" if made.condition is not None else ""
    source = f"y[r : r + {made.rows}, :]" if made.read is not None else "x[:, :]"
    store = f"y[w : w + {made.rows}, :] = pl.add({source}, 1.0)"
    for line in [scope, test, *numbers] if in_kernel else [test, *numbers, scope]:
        if line:
            lines.append(indent + line)
            indent += "    " if line.endswith(":") else ""
    return "\n".join([*lines, indent + store, "        return y", ""])
