"""Kernel costs on a machine with other parameters: what is simulated again, and what is not."""

from __future__ import annotations

import pytest
from tests.device.recording import mixed, projection, recorded

import tilelet.language as pl
from tilelet.device import Machine, Timeline, load_machine, simulate
from tilelet.device.kernel.course import course_of
from tilelet.device.kernel.pipes import ALL_COLD, COLD, HOT, Walk
from tilelet.device.kernel.together import PricingCase, times_together
from tilelet.device.machine.description import with_fields
from tilelet.device.report.sensitivity import GROUPS, scale_parameters
from tilelet.device.schedule.repricing import followed_again, followed_roughly
from tilelet.device.schedule.simulate import replay
from tilelet.ir.core import Program

A2A3 = load_machine("a2a3")


def triangle() -> Program:
    """Tasks of one kernel whose loops take 1 to 8 iterations."""

    @pl.program
    class Triangle:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self, x: pl.Tensor[[512, 64], pl.FP32], y: pl.InOut[pl.Tensor[[512, 64], pl.FP32]]
        ):
            for i in pl.parallel(8):
                with pl.incore():
                    for k in pl.range(i + 1):
                        tile = pl.slice(x, [64, 64], [k * 64, 0])
                        y = pl.assemble(y, pl.exp(tile), [i * 64, 0])
            return y

    return Triangle


def modelled(program: Program, machine: Machine = A2A3) -> Timeline:
    return simulate(*recorded(program), machine)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("build", [projection, triangle])
def test_a_replay_equals_a_simulation(group: str, build) -> None:
    program, other = build(), scale_parameters(A2A3, {group: 1.3})
    again = replay(modelled(program), other)
    fresh = modelled(program, other)
    assert again.stream.costs == fresh.stream.costs
    assert again.total_us == fresh.total_us


def test_only_kernels_that_use_a_number_are_followed_again() -> None:
    line = modelled(triangle())

    def same(field: str, value: float) -> bool:
        other = with_fields(A2A3, {field: value})
        return followed_again(line.stream, A2A3, other) is line.stream

    assert followed_roughly(line.stream, A2A3, [A2A3]) == [line.stream]
    assert same("paths.l0c_to_gm.row_cycles", 9.0)
    assert same("body.exchange_cycles", 900.0)
    assert same("gm.efficiency", 0.5)
    assert not same("paths.gm_to_ub.row_cycles", 9.0)
    assert not same("body.sync_cycles", 90.0)
    assert not same("gm.serial_cycles", 90.0)


def test_ways_through_a_kernel_change_alike() -> None:
    line = modelled(triangle())
    slower = with_fields(A2A3, {"paths.gm_to_ub.latency_cycles": 800.0})
    exact = followed_again(line.stream, A2A3, slower).costs
    rough = followed_roughly(line.stream, A2A3, [A2A3, slower])[1].costs
    assert len(rough) == len(exact) == 8
    followed = pytest.approx(exact[-1].exec_us, rel=1e-9)
    assert rough[-1].exec_us == followed, "the one that takes most time is followed"
    for near, true, old in zip(rough, exact, line.stream.costs):
        assert old.exec_us < near.exec_us == pytest.approx(true.exec_us, rel=0.25)


@pytest.mark.parametrize("build", [projection, triangle, lambda: mixed(pl.SplitMode.NONE)])
def test_machines_followed_together_equal_one_after_the_other(build) -> None:
    line = modelled(build())
    machines = [scale_parameters(A2A3, {group: 1.3}) for group in GROUPS]
    cases = [
        PricingCase(machine, levels) for machine in machines for levels in (HOT, COLD, ALL_COLD)
    ]
    for kernel, signature in zip(
        (line.stream.kernels[k] for k in line.stream.cost_kernel), line.stream.signatures
    ):
        assert kernel is not None
        together = times_together(kernel, signature, cases)
        apart = [
            case.machine.us(Walk(course_of(kernel, signature), case.machine, case.levels).end)
            for case in cases
        ]
        assert together == pytest.approx(apart, rel=1e-9)
