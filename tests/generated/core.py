"""Parts of a generated kernel: choices, types of names, expressions, text with its meaning.

Every expression and statement is made twice at once: as `pl` text, and as a Python closure over the
oracle's values. So the oracle never sees the text, and cannot share a mistake with a parser.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from tests.generated import oracle

T = TypeVar("T")


class Choices:
    """Choices read from a tape of random bytes, which Hypothesis makes and shrinks.

    The first of several options is the simplest; beyond the end of the tape it is always chosen.
    """

    def __init__(self, tape: bytes) -> None:
        self._tape = tape
        self._at = 0

    def number(self, low: int, high: int) -> int:
        options = high - low + 1
        if options == 1:
            return low
        size = 1 if options <= 1 << 8 else 2
        taken = int.from_bytes(self._tape[self._at : self._at + size], "little")
        self._at += size
        return low + taken * options // (1 << 8 * size)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent


# --- types of names ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TileT:
    """On chip. `full`: certainly valid everywhere."""

    shape: tuple[int, int]
    dtype: str
    full: bool = True


@dataclass(frozen=True)
class GmT:
    """Global memory. `constant`: no task writes it, so the control program may read it."""

    shape: tuple[int, ...]
    dtype: str
    writable: bool = False
    constant: bool = False


@dataclass(frozen=True)
class ScalarT:
    """A number; integers lie in [low, high], whatever is assigned.

    is_constant  it may be known when the kernel is compiled (a bound number, the index of an
                 unrolled loop): then it must fit where it is used
    """

    dtype: str
    low: int = 0
    high: int = 0
    is_constant: bool = False


Type = TileT | GmT | ScalarT


# --- meaning -------------------------------------------------------------------------------------


class Jump(Exception):  # noqa: N818 - control flow, not a mistake
    """A `break` (or else a `continue`) on its way to the loop around it."""

    def __init__(self, ends: bool) -> None:
        self.ends = ends


@dataclass
class Run:
    """One evaluation by the oracle: names, and possible numbers of tasks."""

    env: dict[str, Any]
    tasks: list[int] = field(default_factory=lambda: [0, 0])  # certain tasks, possible copies

    def task(self) -> None:
        self.tasks[0] += 1

    def may_copy(self) -> None:
        self.tasks[1] += 1

    def inner(self, env: dict[str, Any]) -> Run:
        return Run(env, self.tasks)


Step = Callable[[Run], None]


def run_body(steps: Sequence[Step], run: Run) -> bool:
    """Run one iteration; return whether the loop continues."""
    try:
        run_steps(steps, run)
    except Jump as jump:
        return not jump.ends
    return True


def run_steps(steps: Sequence[Step], run: Run) -> None:
    for step in steps:
        step(run)


@dataclass(frozen=True)
class Expr:
    """Text and meaning of an expression: a `Tile`, or a Python number."""

    text: str
    value: Callable[[Run], Any]
    type: TileT | ScalarT

    @property
    def full(self) -> bool:
        return isinstance(self.type, TileT) and self.type.full


# --- text ----------------------------------------------------------------------------------------


class Writer:
    """Lines of one function, and the steps that mean the same."""

    def __init__(self, choices: Choices, style: str) -> None:
        self.choices = choices
        self.style = style  # "program" or "jit"
        self.lines: list[str] = []
        self.depth = 1
        self.steps: list[Step] = []
        self.env: dict[str, Type] = {}
        self.shared: set[str] = set()  # tiles with two names, which must not be written to
        self._count = 0

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def emit(self, text: str, step: Step) -> None:
        self.line(text)
        self.steps.append(step)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[list[Step]]:
        """Add statements under `header`; yield the list of steps that they mean."""
        self.line(header)
        saved, self.steps = self.steps, []
        self.depth += 1
        before = len(self.lines)
        yield self.steps
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        self.steps = saved

    def names(self, wanted: Callable[[Type], bool]) -> list[str]:
        return [n for n, t in self.env.items() if wanted(t)]


# --- inputs --------------------------------------------------------------------------------------

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1.17549435e-38, 3.4028235e38, 65504.0)


def random_array(seed: int, shape: tuple[int, ...], dtype: Any, nasty: bool) -> Any:
    """Numbers of moderate size; if `nasty`, with NaN, infinities, subnormals, zeros, extremes."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        small = rng.integers(max(low, -9), 10, shape)
        if nasty:
            wide = np.uint64 if high > np.iinfo(np.int64).max else np.int64
            wild = rng.integers(low, high, shape, wide, endpoint=True)
            ends = rng.choice(np.array([low, high], wide), shape)
            usual = small.astype(wide)
            small = np.choose(rng.integers(0, 4, shape), [usual, usual, wild, ends])
        return small.astype(dtype)
    values = rng.standard_normal(shape) * 4
    values = np.where(rng.random(shape) < 0.3, np.round(values), values)
    if nasty:
        values *= np.exp2(rng.integers(-20, 20, shape) * rng.integers(0, 5, shape))
        values = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), values)
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype)


@dataclass(frozen=True)
class Param:
    """A parameter of the entry, and its data."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    direction: str  # "In", "Out", "InOut", or "" for a plain annotation
    seed: int
    nasty: bool

    def data(self) -> Any:
        """Return an array, or a number for a parameter without axes."""
        array = random_array(self.seed, self.shape, oracle.NUMPY[self.dtype], self.nasty)
        return array if self.shape else array.item()

    @property
    def annotation(self) -> str:
        plain = tensor_text(self.shape, self.dtype)
        return f"pl.{self.direction}[{plain}]" if self.direction in ("Out", "InOut") else plain


def tensor_text(shape: tuple[int, ...], dtype: str) -> str:
    return f"pl.Tensor[[{', '.join(map(str, shape))}], pl.{dtype}]"
