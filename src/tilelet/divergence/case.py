"""A program with its inputs and expected outputs, and the statements of its run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence

from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc
from tilelet.diag.json_types import JsonObject
from tilelet.divergence.error_map import Bools
from tilelet.divergence.golden_trace import Intermediate
from tilelet.dtypes import Arguments, Array
from tilelet.ir.core import Program

Masks = Mapping[str, Bools]


@dataclass(frozen=True)
class Trial:
    """Other inputs of a program, and whether its outputs are correct for them."""

    arguments: Arguments
    passes: Callable[[Mapping[str, Array]], bool]


def no_parts(_: Iterable[int]) -> Sequence[Intermediate]:
    """Do not call the golden over parts of its reductions."""
    return ()


@dataclass(frozen=True)
class Source:
    """The definition of a program's control function, and the program that another one gives."""

    file: str
    definition: ast.FunctionDef
    lower: Callable[[ast.FunctionDef], Program]


@dataclass(frozen=True)
class GoldenCase:
    """A program with its inputs and expected outputs.

    arguments      by parameter, as before the run
    expected       by parameter, for the outputs that are compared
    passes         whether the script's own comparison would pass
    differ         which elements of outputs are not close, by parameter
    intermediates  the arrays that the golden computed
    partial        computes its arrays over blocks of reduced axes, given the sizes of blocks
    numbers        the fractional numbers that it used
    trials         makes other inputs, if the golden can be called again
    written        makes the program with the statements that have no effect
    source         its definition, if known
    """

    program: Program
    arguments: Arguments
    expected: Mapping[str, Array]
    passes: Callable[[Mapping[str, Array]], bool]
    differ: Callable[[Mapping[str, Array], Mapping[str, Array]], Masks]
    intermediates: Sequence[Intermediate] = ()
    note: str = ""
    rtol: float = 1e-5
    atol: float = 1e-5
    numbers: Sequence[float] = ()
    trials: Callable[[], Sequence[Trial]] = lambda: ()
    written: Callable[[], Program] | None = None
    source: Source | None = None
    partial: Callable[[Iterable[int]], Sequence[Intermediate]] = no_parts

    def mismatches(self, made: Mapping[str, Array]) -> Masks:
        """Return which elements of the outputs are wrong, by parameter."""
        return self.differ(made, self.expected)


@dataclass(frozen=True)
class Statement:
    """A statement, executed or not: its location, task, iteration and tile."""

    loc: Loc
    op: str
    kernel: str
    task: int
    iteration: tuple[tuple[str, int], ...]
    tile: str

    def to_data(self) -> JsonObject:
        return {
            "file": self.loc.file,
            "line": self.loc.line,
            "op": self.op,
            "kernel": self.kernel,
            "task": self.task,
            "iteration": dict(self.iteration),
            "tile": self.tile,
        }


@dataclass(frozen=True)
class Worst:
    """The worst element of a wrong output."""

    output: str
    index: tuple[int, ...]
    actual: float
    expected: float
