"""Random programs on numbers, some of which come from unwritten elements.

Which results are defined is known from following every statement.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

WRITTEN = 4
"""Elements of the table that are written: 0, 1, 2, 3. The other four are not."""

NAMES = ("a", "b", "c")
Number = tuple[int, bool]
"""A value, and whether it is defined."""


@dataclass
class Numbers:
    """A program that writes its numbers to `out`, one after the other.

    place    "control": the numbers are computed between tasks, "kernel": in one
    defined  of each element of `out`, in order
    decides  whether an undefined number decides a branch
    """

    place: str
    lines: list[str] = field(default_factory=list)
    defined: list[bool] = field(default_factory=list)
    decides: bool = False

    @property
    def text(self) -> str:
        head = [
            "@pl.program",
            "class Numbers:",
            "    @pl.function(type=pl.FunctionType.Opaque)",
            f"    def main(self, out: pl.Out[pl.Tensor[[{len(NAMES)}], pl.INT32]]):",
            "        t = pl.create_tensor([8], dtype=pl.INT32)",
        ]
        fill = [f"pl.write(t, [{i}], {i})" for i in range(WRITTEN)]
        results = [f"pl.write(out, [{i}], {name})" for i, name in enumerate(NAMES)]
        scope = "        with pl.at(level=pl.Level.CORE_GROUP):"
        if self.place == "control":
            body = [*_in(8, fill), *_in(8, self.lines), scope, *_in(12, results)]
        else:
            body = [scope, *_in(12, fill), scope, *_in(12, [*self.lines, *results])]
        return "\n".join([*head, *body, "        return out", ""])


def _in(columns: int, lines: list[str]) -> list[str]:
    return [" " * columns + line for line in lines]


def generate(seed: int) -> Numbers:
    rnd = random.Random(seed)
    made = Numbers(rnd.choice(["control", "kernel"]))
    writer = _Writer(rnd)
    program: list[tuple[object, ...]] = [("read", n, rnd.randrange(WRITTEN)) for n in NAMES]
    program += [writer.statement(0) for _ in range(rnd.randint(3, 7))]
    made.lines += [line for statement in program for line in writer.text(statement)]
    values: dict[str, Number] = {}
    try:
        for statement in program:
            _follow(statement, values)
    except _UndecidedError:
        made.decides = True
    made.defined = [values[name][1] for name in NAMES]
    return made


class _UndecidedError(Exception):
    """An undefined number would decide a branch."""


class _Writer:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd

    def statement(self, depth: int) -> tuple[object, ...]:
        rnd = self.rnd
        kind = rnd.choice(["read", "add", "take", "if", "for"] if depth < 2 else ["read", "add"])
        name, other, third = (rnd.choice(NAMES) for _ in range(3))
        if kind == "read":
            return kind, name, rnd.randrange(8) if rnd.random() < 0.5 else rnd.randrange(WRITTEN)
        if kind in ("add", "take"):
            return kind, name, other, third
        blocks = [
            [self.statement(depth + 1) for _ in range(rnd.randint(1, 2))]
            for _ in range(2 if kind == "if" else 1)
        ]
        if kind == "if":
            return kind, name, rnd.randrange(3), *blocks
        return kind, rnd.randint(0, 3), *blocks

    def text(self, statement: tuple[object, ...]) -> list[str]:
        match statement:
            case ("read", name, at):
                return [f"{name} = pl.read(t, [{at}])"]
            case ("add", name, x, y):
                return [f"{name} = {x} + {y}"]
            case ("take", name, x, y):
                return [f"{name} = pl.min({x}, {y})"]
            case ("if", name, limit, then, orelse):
                return [f"if {name} > {limit}:", *self._block(then), "else:", *self._block(orelse)]
            case ("for", trips, body):
                return [f"for _ in pl.range({trips}):", *self._block(body)]
        raise AssertionError(statement)

    def _block(self, block: object) -> list[str]:
        assert isinstance(block, list)
        return _in(4, [line for statement in block for line in self.text(statement)])


def _follow(statement: tuple[object, ...], values: dict[str, Number]) -> None:
    match statement:
        case ("read", str(name), int(at)):
            values[name] = (at, at < WRITTEN)
        case ("add", str(name), str(x), str(y)):
            values[name] = (values[x][0] + values[y][0], values[x][1] and values[y][1])
        case ("take", str(name), str(x), str(y)):
            values[name] = (min(values[x][0], values[y][0]), values[x][1] and values[y][1])
        case ("if", str(name), int(limit), list(then), list(orelse)):
            value, defined = values[name]
            if not defined:
                raise _UndecidedError
            for inner in then if value > limit else orelse:
                _follow(inner, values)
        case ("for", int(trips), list(body)):
            for _ in range(trips):
                for inner in body:
                    _follow(inner, values)
        case _:
            raise AssertionError(statement)
