"""The engine for programs of several ranks, all in one process."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import Arguments
from tilelet.ir.core import Program
from tilelet.ranks.config import DistributedConfig
from tilelet.ranks.host import plan_of
from tilelet.ranks.record import RankStreams, record_streams
from tilelet.ranks.scheduler import Callbacks, World
from tilelet.ranks.static import check_shards, check_text, check_waits
from tilelet.ranks.windows import KeptWindows
from tilelet.tasks.arguments import bind_arguments

if TYPE_CHECKING:
    from tilelet.ranks.native import NativeKernels


@dataclass(frozen=True)
class RankCounts:
    """Number of tasks of each kernel, summed over all ranks."""

    by_kernel: Counter[str]

    def counts(self) -> dict[str, int]:
        return dict(self.by_kernel)

    @property
    def total(self) -> int:
        return sum(self.by_kernel.values())


@dataclass(frozen=True)
class RanksExecution:
    tasks: RankCounts | RankStreams


@functools.lru_cache(maxsize=8)
def native_kernels(program: Program) -> NativeKernels:
    """Return the native kernels of a program, cached for its next run."""
    from tilelet.ranks.native import NativeKernels

    return NativeKernels(program)


@dataclass(frozen=True)
class RanksEngine:
    """Run a host function and everything that it dispatches.

    is_native  kernels that do not communicate become native code once they have done enough work
    resident   ranks of the shards of each parameter whose shards stay on their ranks: processes do
               not share what is written
    """

    config: DistributedConfig
    callbacks: Callbacks | None = None
    kept: KeptWindows | None = None
    is_native: bool = False
    resident: Mapping[str, Sequence[int]] = field(default_factory=dict[str, "Sequence[int]"])

    def prepare(self, program: Program) -> None:
        """Do nothing: ranks need no preparation."""

    def native(self, program: Program) -> NativeKernels | None:
        return native_kernels(program) if self.is_native else None

    def run(
        self, program: Program, arguments: Arguments, *, execute: bool = True
    ) -> RanksExecution:
        check_text(program)
        bound = bind_arguments(program, arguments, execute=execute)
        plan = plan_of(program, bound, self.config.world)
        if self.kept is None or self.kept.zeroes:
            check_waits(program, plan)
        check_shards(program, bound, plan, self.resident)
        if not execute:
            return RanksExecution(record_streams(program, plan))
        if self.kept is not None:
            self.kept.use(program.name, plan)
        world = World(program, plan, callbacks=self.callbacks, native=self.native(program))
        world.run()
        return RanksExecution(RankCounts(world.counts))
