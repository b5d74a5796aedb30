"""An exported program means the same at other lengths, tables and scalars."""

from __future__ import annotations

from typing import Any

import pytest
from tests.export.test_export import AUGUST, model_case
from tests.fuzz.rewrites import Text, Version, inputs
from tests.models.programs import SMALL, sizes_of

from tilelet.equivalence.proof import prove_equal
from tilelet.export.script import ExportCase, script_text
from tilelet.ir.core import Program
from tilelet.ir.types import ScalarType, TensorType
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import TensorSpec
from tilelet.runtime.data.specs import ScalarSpec

torch = pytest.importorskip("torch")


def specs(program: Program, given: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for p in program.main.params:
        if isinstance(p.type, TensorType):
            found.append(TensorSpec(p.name, p.type.shape, p.type.dtype, given[p.name]))
        elif isinstance(p.type, ScalarType):
            found.append(ScalarSpec(p.name, p.type.dtype, given[p.name]))
    return found


def golden(tensors: dict[str, Any]) -> None:
    tensors["z"][:] = 0


@pytest.mark.parametrize("seed", range(12))
def test_generated_programs(seed: int) -> None:
    program = parse(Text(seed).program())
    first = next(inputs(seed))
    script = script_text(
        ExportCase(program, specs(program, first), golden, 0.0, 0.0, "made"), AUGUST
    )
    before, after = run_passes(program), run_passes(script.program)
    own, exported = Version("", before), Version("", after)
    assert prove_equal(before, after).why == ""
    for given in inputs(seed):
        old, new = own.outputs(given), exported.outputs(given)
        assert (old is None) == (new is None)
        for name, array in (old or {}).items():
            assert array.tobytes() == new[name].tobytes()


@pytest.mark.parametrize("name", ["qwen3/scope1:chunked", "qwen3/scope2:staged"])
def test_shipped_programs(name: str) -> None:
    case = model_case(name, sizes_of(name, SMALL))
    script = script_text(case, AUGUST)
    assert prove_equal(run_passes(case.program), run_passes(script.program)).why == ""
