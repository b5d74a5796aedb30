"""The Qwen3 programs at full size on the modelled device: they fit, and tuned ones are faster."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.models.programs import every_program

from tilelet.device import load_machine, machine_names, simulate
from tilelet.device.memory.limits import program_findings
from tilelet.device.report.traffic import Bytes, traffic
from tilelet.interp.interpreter import Interpreter
from tilelet.models.qwen3 import decode
from tilelet.models.qwen3.device_pass_page import FIGURES
from tilelet.models.registry import resolve
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.data.inputs import initial_array

BYTES_PER_US = 1e6  # 1.0 TB/s, which programs reach on an a2a3


class DeviceRun(NamedTuple):
    us: float
    moved: Bytes


@cache
def device_run(name: str) -> DeviceRun:
    """A program at its default size on an a2a3."""
    model, variant = resolve(name)
    program = run_passes(model.build(variant))
    specs = model.specs(model.shape_for(variant))
    lengths = {s.name: initial_array(s, zero=False) for s in specs if s.name == "seq_lens"}
    recorded = Interpreter().run(program, lengths, execute=False)
    timeline = simulate(recorded.tasks, program, load_machine("a2a3"))
    return DeviceRun(timeline.total_us, traffic(timeline.stream).total)


@every_program
@pytest.mark.parametrize("machine", machine_names())
def test_every_tile_fits(name: str, machine: str) -> None:
    model, variant = resolve(name)
    program = run_passes(model.build(variant))
    findings = program_findings(program, load_machine(machine))
    assert not findings, "\n\n".join(map(str, findings))


@pytest.mark.parametrize(
    "name", ["qwen3/scope1:wide", "qwen3/scope1:exchanged", "qwen3/scope3:tuned"]
)
def test_tuned_scopes_move_little_more_than_they_must(name: str) -> None:
    moved = device_run(name).moved
    assert moved.total <= 1.1 * moved.least


def test_tuned_scope3_takes_less_than_half_of_the_refactored_one() -> None:
    assert device_run("qwen3/scope3:tuned").us < device_run("qwen3/scope3:refactored").us / 2


def test_scope1_keeps_accumulators_on_chip_for_a_reason() -> None:
    split = device_run("qwen3/scope1:split_accumulation")
    for name in ("qwen3/scope1:wide", "qwen3/scope1:exchanged"):
        assert device_run(name).us < device_run("qwen3/scope1:chunked").us < split.us


def test_attention_gets_faster_with_every_step() -> None:
    staged, fused, padding_free = (
        device_run(f"qwen3/scope2:{variant}").us for variant in ("staged", "fused", "padding_free")
    )
    assert padding_free < fused < staged / 10


def test_optimised_decode_layer_is_near_the_bandwidth_bound() -> None:
    optimised = device_run("qwen3/decode:optimised").us
    assert optimised < device_run("qwen3/decode:baseline").us / 3
    shape = decode.MODEL.shape_for("optimised")
    specs = {s.name: s for s in decode.specs(shape)}
    weights = sum(
        2 * int(np.prod(s.shape))
        for n, s in specs.items()
        if n.startswith("w") and len(s.shape) == 2
    )
    context = int(initial_array(specs["seq_lens"], zero=False).sum())
    kv = context * shape.kv_width * 2 * 2
    assert optimised < 1.5 * (weights + kv) / BYTES_PER_US


def test_figures_of_the_page_are_those_of_today() -> None:
    """One row of docs/models.md: tasks exactly, times nearly, since machines are calibrated."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    figure, found = FIGURES[0], FIGURES[0].on("a2a3")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {figure} | a2a3 |")]
    cells = [cell.strip().replace(",", "") for cell in row.strip("|").split("|")]
    assert int(cells[2]) == found.tasks
    assert float(cells[5]) == pytest.approx(found.us_per_token, rel=0.1)
