"""Tasks as the device's runtime counts them."""

from __future__ import annotations

from tilelet.models import registry
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.programs.compiler import compile_program
from tilelet.tasks.runtime_counts import is_mixed, runtime_counts
from tilelet.tasks.stream import TaskStream


def counts(name: str, **sizes: int) -> tuple[dict[str, int], dict[str, int]]:
    model, variant = registry.resolve(name)
    compiled = compile_program(model.build(variant, **sizes))
    tasks = compiled.run_tasks({}, execute=False)
    assert isinstance(tasks, TaskStream)
    return tasks.counts(), runtime_counts(compiled.program, tasks)


def test_allocations_and_halves_of_mixed_kernels_are_tasks() -> None:
    """A board's swimlane of this program has the same tasks."""
    sizes = {"hidden": 1024, "intermediate": 2048, "down_split": 4}
    ours, runtime = counts("qwen3/scope3:tuned", **sizes)
    assert sum(ours.values()) == 36
    assert sum(runtime.values()) == 45
    assert runtime["gate_up_silu_aic"] == runtime["gate_up_silu_aiv"] == 8
    assert runtime["alloc"] == 1


def test_allocations_of_a_loop_count_each_time() -> None:
    one, _ = counts("qwen3/scope3:refactored", hidden=1024, intermediate=1024)
    _, runtime = counts("qwen3/scope3:refactored", hidden=1024, intermediate=1024, batch=32)
    _, first = counts("qwen3/scope3:refactored", hidden=1024, intermediate=1024)
    assert runtime["alloc"] == 2 * first["alloc"]
    assert sum(first.values()) - first["alloc"] == sum(one.values())


def test_a_product_and_its_store_are_not_mixed() -> None:
    model, variant = registry.resolve("qwen3/scope3:tuned")
    program = run_passes(model.build(variant))
    mixed = {kernel.name for kernel in program.kernels if is_mixed(kernel)}
    assert mixed == {"gate_up_silu"}
