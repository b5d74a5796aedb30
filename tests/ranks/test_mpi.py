"""Ranks as processes of MPI: the results of one process, and an end for every failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.limits import HUNG
from tests.ranks.mpi_processes import needs_mpiexec, process_command, run_processes

from tilelet.diag.catalogue.ranks import NoMpi
from tilelet.ranks import launch

pytest.importorskip("mpi4py")

SCRIPT = """
import os
import sys

import numpy as np

import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import RunConfig

P = int(sys.argv[1])
ADD, GE = pld.NotifyOp.AtomicAdd, pld.WaitCmp.Ge
{start}

@pl.jit.incore
def spread(
    x: pl.Tensor[[16, 64], pl.FP32],
    total: pld.DistributedTensor[[16, 64], pl.FP32],
    inbox: pld.DistributedTensor[[16, 64], pl.FP32],
    arrived: pld.DistributedTensor[[2, 8], pl.INT32],
    y: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    ctx = pld.get_comm_ctx(total)
    me, n = pld.rank(ctx), pld.nranks(ctx)
    for p in pl.range(n):
        pld.tensor.put(total, peer=p, src=x, atomic=pld.AtomicType.Add)
        pld.system.notify(arrived, peer=p, offsets=[0, 0], value=1, op=ADD)
    right = pl.load(x, [0, 32], [16, 32])
    pld.tile.remote_store(right, inbox, peer=(me + 1) % n, offsets=[0, 16])
    pld.system.notify(arrived, peer=(me + 1) % n, offsets=[1, 0], value=3, op=pld.NotifyOp.Set)
    pld.system.wait(arrived, offsets=[0, 0], expected={n}, cmp=GE)
    pld.system.wait(arrived, offsets=[1, 0], expected=3, cmp=pld.WaitCmp.Eq)
    for p in pl.range(n):
        pld.system.notify(arrived, peer=p, offsets=[0, 0], value=1, op=ADD)
    pld.system.wait(arrived, offsets=[0, 0], expected=2 * n, cmp=GE)
    far = pld.tile.remote_load(inbox, peer=(me + n - 1) % n, offsets=[0, 0], shape=[16, 64])
    sums = pl.add(pl.add(pl.load(total, [0, 0], [16, 64]), far), pl.load(inbox, [0, 0], [16, 64]))
    y = pl.store(sums, [0, 0], y)
    return y


@pl.jit
def one(
    x: pl.Tensor[[16, 64], pl.FP32],
    total: pld.DistributedTensor[[16, 64], pl.FP32],
    inbox: pld.DistributedTensor[[16, 64], pl.FP32],
    arrived: pld.DistributedTensor[[2, 8], pl.INT32],
    y: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    return spread(x, total, inbox, arrived, y)


@pl.jit
def neighbours(
    y: pl.Tensor[[P, 16, 64], pl.FP32], z: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        z[:] = pl.sub(pl.reshape(y[0:1], [16, 64]), pl.reshape(y[P - 1 : P], [16, 64]))
    return z


@pl.jit.host
def main(
    x: pl.Tensor[[P, 16, 64], pl.FP32],
    y: pl.Out[pl.Tensor[[P, 16, 64], pl.FP32]],
    z: pl.Out[pl.Tensor[[P, 16, 64], pl.FP32]],
):
    total_buf = pld.alloc_window_buffer([16, 64], dtype=pl.FP32)
    inbox_buf = pld.alloc_window_buffer([16, 64], dtype=pl.FP32)
    arrived_buf = pld.alloc_window_buffer([2, 8], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        total = pld.window(total_buf, [16, 64], dtype=pl.FP32)
        inbox = pld.window(inbox_buf, [16, 64], dtype=pl.FP32)
        arrived = pld.window(arrived_buf, [2, 8], dtype=pl.INT32)
        one(x[r], total, inbox, arrived, y[r], device=r)
    for r in pl.range(pld.world_size()):
        neighbours(y, z[r], device=r)


x = np.random.default_rng(7).integers(-999, 999, (P, 16, 64)).astype(np.float32)
y, z = np.zeros_like(x), np.zeros_like(x)
main(x, y, z, config=RunConfig(distributed_config=DistributedConfig(device_ids=range(P))))
rank = os.environ.get("PMI_RANK", "")
np.save(f"{{sys.argv[2]}}{{rank}}.npy", np.stack([y, z]))
"""


ONLY_RANK_1 = "if os.environ['PMI_RANK'] == '1':\n    "


def script(folder: Path, start: str = "", n: str = "n") -> Path:
    file = folder / "program.py"
    file.write_text(SCRIPT.format(start=start, n=n), encoding="utf-8")
    return file


def over_mpi(
    processes: int, file: Path, ranks: int, out: str = "out"
) -> subprocess.CompletedProcess[str]:
    arguments = ("--ranks", "mpi", str(file), "--", str(ranks), str(file.parent / out))
    return run_processes(processes, "run", *arguments, cwd=file.parent)


@needs_mpiexec
@pytest.mark.parametrize("limit", [0, 1 << 60])
@pytest.mark.parametrize("ranks", [2, 4])
def test_results_are_those_of_one_process(tmp_path: Path, ranks: int, limit: int) -> None:
    """Natively from the start, and in the interpreter only."""
    limited = f"from tilelet.ranks import native_calls\nnative_calls.MAX_INTERPRETED = {limit}"
    file = script(tmp_path, limited)
    done = over_mpi(ranks, file, ranks, "mpi")
    assert done.returncode == 0, done.stdout + done.stderr
    here = [sys.executable, "-m", "tilelet.cli", "run", "--engine", "interp", str(file), "--"]
    subprocess.run([*here, str(ranks), str(tmp_path / "here")], check=True, cwd=tmp_path)
    expected = np.load(tmp_path / "here.npy")
    assert expected.any()
    for rank in range(ranks):
        assert np.array_equal(np.load(tmp_path / f"mpi{rank}.npy"), expected), rank


@needs_mpiexec
def test_a_killed_rank_ends_the_run_with_its_number(tmp_path: Path) -> None:
    kill = "if os.environ['PMI_RANK'] == '2':\n    os.kill(os.getpid(), 9)\n"
    done = over_mpi(4, script(tmp_path, kill), 4)
    assert done.returncode != 0
    assert "rank 2 was killed (SIGKILL)" in done.stderr


@needs_mpiexec
def test_ctrl_c_ends_ranks_that_are_blocked(tmp_path: Path) -> None:
    wait = "import time\nprint('started', file=sys.stderr, flush=True)\n"
    wait += f"{ONLY_RANK_1}time.sleep(300)\n"
    file = script(tmp_path, wait)
    command = process_command(2, "run", "--ranks", "mpi", str(file), "--", "2", str(tmp_path / "o"))
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert "started" in process.stderr.readline()  # of the first rank, which then waits
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=HUNG)
    assert process.returncode != 0


@needs_mpiexec
def test_a_deadlock_is_found_in_every_process(tmp_path: Path) -> None:
    done = over_mpi(2, script(tmp_path, n="3 * n"), 2)
    assert done.returncode == 3
    assert done.stderr.count("error[E1710]") == 1, done.stderr
    assert "cell [0, 0] of `arrived_buf` on rank 0 is 2, waits for at least 6" in done.stderr
    assert "cell [0, 0] of `arrived_buf` on rank 1 is 2, waits for at least 6" in done.stderr


@needs_mpiexec
@pytest.mark.parametrize(
    ("how", "message"),
    [("return 1 / 0", "ZeroDivisionError"), ("raise NoMpi", "error[E1718]")],
)
def test_a_rank_that_fails_ends_the_run(tmp_path: Path, how: str, message: str) -> None:
    fail = "from tilelet.diag.catalogue.ranks import NoMpi\n"
    fail += "from tilelet.ranks.rank import RankState\n"
    fail += f"def fail(*_):\n    {how}\n"
    fail += f"{ONLY_RANK_1}RankState.needs = fail\n"
    done = over_mpi(2, script(tmp_path, fail), 2)
    assert message in done.stderr
    assert done.returncode != 0
    assert "rank 1 has failed" in done.stderr
    assert "rank 0 has failed" not in done.stderr


@needs_mpiexec
@pytest.mark.parametrize("by_rank", [True, False])
def test_a_script_that_raises_ends_all_ranks(tmp_path: Path, *, by_rank: bool) -> None:
    """The others wait in MPI for a rank that fails outside the program, and only rank 0 prints."""
    done = over_mpi(2, script(tmp_path, (ONLY_RANK_1 if by_rank else "") + "raise OSError"), 2)
    assert done.returncode == 3
    assert done.stderr.count("E0706") == 1
    assert ("rank 1 has failed: the run ends" in done.stderr) == by_rank
    assert "MPI_Abort" not in done.stderr


@needs_mpiexec
def test_a_script_that_raises_at_its_end_is_reported(tmp_path: Path) -> None:
    file = script(tmp_path)
    file.write_text(f"{file.read_text()}{ONLY_RANK_1}sys.exit('not that number')\n")
    done = over_mpi(2, file, 2)
    assert done.returncode != 0
    assert "not that number" in done.stderr
    assert "rank 1 has failed" in done.stderr


@needs_mpiexec
def test_ranks_of_different_programs(tmp_path: Path) -> None:
    change = f"{ONLY_RANK_1}GE = pld.WaitCmp.Eq\n"
    done = over_mpi(2, script(tmp_path, change), 2)
    assert done.returncode == 3
    assert "`main` of rank 0 is another program than that of rank 1" in done.stderr


@needs_mpiexec
def test_another_number_of_processes(tmp_path: Path) -> None:
    done = over_mpi(2, script(tmp_path), 4)
    assert done.returncode == 3
    assert "the program has 4 ranks, and MPI has 2 processes" in done.stderr
    assert "mpiexec -n 4" in done.stderr


def test_without_mpi_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NoMpi, match=r"needs the package mpi4py"):
        launch.start_rank()


def test_without_an_mpi_library_one_line_says_so(tmp_path: Path) -> None:
    """A package without its library, as with another MPI than that of the cluster."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").touch()
    (tmp_path / "mpi4py" / "MPI.py").write_text("raise RuntimeError('cannot load MPI library')")
    script = tmp_path / "script.py"
    script.touch()
    done = subprocess.run(
        [sys.executable, "-m", "tilelet", "run", "--ranks", "mpi", str(script)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HUNG,
        check=False,
    )
    assert done.returncode == 3
    assert "error[E1718]: `--ranks mpi` needs an MPI library" in done.stderr
    assert "internal error" not in done.stderr
