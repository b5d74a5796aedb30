"""Speed as a property of the compiled code: loops vectorized, vector registers not spilled.

Only compiled, never run: no load on the machine can change the outcome.
"""

from __future__ import annotations

import functools
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cpu.shipped import emitted_text, shipped_programs

from tilelet.cpu.run.build import OPTIMIZE, OPTIMIZE_RUNTIME, SOURCES
from tilelet.native.toolchain import FLAGS, find_compiler

GOLDEN_COMPILER = "gcc 12"  # other versions vectorize other loops
LEVEL = "-march=x86-64-v3"
NO_GUESSES = "-fno-guess-branch-probability"
MIN_VECTORIZED = 0.9

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")


@functools.cache
def _gcc() -> str:
    """Name and major version of the compiler, if it is a gcc."""
    compiler = find_compiler()
    if compiler.is_clang:
        pytest.skip("the vectorization report is gcc's")
    command = [*compiler.command, "-dumpversion"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return f"gcc {done.stdout.split('.')[0].strip()}"


def _compile(source: Path, *flags: str) -> str:
    """Compile to assembly and return it."""
    command = [*find_compiler().command, *FLAGS, f"-I{SOURCES}", *flags, "-S", "-o", "-"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- vectorized loops of kernels -----------------------------------------------------------------

_KERNEL = re.compile(r"^// kernel `(?P<name>[^`]*)`\n(?P<text>.*?^}\n)", re.MULTILINE | re.DOTALL)
_DIFFERS = [  # text that differs between kernels with equal machine code
    (re.compile(r" *//.*"), ""),
    (re.compile(r"(\btl_fail\w*\(c, (?:TL_\w+, )?)\d+"), r"\g<1>0"),
    (re.compile(r"^int k_\w+\("), "int k("),
]


@dataclass(frozen=True)
class Kernels:
    """Kernels of the shipped programs, without duplicates.

    texts   distinct kernels
    places  indices into `texts` by program and kernel
    """

    texts: list[str]
    places: dict[tuple[str, str], int]

    def unit(self) -> str:
        named = [text.replace("int k(", f"int k{i}(") for i, text in enumerate(self.texts)]
        return "\n".join(['#include "kernel.h"', *named])


@functools.cache
def _kernels() -> Kernels:
    numbers: dict[str, int] = {}
    places: dict[tuple[str, str], int] = {}
    for program, built in shipped_programs():
        for found in _KERNEL.finditer(emitted_text(built)):
            text = found["text"]
            for pattern, replacement in _DIFFERS:
                text = pattern.sub(replacement, text)
            places[program, found["name"]] = numbers.setdefault(text, len(numbers))
    return Kernels(list(numbers), places)


def _vectorized_loops(folder: Path, *flags: str) -> Counter[int]:
    """Count the vectorized loops of each distinct kernel."""
    name = "guesses" if not flags else "no_guesses"
    source, dump = folder / f"{name}.c", folder / f"{name}.dump"
    source.write_text(_kernels().unit())
    _compile(source, LEVEL, OPTIMIZE, f"-fdump-tree-vect-optimized={dump}", *flags)
    counts: Counter[int] = Counter()
    kernel = None
    for line in dump.read_text().splitlines():
        if line.startswith(";; Function "):
            function = line.split()[2]
            kernel = int(function[1:]) if re.fullmatch(r"k\d+", function) else None
        elif kernel is not None and "optimized: loop vectorized" in line:
            counts[kernel] += 1
    return counts


def test_loops_of_kernels_are_vectorized(
    tmp_path: Path,
    golden: Callable[[str, str], None],
    request: pytest.FixtureRequest,
    thorough: bool,
) -> None:
    """There are as many loops as in the golden file, or nearly as many as without branch guesses.

    gcc leaves loops scalar that it takes for rarely run, for instance behind fault exits. Golden
    counts are compared with those without guesses when they are written: compiling takes seconds.
    """
    is_golden = _gcc() == GOLDEN_COMPILER
    emitted = _vectorized_loops(tmp_path)
    if not is_golden or thorough or request.config.getoption("--update-golden"):
        _compare_with_no_guesses(emitted, tmp_path)
    if is_golden:
        places = _kernels().places.items()
        lines = [f"{program} {kernel}: {emitted[i]}" for (program, kernel), i in places]
        golden("cpu/vectorized_loops.txt", "\n".join(sorted(lines)))


def _compare_with_no_guesses(emitted: Counter[int], folder: Path) -> None:
    unguessed = _vectorized_loops(folder, NO_GUESSES)
    totals: dict[str, list[int]] = {}
    for (program, _), kernel in _kernels().places.items():
        both = totals.setdefault(program, [0, 0])
        both[0] += emitted[kernel]
        both[1] += unguessed[kernel]
    assert all(of for _, of in totals.values())
    lost = {name: f"{n} of {of}" for name, (n, of) in totals.items() if n < MIN_VECTORIZED * of}
    assert not lost


# --- registers of the matrix product -------------------------------------------------------------

_VECTOR_ON_STACK = re.compile(r"%[xyz]mm\d.*\(%r[sb]p|\(%r[sb]p.*%[xyz]mm\d")
_INNER_KERNEL = re.compile(r"(?:pair_)?kernel_\d+x\d|(?:first_)?in_place_\d")
# Level: flags, and the kernels to check at that level.
LEVELS = {
    "avx2": (("-march=x86-64-v3",), {"kernel_6x2", "kernel_8x1"}),
    "avx512": (("-march=x86-64-v4",), {"kernel_12x2", "kernel_16x1"}),
    "avx512-bf16": (
        ("-march=x86-64-v4", "-mavx512bf16"),
        {"kernel_12x2", "pair_kernel_12x2", "in_place_8", "first_in_place_8"},
    ),
}


@pytest.mark.parametrize("level", LEVELS)
def test_inner_kernels_keep_vectors_in_registers_and_can_prefetch_into_l1(level: str) -> None:
    _gcc()
    flags, expected = LEVELS[level]
    spills: Counter[str] = Counter()
    hints: set[str] = set()
    function = ""
    sources = (SOURCES / name for name in ("matmul.c", "pair_kernels.c"))
    text = "\n".join(_compile(source, *flags, OPTIMIZE_RUNTIME) for source in sources)
    for line in text.splitlines():
        label = re.match(r"(\w+):", line)
        if label:
            function = label[1]
            spills[function] += 0
        elif _VECTOR_ON_STACK.search(line):
            spills[function] += 1
        elif _INNER_KERNEL.fullmatch(function):
            hints.update(re.findall(r"\tprefetch\w+", line))
    inner = {name: n for name, n in spills.items() if _INNER_KERNEL.fullmatch(name)}
    assert "\tprefetcht0" in hints  # without it, Zen 5 may read at half the speed
    assert expected <= set(inner)
    assert {name: n for name, n in inner.items() if n} == {}


# --- conversions ---------------------------------------------------------------------------------

_ROUNDED = """
#include "numbers.h"
void rounded(ts_bf16 *restrict to, const float *restrict from) {
    for (int i = 0; i < 16; i++) to[i] = ts_as_bf16(ts_round_bf16(from[i], %s));
}
"""


@pytest.mark.parametrize("mode", ["TL_RINT", "TL_ROUND"])
def test_rounding_to_bf16_narrows_vectors_once(tmp_path: Path, mode: str) -> None:
    """Two vectors of FP32 become one of BF16; gcc 12 likes to narrow every operand of a select."""
    _gcc()
    source = tmp_path / "rounded.c"
    source.write_text(_ROUNDED % mode)
    text = _compile(source, "-march=x86-64-v3", OPTIMIZE)
    assert len(re.findall(r"\tvpackusdw\t", text)) == 1
