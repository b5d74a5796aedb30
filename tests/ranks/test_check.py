"""`tilelet check` and `tilelet run` on scripts of several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilelet.cli.main import main

SCRIPT = """
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig


@pl.jit.incore
def step(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]], s: pld.DistributedTensor[[1, 1], pl.INT32]):
    peer = 1 - pld.rank(pld.get_comm_ctx(s))
    for i in pl.range(3):
        pld.system.notify(s, peer=peer, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(s, offsets=[0, 0], expected=EXPECTED, cmp=pld.WaitCmp.CMP)
    pl.write(y, [0, 0], pl.read(s, [0, 0]))
    return y


@pl.jit
def chip(y: pl.Out[pl.Tensor[[1, 1], pl.INT32]], s: pld.DistributedTensor[[1, 1], pl.INT32]):
    return step(y, s)


@pl.jit.host
def handshake(y: pl.Out[pl.Tensor[[2, 1, 1], pl.INT32]]):
    buf = pld.alloc_window_buffer(4)
    for r in pl.range(pld.world_size()):
        s = pld.window(buf, [1, 1], dtype=pl.INT32)
        chip(y[r], s, device=r)


y = np.zeros((2, 1, 1), np.int32)
handshake(y, config=RunConfig(distributed_config=DistributedConfig(device_ids=[0, 1])))
assert y.min() >= 3
"""


def write(tmp_path: Path, expected: str, cmp: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("EXPECTED", expected).replace("CMP", cmp))
    return str(script)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_clean_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, "i + 1", "Ge")
    assert main(["run", script]) == 0
    assert main(["check", script]) == 0
    assert "handshake: 2 ranks: all schedules covered" in capsys.readouterr().out


def test_a_wait_that_can_be_overtaken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, "i + 1", "Eq")
    assert main(["check", script]) == 1
    seen = capsys.readouterr()
    assert "error[E1710]: deadlock" in seen.err
    assert "waits for" in seen.err
    seed = seen.err.split("--replay ")[1].split("`")[0]
    assert main(["check", script, "--replay", seed]) == 1
    again = capsys.readouterr().err
    assert [x for x in seen.err.splitlines() if "cell [0, 0] of" in x] == [
        x for x in again.splitlines() if "cell [0, 0] of" in x
    ]


CROWDED = """
import numpy as np
import tilelet.language as pl
import tilelet.language.distributed as pld
from tilelet.ranks.config import DistributedConfig
from tilelet.runtime import RunConfig


@pl.jit
def chip(y: pl.Out[pl.Tensor[[6, 8], pl.INT32]], s: pld.DistributedTensor[[1, 8], pl.INT32]):
    with pl.manual_scope():
        for b in pl.spmd(6):
            pld.system.wait(s, offsets=[0, b], expected=1, cmp=pld.WaitCmp.Ge)
            y[b : b + 1, :] = pl.full([1, 8], pl.INT32, 1)
        with pl.at(level=pl.Level.CORE_GROUP):
            for b in pl.range(6):
                pld.system.notify(
                    s, peer=0, offsets=[0, b], value=1, op=pld.NotifyOp.AtomicAdd
                )
    return y


@pl.jit.host
def crowded(y: pl.Out[pl.Tensor[[1, 6, 8], pl.INT32]]):
    buf = pld.alloc_window_buffer([1, 8], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        s = pld.window(buf, [1, 8], dtype=pl.INT32)
        chip(y[r], s, device=r)


crowded(np.zeros((1, 6, 8), np.int32), config=RunConfig(distributed_config=DistributedConfig()))
"""


def test_the_number_of_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six waiting blocks hold all vector cores of three clusters."""
    script = tmp_path / "crowded.py"
    script.write_text(CROWDED)
    machine = tmp_path / "small.toml"
    machine.write_text('extends = "a2a3"\n[cores]\nclusters = { value = 3, evidence = "G" }\n')
    assert main(["check", str(script)]) == 0
    assert main(["check", str(script), "--clusters", "4"]) == 0
    assert "error[E1710]" not in capsys.readouterr().err
    for options in (["--clusters", "3"], ["-p", str(machine)]):
        assert main(["check", str(script), *options]) == 1
        assert "error[E1710]: deadlock" in capsys.readouterr().err


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", write(tmp_path, "i + 1", "Ge")]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["schedules"]
    assert found["verdict"] == "all schedules covered"
    assert (found["program"], found["ranks"], found["seeds"]) == ("handshake", 2, [])


def test_a_seed_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path, "i + 1", "Ge"), "--replay", "17"]) == 3
    assert "E1717" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["tasks", "--as-runtime"], ["advise"], ["tune"], ["export"], ["diverge"]]
)
def test_commands_of_one_chip_refuse_it(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, write(tmp_path, "i + 1", "Ge")]) == 3
    said = capsys.readouterr().err
    assert "E1712" in said
    assert "`tilelet run`, `check`, `tasks` and `profile` take several ranks" in said


def test_a_single_rank_program_has_no_schedule_to_replay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hello = Path(__file__).parents[2] / "examples" / "01_hello.py"
    assert main(["check", str(hello), "--replay", "random:1"]) == 2
    assert main(["check", str(hello), "--clusters", "1"]) == 2
    assert "`--replay` is for programs of several ranks" in capsys.readouterr().err


TWO_RANKS = Path(__file__).parents[2] / "examples" / "ranks" / "two_ranks.py"
SEND = "        pld.tensor.put(inbox, peer=peer, src=partial)\n"
SIGNAL = "        pld.system.notify(arrived, peer=peer, offsets=[0, 0], value=1, op=ADD)\n"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", "all schedules covered (1 ran)"),
        ("expected=1", "expected=2", "is 1, waits for at least 2"),
        (SEND + SIGNAL, SIGNAL + SEND, "E1711"),
    ],
)
def test_the_program_of_the_tutorial(
    old: str, new: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TWO_RANKS.read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / "two_ranks.py"
    file.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    assert main(["check", str(file)]) == (1 if old else 0)
    printed = capsys.readouterr()
    assert found in printed.out + printed.err


def test_the_program_of_the_tutorial_matches_its_golden() -> None:
    assert main(["run", str(TWO_RANKS)]) == 0
