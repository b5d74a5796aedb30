"""Names of the language that are not ops: loops, scopes, task control, compile-time checks.

The frontend knows them by identity and reads their calls from the source text, so these functions
only define signatures and documentation. Those that make plain data (`const`, `dynamic`, `split`)
work anywhere; the others raise outside a kernel, as ops do.
"""

# `...` marks bodies that are empty on purpose: only the signature and the docstring count.
# ruff: noqa: PIE790

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.dtypes import DType
from tilelet.ir.core import Const
from tilelet.ir.types import SymDim
from tilelet.syntax.enums import Level, Role, ScopeMode, SplitMode

__all__ = [
    "at",
    "auto_chunk",
    "auto_incore",
    "chunked_loop_optimizer",
    "cluster",
    "cond",
    "const",
    "cross_core_slot",
    "dump",
    "dump_tag",
    "dynamic",
    "func_attr",
    "graph",
    "incore",
    "l0c_store",
    "manual_scope",
    "max",
    "min",
    "no_dep",
    "parallel",
    "pipeline",
    "range",
    "scope",
    "split",
    "split_aiv",
    "spmd",
    "spmd_submit",
    "static_assert",
    "static_print",
    "submit",
    "sum",
    "undef",
    "unroll",
    "view",
    "while_",
    "yield_",
]

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")


def marker(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that means something only in the text of a kernel."""

    @functools.wraps(function)
    def outside_kernel(*args: P.args, **kwargs: P.kwargs) -> R:
        raise OpOutsideKernel(f"pl.{function.__name__}")

    return outside_kernel


# --- data ----------------------------------------------------------------------------------------


def const(value: float | bool, dtype: DType) -> Const:
    """A constant with a dtype of its own: `pl.const(1, pl.INT32)`.

    Plain integers are INDEX and plain floats FP32 until they meet a value.
    """
    return Const(float(value) if dtype.is_float else int(value), dtype)


def dynamic(name: str) -> SymDim:
    """A dimension that is known only when the program runs: `M = pl.dynamic("M")`.

    One object is one dimension: if it occurs twice in a signature, both extents must be equal. Two
    objects are independent even if they have the same name. In a body it stands for the extent.
    """
    return SymDim(name)


@dataclass(frozen=True)
class Split:
    """A scope optimization: sharing by the two vector cores, splitting of chunk loops."""

    mode: SplitMode | None = None
    chunked: bool = False
    slot_num: int | None = None


def split(mode: SplitMode = SplitMode.UP_DOWN, *, slot_num: int | None = None) -> Split:
    """For `pl.at(optimizations=[pl.split(MODE)])`: share vector work between the two vector cores.

    slot_num: the early spelling of `pl.cross_core_slot(slot_num=N)`

    Results do not depend on it.
    """
    if slot_num is not None:
        cross_core_slot(slot_num=slot_num)
    return Split(mode, slot_num=slot_num)


@dataclass(frozen=True)
class CrossCoreSlot:
    """The depth of the ring through which the cores of a group pass tiles."""

    slot_num: int


def cross_core_slot(*, slot_num: int) -> CrossCoreSlot:
    """For `pl.at(optimizations=[...])`: the depth of the ring between the cores of a group.

    Results do not depend on it.
    """
    if isinstance(slot_num, bool) or slot_num < 1:
        raise ValueError(f"slot_num must be a positive integer, not {slot_num!r}")
    return CrossCoreSlot(slot_num)


class _ChunkedLoopOptimizer:
    """`pl.chunked_loop_optimizer`, plain or called with `split=`."""

    def __call__(self, split: SplitMode | None = None) -> Split:
        return Split(split, chunked=True)

    def __repr__(self) -> str:
        return "pl.chunked_loop_optimizer"


chunked_loop_optimizer = _ChunkedLoopOptimizer()
"""For `pl.at(optimization=...)`: the early spelling of `optimizations=[pl.auto_chunk]`."""

auto_chunk = Split(chunked=True)
"""For `pl.at(optimizations=[pl.auto_chunk])`: chunk loops in the scope decide where tasks end."""


# --- loops ---------------------------------------------------------------------------------------


@marker
def range(
    *bounds: object,
    init_values: Sequence[object] | None = None,
    chunk: int | None = None,
    chunk_policy: str = "leading_full",
    unroll: int | None = None,
) -> Iterator[Any]:
    """A sequential loop: `for i in pl.range(stop)`, `(start, stop)` or `(start, stop, step)`.

    bounds: integers, constant or not
    init_values: carried values: `for i, (a, b) in pl.range(n, init_values=(a0, b0))`, whose body
        ends in `a1, b1 = pl.yield_(...)`; after the loop read `a1` and `b1`
    chunk, chunk_policy: in an auto scope, split the loop into tasks of this many iterations;
        "leading_full" (full chunks, then a remainder) or "guarded"
    unroll: a hint of one early version
    """
    ...


@marker
def parallel(
    *bounds: object,
    init_values: Sequence[object] | None = None,
    chunk: int | None = None,
    chunk_policy: str = "leading_full",
) -> Iterator[Any]:
    """A loop with independent iterations; otherwise as `pl.range`."""
    ...


@marker
def unroll(
    *bounds: int, chunk: int | None = None, chunk_policy: str = "leading_full"
) -> Iterator[int]:
    """A loop with constant bounds whose body is copied; the index is a compile-time number."""
    ...


@marker
def pipeline(
    *bounds: object, stage: int = 2, init_values: Sequence[object] | None = None
) -> Iterator[Any]:
    """A loop inside a scope that overlaps loads with computation, `stage` iterations at a time.

    Results are those of `pl.range`.
    """
    ...


@marker
def while_(*, init_values: Sequence[object]) -> Iterator[Any]:
    """A loop with a condition: `for (x,) in pl.while_(init_values=(x0,)):`.

    Its first statement is `pl.cond(...)`, its last `x1 = pl.yield_(...)`.
    """
    ...


@marker
def cond(condition: object) -> None:
    """The condition of a `pl.while_` loop, as its first statement."""


@marker
def yield_(*values: object) -> Any:
    """Pass values to the next iteration of an explicit loop, or out of both arms of an `if`."""
    ...


# --- scopes --------------------------------------------------------------------------------------

Scope = AbstractContextManager[Any]


class SpmdScope(AbstractContextManager[Any]):
    """The result of `pl.spmd(n)`: a scope for `with`, or a loop for `for`."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Any]: ...


@marker
def at(
    level: Level = Level.CORE_GROUP,
    role: Role | None = None,
    *,
    optimization: object = None,
    optimizations: Sequence[object] = (),
    split: SplitMode | None = None,
    name_hint: str | None = None,
    deps: Sequence[object] = (),
    no_dep_args: Sequence[object] = (),
    dumps: Sequence[object] = (),
    allow_early_resolve: bool = False,
    block_early_dispatch: bool = False,
    windowize: bool = False,
) -> Scope:
    """A scope: its body runs on a core, and each execution is one task.

    level: `pl.Level.CORE_GROUP`
    optimizations: a literal list of `pl.auto_chunk`, `pl.split(MODE)` and
        `pl.cross_core_slot(slot_num=N)`
    optimization, split: early spellings of the same
    name_hint: name of the kernel
    deps: ids of tasks to wait for, in addition to those that the tensors imply
    no_dep_args: tensors that add no dependency

    `with pl.at(level=pl.Level.CORE_GROUP) as tid:` gives the task's id.
    """
    ...


@marker
def incore(
    *,
    split: SplitMode | None = None,
    name_hint: str | None = None,
    deps: Sequence[object] = (),
    no_dep_args: Sequence[object] = (),
) -> Scope:
    """A scope: the early spelling of `pl.at(level=pl.Level.CORE_GROUP)`."""
    ...


@marker
def auto_incore(
    *,
    split: SplitMode | None = None,
    name_hint: str | None = None,
    deps: Sequence[object] = (),
    no_dep_args: Sequence[object] = (),
) -> Scope:
    """A scope whose chunk loops delimit tasks: the early spelling of `pl.auto_chunk`."""
    ...


@marker
def spmd(
    core_num: object,
    *,
    sync_start: bool = False,
    name_hint: str | None = None,
    optimizations: Sequence[object] = (),
    deps: Sequence[object] = (),
    no_dep_args: Sequence[object] = (),
    allow_early_resolve: bool = False,
    predicate: object = None,
) -> SpmdScope:
    """One task of `core_num` blocks that run the same body.

    optimizations, deps, no_dep_args: as in `pl.at`; predicate: as in `pl.submit`

    `for i in pl.spmd(n):` gives each block its number; `with pl.spmd(n):` launches a kernel, which
    calls `pl.tile.get_block_idx()`. `pl.system.syncall()` in the body makes all blocks wait for
    each other; the statements after it become a task of their own here.
    """
    ...


@marker
def split_aiv(n: int, *, mode: SplitMode) -> Iterator[Any]:
    """`for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):` in a scope: work shared by hand.

    n: number of vector cores of a block; the body runs once for each, here one after the other
    mode: `pl.SplitMode.NONE`: the body says what each lane does. With UP_DOWN or LEFT_RIGHT each
        lane has one half of what `pl.aiv_shard` gives it, and `pl.aic_gather` puts halves together
    """
    ...


@marker
def cluster(*, name_hint: str | None = None) -> Scope:
    """A group of calls that run together; results do not depend on it."""
    ...


@marker
def manual_scope(*, name_hint: str | None = None) -> Scope:
    """A region whose tasks wait only for what `deps=` names."""
    ...


@marker
def scope(*, mode: ScopeMode | None = None, name_hint: str | None = None) -> Scope:
    """A memory scope of the runtime, placed by hand; results do not depend on it."""
    ...


@marker
def graph(*, name_hint: str | None = None) -> Scope:
    """Tasks that the device records once and replays; results do not depend on it.

    The tasks are counted each time they are executed. The modelled device submits them as one graph
    if the period of its runtime supports graphs (`--period 2026-09`).
    """
    ...


# --- tasks ---------------------------------------------------------------------------------------


@marker
def submit(
    kernel: Callable[..., object],
    *args: object,
    deps: Sequence[object] = (),
    dumps: Sequence[object] = (),
    predicate: object = None,
    allow_early_resolve: bool = False,
) -> Any:
    """Call a kernel and get its results and its task's id: `out, tid = pl.submit(self.k, x, out)`.

    deps: ids of tasks to wait for
    predicate: one comparison of a tensor's element with a number, such as `flags[i] > 0`; if it
        does not hold when the task's turn comes, the task does nothing
    """
    ...


@marker
def spmd_submit(
    kernel: Callable[..., object],
    *args: object,
    core_num: object,
    deps: Sequence[object] = (),
    dumps: Sequence[object] = (),
    predicate: object = None,
    allow_early_resolve: bool = False,
    sync_start: bool = False,
) -> Any:
    """`pl.submit` of a kernel over `core_num` blocks."""
    ...


@marker
def dump_tag(tensor: V) -> V:
    """Mark a tensor for recording on a board; accepted, without effect.

    Use `pl.dump` to print values.
    """
    ...


@marker
def func_attr(attrs: dict[str, object]) -> None:
    """Hints about a function for a device's compiler, as its first statement; no effect."""
    ...


@marker
def no_dep(tensor: V) -> V:
    """An argument of a call that adds no dependency: `self.kernel(pl.no_dep(x), out)`."""
    ...


# --- scalars and compile time --------------------------------------------------------------------


@marker
def min(lhs: object, rhs: object = None, *, axis: int | None = None, keepdim: bool = False) -> Any:
    """The smaller of two scalars: `pl.min(64, n - i)`. For tiles see `pl.minimum`, `pl.row_min`."""
    ...


@marker
def max(lhs: object, rhs: object = None, *, axis: int | None = None, keepdim: bool = False) -> Any:
    """The greater of two scalars. For tiles see `pl.maximum` and `pl.row_max`."""
    ...


@marker
def sum(tile: object, axis: int, keepdim: bool = False) -> Any:
    """The early spelling of `pl.row_sum` and `pl.col_sum`."""
    ...


@marker
def view(
    x: object,
    shape: Sequence[object],
    offset: Sequence[object] | None = None,
    valid_shape: Sequence[object] | None = None,
    *,
    layout: object = None,
) -> Any:
    """The early name of `pl.slice`; without an offset, of `pl.reshape`."""
    ...


@marker
def tensor_view(
    tensor: object,
    shape: Sequence[object] | None = None,
    offset: Sequence[object] | None = None,
    *,
    valid_shape: Sequence[object] | None = None,
    layout: object = None,
) -> Any:
    """`pl.tensor.view`: the tensor in another shape, as by `pl.reshape`, or in another layout.

    With an offset it is the early spelling of `pl.slice`.
    """
    ...


@marker
def l0c_store(
    tile: object, offsets: Sequence[object], shapes: Sequence[object], tensor: object
) -> Any:
    """The early name of `pl.store` for the result of a product."""
    ...


@marker
def undef(type: object) -> Any:
    """A value of the given type that nothing has defined yet; printed programs contain it."""
    ...


@marker
def static_print(*values: object) -> None:
    """Print at compile time: compile-time values, and the types of run-time values."""


@marker
def dump(*values: object) -> None:
    """Print at run time, whenever it is executed: tiles, tensors, scalars and strings.

    Prints the valid part of a tile and all of a tensor: type, shape, first elements, minimum,
    maximum and NaNs. Tasks that run at the same time print in any order.
    """


@marker
def static_assert(condition: object, msg: str = "") -> None:
    """Stop the compilation unless a compile-time condition holds."""
