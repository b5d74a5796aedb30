"""Candidates in several processes, some of which die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.limits import HUNG
from tests.tuning.kernels import SCRIPT, InThisProcess, question

from tilelet.diag import UserError
from tilelet.tuning.tuner import Request, tune
from tilelet.tuning.workers import Lost, workers


def double(number: int) -> int:
    return 2 * number


def dies_at_three(number: int) -> int:
    if number == 3:
        os._exit(9)
    return 2 * number


def dies_once(number: int, marker: str) -> int:
    if number == 3 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_answers_come_with_their_numbers() -> None:
    with workers(2) as pool:
        assert dict(pool.map(double, [(n,) for n in range(8)])) == {n: 2 * n for n in range(8)}


def test_a_call_that_kills_its_process_loses_only_itself() -> None:
    with workers(2) as pool:
        found = dict(pool.map(dies_at_three, [(n,) for n in range(6)]))
    assert {n: a for n, a in found.items() if n != 3} == {n: 2 * n for n in range(6) if n != 3}
    assert isinstance(found[3], Lost)


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    marker = str(tmp_path / "killed")
    with workers(2) as pool:
        found = dict(pool.map(dies_once, [(n, marker) for n in range(6)]))
    assert found == {n: 2 * n for n in range(6)}


@pytest.mark.parametrize("address", ["dask://", "dask://host", "http://host:1", "dask://host:x"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UserError, match="E1406"), workers(executor=address):
        pass


def test_a_scheduler_that_does_not_answer() -> None:
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UserError, match="E1407"), workers(executor=f"dask://127.0.0.1:{port}"):
        pass


def test_a_cluster_finds_the_same_winner_and_survives_the_loss_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    if not thorough:
        pytest.skip("--thorough starts a cluster")
    distributed: Any = pytest.importorskip("distributed")
    monkeypatch.setenv("TILELET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    asked = question(tmp_path)
    here = tune(Request(asked, executor=InThisProcess(), verify=0))
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    )
    file = tmp_path / "results.jsonl"

    def kill_one() -> None:
        while not file.exists() or len(file.read_text().splitlines()) < 8:
            time.sleep(0.01)
        os.kill(cluster.workers[0].pid, signal.SIGKILL)

    with cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        there = tune(Request(asked, executor=address, results=file, verify=0))
        killer.join(30)
    assert there.winner.settings == here.winner.settings
    assert sorted(map(repr, there.scores)) == sorted(map(repr, here.scores))


def test_no_thread_of_the_pool_is_left() -> None:
    """Python complains at exit about one that is just closing its pipe."""
    before = set(threading.enumerate())
    with workers(jobs=2) as pool:
        assert sorted(answer for _, answer in pool.map(abs, [(-1,), (-2,)])) == [1, 2]
    assert set(threading.enumerate()) <= before


def test_processes_do_not_import_the_callers_main_module(tmp_path: Path) -> None:
    """A plain script without `if __name__ == "__main__"` may tune."""
    (tmp_path / "kernel.py").write_text(SCRIPT)
    caller = "import tilelet\nprint('main')\nfound = tilelet.tune('kernel.py', candidates=3)\n"
    (tmp_path / "caller.py").write_text(f"{caller}print(len(found.scores) > 0)\n")
    done = subprocess.run(
        [sys.executable, "caller.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "main\nTrue\n"
    assert "Traceback" not in done.stderr
