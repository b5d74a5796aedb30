"""Memory cleared by arithmetic before any other use."""

from __future__ import annotations

import numpy as np
from tests.generated.core import GmT, ScalarT
from tests.generated.oracle import NUMPY
from tests.generated.scopes import Scopes, as_task
from tests.generated.statements import looping


class Clearing(Scopes):
    """Statements of the control program that make zeros of undefined memory."""

    def clear(self) -> str:
        """A new tensor, cleared block by block; windows start at a product of run-time values."""
        step, count = self.choices.pick((4, 8, 3)), self.choices.number(1, 3)
        shape = (step * count, self.choices.pick((8, 16, 5)))
        dtype = self.choices.pick(("FP32", "FP16", "BF16"))
        name, index, part = self.fresh("g"), self.fresh("i"), self.fresh("t")
        self.emit(
            f"{name} = pl.create_tensor([{shape[0]}, {shape[1]}], dtype=pl.{dtype})",
            lambda r: r.env.update({name: np.zeros(shape, NUMPY[dtype])}),
        )
        rows = f"{index} * {step}"
        before = dict(self.env)
        with self.block(f"for {index} in pl.range({count}):") as outer:
            self.env[index] = ScalarT("INDEX", 0, count - 1)
            with self.block("with pl.at(level=pl.Level.CORE_GROUP):") as steps, self.inside():
                self.line(f"{part} = {name}[{rows} : {rows} + {step}, :]")
                zeros = self.choices.pick(
                    (f"pl.mul({part}, 0.0)", f"pl.mul(0.0, {part})", f"pl.sub({part}, {part})")
                )
                self.line(f"{name}[{rows} : {rows} + {step}, :] = {zeros}")
            self.steps.append(as_task(steps))
        self.steps.append(looping(index, lambda _: range(count), outer))
        self.env = {**before, name: GmT(shape, dtype, writable=True)}
        return name
