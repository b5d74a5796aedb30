"""The floor: the least time in which any program could compute what the reference computes."""

from __future__ import annotations

import functools

from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Machine
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun
from tilelet.diag.json_types import JsonObject
from tilelet.frontend.jit import JitFunction
from tilelet.runtime.inspection.check import recorded_runs
from tilelet.static.module import read_module

_EMPTY = """
import tilelet.language as pl

@pl.jit
def empty(x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x[:, :], 1.0)
    return out
"""


@dataclass(frozen=True)
class Floor:
    """The largest of four bounds, in microseconds.

    launch    one smallest task
    read      every input byte once from memory
    moved     every input and output byte once through the cache
    multiply  the multiply-adds at the cube's peak rate
    """

    launch: float
    read: float
    moved: float
    multiply: float
    nbytes: int

    @property
    def us(self) -> float:
        return max(self.launch, self.read, self.moved, self.multiply)

    @property
    def bound(self) -> str:
        by_name = {n: getattr(self, n) for n in ("launch", "read", "moved", "multiply")}
        return max(by_name, key=lambda n: by_name[n])

    def to_data(self) -> JsonObject:
        return {
            "us": round(self.us, 4),
            "bound": self.bound,
            "compulsory_bytes": self.nbytes,
        }


def floor_of(reference: Profile, machine: Machine, flops: int) -> Floor:
    """Return the floor of a program; `flops` are those of the cheapest known right program."""
    given = [t for t in reference.tensors if t.origin == "param"]
    read, written = (sum(getattr(t, n) for t in given) for n in ("least_read", "least_written"))
    through_cache = machine.gm.l2_gbs * 1000.0
    peak = reference.peak_gflops * 1000.0
    return Floor(
        launch=_launch_us(machine),
        read=read / machine.hbm_bytes_per_us,
        moved=(read + written) / through_cache,
        multiply=flops / peak if peak else 0.0,
        nbytes=read + written,
    )


@functools.cache
def _launch_us(machine: Machine) -> float:
    program = read_module(_EMPTY, "<smallest task>").programs[0].jit
    assert isinstance(program, JitFunction)
    (run,) = recorded_runs(program, (), {})
    return DeviceRun(run, machine).summary.total_us
