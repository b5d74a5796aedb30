"""Generated kernels in other words: the same IR, or the same refusal."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.generated.core import Choices
from tests.generated.generator import FOCUSES, Kernel, make
from tests.generated.harness import compile_text
from tests.generated.spellings import respelt

from tilelet.diag.core import UserError, UserErrors
from tilelet.ir.printer import print_program

PER_FOCUS = 8
WORDS = (
    r"with pl\.incore\(", r"pl\.op\.\w+\(", r"pl\.(op\.)?tensor\.\w+\(", r"pl\.view\(",
    r"\w+, = pl\.yield_|\(\w+,\) = pl\.yield_", r"pl\.cast\(\w+=", r"pl\.matmul_acc\(acc=",
    r"init_values=\[",
    r"pl(\.op)?(\.tensor)?\.load\(\w+, \w+[^,\[]*, ", r"helper0\(.*\bt\d=", r"kernel0\(.*\bout=",
    r"def helper0\(.*\*, ", r"def helper0\(.*\bgiven=", r"helper0\(.*\w\)?, given=",
    r"def kernel0\(.*pl\.DN\]",
)  # fmt: skip


def drawn(focus: str, number: int) -> Kernel:
    rng = np.random.default_rng([FOCUSES.index(focus), number])
    return make(Choices(rng.bytes(400)), focus)


def said(kernel: Kernel, folder: Path) -> str:
    try:
        return print_program(compile_text(kernel, folder, kernel.arguments()))
    except (UserError, UserErrors) as refusal:
        return "\n".join(re.findall(r"error\[E\d{4}\]", str(refusal)))


@pytest.mark.parametrize("focus", FOCUSES)
def test_another_spelling_is_the_same_program(focus: str, tmp_path: Path) -> None:
    for number in range(PER_FOCUS):
        kernel = drawn(focus, number)
        other = replace(kernel, text=respelt(kernel.text, number))
        assert said(other, tmp_path) == said(kernel, tmp_path), f"{kernel.text}\n{other.text}"


def test_all_spellings_are_used() -> None:
    kernels = [drawn(focus, n) for focus in FOCUSES for n in range(4 * PER_FOCUS)]
    text = "".join(respelt(kernel.text, n) for n, kernel in enumerate(kernels))
    assert [w for w in WORDS if not re.search(w, text)] == []
