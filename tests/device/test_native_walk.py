"""Executions followed in C: the same bits as in Python for any control path."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.recording import mixed, only_kernel, projection

import tilelet.language as pl
from tilelet import dtypes
from tilelet.device import load_machine
from tilelet.device.kernel.control_path import Signature
from tilelet.device.kernel.course import Course, IterationRun, Move, Rounds, course_of
from tilelet.device.kernel.pipes import ALL_COLD, COLD, HOT, follow_reference
from tilelet.device.kernel.view import (
    Core,
    CubeWork,
    DeviceKernel,
    Loop,
    Node,
    Pipe,
    ScalarWork,
    Step,
    TileStorage,
    Transfer,
    VectorWork,
    Work,
)
from tilelet.device.schedule.native_walk import NativeWalks, follower
from tilelet.ir.core import Program
from tilelet.ir.spec import Cost
from tilelet.ir.types import Mem

MACHINES = [load_machine(name) for name in ("a2a3", "a5")]
FUNCTION = only_kernel(projection(), MACHINES[0]).function
LEVELS = (HOT, COLD, ALL_COLD)
PLACES = [(core, pipe) for core in Core for pipe in Pipe]


class Generator:
    """Draw a kernel with steps and loops, and a control path through it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.position = 0
        count = self.random.randint(1, 5)
        self.tiles = tuple(
            TileStorage(
                i, "t", (16, 64), dtypes.FP32, Mem.Vec, Core.AIV, 4096, self.random.randint(1, 3)
            )
            for i in range(count)
        )
        body, course = self.nodes(0)
        self.kernel = DeviceKernel(FUNCTION, tuple(body), self.tiles, frozenset(Core))
        self.course = Course(self.kernel, Signature(), tuple(course), ())

    def nodes(self, depth: int) -> tuple[list[Node], list[Move | Rounds]]:
        """Return the kernel's nodes, and the results of one execution."""
        body, course = list[Node](), list[Move | Rounds]()
        for _ in range(self.random.randint(1, 4)):
            if depth < 3 and self.random.random() < 0.35:
                node, rounds = self.loop(depth)
                body.append(node)
                course.append(rounds)
            else:
                step = self.step()
                body.append(step)
                if self.random.random() < 0.9:
                    course.append(self.move(step))
        return body, course

    def loop(self, depth: int) -> tuple[Loop, Rounds]:
        body, course = self.nodes(depth + 1)
        loop = Loop(tuple(body), None, 0, 1, 1, stages=self.random.randint(1, 2))
        ends = sorted(self.random.sample(range(1, (40, 12, 6)[depth]), self.random.randint(1, 3)))
        runs = [IterationRun(end, tuple(self.random.sample(course, len(course)))) for end in ends]
        # The lead gained in an inner loop grows without bounds in an outer one.
        count = ends[-1] + self.random.choice((0, 0, 0 if depth else 7))
        if self.random.random() < 0.1:
            runs, count = [], 0
        return loop, Rounds(loop, count, tuple(runs))

    def move(self, step: Step) -> Move:
        work = step.work
        if isinstance(work, Transfer) and self.random.random() < 0.5:
            return Move(step, work.cut((self.random.randint(1, 16), self.random.randint(1, 64))))
        return Move(step, work)

    def step(self) -> Step:
        core, pipe = self.random.choice(PLACES)
        tiles = range(len(self.tiles))
        made = Step(
            self.position,
            core,
            pipe,
            self.random.choice(("pop", "op")),
            self.work(pipe),
            tuple(self.random.sample(tiles, self.random.randint(0, min(2, len(tiles))))),
            tuple(self.random.sample(tiles, self.random.randint(0, 1))),
        )
        self.position += 1
        return made

    def work(self, pipe: Pipe) -> Work:
        draw = self.random.randint
        if pipe is Pipe.SCALAR:
            return ScalarWork(draw(1, 9), self.random.random())
        if pipe is Pipe.VEC:
            return VectorWork(self.random.choice(list(Cost)), draw(1, 64) * 256, draw(1, 16))
        if pipe is Pipe.CUBE:
            return CubeWork(16 * draw(1, 4), 16 * draw(1, 4), 16 * draw(1, 4), dtypes.BF16)
        path = self.random.choice(("gm_to_ub", "gm_to_l1", "ub_to_gm", "l0c_to_gm"))
        param = self.random.choice((None, 0, 1, 2))
        writes = path.endswith("_to_gm")
        return Transfer(path, 16, 256, param, writes_gm=writes, shape=(16, 64))


def native() -> NativeWalks:
    found = follower()
    if not isinstance(found, NativeWalks):
        pytest.skip("no C compiler")
    return found


@given(st.integers(0, 2**32), st.integers(0, 1))
@settings(max_examples=100)
def test_any_course_takes_the_same_time_in_c(seed: int, number: int) -> None:
    machine = MACHINES[number]
    course = Generator(seed).course
    wanted = follow_reference(course, machine, LEVELS)
    assert native()(course, machine, LEVELS) == wanted
    assert native()(course, machine, LEVELS[1:]) == wanted[1:], "any levels, in any order"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "program",
    [projection(depth=8192, pipelined=True), mixed(pl.SplitMode.NONE)],
    ids=("pipelined", "mixed"),
)
def test_kernels_take_the_same_time_in_c(program: Program, number: int) -> None:
    machine = MACHINES[number]
    course = course_of(only_kernel(program, machine), Signature())
    assert native()(course, machine, LEVELS) == follow_reference(course, machine, LEVELS)


def test_costs_of_steps_are_kept_apart_by_gaps_blocks_and_machine() -> None:
    """One `NativeWalks` serves all signatures of a kernel."""
    kernel, walks = only_kernel(projection(depth=1024), MACHINES[0]), native()
    slower = load_machine("a5")
    for machine in (MACHINES[0], slower, MACHINES[0]):
        for signature in (Signature(), Signature(strided=frozenset({0, 1})), Signature(blocks=24)):
            course = course_of(kernel, signature)
            assert walks(course, machine, LEVELS) == follow_reference(course, machine, LEVELS)
