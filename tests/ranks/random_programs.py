"""Random programs that exchange rows over rings, stars or between all ranks, with planted defects.

`random_program(seed, defect)` gives the text of a module with a host function `host(x, y)`, and the
number of its ranks. Without a defect the program is right in every schedule.
"""

from __future__ import annotations

import random

DEFECTS = (
    "early_notify",  # a signal before the row
    "low_expected",  # a wait that the signals of earlier epochs satisfy
    "high_expected",  # a wait for one signal too many
    "skip_rank",  # a rank that sends nothing
    "few_slots",  # a slot that is written again before it is read
    "wait_first",  # every rank waits before it sends
    "set_shared",  # several ranks set one cell
    "eq_overtaken",  # a wait for exactly a value that the cell may go past
)

_HEAD = """\
import tilelet.language as pl
import tilelet.language.distributed as pld

S = 32
ADD, SET = pld.NotifyOp.AtomicAdd, pld.NotifyOp.Set
GE, EQ = pld.WaitCmp.Ge, pld.WaitCmp.Eq
ROW = pl.Tensor[[1, S], pl.FP32]
"""

_HOST = """\
@pl.jit.host
def host(x: pl.Tensor[[P, 1, S], pl.FP32], y: pl.InOut[pl.Tensor[[P, 1, S], pl.FP32]]):
    w_buf = pld.alloc_window_buffer([SLOTS * P, S], dtype=pl.FP32)
    s_buf = pld.alloc_window_buffer([P, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        w = pld.window(w_buf, [SLOTS * P, S], dtype=pl.FP32)
        s = pld.window(s_buf, [P, 1], dtype=pl.INT32)
        chip(x[r], y[r], w, s, r, device=r)
"""

_SCOPE = "with pl.at(level=pl.Level.CORE_GROUP, name_hint='{}'):"


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def random_program(seed: int, defect: str = "") -> tuple[str, int]:
    """Return the text of a program and the number of its ranks."""
    rng = random.Random(seed)
    overtakes = defect in ("few_slots", "eq_overtaken")
    ranks = rng.choice([3, 4] if overtakes or defect == "set_shared" else [2, 3, 4])
    epochs = rng.choice([2, 3] if overtakes else [1, 2, 3])
    topology = "ring" if overtakes else rng.choice(["ring", "all", "star"])
    if defect == "set_shared":
        topology = rng.choice(["all", "star"])
    is_shared = defect in ("set_shared", "eq_overtaken") or rng.random() < 0.5
    if is_shared and topology != "ring":
        epochs = 1  # else a fast rank counts twice
    apart = defect == "few_slots" or (defect != "wait_first" and rng.random() < 0.5)
    push = _push(rng, topology, defect, is_shared, ranks)
    pull = _pull(topology, defect, is_shared, ranks)
    if apart:
        body = [_SCOPE.format("push"), *_indented(push), _SCOPE.format("pull"), *_indented(pull)]
    else:
        both = [*pull, *push] if defect == "wait_first" else [*push, *pull]
        body = [_SCOPE.format("both"), *_indented(both)]
    slots = 1 if defect == "few_slots" else epochs
    chip = [
        f"P, SLOTS = {ranks}, {slots}",
        "W = pld.DistributedTensor[[SLOTS * P, S], pl.FP32]",
        "C = pld.DistributedTensor[[P, 1], pl.INT32]",
        "@pl.jit",
        "def chip(x: ROW, y: pl.InOut[ROW], w: W, s: C, me: pl.Scalar[pl.INT32]):",
        f"    for e in pl.range({epochs}):",
        *_indented(_indented(body)),
        "    return y",
    ]
    return _HEAD + "\n".join(chip) + "\n\n\n" + _HOST, ranks


def _push(rng: random.Random, topology: str, defect: str, is_shared: bool, ranks: int) -> list[str]:
    """Return the statements that send the row of a rank, and signal it."""
    first = "(me + 1) % P"
    peers = {"ring": f"{first}, {first} + 1", "all": "P", "star": "1"}[topology]
    row, cell = "(e % SLOTS) * P + me", "0" if is_shared else "me"
    by_put = rng.random() < 0.5
    move = f"    pld.tensor.remote_store(v, w, peer=p, offsets=[{row}, 0])"
    if by_put:
        regions = f"dst_offsets=[{row}, 0], src_offsets=[0, 0], shape=[1, S]"
        move = f"    pld.tensor.put(w, peer=p, src=x, {regions})"
    value, op = ("e + 1", "SET") if defect == "set_shared" else ("1", "ADD")
    note = f"    pld.system.notify(s, peer=p, offsets=[{cell}, 0], value={value}, op={op})"
    push = [f"for p in pl.range({peers}):"]
    push += [note, move] if defect == "early_notify" else [move, note]
    if not by_put:
        push = ["v = pl.mul(x, 1.0)", *push]
    if defect == "skip_rank":
        push = [f"if me != {rng.randrange(ranks)}:", *_indented(push)]
    return push


def _pull(topology: str, defect: str, is_shared: bool, ranks: int) -> list[str]:
    """Return the statements that wait for the rows of an epoch, and add them."""
    sources = ["(me + P - 1) % P"] if topology == "ring" else [str(q) for q in range(ranks)]
    each = len(sources) if is_shared else 1
    wanted = "e + 1" if defect == "set_shared" else f"(e + 1) * {each}"
    wanted += {"low_expected": " - 1", "high_expected": " + 1"}.get(defect, "")
    cmp = "EQ" if defect == "eq_overtaken" else "GE"
    pull = [
        f"pld.system.wait(s, offsets=[{cell}, 0], expected={wanted}, cmp={cmp})"
        for cell in (["0"] if is_shared else sources)
    ]
    if defect != "eq_overtaken":
        rows = [f"(e % SLOTS) * P + ({q})" for q in sources]
        pull.append(f"acc = pl.mul(w[{rows[0]} : {rows[0]} + 1, :], 1.0)")
        pull += [f"acc = pl.add(acc, w[{row} : {row} + 1, :])" for row in rows[1:]]
        pull.append("y[:] = acc")
    return ["if me == 0:", *_indented(pull)] if topology == "star" else pull
