"""Cases of the fuzz target: generated programs, and texts and inputs that are probably wrong.

A case is a few plain values, so that it can be sent to a process, kept in a file and made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from tests.fuzz import any_op, families
from tests.fuzz.drawing import CALLS, Sizes
from tests.fuzz.mutations import mutated
from tests.generated.core import Choices, Param
from tests.generated.generator import FOCUSES, TAPE, Kernel, make
from tests.generated.spellings import respelt

SHORTEST = 60  # bytes of a tape for a program of a few statements
INPUT_SETS = CALLS  # per program, because compiling dominates
ANY_OP = "any op"
KINDS = (*FOCUSES, ANY_OP, *families.FAMILIES)  # what a run can be limited to


@dataclass(frozen=True)
class Case:
    """A program: by the tape it is generated from, or by its text.

    tape    of a generated program, in hexadecimal; the oracle says what it computes
    text    of any other program; the engines must agree about it
    inputs  not 0: the arguments are spoilt in a way that this number chooses
    words   not 0: the text is written in other words, which this number chooses
    sizes   extents that differ from one set of inputs to the next, by name
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
    sizes: Sizes = field(default_factory=dict)
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

    def kernel(self, number: int = 0) -> Kernel:
        """Return the program with one of its sets of inputs; without an oracle if it is given by
        its text.
        """
        if self.is_generated:
            kernel = make(Choices(bytes.fromhex(self.tape)), self.focus)
            return replace(kernel, text=respelt(kernel.text, self.words)) if self.words else kernel
        params = tuple(
            Param(n, self._extents(s, number), d, "", seed, nasty)
            for n, s, d, seed, nasty in self.params
        )
        return Kernel(self.text, self.style, params, ())

    def _extents(self, shape: Iterable[int | str], number: int) -> tuple[int, ...]:
        """Return a shape with numbers for the names of extents."""
        chosen = {name: values[number % len(values)] for name, values in self.sizes.items()}
        return tuple(chosen[e] if isinstance(e, str) else e for e in shape)

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
    origin = {"seed": seed, "number": number}
    if focus in (ANY_OP, *families.FAMILIES):
        return _of_family(focus, rng, origin)
    focus = focus or str(rng.choice([*FOCUSES, "accumulators"]))
    length = int(rng.choice([SHORTEST, 150, 400, TAPE]))
    case = Case(focus, rng.bytes(length).hex(), origin=origin, family=focus)
    kind = rng.integers(0, 10)
    if kind == 0:
        inputs = int(rng.integers(1, 1 << 30))
        return replace(case.as_text(), inputs=inputs, family="spoilt inputs")
    if kind == 1:
        text = case.as_text()
        return replace(text, text=mutated(text.text, rng), family="changed texts")
    if kind == 2:
        return _of_family(ANY_OP, rng, origin)
    if kind in (3, 4, 5):
        return _of_family(str(rng.choice(list(families.FAMILIES))), rng, origin)
    return replace(case, words=int(rng.integers(1, 1 << 30))) if kind == 6 else case


def _of_family(family: str, rng: np.random.Generator, origin: dict[str, int]) -> Case:
    text, params, sizes = (
        (*any_op.program(rng), {}) if family == ANY_OP else families.program(rng, family)
    )
    nasty = bool(rng.integers(0, 2))
    given = tuple((n, s, d, int(rng.integers(1 << 30)), nasty) for n, s, d in params)
    return Case(text=text, style="jit", params=given, origin=origin, sizes=sizes, family=family)
