"""All passes together: random control programs keep their results, and stay verified."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.interp.build import FP32, ramp, run, tensor
from tests.passes.build import Source, apply, results, text

import tilelet.language as pl
from tilelet.ir.core import Program, Value
from tilelet.ir.printer import print_program
from tilelet.ir.verify import verify
from tilelet.language import parse
from tilelet.passes.pipeline import PASSES, run_passes

ROWS, PART = 48, (8, 16)
STEPS = (
    "compute",
    "pair",
    "assemble",
    "assemble",
    "assemble",
    "update",
    "export",
    "nested",
    "branch",
)


class Writer:
    """Draws the statements of a control program over `x`, `out` and local parts."""

    def __init__(self, draw) -> None:
        self._draw = draw

    def pick(self, options):
        return self._draw(st.sampled_from(list(options)))

    def offset(self, c: Source, i: Value | None) -> list:
        """A window of PART rows: constant, or relative to the loop index (0 or 8)."""
        row = 4 * self._draw(st.integers(0, 8))
        if i is None or self._draw(st.booleans()):
            return [row, 0]
        return [c.scalar("add", i, row - row % 16), 0]

    def block(self, c: Source, i: Value | None, x: Value, out: Value, depth: int) -> list[Value]:
        """Statements; the final names of `x` and `out`."""
        parts: list[Value] = []
        for _ in range(self._draw(st.integers(1, 6))):
            step = self.pick(STEPS)
            if step == "compute":
                source = self.pick([x, out, *parts])
                at = [0, 0] if source in parts else self.offset(c, i)
                kind = self.pick(["exp", "neg"])
                parts += c.scope(
                    lambda s: [s.op(kind, x=s.window(source, PART, at))]  # noqa: B023
                )
            elif step == "pair":
                made = [c.op("create_tensor", shape=PART, dtype=FP32) for _ in "ab"]
                source, at = self.pick([x, out]), self.offset(c, i)

                def fill(s: Source):
                    tile = s.window(source, PART, at)  # noqa: B023
                    one = s.put(made[0], tile, [0, 0])  # noqa: B023
                    return [one, s.put(made[1], s.op("neg", x=tile), [0, 0])]  # noqa: B023

                parts += c.scope(fill)
            elif step == "update" and parts:
                k = self._draw(st.integers(0, len(parts) - 1))
                (parts[k],) = c.scope(
                    lambda s: [s.put(parts[k], s.op("neg", x=s.whole(parts[k])), [0, 0])]  # noqa: B023
                )
            elif step == "assemble" and parts:
                part = self.pick(parts)
                if self._draw(st.booleans()):
                    parts.remove(part)
                out = c.put(out, part, self.offset(c, i))
            elif step == "export":
                at, to = self.offset(c, i), self.offset(c, i)
                (x,) = c.scope(lambda s: [s.put(x, s.window(out, PART, at), to)])  # noqa: B023
            elif step == "nested" and depth:
                x, out = c.loop(
                    [0, 16, 8],
                    lambda d, j, p, q: self.block(d, j, p, q, depth - 1),
                    [x, out],
                    kind="range",
                    name="j",
                )
            elif step == "branch" and depth:
                cond = c.scalar("lt", i if i is not None else 1, 5)
                x, out = c.if_(
                    cond,
                    lambda d: self.block(d, i, x, out, depth - 1),  # noqa: B023
                    lambda d: [x, out],  # noqa: B023
                )
        return [x, out]


@settings(max_examples=150)
@given(st.data())
def test_results_are_kept(data):
    """The outputs of windows and of copies are bit-identical."""
    b = Source()
    x, out = b.param("x", tensor([ROWS, 16])), b.param("out", tensor([ROWS, 16]))
    before = b.opaque(*Writer(data.draw).block(b, None, x, out, depth=2))
    note(text(before))
    arguments = {"x": ramp(ROWS, 16) / 999, "out": ramp(ROWS, 16)}
    want = results(before, **arguments)
    after = apply(before, *PASSES)
    got = results(after, **arguments)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def matmul_blocks(hidden: int, chunked: bool) -> Program:
    """The shape of scope 1: one matmul scope per output block, or chunks of four blocks."""
    b = Source()
    x, w = b.param("x", tensor([16, 64])), b.param("w", tensor([64, hidden]))
    out = b.param("out", tensor([16, hidden]))

    def product(s: Source, n0: Value) -> Value:
        first = s.op(
            "matmul", lhs=s.window(x, [16, 32], [0, 0]), rhs=s.window(w, [32, 16], [0, n0])
        )

        def more(r: Source, k: Value, acc: Value):
            lhs, rhs = r.window(x, [16, 16], [0, k]), r.window(w, [16, 16], [k, n0])
            return [r.op("matmul_acc", acc=acc, lhs=lhs, rhs=rhs)]

        (acc,) = s.loop([32, 64, 16], more, [first], name="k", kind="range")
        return acc

    def per_block(c: Source, i: Value, o: Value):
        n0 = c.scalar("mul", i, 16)
        (acc,) = c.scope(lambda s: [product(s, n0)])
        return [c.put(o, acc, [0, n0])]

    def in_chunk(c: Source, i: Value, o: Value):
        def work(s: Source):
            n0 = s.scalar("mul", i, 16)
            return [s.put(o, product(s, n0), [0, n0])]

        return c.scope(work, kind="implied")

    if chunked:
        (done,) = b.scope(
            lambda c: c.loop([hidden // 16], in_chunk, [out], chunk=4), kind="chunked"
        )
    else:
        (done,) = b.loop([hidden // 16], per_block, [out], kind="range")
    return b.opaque(done)


@pytest.mark.parametrize(("chunked", "tasks"), [(False, 9), (True, 3)])
def test_tasks_of_a_projection(chunked: bool, tasks: int):
    before = matmul_blocks(9 * 16, chunked)
    after = apply(before, *PASSES)
    arguments = {
        "x": ramp(16, 64) / 999,
        "w": ramp(64, 9 * 16) / 9999,
        "out": np.zeros((16, 9 * 16), np.float32),
    }
    want = results(before, **arguments)["out"]
    assert want.any()
    np.testing.assert_array_equal(results(after, **arguments)["out"], want)
    assert len(run(after, **arguments).tasks) == tasks
    assert after.cautions == ()


def test_a_hook_sees_the_program_after_each_pass():
    seen: list[str] = []

    def hook(name: str, program: Program) -> None:
        verify(program)
        seen.append(name)

    run_passes(matmul_blocks(64, chunked=True), hook)
    assert seen == ["split_chunks", "outline", "alias_windows", "directions", "simplify"]


@pytest.mark.parametrize("scope", [pl.scope, pl.graph])
def test_a_scope_does_not_hand_on_what_it_leaves_alone(scope):
    """The window that `out` is assembled from becomes part of it, so nothing is left to pass on."""

    @pl.jit
    def scoped(
        x: pl.Tensor[[8, 16], pl.FP32],
        out: pl.Out[pl.Tensor[[8, 16], pl.FP32]],
        other: pl.Out[pl.Tensor[[8, 16], pl.FP32]],
    ):
        with scope():
            for i in pl.range(0, 8, 4):
                with pl.at(level=pl.Level.CORE_GROUP):
                    part = pl.add(x[i : i + 4, :], 1.0)
                out = pl.assemble(out, part, [i, 0])
            with pl.at(level=pl.Level.CORE_GROUP):
                other[:, :] = pl.add(x, 2.0)
        return out, other

    program = run_passes(scoped.specialize())
    verify(program)
    printed = print_program(program)
    assert f"with pl.{scope.__name__}(" in printed
    assert print_program(parse(printed)) == printed
