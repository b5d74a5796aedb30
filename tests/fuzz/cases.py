"""Cases of the fuzz target: generated programs, and texts and inputs that are probably wrong.

A case is a few plain values, so that it can be sent to a process, kept in a file and made again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from tests.fuzz import any_op, families
from tests.fuzz.mutations import mutated
from tests.generated.core import Choices, Param
from tests.generated.generator import FOCUSES, TAPE, Kernel, make
from tests.generated.spellings import respelt

SHORTEST = 60  # bytes of a tape for a program of a few statements
INPUT_SETS = 4  # per program, because compiling dominates


@dataclass(frozen=True)
class Case:
    """A program: by the tape it is generated from, or by its text.

    tape    of a generated program, in hexadecimal; the oracle says what it computes
    text    of any other program; the engines must agree about it
    inputs  not 0: the arguments are spoilt in a way that this number chooses
    words   not 0: the text is written in other words, which this number chooses
    family  what is counted together
    """

    focus: str = ""
    tape: str = ""
    text: str = ""
    style: str = ""
    params: tuple[tuple[Any, ...], ...] = ()
    inputs: int = 0
    words: int = 0
    origin: dict[str, int] = field(default_factory=dict)
    family: str = ""

    @property
    def is_generated(self) -> bool:
        return bool(self.focus)

    @property
    def is_text(self) -> bool:
        return not self.is_generated and not self.inputs

    @property
    def input_sets(self) -> int:
        """Number of inputs to try; texts that may have an endless loop are tried once."""
        return 1 if self.family == "changed texts" else INPUT_SETS

    def kernel(self) -> Kernel:
        """Return the program; without an oracle if it is given by its text."""
        if self.is_generated:
            kernel = make(Choices(bytes.fromhex(self.tape)), self.focus)
            return replace(kernel, text=respelt(kernel.text, self.words)) if self.words else kernel
        params = tuple(
            Param(n, tuple(s), d, "", seed, nasty) for n, s, d, seed, nasty in self.params
        )
        return Kernel(self.text, self.style, params, ())

    def as_text(self) -> Case:
        """Return the same program, given by its text."""
        kernel = self.kernel()
        params = tuple((p.name, p.shape, p.dtype, p.seed, p.nasty) for p in kernel.params)
        return Case(
            text=kernel.text, style=kernel.style, params=params,
            inputs=self.inputs, origin=self.origin, family=self.family,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Case:
        return Case(**{**values, "params": tuple(tuple(p) for p in values["params"])})


def draw(seed: int, number: int, focus: str = "") -> Case:
    """Draw case `number` of a run: three of four are valid, most of them with an oracle."""
    rng = np.random.default_rng([seed, number])
    focus = focus or str(rng.choice([*FOCUSES, "accumulators"]))
    length = int(rng.choice([SHORTEST, 150, 400, TAPE]))
    origin = {"seed": seed, "number": number}
    case = Case(focus, rng.bytes(length).hex(), origin=origin, family=focus)
    kind = rng.integers(0, 10)
    if kind == 0:
        inputs = int(rng.integers(1, 1 << 30))
        return replace(case.as_text(), inputs=inputs, family="spoilt inputs")
    if kind == 1:
        text = case.as_text()
        return replace(text, text=mutated(text.text, rng), family="changed texts")
    if kind == 2:
        return _from_text("any op", any_op.program(rng), rng, origin)
    if kind in (3, 4, 5):
        name = str(rng.choice(list(families.FAMILIES)))
        return _from_text(name, families.program(rng, name), rng, origin)
    return replace(case, words=int(rng.integers(1, 1 << 30))) if kind == 6 else case


def _from_text(
    family: str,
    drawn: tuple[str, families.Params],
    rng: np.random.Generator,
    origin: dict[str, int],
) -> Case:
    text, params = drawn
    nasty = bool(rng.integers(0, 2))
    given = tuple((n, s, d, int(rng.integers(1 << 30)), nasty) for n, s, d in params)
    return Case(text=text, style="jit", params=given, origin=origin, family=family)
