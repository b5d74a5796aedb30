"""The harness: run a program, compare with a golden, report.

from tilelet.runtime import RunConfig, TensorSpec, run
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelet.runtime.comparators import (
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
    from tilelet.runtime.compare import allclose
    from tilelet.runtime.compiler import CompiledProgram, compile_program
    from tilelet.runtime.config import BackendType, OptimizationStrategy, RunConfig
    from tilelet.runtime.harness import run, run_jit
    from tilelet.runtime.result import RunResult
    from tilelet.runtime.specs import ScalarSpec, TensorSpec
    from tilelet.runtime.validate import validate_golden

# Loaded when first used: `tilelet explain` needs none of it.
_HOME = {
    "BackendType": "config",
    "CompiledProgram": "compiler",
    "OptimizationStrategy": "config",
    "RunConfig": "config",
    "RunResult": "result",
    "ScalarSpec": "specs",
    "TensorSpec": "specs",
    "allclose": "compare",
    "bf16_allclose_or_ulp": "comparators",
    "compile_program": "compiler",
    "data_compare": "comparators",
    "error_distribution": "comparators",
    "input_prefix_ratio_allclose": "comparators",
    "mapped_pool_ratio_allclose": "comparators",
    "mapped_pool_ratio_reldiff": "comparators",
    "ratio_allclose": "comparators",
    "ratio_reldiff": "comparators",
    "run": "harness",
    "run_jit": "harness",
    "topk_pair_compare": "comparators",
    "topk_set_compare": "comparators",
    "validate_golden": "validate",
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
