"""Random pairs of cores that pass tiles to each other, against coroutines with queues.

`frontend/pipes.py` makes one kernel of two functions; here each function is run by itself and waits
where it has to.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.kernels import run

import tilelet.language as pl

TILE = "pl.Tile[[16, 16], pl.FP32]"
TURN = np.roll(np.eye(16, dtype=np.float32), 1, axis=0)  # products with it are exact

# A step is ("push", pipe), ("pop", pipe), ("step",), or ("loop", count, steps).
Steps = list[tuple[Any, ...]]


@dataclass
class Pair:
    """The work of both cores: the vector core adds to `v`, the cube core multiplies by `c`."""

    vector: Steps = field(default_factory=list[tuple[Any, ...]])
    cube: Steps = field(default_factory=list[tuple[Any, ...]])


def draw(rng: random.Random, depth: int) -> Pair:
    made = Pair()
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["there", "back", "both", "step", "loop", "ahead", "uneven"])
        pipe = rng.randint(0, 1)
        if kind in ("there", "both"):
            made.vector.append(("push", pipe))
            made.cube.append(("pop", pipe))
        if kind in ("back", "both"):
            made.cube.append(("push", pipe))
            made.vector.append(("pop", pipe))
        if kind == "step":
            made.vector.append(("step",))
        if kind == "loop" and depth:
            inner, count = draw(rng, depth - 1), rng.randint(1, 3)
            made.vector.append(("loop", count, inner.vector))
            made.cube.append(("loop", count, inner.cube))
        if kind == "ahead":  # the vector core is some tiles ahead, also while the loop runs
            lead, count = rng.randint(1, 2), rng.randint(1, 3)
            made.vector += [("push", pipe)] * lead
            made.vector.append(("loop", count, [("step",), ("push", pipe)]))
            made.cube.append(("loop", count, [("pop", pipe)]))
            made.cube += [("pop", pipe)] * lead
        if kind == "uneven":  # as many tiles in another number of iterations
            made.vector.append(("loop", 4, [("step",), ("push", pipe)]))
            made.cube.append(("loop", 2, [("pop", pipe), ("pop", pipe)]))
    return made


def text_of(steps: Steps, core: str, indent: str = "        ") -> list[str]:
    to, come = ("aic", "aic") if core == "vector" else ("aiv", "aiv")
    mine = "v" if core == "vector" else "c"
    lines: list[str] = []
    for step in steps:
        if step[0] == "push":
            lines.append(f"{indent}pl.tpush_to_{to}({mine}, split=0, id={step[1]})")
        elif step[0] == "pop":
            lines.append(f"{indent}got: {TILE} = pl.tpop_from_{come}(split=0, id={step[1]})")
            used = "pl.add(v, got)" if core == "vector" else "pl.matmul(got, w)"
            lines.append(f"{indent}{mine} = {used}")
        elif step[0] == "step":
            lines.append(f"{indent}v = pl.add(v, 1.0)")
        elif step[2]:
            lines.append(f"{indent}for _ in pl.range({step[1]}):")
            lines += text_of(step[2], core, indent + "    ")
    return lines


def program_of(pair: Pair) -> Any:
    x = "pl.Tensor[[16, 16], pl.FP32]"
    parameters = f"self, x: {x}, w: {x}, y: pl.Out[{x}]"
    head = "    @pl.function(type=pl.FunctionType."
    lines = ["import tilelet.language as pl", "@pl.program", "class Two:"]
    lines += [f"{head}AIC)", f"    def cube({parameters.replace('w:', 'turn:')}):"]
    lines += ["        w = pl.load(turn, [0, 0], [16, 16], target_memory=pl.Mem.Mat)"]
    lines += ["        c = pl.matmul(w, w)", *text_of(pair.cube, "cube")]
    lines += [f"{head}AIV)", f"    def vector({parameters}):"]
    lines += ["        v = pl.load(x, [0, 0], [16, 16])", *text_of(pair.vector, "vector")]
    lines += ["        return pl.store(v, [0, 0], y)"]
    lines += [f"{head}Group)", f"    def both({parameters}):", "        self.cube(x, w, y)"]
    lines += ["        return self.vector(x, w, y)"]
    lines += [f"{head}Orchestration)", f"    def main({parameters}):"]
    lines += ["        y = self.both(x, w, y)", "        return y"]
    return pl.parse("\n".join(lines))


def coroutine(
    steps: Steps, core: str, state: dict[str, np.ndarray], queues: dict[Any, deque[np.ndarray]]
) -> Iterator[None]:
    """Runs the steps of one core; yields where it waits."""
    other = "cube" if core == "vector" else "vector"
    for step in steps:
        if step[0] == "push":
            queues.setdefault((other, step[1]), deque()).append(state[core])
        elif step[0] == "pop":
            queue = queues.setdefault((core, step[1]), deque())
            while not queue:
                yield
            got = queue.popleft()
            state[core] = state[core] + got if core == "vector" else got @ TURN
        elif step[0] == "step":
            state[core] = state[core] + 1
        else:
            for _ in range(step[1]):
                yield from coroutine(step[2], core, state, queues)


def simulated(pair: Pair, x: np.ndarray) -> np.ndarray:
    state, queues = {"vector": x, "cube": TURN @ TURN}, {}
    running = [
        coroutine(pair.vector, "vector", state, queues),
        coroutine(pair.cube, "cube", state, queues),
    ]
    for _ in range(10_000):
        running = [core for core in running if next(core, "done") is None]
        if not running:
            return state["vector"]
    raise AssertionError("the cores wait for each other")


@pytest.mark.parametrize("seed", range(25))
def test_two_cores_do_what_two_coroutines_do(seed: int) -> None:
    pair = draw(random.Random(seed), 2)
    x = np.arange(256, dtype=np.float32).reshape(16, 16) % 5
    got = run(program_of(pair), x=x, w=TURN, y=np.zeros((16, 16), np.float32))["y"]
    np.testing.assert_array_equal(got, simulated(pair, x).astype(np.float32))


@pl.jit.aic
def cube_half(
    q: pl.Tensor[[16, 128], pl.FP32],
    k: pl.Tensor[[128, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    left = pl.move(pl.load(q, [0, 0], [16, 128], target_memory=pl.Mem.Mat), pl.Mem.Left)
    right = pl.move(pl.load(k, [0, 0], [128, 128], target_memory=pl.Mem.Mat), pl.Mem.Right)
    pl.tpush_to_aiv(pl.matmul(left, right), split=0)
    return out


@pl.jit.aiv
def vector_half(
    q: pl.Tensor[[16, 128], pl.FP32],
    k: pl.Tensor[[128, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    scores: pl.Tile[[16, 128], pl.FP32, pl.Mem.Vec] = pl.tpop_from_aic(split=0)
    out = pl.store(pl.exp(scores), [0, 0], out)
    return out


@pl.jit.group
def both_halves(
    q: pl.Tensor[[16, 128], pl.FP32],
    k: pl.Tensor[[128, 128], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    cube_half(q, k, out)
    out = vector_half(q, k, out)
    return out


@pytest.mark.parametrize("in_scope", [False, True])
def test_a_jit_group_joins_its_halves(in_scope: bool) -> None:
    @pl.jit
    def called(
        q: pl.Tensor[[16, 128], pl.FP32],
        k: pl.Tensor[[128, 128], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
    ):
        out = both_halves(q, k, out)
        return out

    @pl.jit
    def in_a_scope(
        q: pl.Tensor[[16, 128], pl.FP32],
        k: pl.Tensor[[128, 128], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
    ):
        with pl.spmd(1, name_hint="fused"):
            out = both_halves(q, k, out)
        return out

    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal(s).astype(np.float32) / 16 for s in ((16, 128), (128, 128)))
    out = np.zeros((16, 128), np.float32)
    (in_a_scope if in_scope else called)(q, k, out)
    np.testing.assert_allclose(out, np.exp(q @ k), rtol=1e-4)
