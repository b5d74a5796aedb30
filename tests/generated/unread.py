"""Unread values, and names of tensors that become tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.generated import oracle
from tests.generated.core import Expr, GmT, Run, ScalarT, Step, TileT, run_steps
from tests.generated.oracle import Tile
from tests.generated.statements import Statements, applied, looping


class Unread(Statements):
    """Windows and results of `if` that are never read: they must neither fail nor matter."""

    def simple(self) -> list[Callable[[], Any]]:
        return [*super().simple(), self.unread_window, self.unread_branch, self.tile_of_a_tensor]

    def _flat_tensors(self) -> list[str]:
        return self.names(lambda t: isinstance(t, GmT) and len(t.shape) == 2)

    def unread_window(self) -> None:
        names = self._flat_tensors()
        if not names:
            return
        name = self.choices.pick(names)
        t = self.env[name]
        assert isinstance(t, GmT)
        shape = [self.choices.number(1, d) for d in t.shape]
        offsets = [self.offset(d - s) for d, s in zip(t.shape, shape)]
        window = ", ".join(f"{o.text} : {o.text} + {s}" for o, s in zip(offsets, shape))
        self.emit(f"{self.fresh('u')} = {name}[{window}]", lambda r: None)

    def unread_branch(self) -> None:
        """Both arms bind names, or only one does."""
        condition = self.condition()
        t = TileT(self.choices.pick(self.shapes()), self.choices.pick(("FP32", "INT32")))
        names = [self.fresh("u") for _ in range(self.choices.number(1, 2))]
        before = dict(self.env)
        arms: list[list[Step]] = [[], []]
        for i, header in enumerate((f"if {condition.text}:", "else:")[: self.choices.number(1, 2)]):
            with self.block(header) as arms[i]:
                for name in names:
                    self.assign(name, self.computed(self.tile(t.shape, t.dtype, 1)), t)
                if self.choices.chance(50):
                    self.line(f"{self.fresh('u')} = {self.choices.number(0, 3)}")
            self.env = dict(before)
        self.steps.append(lambda r: run_steps(arms[not condition.value(r)], r))

    def tile_of_a_tensor(self) -> None:
        """`t = x`, and a loop or an `if` makes a tile of it, with constants that it binds."""
        names = [n for n in self._flat_tensors() if self.env[n].dtype in ("FP32", "INT32")]  # type: ignore[union-attr]
        if not names:
            return
        source = self.choices.pick(names)
        t = self.env[source]
        assert isinstance(t, GmT)
        name, constant = self.fresh("t"), self.fresh("k")
        type_ = TileT((t.shape[0], t.shape[1]), t.dtype)
        self.emit(
            f"{name} = {source}", lambda r: r.env.update({name: oracle.whole(r.env[source].copy())})
        )
        if not t.writable and self.choices.chance(40):
            # A condition that is known at compile time may leave the name a tensor.
            self.shared.add(name)
            condition = self.condition()
            with self.block(f"if {condition.text}:") as steps:
                self._becomes(name, constant, type_)
            self.steps.append(lambda r: run_steps(steps if condition.value(r) else [], r))
        else:
            text, indices, (low, high) = self.bounds()
            index = self.fresh("i")
            before = dict(self.env)
            with self.block(f"for {index} in pl.range({text}):") as steps:
                self.env[index] = ScalarT("INDEX", low, high)
                self._becomes(name, constant, type_)
            self.steps.append(looping(index, indices, steps))
            self.env = before
        self.env[name] = type_

    def _becomes(self, name: str, constant: str, t: TileT) -> None:
        old = Expr(name, lambda r: r.env[name], t)
        form = self.choices.number(0, 3)
        if form == 0:
            new = applied(self.choices.pick(("neg", "abs")), old)
            self.emit(f"{name} = {new.text}", lambda r: r.env.update({name: new.value(r)}))
            return
        number = self.choices.pick((0, 1, 2, -3))
        text = str(number) if t.dtype == "INT32" else f"{number}.0"
        self.line(f"{constant} = {text}")

        def all_of(shape: tuple[int, int]) -> Tile:
            return oracle.whole(np.full(shape, number, oracle.NUMPY[t.dtype]))

        if form == 1:
            filled = f"pl.full([{t.shape[0]}, {t.shape[1]}], pl.{t.dtype}, {constant})"
            self.emit(f"{name} = {filled}", lambda r: r.env.update({name: all_of(t.shape)}))
            return
        op = ("add", "mul")[form - 2]

        def step(r: Run) -> None:
            both = (r.env[name], all_of((1, 1)))
            r.env[name] = oracle.zipped(lambda p, q: oracle.binary(op, p, q), *both)

        self.emit(f"{name} = pl.{op}({name}, {constant})", step)
