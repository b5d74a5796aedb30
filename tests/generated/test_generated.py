"""Generated kernels: interpreter against an independent oracle, at every stage of the pipeline.

For each kernel: the result equals the oracle's bit for bit; no pass changes a bit; print -> parse
-> print is a fixed point and the text means the same; there are as many tasks as the oracle counts,
and a run that only records finds the same ones.

TILELET_GENERATED=5000 makes that many kernels, other ones in every run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.generated.core import Choices
from tests.generated.generator import FOCUSES, TAPE, Kernel, kernels, make
from tests.generated.harness import check

WANTED = os.environ.get("TILELET_GENERATED")
PER_FOCUS = int(WANTED or 240) // len(FOCUSES)

# Constructs that some kernels of each focus must contain.
CONSTRUCTS: dict[str, tuple[str, ...]] = {
    "scopes": (
        r"pl\.pipeline\(", r"pl\.unroll\(", r"pl\.while_\(", r"while ", r"break", r"continue",
        r"init_values=", r"pl\.yield_\(", r"else:", r"pl\.matmul_acc\(", r"init_cond=", r"_trans=",
        r"valid_shape=", r"pl\.fillpad\(", r"set_validshape", r"pl\.write\(", r"pl\.load\(",
        r"pl\.store\(", r"mode='odd'", r"FP8E4M3FN", r"row_expand_", r"col_sum|col_max|col_prod",
        r"row_sum", r"pl\.concat\(", r"pl\.transpose\(", r"\w+ \+= ", r"// \(-", r"C\d \*\* 2",
        r"@pl\.jit\n", r"@pl\.program", r"clamp=True", r"-9223372036854775808", r"2147483647",
        r"\) // pl\.m|\w // pl\.m", r"pl\.range\(\(\w+ - \d+\) (//|%)", r"u\d+ = ",
        r"(pl\.\w+\(){8}", r"v\d+ = pl\.reinterpret_view\(", r"v\d+ = pl\.reshape\((v|t)\d+\[",
        r"v\d+ = pl\.reshape\(pl\.slice\(", r"v\d+ = pl\.transpose\((v|pl\.slice|t\d+\[)",
        r"r\d+\[\w+, \w+ : \w+ \+ 1, .*\] = v", r"(slice|load)\(pl\.transpose\(\w+,",
        r"pl\.slice\(\w+, \[\d+ - pl\.max\(", r"\+ \(\d+ - pl\.max\(",
        r"(t\d+) = pl\.transpose\((\w+), 0, 1\)\n +for .*\n +\2.*pl\.slice\(\1,",
    ),
    "control": (
        r"pl\.create_tensor\(", r"pl\.reshape\(", r"with pl\.incore", r"with pl\.auto_incore",
        r"name_hint=", r"\n        for \w+ in pl\.range", r"\n    for \w+ in pl\.range",
        r"pl\.parallel\(", r"init_values=\([a-z]+\d+,\)", r"\[\w+, \w+ : \w+ \+ \d+",
        r"h\d+ = pl\.slice\(", r"\] = h\d+\[", r"pl\.slice\(h\d+, .*valid_shape",
    ),
    "chunks": (r"chunk_policy=\"leading_full\"", r"chunk_policy=\"guarded\"", r", -1, chunk="),
    "calls": (r"self\.kernel", r"@pl\.jit\.incore", r"@pl\.inline", r"@pl\.jit\.inline", r"Scalar"),
    "spmd": (r"pl\.spmd\(",),
    "accumulators": (
        r"acc\d+ = pl\.load\(", r"acc\d+ = pl\.slice\(", r"acc\d+ = \w+\[", r"acc\d+ = pl\.full\(",
        r"acc\d+ = pl\.matmul\(", r"acc\d+ = pl\.create_tensor\(", r"acc\d+ = pl\.fillpad\(",
        r"acc\d+ = pl\.set_validshape\(", r"acc\d+ = pl\.slice\(.*valid_shape", r"init_cond=True",
        r"init_cond=\w+ == 0", r"else:\n +acc\d+ = pl\.matmul_acc\(",
        r"t\d+ = pl\.matmul_acc\(t\d+", r"pl\.INT8",
        r"in pl\.pipeline\(.*:\n +acc", r"in pl\.unroll\(.*:\n +acc", r"while w\d+ < .*:\n +acc",
        r"for .* in .*:\n +for .* in .*:\n +acc", r"init_values=\(acc", r"pl\.read\(acc",
        r"acc\d+ = pl\.matmul_acc\(.*\n.*acc\d+ = pl\.matmul_acc\(", r"pl\.write\(acc", r"0, 0, \d",
        r"acc\d+ = pl\.matmul\(.*\n +(acc\d+) = pl\.matmul\(.*\n +for .*\n +\1",
        r"pl\.spmd\(", r"chunk=", r"pl\.matmul\(acc|pl\.cast\(acc\d+, pl\.BF16\)", r"_trans=True",
    ),
}  # fmt: skip


@pytest.mark.parametrize("focus", FOCUSES)
def test_kernels(focus: str, tmp_path: Path) -> None:
    passed: set[str] = set()

    @settings(
        max_examples=PER_FOCUS + PER_FOCUS // 4,  # a repeated kernel counts once
        deadline=None,
        database=None,
        derandomize=WANTED is None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(kernels(focus))
    def every_kernel(kernel: Kernel) -> None:
        if kernel.text not in passed and len(passed) < PER_FOCUS:
            check(kernel, tmp_path)
            passed.add(kernel.text)

    every_kernel()
    assert len(passed) == PER_FOCUS, "the generator repeats itself"


@pytest.mark.parametrize("focus", FOCUSES)
def test_what_kernels_are_made_of(focus: str) -> None:
    rng = np.random.default_rng(FOCUSES.index(focus))
    texts = [make(Choices(rng.bytes(TAPE)), focus).text for _ in range(1000)]
    rare = [c for c in CONSTRUCTS[focus] if sum(bool(re.search(c, t)) for t in texts) < 4]
    assert not rare, f"the generator makes hardly any {rare}"
