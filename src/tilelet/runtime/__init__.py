"""The harness: run a program, compare with a golden, report.

from tilelet.runtime import RunConfig, TensorSpec, run
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelet.runtime.config import BackendType, OptimizationStrategy, RunConfig
    from tilelet.runtime.data.specs import ScalarSpec, TensorSpec
    from tilelet.runtime.harness.result import RunResult
    from tilelet.runtime.harness.runner import run, run_jit
    from tilelet.runtime.programs.compiler import CompiledProgram, compile_program
    from tilelet.runtime.validation.comparators import (
        bf16_allclose_or_ulp,
        data_compare,
        error_distribution,
        input_prefix_ratio_allclose,
        mapped_pool_ratio_allclose,
        mapped_pool_ratio_reldiff,
        ratio_allclose,
        ratio_reldiff,
        topk_pair_compare,
        topk_set_compare,
    )
    from tilelet.runtime.validation.differences import allclose
    from tilelet.runtime.validation.judge import validate_golden

# Imported lazily: `tilelet explain` needs none of it.
_HOME = {
    "BackendType": "config",
    "CompiledProgram": "programs.compiler",
    "OptimizationStrategy": "config",
    "RunConfig": "config",
    "RunResult": "harness.result",
    "ScalarSpec": "data.specs",
    "TensorSpec": "data.specs",
    "allclose": "validation.differences",
    "bf16_allclose_or_ulp": "validation.comparators",
    "compile_program": "programs.compiler",
    "data_compare": "validation.comparators",
    "error_distribution": "validation.comparators",
    "input_prefix_ratio_allclose": "validation.comparators",
    "mapped_pool_ratio_allclose": "validation.comparators",
    "mapped_pool_ratio_reldiff": "validation.comparators",
    "ratio_allclose": "validation.comparators",
    "ratio_reldiff": "validation.comparators",
    "run": "harness.runner",
    "run_jit": "harness.runner",
    "topk_pair_compare": "validation.comparators",
    "topk_set_compare": "validation.comparators",
    "validate_golden": "validation.judge",
}

__all__ = [
    "BackendType",
    "CompiledProgram",
    "OptimizationStrategy",
    "RunConfig",
    "RunResult",
    "ScalarSpec",
    "TensorSpec",
    "allclose",
    "bf16_allclose_or_ulp",
    "compile_program",
    "data_compare",
    "error_distribution",
    "input_prefix_ratio_allclose",
    "mapped_pool_ratio_allclose",
    "mapped_pool_ratio_reldiff",
    "ratio_allclose",
    "ratio_reldiff",
    "run",
    "run_jit",
    "topk_pair_compare",
    "topk_set_compare",
    "validate_golden",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
