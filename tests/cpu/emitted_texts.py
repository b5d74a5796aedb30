"""Write the C of all shipped programs and of generated ones, to compare two trees:

    python -m tests.cpu.emitted_texts FOLDER [KERNELS]

KERNELS is the number of generated programs of each kind (20). Run it with `PYTHONPATH` set to the
`src` of either tree, then `diff -r` the folders.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cpu.shipped import emitted_text, shipped_programs
from tests.cpu.test_generated_programs import kernel_of
from tests.generated.generator import FOCUSES
from tests.generated.harness import compile_text

from tilelet.ir.core import Program


def generated_programs(count: int) -> Iterator[tuple[str, Program]]:
    """Yield `count` programs of each kind that the generator knows."""
    with tempfile.TemporaryDirectory() as folder:
        for focus in FOCUSES:
            for number in range(count):
                kernel = kernel_of(focus, number)
                program = compile_text(kernel, Path(folder), kernel.arguments())
                yield f"generated/{focus}_{number}", program


def main(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for programs in (shipped_programs(), generated_programs(count)):
        for name, program in programs:
            file = name.replace("/", "_").replace(":", "_") + ".c"
            (folder / file).write_text(emitted_text(program), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
