"""No program ends the process: it gets an exception with a place."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cpu.differential import agree, outcome
from tests.interp.build import Build, index, kernel, ramp, tensor
from tests.limits import HUNG

from tilelet.cpu.run import engine, sanitize
from tilelet.cpu.run.engine import CpuEngine
from tilelet.dtypes import FP32, INT32, INT64
from tilelet.ir.core import Direction, Program, Value
from tilelet.native.toolchain import find_compiler
from tilelet.passes.pipeline import run_passes

ROOT = Path(__file__).parents[2]
WILD = [0, 1, 3, 13, -1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)]


def _read(b: Build, x: Value, at: int) -> Value:
    return b.op("read", x=x, indices=[at])


@pytest.mark.parametrize("in_kernel", [True, False])
def test_wild_numbers_from_a_tensor(in_kernel: bool) -> None:
    """They are used as the offset of a window, as a valid extent, and as the offset of a store."""
    b = Build()
    x, out = b.param("x", tensor([16, 8])), b.param("out", tensor([16, 8]))
    n = b.param("n", tensor([3], INT64))
    outside = None if in_kernel else [_read(b, n, i) for i in range(3)]

    def body(s: Build) -> list[Value]:
        row, valid, place = outside or [_read(s, n, i) for i in range(3)]
        tile = s.window(x, [4, 8], [row, 0], valid_shape=[valid, 8])
        return [s.put(out, s.op("add", lhs=tile, rhs=1.0), [place, 0])]

    b.scope(body)
    program = b.program()
    for i in range(3):
        for number in WILD:
            values = np.array([0, 4, 0], np.int64)
            values[i] = number
            agree(program, x=ramp(16, 8), out=ramp(16, 8), n=values)


@pytest.mark.parametrize("in_kernel", [True, False])
def test_index_arithmetic_that_overflows(in_kernel: bool) -> None:
    """It wraps as 64-bit integers do, and the wrapped value is checked."""
    b = Build()
    x, out = b.param("x", tensor([16, 8])), b.param("out", tensor([4, 8]))
    n = b.param("n", index())

    def row(s: Build) -> Value:
        square = s.op("scalar.mul", lhs=s.op("scalar.mul", lhs=n, rhs=n), rhs=n)
        far = s.op("scalar.add", lhs=square, rhs=2**63 - 1)
        return s.op("scalar.sub", lhs=s.op("scalar.sub", lhs=far, rhs=2**62), rhs=2**62 - 5)

    outside = None if in_kernel else row(b)
    b.scope(lambda s: [s.put(out, s.window(x, [4, 8], [outside or row(s), 0]), [0, 0])])
    program = b.program()
    for number in [0, 1, -1, 2**21, 2**22, 2**32, -(2**43), 2**63 - 1, -(2**63)]:
        agree(program, x=ramp(16, 8), out=ramp(4, 8), n=number)


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 1, 3, 70])
def test_wild_loops_and_blocks(number: int) -> None:
    k = kernel()
    y = k.param("y", tensor([4, 8]))
    block = k.op("get_block_idx")
    tile = k.window(y, [1, 8], [block, 0])
    step = k.function(
        "step", k.put(y, k.op("add", lhs=tile, rhs=1.0), [block, 0]), directions=[Direction.InOut]
    )
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", tensor([1], INT64))
    count = _read(b, n, 0)
    b.for_(count, lambda s, i: [s.scope(lambda t: [t.put(x, t.whole(x), [0, 0])]), []][1])
    b.call(step, [x], count=count)
    agree(b.program(kernels=[step]), x=ramp(4, 8), n=np.array([number], np.int64))


@pytest.mark.parametrize(("start", "stop", "step"), [(2**63 - 3, 2**63 - 1, 2), (-4, 4, 2**62)])
def test_loops_at_the_end_of_the_numbers(start: int, stop: int, step: int) -> None:
    """The loop variable must not wrap around."""
    b = Build()
    x = b.param("x", tensor([1], INT64))
    numbers = [b.param(name, index()) for name in ("start", "stop", "step")]

    def iteration(s: Build, _: Value) -> list[Value]:
        more = s.op("scalar.add", lhs=_read(s, x, 0), rhs=1)
        s.op("write", x=x, indices=[0], value=more)
        return []

    b.for_(numbers[1], iteration, start=numbers[0], step=numbers[2])
    b.scope(lambda s: [s.for_(numbers[1], iteration, start=numbers[0], step=numbers[2]), []][1])
    found = agree(b.program(), x=np.zeros(1, np.int64), start=start, stop=stop, step=step)
    assert found["x"][0] > 0


@pytest.mark.parametrize("shape", [[2**20, 2**18], [8, 2**60], [8, 2**63 - 1]])
def test_a_tile_that_no_machine_holds(shape: list[int]) -> None:
    """Checked before the run: the system would kill a process that touches so much memory."""
    b = Build()
    x, out = b.param("x", tensor([4, 8])), b.param("out", tensor([4, 8]))

    def body(s: Build) -> list[Value]:
        huge = s.op("full", shape=shape, dtype=FP32, value=1.0, result="huge")
        huge = s.put(huge, s.whole(x), [0, 0])
        return [s.put(out, s.window(huge, [4, 8], [0, 0]), [0, 0])]

    b.scope(body)
    _, error, _ = outcome(
        CpuEngine(), run_passes(b.program()), {"x": ramp(4, 8), "out": ramp(4, 8)}
    )
    assert "E0607" in error
    assert "`huge` needs" in error
    assert "kernel.py:" in error


def test_fewer_threads_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Build()
    x = b.param("x", tensor([64, 64]))

    def body(s: Build) -> list[Value]:
        return [s.put(x, s.op("transpose", x=s.whole(x), axis1=0, axis2=1), [0, 0])]

    b.scope(body)
    program = engine.compile_native(run_passes(b.program()))
    assert program.table.scratch_bytes > 0
    monkeypatch.setattr(engine, "available_memory", lambda: 5 << 20)
    threads, memory = program.room(64)
    assert 1 <= threads <= 4
    assert 0 <= memory < 5 << 20


_LITTLE_MEMORY = """
import resource, sys
import numpy as np
from tests.interp.build import Build, index, ramp, tensor
from tilelet.cpu.run.engine import compile_native
from tilelet.diag.core import UserError
from tilelet.passes.pipeline import run_passes

b = Build()
x, n = b.param("x", tensor([4, 8])), b.param("n", index())
big = b.op("create_tensor", shape=[n, 1024], dtype=x.type.dtype)
b.scope(lambda s: [s.put(big, s.whole(x), [0, 0])])
b.scope(lambda s: [s.put(x, s.op("add", lhs=s.window(big, [4, 8], [0, 0]), rhs=1.0), [0, 0])])
program = compile_native(run_passes(b.program()))
given = ramp(4, 8)
program.run({"x": given, "n": 4}, 2, -1)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for rows, threads in ((1 << 18, 2), (4, 1024)):  # a tensor of 1 GB; 1024 threads
    try:
        program.run({"x": given, "n": rows}, threads, -1)
    except UserError as error:
        print(error)
program.run({"x": given, "n": 4}, 2, -1)
assert (given >= 3).all()
print("lives")
"""


def _python(folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own."""
    script = folder / "script.py"
    script.write_text(text)
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": paths, **variables},
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=HUNG,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of Linux")
def test_memory_that_the_system_refuses(tmp_path: Path) -> None:
    """A temporary and the threads request more than the limit, although the machine has it."""
    done = _python(tmp_path, _LITTLE_MEMORY)
    assert done.returncode == 0, done.stderr
    assert "`create_tensor` needs 1 GiB" in done.stdout
    assert "kernel.py:" in done.stdout
    assert "`the threads of the run` needs" in done.stdout
    assert "set `TILELET_THREADS` to a smaller number" in done.stdout
    assert done.stdout.count("a memory limit is set: see `ulimit -v`") == 2
    assert done.stdout.endswith("lives\n")


_MANY_PROCESSORS = """
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int sched_getaffinity(pid_t who, size_t bytes, cpu_set_t *set) {
    if (bytes != sizeof *set) return (int)syscall(SYS_sched_getaffinity, who, bytes, set) < 0;
    errno = EINVAL;
    return -1;
}
int sched_setaffinity(pid_t who, size_t bytes, const cpu_set_t *set) { abort(); }
"""
_TWO_THREADS = """
from tests.cpu.test_build import fresh_program
from tests.interp.build import ramp
from tilelet.cpu.run.engine import compile_native

compile_native(fresh_program()).run({"x": ramp(4, 8)}, 2, -1)
print("lives")
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is replaced is glibc's")
def test_more_processors_than_a_set_has_room_for(tmp_path: Path) -> None:
    """Threads stay on the CPUs that the system chose."""
    if sanitize.is_loaded():
        pytest.skip("the sanitizer has to be the first library")
    (tmp_path / "many.c").write_text(_MANY_PROCESSORS)
    library = tmp_path / "many.so"
    shared = [*find_compiler().command, "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*shared, str(tmp_path / "many.c")], check=True)
    done = _python(tmp_path, _TWO_THREADS, LD_PRELOAD=str(library))
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr


def _chain(length: int) -> Program:
    b = Build()
    x = b.param("x", tensor([4, 8]))

    def body(s: Build) -> list[Value]:
        tile = s.whole(x)
        for i in range(length):
            tile = s.op("add" if i % 2 else "mul", lhs=tile, rhs=0.5)
        return [s.put(x, tile, [0, 0])]

    b.scope(body)
    return b.program()


def _nested(depth: int, kind: str, in_kernel: bool) -> Program:
    b = Build()
    x, n = b.param("x", tensor([1], INT32)), b.param("n", index())

    def level(s: Build, left: int) -> list[Value]:
        if not left:
            s.op("write", x=x, indices=[0], value=s.op("scalar.add", lhs=_read(s, x, 0), rhs=1))
        elif kind == "for":
            s.for_(n, lambda t, i: level(t, left - 1))
        else:
            s.if_(s.op("scalar.gt", lhs=n, rhs=0), lambda t: level(t, left - 1), lambda t: [])
        return []

    if in_kernel:
        b.scope(lambda s: level(s, depth))
    else:
        level(b, depth)
    return b.program()


def test_a_long_chain_of_ops() -> None:
    """Fused into one expression, it must not be too deep for Python or the C compiler."""
    agree(_chain(2500), x=ramp(4, 8))


@pytest.mark.parametrize("in_kernel", [True, False])
@pytest.mark.parametrize("kind", ["for", "if"])
def test_deep_nesting(kind: str, in_kernel: bool) -> None:
    found = agree(_nested(40, kind, in_kernel), x=np.zeros(1, np.int32), n=1)
    assert found["x"][0] == 1
