"""Every example in the error catalogue makes exactly its mistake."""

import importlib.util
import itertools
from pathlib import Path

import pytest
from tests.kernels import zero_arguments

from tilelet.diag import UserError, UserErrors
from tilelet.diag.catalogue import classes, describe
from tilelet.frontend.jit import JitFunction
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes

HEADER = "import tilelet.language as pl\n\n"
# Mistakes in kernel text; the other ranges are about runs, commands, machines and model files.
RANGES = ("E01", "E02", "E03", "E04", "E05", "E08", "W01", "W02", "W03")
KERNEL_EXAMPLES = {
    code: text
    for code, cls in classes().items()
    if code.startswith(RANGES) and (text := describe(cls).example)
}
_serial = itertools.count()


def compile_example(text: str, folder: Path) -> list[Program]:
    """Import the example as a user's file and compile every program in it."""
    name = f"catalogue_example_{next(_serial)}"
    path = folder / f"{name}.py"
    path.write_text(HEADER + text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError:
        return [parse(path.read_text())]
    programs: list[Program] = []
    for value in vars(module).values():
        if isinstance(value, JitFunction) and all(p.type for p in value.parameters):
            programs.append(value.specialize())
        elif isinstance(value, Program):
            programs.append(value)
    return programs


def codes_of(text: str, folder: Path) -> set[str]:
    """Return the codes of the example: compile errors, cautions, run-time faults."""
    found: set[str] = set()
    try:
        for program in compile_example(text, folder):
            found |= {d.code for d in program.cautions}
            compiled = run_passes(program)
            found |= {d.code for d in compiled.cautions}
            for stage in (program, compiled):
                Interpreter().run(stage, zero_arguments(stage))
            Interpreter().run(compiled, zero_arguments(compiled), execute=False)
    except UserErrors as errors:
        found |= {d.code for d in errors.diagnostics}
    except UserError as error:
        found.add(error.code)
    return found


@pytest.mark.parametrize("code", sorted(KERNEL_EXAMPLES))
def test_example_makes_its_mistake(code: str, tmp_path: Path) -> None:
    assert code in codes_of(KERNEL_EXAMPLES[code], tmp_path)
