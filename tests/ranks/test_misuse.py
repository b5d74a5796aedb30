"""Mistakes in programs of several ranks: each is an error of the catalogue at its line.

The text of a case replaces a part of one right program; `#!` marks the line of the error.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilelet.cli.main import main

PROGRAM = """\
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig
from pypto.runtime import RunConfig

P, S = 2, 32
ADD = pld.NotifyOp.AtomicAdd
GE = pld.WaitCmp.Ge
CFG = RunConfig(distributed_config=DistributedConfig(device_ids=[0, 1]))
ROWS = pl.Tensor[[4, S], pl.FP32]
DATA = pld.DistributedTensor[[4, S], pl.FP32]
PARTS = pld.DistributedTensor[[P, S], pl.FP32]
CELLS = pld.DistributedTensor[[P, 1], pl.INT32]


@pl.jit.incore
def deferring(s: CELLS):
    pld.system.defer_wait(s, offsets=[0, 0], expected=1)


@pl.jit.incore
def k(x: ROWS, y: pl.Out[ROWS], w: DATA, v: PARTS, s: CELLS, me: pl.Scalar[pl.INT32]):
    t = pl.load(x, [0, 0], [4, S])
    KERNEL
    y = pl.store(t, [0, 0], y)
    return y


@pl.jit
def chip(x: ROWS, y: pl.Out[ROWS], w: DATA, v: PARTS, s: CELLS, me: pl.Scalar[pl.INT32]):
    CHIP
    return k(x, y, w, v, s, me)


@pl.jit.host
def host(x: pl.Tensor[[P, 4, S], pl.FP32], y: pl.Out[pl.Tensor[[P, 4, S], pl.FP32]]):
    wb = pld.alloc_window_buffer([4, S], dtype=pl.FP32)
    vb = pld.alloc_window_buffer([P, S], dtype=pl.FP32)
    sb = pld.alloc_window_buffer([P, 1], dtype=pl.INT32)
    qb = pld.alloc_window_buffer([P], dtype=pl.INT32)
    w = pld.window(wb, [4, S], dtype=pl.FP32)
    v = pld.window(vb, [P, S], dtype=pl.FP32)
    s = pld.window(sb, [P, 1], dtype=pl.INT32)
    q = pld.window(qb, [P], dtype=pl.INT32)
    pld.tensor.barrier(q)
    HOST
    for r in pl.range(pld.world_size()):
        chip(x[r], y[r], w, v, s, r, device=r)


x = np.ones((P, 4, S), np.float32)
y = np.zeros_like(x)
RUN
"""

NOTIFIED = """\
with pl.at(level=pl.Level.CORE_GROUP, name_hint="n"):
    pld.system.notify(s, peer=me, offsets=[0, 0], value=1, op=ADD)
"""
AT = 'with pl.at(level=pl.Level.CORE_GROUP, name_hint="a") as tid:\n'
REGION = "dst_offsets=[0, 0], src_offsets=[0, 0]"
COUNTED = "n = pl.cast(pl.read(s, [0, 0]), pl.INDEX)\n"
WORKER = "c = host.compile(x, y, config=CFG)\nwith c.prepare() as rt:\n    "
RING = """\
rb = pld.alloc_window_buffer([2 * (P - 1) + 1, P], dtype=pl.INT32)
ring = pld.window(rb, [2 * (P - 1) + 1, P], dtype=pl.INT32)
"""

CASES = [
    ("KERNEL", "n = pld.world_size() #!", "E1704", "in a kernel"),
    ("CHIP", "n = pld.world_size() #!", "E1704", "in a control program"),
    ("HOST", "me = pld.rank(pld.get_comm_ctx(w)) #!", "E1704", "in the host function"),
    ("HOST", "n = pld.nranks(pld.get_comm_ctx(w)) #!", "E1704", "in the host function"),
    ("KERNEL", "pld.tensor.put_async(w, peer=0, src=x) #!", "E1713", "use `pld.tensor.put`"),
    ("KERNEL", "z = pld.system.test(s, offsets=[0, 0]) #!", "E1713", "use `pld.system.wait`"),
    (
        "HOST",
        "for r in pl.range(0, P, 2):\n    chip(x[r], y[r], w, v, s, r, device=r) #!",
        "E1706",
        "not a range of known ranks",
    ),
    (
        "HOST",
        "for r in pl.range(pld.world_size() - 1):\n    chip(x[r], y[r], w, v, s, r, device=r) #!",
        "E1706",
        "not a range of known ranks",
    ),
    (
        "HOST",
        "u = pld.window(pld.alloc_window_buffer([4, S], dtype=pl.FP32), [4, S], dtype=pl.FP32) #!",
        "E1707",
        "without a name",
    ),
    (
        "HOST",
        (
            "for r in pl.range(2):\n"
            "    chip(x[r], y[r], pld.tensor.allreduce(w), v, s, r, device=r) #!"
        ),
        "E1709",
        "make it a statement",
    ),
    (
        "CHIP",
        f"{AT}    pld.tensor.remote_store(v, w, peer=0, offsets=[0, 0]) #!",
        "E1703",
        "`src` is a window itself",
    ),
    (
        "KERNEL",
        f"{COUNTED}pld.tensor.put(w, peer=0, src=x, {REGION}, shape=[n, S]) #!",
        "E1703",
        "needs `chunk_rows=`",
    ),
    (
        "KERNEL",
        f"{COUNTED}pld.tensor.get(y, peer=0, src=w, {REGION}, shape=[2, n], chunk_rows=2) #!",
        "E1703",
        "needs `chunk_cols=`",
    ),
    (
        "KERNEL",
        "pld.system.notify(s, peer=0, offsets=[0, 0], value=3000000000, op=ADD) #!",
        "E0322",
        "constant 3000000000 does not fit",
    ),
    (
        "HOST",
        (
            "for r in pl.range(2):\n    chip(x[r], y[r], w, v, s, r, device=r)\n"
            "if pl.read(y, [1, 0, 0]) > 0.0: #!\n    chip(x[0], y[0], w, v, s, 0, device=0)"
        ),
        "E1728",
        "reads `y`",
    ),
    (
        "HOST",
        "chip(x[0], y[0], w, v, s, 0, device=0)\npl.write(y, [0, 0, 0], 1.0) #!",
        "E1728",
        "writes `y`",
    ),
    ("KERNEL", "v = pld.tensor.allgather(w, v, s) #!", "E1709", "not one row"),
    ("KERNEL", 'w = pld.tensor.allreduce(w, s, mode="ring") #!', "E1709", "is [2, 2], not [2, 1]"),
    ("KERNEL", "w = pld.tensor.reduce_scatter(w, s) #!", "E1709", "4 rows for 2 ranks"),
    (
        "CHIP",
        f"{AT}    pld.system.defer_wait(s, offsets=[0, 0], expected=-1) #!",
        "E1722",
        "unsigned",
    ),
    (
        "CHIP",
        (
            f"{AT}    pld.system.defer_wait(s, offsets=[0, 0], expected=0)\n"
            "    n = pl.read(s, [0, 0]) #!\n"
            "    pld.system.defer_wait(s, offsets=[0, 0], expected=n)"
        ),
        "E1722",
        "an element is read between",
    ),
    (
        "CHIP",
        (
            'for i in pl.spmd(2, name_hint="a"): #!\n'
            "    pld.system.defer_wait(s, offsets=[0, 0], expected=1)"
        ),
        "E1722",
        "several blocks",
    ),
    ("CHIP", "tid = pl.submit(deferring, s, predicate=(s[0, 0] > 0)) #!", "E1722", "a predicate"),
    (
        "CHIP",
        "tid = pl.submit(deferring, s, allow_early_resolve=True) #!",
        "E1722",
        "resolve early",
    ),
    ("CHIP", "tid = pl.spmd_submit(deferring, s, core_num=2) #!", "E1722", "several blocks"),
    ("HOST", "for i in pl.range(2):\n    w = pld.tensor.allreduce(w) #!", "E1709", "in a loop"),
    ("HOST", "w = pld.tensor.allreduce(w, core_num=49) #!", "E1709", "has 48 vector cores"),
    ("HOST", "w = pld.tensor.allreduce(w, s, core_num=4) #!", "E1709", "[2, 4] or larger"),
    ("HOST", 'w = pld.tensor.allreduce(w, mode="ring") #!', "E1709", "a ring without a signal"),
    ("HOST", 'w = pld.tensor.allreduce(w, q, mode="ring") #!', "E1709", "is [3, 2], not [2]"),
    (
        "HOST",
        f'{RING}w = pld.tensor.allreduce(w, ring, mode="ring", op=pld.ReduceOp.Max) #!',
        "E1709",
        "a ring adds pl.FP32",
    ),
    (
        "HOST",
        (
            f"{RING}ob = pld.alloc_window_buffer([1, 33], dtype=pl.FP32)\n"
            "o = pld.window(ob, [1, 33], dtype=pl.FP32)\n"
            'o = pld.tensor.allreduce(o, ring, mode="ring") #!'
        ),
        "E1709",
        "33 elements of `ob` do not divide among 2 ranks",
    ),
    ("HOST", "pld.tensor.barrier(s) #!", "E1709", "the signal is [2], not [2, 1]"),
    ("HOST", "w = pld.tensor.broadcast(w, s, root=0) #!", "E1709", "the signal is [2], not [2, 1]"),
    (
        "HOST",
        (
            "fb = pld.alloc_window_buffer([4, S], dtype=pl.FP16)\n"
            "f = pld.window(fb, [4, S], dtype=pl.FP16)\n"
            "f = pld.tensor.broadcast(f, q, root=0) #!"
        ),
        "E1709",
        "its data is pl.FP32, not pl.FP16",
    ),
    (
        "HOST",
        (
            "hb = pld.alloc_window_buffer([4, S], dtype=pl.FP32)\n"
            "h = pld.window(hb, [4, S], dtype=pl.FP32)\n"
            "chip(x[0], y[0], h, v, s, 0, device=0)\n"
            "h = pld.tensor.allreduce(h, q) #!"
        ),
        "E1709",
        "operands of different ranks",
    ),
    ("RUN", "d = DistributedConfig(device_ids=[]) #!", "E1723", "device_ids is empty"),
    ("RUN", "d = DistributedConfig(num_sub_workers=-1) #!", "E1723", "num_sub_workers"),
    ("RUN", f"{WORKER}rt(x) #!", "E1725", "takes 2 arguments, and gets 1"),
    ("RUN", f"{WORKER}pass\nrt(x, y) #!", "E1726", "called after close"),
    ("RUN", f"{WORKER}z = rt.alloc_stacked_tensor(x, worker_ids=[0, 9]) #!", "E1724", "worker 9"),
    ("RUN", f"{WORKER}z = rt.alloc_tensor([4], 'float32', worker_id=9) #!", "E1724", "worker 9"),
    ("RUN", f"{WORKER}rt.copy_stacked_from(x, x) #!", "E1724", "needs a stack of this worker"),
    (
        "RUN",
        f"import torch\n{WORKER}rt(torch.ones(P, 4, S), torch.ones(P, 4, S)) #!",
        "E1725",
        "`x` is not in shared memory",
    ),
]


def program(place: str, text: str) -> str:
    found = PROGRAM
    for name in ("KERNEL", "CHIP", "HOST", "RUN"):
        indent = "" if name == "RUN" else "    "
        own = "host(x, y, config=CFG)" if name == "RUN" else "pass"
        lines = (text if name == place else own).splitlines()
        found = found.replace(f"{indent}{name}\n", "".join(f"{indent}{x}\n" for x in lines))
    return found


def test_the_program_is_right(tmp_path: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text(program("", ""))
    assert main(["run", str(file)]) == 0


@pytest.mark.parametrize(("place", "text", "code", "says"), CASES)
def test_a_misuse_is_an_error_at_its_line(
    place: str,
    text: str,
    code: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "torch" in text:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    whole = program(place, text)
    Path("wrong.py").write_text(whole.replace(" #!", ""))
    assert main(["run", "wrong.py"]) == 3
    printed = capsys.readouterr().err
    assert f"error[{code}]" in printed
    assert says in printed
    (line,) = [i for i, x in enumerate(whole.splitlines(), 1) if x.endswith("#!")]
    place_of_it = re.search(r"wrong\.py:(\d+)", printed.split(f"error[{code}]")[1])
    assert place_of_it is not None
    assert int(place_of_it.group(1)) == line


def test_a_shard_of_another_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = f"{WORKER}rt(rt.alloc_stacked_tensor(x, worker_ids=[1, 0]), y)"
    Path("wrong.py").write_text(program("RUN", run))
    assert main(["run", "wrong.py"]) == 3
    assert "shard 0 of `x` is on rank 1, and rank 0 takes it" in capsys.readouterr().err
