"""Exported scripts mean what their programs mean: results bit for bit, tasks of every kernel."""

from __future__ import annotations

import runpy
import types
from pathlib import Path
from typing import Any

import pytest
from tests.models.programs import SMALL, every_program, sizes_of

from tilelet.compat import aliases
from tilelet.dialects import DIALECTS, check
from tilelet.export.script import ExportCase, script_text
from tilelet.ir.core import Program
from tilelet.models import registry
from tilelet.runtime import TensorSpec, session
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.arrays import as_array
from tilelet.runtime.handlers.export import Export
from tilelet.runtime.programs.compiler import compile_program
from tilelet.runtime.session import Session

torch = pytest.importorskip("torch")
AUGUST = DIALECTS["2026-08"]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


def exported(case: ExportCase, folder: Path) -> types.ModuleType:
    """Return the script as a module, with Tilelet in place of pypto."""
    file = folder / "exported.py"
    file.write_text(script_text(case, AUGUST).text, encoding="utf-8")
    module = types.ModuleType("exported")
    module.__file__ = str(file)
    aliases.install()
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    finally:
        aliases.uninstall()
    return module


def results(program: Program, tensors: dict[str, Any]) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return every argument after a run, as bytes, and the number of tasks of each kernel."""
    arrays = {name: as_array(value).copy() for name, value in tensors.items()}
    tasks = compile_program(program).run_tasks(arrays, RunConfig(engine="interp"))
    return {name: array.tobytes() for name, array in arrays.items()}, dict(tasks.counts())


def model_case(name: str, sizes: dict[str, Any]) -> ExportCase:
    model, variant = registry.resolve(name)
    shape = model.shape_for(variant, **sizes)
    program = model.build(variant, **sizes)
    tolerance = model.tolerance
    return ExportCase(program, model.specs(shape), model.golden(shape), tolerance, tolerance, name)


def tensor_specs(case: ExportCase) -> list[TensorSpec]:
    return [spec for spec in case.specs if isinstance(spec, TensorSpec)]


@every_program
def test_an_exported_variant_gives_the_same_bits_and_tasks(name: str, tmp_path: Path) -> None:
    case = model_case(name, sizes_of(name, SMALL))
    module = exported(case, tmp_path)
    program = getattr(module, case.program.name)
    tensors = module.inputs()
    for spec in tensor_specs(case):
        drawn = as_array(spec.create_tensor())
        assert as_array(tensors[spec.name]).tobytes() == drawn.tobytes(), spec.name
    assert results(program, tensors) == results(case.program, tensors)
    errors = [d for d in check(program, AUGUST) if d.severity == "error"]
    assert not errors or "april" in name


def example_case(path: Path, monkeypatch: pytest.MonkeyPatch) -> ExportCase:
    """Return the runs of an example, as `tilelet export` records them."""
    handler = Export()
    monkeypatch.setattr("sys.argv", [str(path)])
    with session.active(Session(handler)), pytest.raises(SystemExit):
        runpy.run_path(str(path), run_name="__main__")
    program, specs, case = handler.cases[0]
    return ExportCase(program, specs, case.golden, case.rtol, case.atol, path.name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_exported_example_gives_the_same_bits_and_tasks(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = example_case(path, monkeypatch)
    module = exported(case, tmp_path)
    tensors = module.inputs()
    entry = getattr(module, case.program.name)
    program = entry if isinstance(entry, Program) else entry.specialize(*tensors.values())
    assert results(program, tensors) == results(case.program, tensors)
    assert check(program, AUGUST) == []


def test_the_script_runs_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = exported(model_case("qwen3/scope1:wide", sizes_of("scope1", SMALL)), tmp_path)
    monkeypatch.setattr("sys.argv", ["exported.py"])
    assert module.main() == 0
    assert "q_proj: PASS (2048/2048" in capsys.readouterr().out


@every_program
def test_an_exported_variant_of_full_size_has_the_same_tasks(
    name: str, tmp_path: Path, thorough: bool
) -> None:
    if not thorough:
        pytest.skip("full sizes take minutes: --thorough")
    case = model_case(name, {})
    program = getattr(exported(case, tmp_path), case.program.name)
    lengths = {
        s.name: as_array(s.create_tensor()) for s in tensor_specs(case) if s.name == "seq_lens"
    }
    counted = [
        compile_program(p).run_tasks(dict(lengths), execute=False).counts()
        for p in (case.program, program)
    ]
    assert counted[0] == counted[1]
