"""Strong goldens: whatever single operation of a program is corrupted, its golden notices.

The exceptions are listed with their reasons, and it is checked that they change no bit of any
output. `pytest tests/models --every-corruption` goes through all; the default run takes a sample.
"""

from __future__ import annotations

import zlib
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.models.corruption import Corruption, How, corrupted, corruptions
from tests.models.programs import TINY, every_program, sizes_of

from tilelet.diag.core import UserError
from tilelet.diag.internal import InternalError
from tilelet.ir.core import Program
from tilelet.models.registry import resolve
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.data.inputs import initial_array
from tilelet.runtime.programs import engines
from tilelet.runtime.validation.differences import allclose

Arrays = dict[str, Any]

SAMPLE = 30  # corruptions per program in the default run


class Excuse(NamedTuple):
    """Corruptions that may change nothing: patterns of `Corruption.label` and of the line."""

    label: str
    line: str
    reason: str

    def covers(self, corruption: Corruption) -> bool:
        return fnmatchcase(corruption.label, self.label) and fnmatchcase(
            corruption.source_line, self.line
        )


ZERO = "it is zero anyway"
DISCARDED = "it only fills rows that are thrown away"
OVERWRITTEN = "what it fills is overwritten before anything reads it"
SCRATCH = "it chooses rows of a buffer that is filled again before each use"
INVALID = "what it fills is outside the valid region, which later operations leave out"
PADDING = "rows after the last token take part, and nothing reads what becomes of them"
ONE_PART = "its second operand is zero: at this size, a tile is normalised by one task"
HALF = "it keeps rounding away from whole numbers, and two heads divide without rounding"
SAID_AGAIN = (
    "the value is valid so far already: it is said again for vector units of other compilers"
)
ORDER = "every sequence is still handed out once, only in another order"

EQUIVALENT = (
    Excuse("full -> *: zeroed", "*value=0.0*", ZERO),
    Excuse("reshape -> *: zeroed", "*value=0.0*", ZERO),
    Excuse("cast -> *: zeroed", "*pl.cast(*zero, *", ZERO),
    Excuse("cast -> *: zeroed", "*pl.cast(pl.full(*value=0.0*", ZERO),
    Excuse("assemble -> [ol]i: zeroed", "with pl.incore():", ZERO),
    Excuse("assemble -> down_acc: zeroed", "*pl.assemble(down_acc, no_sum, *", ZERO),
    Excuse("assemble -> q_padded: *", "q_padded = pl.assemble(", DISCARDED),
    Excuse("assemble -> exp_padded: *", "exp_padded = pl.assemble(", DISCARDED),
    Excuse("*", "for ob in pl.parallel(0, blocks, chunk=8):", OVERWRITTEN),
    Excuse("*", "tensor = pl.assemble(tensor, zeros(), *", OVERWRITTEN),
    Excuse("*() -> tensor: dropped", "with pl.incore():", OVERWRITTEN),
    Excuse("fillpad -> fillpad: dropped", "*", INVALID),
    Excuse("fillpad -> scores: dropped", "*", INVALID),
    Excuse("set_validshape -> *: dropped", "*", SAID_AGAIN),
    Excuse("scalar.sub -> length: dropped", "known = pl.min(*", PADDING),
    Excuse("scalar.mul -> part0: *", "part0 = b0 * *", SCRATCH),
    Excuse("scalar.add -> b0: dropped", "*b0 + r0*", ONE_PART),
    Excuse("scalar.*", "if * // LENGTH_CLASS == LENGTH_CLASSES - 1 - shorter:", ORDER),
    Excuse("add -> add: dropped", "quotient = pl.mul(pl.add(row, 0.5), 1.0 / heads)", HALF),
)


class Case:
    """A program at a tiny size with its inputs, its own results and its golden's."""

    def __init__(self, name: str) -> None:
        self.model, variant = resolve(name)
        sizes = sizes_of(name, TINY)
        shape = self.model.shape_for(variant, **sizes)
        specs = self.model.specs(shape)
        self.program = run_passes(self.model.build(variant, **sizes))
        self.inputs = {s.name: initial_array(s, zero=False) for s in specs}
        self.outputs = [s.name for s in specs if s.is_output]
        self.expected = self._copy()
        self.model.golden(shape)(self.expected)
        self.own = self.run(self.program)

    def _copy(self) -> Arrays:
        return {name: array.copy() for name, array in self.inputs.items()}

    def run(self, program: Program, engine: str = "interp") -> Arrays:
        arrays = self._copy()
        engines.get(engine).run(program, arrays)
        return arrays

    def passes(self, results: Arrays) -> bool:
        """Return the harness's verdict: every output, caches too, is close to the golden's."""
        t = self.model.tolerance
        return all(allclose(results[n], self.expected[n], t, t) for n in self.outputs)

    def is_unchanged(self, results: Arrays) -> bool:
        return all(
            np.array_equal(results[n].view(np.uint8), self.own[n].view(np.uint8))
            for n in self.outputs
        )

    def verdict(self, corruption: Corruption) -> str:
        """ "noticed", "equivalent", or what is wrong with the golden."""
        try:
            results = self.run(corrupted(self.program, corruption))
        except (UserError, InternalError):
            return "noticed"  # it did not even run
        if not self.passes(results):
            return "noticed"
        if not self.is_unchanged(results):
            return "goes unnoticed, and changes results"
        excused = any(excuse.covers(corruption) for excuse in EQUIVALENT)
        return "equivalent" if excused else "changes nothing, for no reason that is listed"


def chosen(name: str, every: list[Corruption], all_of_them: bool) -> list[Corruption]:
    """Return all, or evenly spaced ones, starting at an index that depends on the program."""
    stride = 1 if all_of_them else -(-len(every) // SAMPLE)
    return every[zlib.crc32(name.encode()) % stride :: stride]


@every_program
def test_the_golden_notices_every_corrupted_operation(
    name: str, request: pytest.FixtureRequest
) -> None:
    case = Case(name)
    assert case.passes(case.own)
    everything = bool(request.config.getoption("--every-corruption", default=False))
    tried = chosen(name, list(corruptions(case.program)), everything)
    verdicts = {c: case.verdict(c) for c in tried}
    wrong = [f"{c}: {v}" for c, v in verdicts.items() if v not in ("noticed", "equivalent")]
    assert not wrong, "\n".join(wrong)
    assert list(verdicts.values()).count("noticed") > len(tried) / 2


@every_program
def test_the_golden_notices_a_dropped_store_in_native_code_too(name: str) -> None:
    case = Case(name)
    stores = [c for c in corruptions(case.program) if c.op.name == "assemble"]
    last = [c for c in stores if c.how is How.DROPPED][-1]
    assert not case.passes(case.run(corrupted(case.program, last), "cpu"))
