"""The shipped programs at their default sizes, as C: examples, models and the bench's own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tests.examples.test_examples import EXAMPLES, program_of

from tilelet.bench import programs as bench
from tilelet.cpu.emit.program import emit_program
from tilelet.ir.core import Program
from tilelet.models import registry
from tilelet.passes.pipeline import run_passes

_BENCH_SIZES = {"rows": 4096, "columns": 8192, "inner": 5120}


def shipped_programs() -> Iterator[tuple[str, Program]]:
    """Yield every shipped program with its name."""
    for path in EXAMPLES:
        yield f"examples/{path.stem}", program_of(path)
    for name, model in registry.models().items():
        for variant in model.variants:
            yield f"{name}:{variant}", model.build(variant)
    for name, build in bench.OWN.items():
        names = inspect.signature(build).parameters
        yield name, build(**{n: size for n, size in _BENCH_SIZES.items() if n in names})


def emitted_text(program: Program) -> str:
    """Return the C text of a program, as one unit."""
    return "\n".join(emit_program(run_passes(program), parts=1).units)
