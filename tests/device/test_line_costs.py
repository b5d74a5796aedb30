"""Costs of steps add up to the kernel's, whether iterations are followed or multiplied."""

from __future__ import annotations

import pytest
from tests.device.recording import elementwise, mixed, only_kernel, projection

import tilelet.language as pl
from tilelet.device import kernel_cost, load_machine
from tilelet.device.kernel.control_path import ControlPath, Signature
from tilelet.device.kernel.line_costs import follow

A2A3 = load_machine("a2a3")
PROGRAMS = {
    "elementwise": elementwise,
    "long loop": lambda: projection(depth=128 * 50),
    "pipelined": lambda: projection(depth=128 * 50, pipelined=True),
    "mixed": lambda: mixed(pl.SplitMode.UP_DOWN),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_steps_add_is_the_kernels_time(name: str) -> None:
    kernel = only_kernel(PROGRAMS[name](), A2A3)
    cost, execution = kernel_cost(kernel, A2A3), follow(kernel, A2A3, Signature())
    added = sum(step.added for step in execution.steps.values())
    assert added + execution.start_us == pytest.approx(cost.exec_us, rel=1e-9)
    assert sum(s.read for s in execution.steps.values()) == pytest.approx(cost.read_bytes)
    assert sum(s.written for s in execution.steps.values()) == pytest.approx(cost.written_bytes)
    busy: dict[str, float] = {}
    for step in kernel.walk():
        pipe = f"{step.core.value}.{step.pipe.value}"
        busy[pipe] = busy.get(pipe, 0.0) + execution.steps[step.position].busy
    assert {p: us for p, us in busy.items() if us} == pytest.approx(dict(cost.busy_us))


@pytest.mark.parametrize("pipelined", [False, True])
def test_multiplied_iterations_cost_what_followed_ones_do(
    pipelined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = only_kernel(projection(depth=128 * 50, pipelined=pipelined), A2A3)
    jumped = follow(kernel, A2A3, Signature())
    assert any(e.position < 0 for e in jumped.events)
    monkeypatch.setattr(ControlPath, "runs", lambda *args: list(range(1, args[3] + 1)))
    followed = follow(kernel, A2A3, Signature())
    assert not any(e.position < 0 for e in followed.events)
    for position, step in followed.steps.items():
        assert jumped.steps[position].parts == pytest.approx(step.parts)


def test_events_of_a_pipe_do_not_overlap() -> None:
    kernel = only_kernel(projection(depth=512, pipelined=True), A2A3)
    pipe_of = {s.position: (s.core, s.pipe) for s in kernel.walk()}
    last: dict[object, float] = {}
    for event in follow(kernel, A2A3, Signature()).events:
        assert event.begin_us >= last.get(pipe_of[event.position], 0.0) - 1e-9
        last[pipe_of[event.position]] = event.end_us
