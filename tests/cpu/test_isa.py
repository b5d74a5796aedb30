"""`TILELET_ISA`: narrower instructions, the same bits."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from tests.cpu.differential import assert_same, numbers
from tests.cpu.test_ops import FULL, PARTIAL, Cases
from tests.models.programs import TINY, sizes_of

from tilelet.cpu.run import engine
from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag.catalogue.harness import BadConfig
from tilelet.dtypes import BF16, FP16, FP32, INT8, INT32
from tilelet.ir.core import Program
from tilelet.models import registry
from tilelet.native import toolchain
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.data.inputs import initial_array

IS_X86 = toolchain.platform.machine() == "x86_64"
on_x86 = pytest.mark.skipif(not IS_X86, reason="levels of x86-64")


def _levels() -> list[str]:
    """The levels that this CPU has."""
    has = toolchain._cpu_flags()
    needs = {name: set(flags.split()) for name, (_, flags) in toolchain._LEVELS.items()}
    return [name for name, flags in needs.items() if flags <= has]


def _run(program: Program, arguments: dict[str, Any]) -> dict[str, Any]:
    engine._programs.clear()
    given = copy.deepcopy(arguments)
    CpuEngine().run(program, given)
    return given


def check_same_on_all(
    program: Program, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = run_passes(program)
    monkeypatch.delenv("TILELET_ISA", raising=False)
    native = _run(lowered, arguments)
    for level in _levels():
        monkeypatch.setenv("TILELET_ISA", level)
        found = _run(lowered, arguments)
        for name, array in native.items():
            if isinstance(array, np.ndarray):
                assert_same(found[name], array, f"{name} on {level}")


@on_x86
@pytest.mark.usefixtures("compile_quickly")
def test_elementwise_and_reductions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions with a tolerance also give the same bits at every level."""
    cases = Cases(PARTIAL)
    for dtype in (FP32, BF16, FP16):
        x = cases.given(f"x{dtype.name}", numbers(dtype, 5, 19, seed=3, scale=20.0))
        y = cases.given(f"y{dtype.name}", numbers(dtype, 5, 19, seed=4))
        for name in ("exp", "log", "sin", "cos", "sqrt", "rsqrt", "recip"):
            cases.add(name, {"x": x})
        for name in ("add", "div", "rem", "maximum"):
            cases.add(name, {"lhs": x, "rhs": y})
        for name in ("row_sum", "row_max", "col_sum"):
            cases.add(name, {"x": x})
        for target in (FP32, BF16, FP16, INT32, INT8):
            cases.add("cast", {"x": x}, target_type=target, mode="rint")
    check_same_on_all(cases.b.program(), *cases.runs(), monkeypatch)


@on_x86
@pytest.mark.usefixtures("compile_quickly")
def test_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = Cases(FULL)
    for dtype in (FP32, BF16, FP16, INT8):
        a = cases.given(f"a{dtype.name}", numbers(dtype, 21, 70, seed=1, special=False))
        b = cases.given(f"b{dtype.name}", numbers(dtype, 70, 53, seed=2, special=False))
        out = INT32 if dtype is INT8 else FP32
        cases.add("matmul", {"lhs": a, "rhs": b}, out_dtype=out)
    check_same_on_all(cases.b.program(), *cases.runs(), monkeypatch)


@on_x86
@pytest.mark.usefixtures("compile_quickly")
@pytest.mark.parametrize("name", ["qwen3/scope2:fused", "qwen3/scope3:tuned"])
def test_model_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, variant = registry.resolve(name)
    sizes = sizes_of(name, TINY)
    specs = model.specs(model.shape_for(variant, **sizes))
    arguments = {spec.name: initial_array(spec) for spec in specs}
    check_same_on_all(model.build(variant, **sizes), arguments, monkeypatch)


@on_x86
def test_levels_become_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_compiler", lambda: toolchain.Compiler(("gcc",), "gcc 12"))
    monkeypatch.delenv("TILELET_ISA", raising=False)
    assert toolchain.machine_flags() == ("-march=native",)
    monkeypatch.setenv("TILELET_ISA", "sse")
    assert toolchain.machine_flags() == ("-march=x86-64",)
    monkeypatch.setattr(toolchain, "_cpu_flags", frozenset)  # nothing is known
    monkeypatch.setenv("TILELET_ISA", "avx512")
    assert toolchain.machine_flags() == ("-march=x86-64-v4",)


@on_x86
def test_zig_has_spellings_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    zig = toolchain.Compiler(("python", "-m", "ziglang", "cc"), "clang version 22")
    monkeypatch.setattr(toolchain, "find_compiler", lambda: zig)
    monkeypatch.setenv("TILELET_ISA", "sse")
    assert toolchain.machine_flags() == ("-march=x86_64",)


@on_x86
def test_a_level_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELET_ISA", "avx1024")
    with pytest.raises(BadConfig, match="sse or avx2 or avx512 or native"):
        toolchain.machine_flags()


@on_x86
def test_instructions_that_the_cpu_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message, not a process killed by an illegal instruction."""
    monkeypatch.setattr(toolchain, "_cpu_flags", lambda: frozenset({"sse2", "avx"}))
    monkeypatch.setenv("TILELET_ISA", "avx2")
    with pytest.raises(BadConfig, match="sse or native: this CPU has no avx2"):
        toolchain.machine_flags()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_unknown_level(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.platform, "machine", lambda: machine)
    monkeypatch.setenv("TILELET_ISA", "mmx")
    with pytest.raises(BadConfig, match="TILELET_ISA=mmx"):
        toolchain.machine_flags()


def test_a_level_is_part_of_the_cache_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is part of the key: machines that share a cache have their own entries."""
    from tilelet.cpu.run import build

    compiler = toolchain.find_compiler()
    keys = {build._key(compiler, "text")}
    monkeypatch.setattr(build, "cpu_id", lambda: "another CPU")
    keys.add(build._key(compiler, "text"))
    monkeypatch.setattr(build, "machine_flags", lambda: ("-march=other",))
    keys.add(build._key(compiler, "text"))
    other = toolchain.Compiler(compiler.command, "another version")
    keys.add(build._key(other, "text"))
    assert len(keys) == 4
