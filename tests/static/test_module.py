"""Files read without execution: constants, records, imports and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilelet.diag.catalogue.oracle import NotEvaluated, WorkLimit
from tilelet.ir.core import Program
from tilelet.static.evaluator import Unknown
from tilelet.static.module import FolderLoader, read_module

KERNEL = """
import tilelet.language as pl

@pl.jit
def kernel(x: pl.Tensor[[N, 64], pl.FP32], out: pl.Out[pl.Tensor[[N, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x[:, :], 1.0)
    return out
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("N = 2 ** 4 + max(3, 5) % 4", 17),
        ("import math\nN = math.ceil(7 / 2)", 4),
        ("A, (B, N) = 1, (2, 3)", 3),
        ("N = sum(n for n in range(5) if n % 2)", 4),
        ("import os\nN = int(os.environ.get('N', '16'))", 16),
        (("import sys\ndef f():\n    for a in sys.argv:\n        if a == '--n':\n"
         "            return 1\n    return 8\nN = f()"), 8),
        (("from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int\n    b: int = 2\n"
         "    @property\n    def c(self):\n        return self.a * self.b\nN = C(8).c"), 16),
        ("N = {'a': [4, 5]}['a'][-1]", 5),
    ],
)  # fmt: skip
def test_constants_are_evaluated(text: str, value: int) -> None:
    assert read_module(text, "constants.py").names["N"] == value


@pytest.mark.parametrize(
    "text",
    [
        "N = open('f').read()", "N = __import__('os')", "N = ().__class__.__mro__",
        "N = 'x'.format(1)", "N = [0] * 10 ** 9", "N = sum(range(10 ** 9))", "N = eval('1')",
        "N = (lambda: 1)()", "import numpy\nN = numpy.pi", "N = str([1])", "N = undefined",
    ],
)  # fmt: skip
def test_other_expressions_are_not(text: str) -> None:
    assert isinstance(read_module(text, "constants.py").names["N"], Unknown)


def test_an_endless_loop_ends() -> None:
    with pytest.raises(WorkLimit):
        read_module("def f():\n    while True:\n        pass\nN = f()", "endless.py")


def test_neighbours_are_read_and_their_unknown_names_named(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("import random\nN = 16\nM = random.random()\n")
    load = FolderLoader(tmp_path)
    path = str(tmp_path / "kernel.py")
    read_module(f"from sizes import N\n{KERNEL}", path, load).programs[0].build()
    unknown = read_module(f"from sizes import M as N\n{KERNEL}", path, load).programs[0]
    with pytest.raises(NotEvaluated, match="`N` is not known"):
        unknown.build()


def test_programs_that_a_function_builds_are_found() -> None:
    head, tail = KERNEL.split("\n\n", 1)
    text = f"{head}\n\ndef build_program(n=16):\n    N = n * 2\n    "
    text += tail.replace("\n", "\n    ")
    program = read_module(text, "builder.py").programs[0].build()
    assert isinstance(program, Program)
    assert str(program.main.params[0].type) == "pl.Tensor[[32, 64], pl.FP32]"
