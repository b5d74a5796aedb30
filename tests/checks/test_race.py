"""Races: the three of a new user's trial, blocks, and generated programs against all pairs."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, cast

import numpy as np
import pytest
from tests.checks.programs import A2A3, ROWS, Generated, generate, parsed, subject_of

import tilelet
import tilelet.language as pl
from tilelet.checks import memory, race
from tilelet.checks.findings import Status
from tilelet.checks.race import Races
from tilelet.checks.verdict import Subject
from tilelet.checks.witness import Witnesses
from tilelet.cpu.run.engine import CpuEngine
from tilelet.device.run import Recorded
from tilelet.device.schedule import accesses as task_accesses
from tilelet.device.schedule.conflicts import ACROSS, UNORDERED, find_conflicts, needed_edges
from tilelet.device.schedule.library import library
from tilelet.device.schedule.native import find_conflicts_native, needed_edges_native
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.types import TensorType
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.handlers.record import with_control_traces

X = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)
ACC = np.zeros((16, 128), np.float32)


@pl.jit
def without_dependency(
    x: pl.Tensor[[64, 128], pl.FP32], acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]
):
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[acc]):
            acc[:, :] = pl.add(acc[:, :], x[i * 16 : i * 16 + 16, :])
    return acc


@pl.jit
def in_manual_scope(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    t = pl.create_tensor([16, 128], dtype=pl.FP32)
    with pl.manual_scope():
        with pl.at(level=pl.Level.CORE_GROUP):
            t[:, :] = pl.mul(x[0:16, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.add(t[:, :], 1.0)
    return out


@pl.jit
def across_iterations(
    x: pl.Tensor[[64, 128], pl.FP32], acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]
):
    for i in pl.parallel(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            acc[:, :] = pl.add(acc[:, :], x[i * 16 : i * 16 + 16, :])
    return acc


@pl.jit
def between_blocks(x: pl.Tensor[[64, 128], pl.FP32], acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]):
    for b in pl.spmd(4):
        acc[:, :] = pl.add(acc[:, :], x[b * 16 : b * 16 + 16, :])
    return acc


@pl.jit
def atomic_blocks(x: pl.Tensor[[64, 128], pl.FP32], acc: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]):
    for b in pl.spmd(4):
        part = pl.mul(x[b * 16 : b * 16 + 16, :], 1.0)
        acc = pl.assemble(acc, part, [0, 0], atomic=pl.AtomicType.Add)
    return acc


@pl.jit
def reused_scratch(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    """Each iteration overwrites what the previous one may still be reading."""
    t = pl.create_tensor([16, 128], dtype=pl.FP32)
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            t[:, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i * 16 : i * 16 + 16, :] = pl.add(t[:, :], 1.0)
    return out


RACING = [
    (without_dependency, "E1102", "`no_dep_args`", "acc"),
    (in_manual_scope, "E1102", "`pl.manual_scope()`", "out"),
    (across_iterations, "E1103", "", "acc"),
    (between_blocks, "E1102", "the blocks of one task", "acc"),
    (reused_scratch, "E1102", "no task waits for an earlier reader", "out"),
]


@pytest.mark.parametrize(("kernel", "code", "rule", "output"), RACING)
def test_a_race_is_found_with_a_witness(kernel, code, rule, output) -> None:
    shape = kernel.specialize().main.params[1].type.shape
    given = {"x": X, output: np.zeros(shape, np.float32)}
    (finding,) = race.check(subject_of(kernel, given)).findings
    assert finding.code == code
    assert rule in " ".join(finding.diagnostic.notes)
    assert finding.region is not None
    assert finding.region.start == (0, 0)
    assert finding.region.stop == (16, 128)
    assert len({(p.task, p.block) for p in finding.places}) == 2
    assert {p.role for p in finding.places} == {"reads", "writes"}
    witness = finding.witness
    assert witness is not None
    values = dict(witness.data)
    assert values["program_order"] != values["other_order"]
    # The same seed reproduces the finding.
    again = race.check(subject_of(kernel, given)).findings[0].witness
    assert again is not None
    assert (again.seed, again.text) == (witness.seed, witness.text)


def test_a_run_looks_for_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """This executes the program repeatedly on the interpreter."""
    monkeypatch.setattr(Witnesses, "run", lambda *_: pytest.fail("executed"))
    subject = subject_of(without_dependency, {"x": X, "acc": np.zeros((16, 128), np.float32)})
    (finding,) = race.check(dataclasses.replace(subject, brief=True)).findings
    assert finding.witness is None
    assert "`tilelet check` looks for" in " ".join(finding.diagnostic.notes)


@pl.jit
def by_elements(
    n: pl.Tensor[[1, 8], pl.INT32], x: pl.Tensor[[64, 8], pl.FP32],
    out: pl.Out[pl.Tensor[[64, 8], pl.FP32]],
):  # fmt: skip
    for b in pl.spmd(4):
        rows = pl.mul(x[b * 16 : b * 16 + 16, :], 2.0)
        for r in pl.range(16):
            if r < pl.read(n, [0, 0]):
                pl.write(out, [b * 16 + r, 0], pl.read(rows, [r, 0]))
    return out


def test_a_run_does_not_call_a_race_what_it_cannot_see() -> None:
    given = {
        "n": np.full((1, 8), 16, np.int32), "x": np.ones((64, 8), np.float32),
        "out": np.zeros((64, 8), np.float32),
    }  # fmt: skip
    subject = subject_of(by_elements, given)
    assert not race.check(dataclasses.replace(subject, brief=True)).findings


@pl.jit
def rows_by_table(x: pl.Tensor[[64, 128], pl.FP32], out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]):
    """A task updates rows that other tasks write."""
    table = pl.create_tensor([4], dtype=pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP):
        for j in pl.range(4):
            pl.write(table, [j], pl.cast(48 - j * 16, pl.INT32))
    for i in pl.parallel(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [i])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


@pl.jit
def rows_by_wrong_table(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]
):
    table = pl.create_tensor([4], dtype=pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP):
        for j in pl.range(4):
            pl.write(table, [j], pl.cast(45 - j * 15, pl.INT32))
    for i in pl.parallel(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [i])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


def test_where_computed_data_decides_the_tasks_are_executed() -> None:
    given = {"x": X, "out": np.zeros((64, 128), np.float32)}
    part = race.check(subject_of(rows_by_table, given))
    assert part.findings == ()
    assert "counted as whole" not in part.summary
    (finding,) = race.check(subject_of(rows_by_wrong_table, given)).findings
    assert finding.code == "E1103"
    assert str(finding.region) == "out[45, 0:128]"
    # Without data the rows are unknown, so nothing is reported.
    part = race.check(subject_of(rows_by_wrong_table))
    assert part.findings == ()
    assert any("which bytes of `out`" in remark for remark in part.remarks)


@pl.jit
def rows_by_both(x: pl.Tensor[[64, 128], pl.FP32], out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]):
    """The control program and a task write the table."""
    table = pl.create_tensor([4], dtype=pl.INT32)
    pl.write(table, [0], pl.cast(10, pl.INT32))
    with pl.at(level=pl.Level.CORE_GROUP):
        for j in pl.range(1, 4):
            pl.write(table, [j], pl.cast(j * 16, pl.INT32))
    pl.write(table, [3], pl.cast(48, pl.INT32))
    for i in pl.parallel(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [i])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


@pl.jit
def rows_rewritten(
    x: pl.Tensor[[64, 128], pl.FP32],
    table: pl.InOut[pl.Tensor[[1], pl.INT32]],
    out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]],
):
    """The control program changes the table between tasks."""
    for i in pl.range(4):
        pl.write(table, [0], pl.cast(i * 15, pl.INT32))
        with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out]):
            row = pl.read(table, [0])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


def test_a_table_that_the_control_program_writes_too() -> None:
    given = {"x": X, "out": np.zeros((64, 128), np.float32)}
    part = race.check(subject_of(rows_by_both, given))
    (finding,) = part.findings
    assert finding.code == "E1103"
    assert str(finding.region) == "out[16:26, 0:128]"
    assert finding.witness is not None
    assert not any("which bytes of `out`" in remark for remark in part.remarks)


@pytest.mark.parametrize("brief", [False, True])
def test_a_table_that_changes_between_tasks(brief: bool) -> None:
    given = {"x": X, "table": np.zeros(1, np.int32), "out": np.zeros((64, 128), np.float32)}
    subject = dataclasses.replace(subject_of(rows_rewritten, given), brief=brief)
    before = given["table"].copy()
    (finding,) = race.check(subject).findings
    assert finding.code == "E1102"
    assert str(finding.region) == "out[15, 0:128]"
    assert np.array_equal(given["table"], before)


def executed_subject(engine: Any) -> Subject:
    given = {"x": X, "table": np.zeros(1, np.int32), "out": np.zeros((64, 128), np.float32)}
    subject = subject_of(rows_rewritten, given)
    copies = {name: array.copy() for name, array in given.items()}
    tasks = engine.run(subject.program, copies, execute=True).tasks
    return dataclasses.replace(subject, run=Recorded("rows", subject.program, tasks))


def test_a_table_that_changes_between_executed_tasks() -> None:
    (finding,) = race.check(executed_subject(Interpreter())).findings
    assert str(finding.region) == "out[15, 0:128]"
    part = race.check(executed_subject(CpuEngine(records=True)))
    assert part.findings == ()
    assert any("which bytes of `out`" in remark for remark in part.remarks)


@pl.jit
def rows_by_result(
    x: pl.Tensor[[64, 128], pl.FP32],
    table: pl.InOut[pl.Tensor[[4], pl.INT32]],
    out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]],
):
    """The control program writes what a task has computed."""
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.write(table, [0], pl.cast(15, pl.INT32))
    for i in pl.range(1, 4):
        pl.write(table, [i], pl.read(table, [0]) * pl.cast(i, pl.INT32))
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out]):
            row = pl.read(table, [i])
            out[row : row + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
    return out


@pytest.mark.parametrize("kernel", [rows_rewritten, rows_by_result])
def test_a_natively_executed_run_is_recorded_with_control_writes(kernel: Any) -> None:
    program = run_passes(kernel.specialize())
    size = cast("TensorType", program.main.params[1].type).shape
    table = np.zeros(cast("tuple[int, ...]", size), np.int32)
    given = {"x": X, "table": table, "out": np.zeros((64, 128), np.float32)}
    copies = {name: array.copy() for name, array in given.items()}
    native = CpuEngine(records=True).run(program, copies, execute=True).tasks
    tasks = with_control_traces(program, native, given)
    run = Recorded("rows", program, tasks)
    part = race.check(Subject(run, given, A2A3, "2026-07"))
    assert [f.code for f in part.findings] == ["E1102"]
    assert not any("which bytes of `out`" in remark for remark in part.remarks)


def flags(number: str):
    """Blocks mark a row as ready in a table; two blocks share an entry."""
    return parse(f"""
import tilelet.language as pl


@pl.program
class Program:
    @pl.function
    def noted(
        self,
        lens: pl.Tensor[[8], pl.INT32],
        x: pl.Tensor[[8, 128], pl.FP32],
        ready: pl.Out[pl.Tensor[[4], pl.INT32]],
        out: pl.Out[pl.Tensor[[8, 128], pl.FP32]],
    ):
        for i in pl.spmd(8):
            n = pl.read(lens, [i])
            out[i : i + 1, :] = pl.exp(x[i : i + 1, :])
            pl.write(ready, [i // 2], pl.cast({number}, pl.INT32))
        return ready, out
""")


@pytest.mark.parametrize(
    ("number", "lens", "count"),
    [("n * 0 + 1", range(8), 0), ("n", [5] * 8, 0), ("n", [5] * 7 + [6], 1), ("i", [5] * 8, 1)],
)
def test_the_same_contents_written_twice_are_no_race(number: str, lens: Any, count: int) -> None:
    given = {
        "lens": np.array(lens, np.int32),
        "x": X[:8],
        "ready": np.zeros(4, np.int32),
        "out": np.zeros((8, 128), np.float32),
    }
    part = race.check(subject_of(flags(number), given))
    assert [f.code for f in part.findings] == ["E1102"] * count
    assert part.status is not Status.PROVED
    assert any("write the same" in remark for remark in part.remarks) == (not count)


def blocks(*lines: str):
    """Blocks of one task."""
    body = "\n".join(f"            {line}" for line in lines)
    return parse(f"""
import tilelet.language as pl


@pl.program
class Program:
    @pl.function
    def shared(
        self,
        x: pl.Tensor[[8, 128], pl.FP32],
        scale: pl.InOut[pl.Tensor[[8, 1], pl.FP32]],
        out: pl.InOut[pl.Tensor[[8, 128], pl.FP32]],
    ):
        for i in pl.spmd(8):
            row = i // 2 * 2
{body}
        return scale, out
""")


LARGEST = "most = pl.row_max(x[row : row + 2, :])"
FIRST = "scale[row : row + 1, :] = most[0:1, :]"
ROUNDS = "out[i : i + 1, :] = out[i : i + 1, :]"
OTHER = "scale[i : i + 1, :] = pl.row_max(out[row : row + 1, :])"


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ((LARGEST, "scale[row : row + 2, :] = most"), 0),  # two blocks compute the same
        ((LARGEST, "scale[row : row + 2, :] = pl.mul(most, 1.0 * i)"), 1),
        ((LARGEST, FIRST, "scale[i : i + 1, :] = most[0:1, :]"), 0),
        ((LARGEST, FIRST, "scale[i : i + 1, :] = most[1:2, :]"), 1),
        # A row is stored unchanged; the task still counts as its writer.
        ((ROUNDS, OTHER), 0),
        ((ROUNDS.replace("= out", "= x"), OTHER), 1),
        ((ROUNDS, "out[row : row + 1, :] = x[row : row + 1, :]"), 1),
        # Both blocks add the same value, but the second adds it to the first one's result.
        (("scale[0:1, :] = pl.add(scale[0:1, :], pl.row_max(x[0:1, :]))",), 1),
    ],
)  # fmt: skip
def test_blocks_that_store_the_same(lines: tuple[str, ...], count: int) -> None:
    given = {
        "x": X[:8],
        "scale": np.zeros((8, 1), np.float32),
        "out": np.ones((8, 128), np.float32),
    }
    part = race.check(subject_of(blocks(*lines), given))
    assert {f.code for f in part.findings} == ({"E1102"} if count else set())
    assert any("write the same" in remark for remark in part.remarks) == (not count)


def external(rows: str):
    """Blocks that call an external kernel, and then read a row that any of them may write."""

    @pl.jit.extern(source="k.cpp")
    def fill(
        x: pl.Tensor[[64, 128], pl.FP32],
        out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]],
        first: pl.Scalar[pl.INDEX],
    ) -> pl.Tensor: ...

    @pl.jit
    def parts(
        x: pl.Tensor[[64, 128], pl.FP32],
        table: pl.InOut[pl.Tensor[[4], pl.INT32]],
        out: pl.InOut[pl.Tensor[[64, 128], pl.FP32]],
        last: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            pl.write(table, [0], pl.cast(16, pl.INT32))
        with pl.spmd(4):
            out = fill(x, out, pl.get_block_idx() * 16)
        with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out] if rows == "unordered" else []):
            last[:, :] = pl.neg(out[16:32, :])
        with pl.at(level=pl.Level.CORE_GROUP):
            row = pl.read(table, [0])
            last[:, :] = pl.add(last[:, :], x[row : row + 16, :])
        return out, last

    return parts


@pytest.mark.parametrize("rows", ["ordered", "unordered"])
def test_blocks_of_an_external_kernel_are_not_checked(rows: str) -> None:
    given = {
        "x": X,
        "table": np.zeros(4, np.int32),
        "out": np.zeros((64, 128), np.float32),
        "last": np.zeros((16, 128), np.float32),
    }
    subject = subject_of(external(rows), given)
    part = race.check(subject)
    assert len(part.findings) == (rows == "unordered")  # tasks access their whole arguments
    assert any("external kernel" in remark for remark in part.remarks)
    bounds = memory.check(subject)
    assert bounds.status is Status.NOT_CHECKED
    assert bounds.summary == "external kernel `fill` has no reference to run"


@pytest.mark.parametrize("changed", [False, True])
def test_tasks_that_store_the_same_unless_its_source_changes(changed: bool) -> None:
    """Two tasks store `t` from a source that a task in between may change."""
    scope = "        with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out, t]):\n            "
    change = scope + "t[:, :] = pl.exp(x[:, :])\n" if changed else ""
    text = f"""
import tilelet.language as pl


@pl.program
class Program:
    @pl.function
    def twice(
        self,
        x: pl.Tensor[[8, 128], pl.FP32],
        t: pl.InOut[pl.Tensor[[8, 128], pl.FP32]],
        out: pl.InOut[pl.Tensor[[8, 128], pl.FP32]],
    ):
STORE{change.replace("out, t", "t")}STORE        return t, out
"""
    program = parse(text.replace("STORE", scope + "out[:, :] = pl.neg(t[:, :])\n"))
    given = {"x": X[:8], "t": X[:8].copy(), "out": np.ones((8, 128), np.float32)}
    found = [str(f.region) for f in race.check(subject_of(program, given)).findings]
    assert any("out" in region for region in found) == changed


def test_iterations_are_named() -> None:
    given = {"x": X, "acc": ACC}
    (finding,) = race.check(subject_of(across_iterations, given)).findings
    assert [p.iteration for p in finding.places] == [(("i", 0),), (("i", 1),)]
    assert "(i = 1)" in str(finding)


def test_atomic_additions_do_not_race() -> None:
    part = race.check(subject_of(atomic_blocks, {"x": X, "acc": ACC}))
    assert part.findings == ()


def test_a_dependency_by_hand_orders() -> None:
    @pl.jit
    def ordered(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
        t = pl.create_tensor([16, 128], dtype=pl.FP32)
        with pl.manual_scope():
            with pl.at(level=pl.Level.CORE_GROUP) as first:
                t[:, :] = pl.mul(x[:, :], 2.0)
            with pl.at(level=pl.Level.CORE_GROUP, deps=[first]):
                out[:, :] = pl.add(t[:, :], 1.0)
        return out

    assert race.check(subject_of(ordered)).findings == ()


def test_edges_between_tasks_that_touch_different_bytes_are_priced() -> None:
    @pl.jit
    def halves(x: pl.Tensor[[32, 128], pl.FP32], t: pl.InOut[pl.Tensor[[32, 128], pl.FP32]]):
        """Tasks touch one half of their argument: the runtime orders more than is needed."""
        for i in pl.range(2):
            with pl.at(level=pl.Level.CORE_GROUP):
                t[i * 16 : i * 16 + 16, :] = pl.add(
                    t[i * 16 : i * 16 + 16, :], x[i * 16 : i * 16 + 16, :]
                )
        return t

    part = race.check(subject_of(halves))
    assert part.findings == ()
    (remark,) = part.remarks
    assert remark.startswith("1 dependency `halves_incore_0` -> `halves_incore_0` between")
    assert "us (modelled, runtime of " in remark


# --- against an oracle that looks at all pairs and all elements


def elements(box) -> set[tuple[int, int]]:
    _, row, column, rows, columns = box
    return set(itertools.product(range(row, row + rows), range(column, column + columns)))


def oracle(made: Generated, races: Races) -> set[tuple[str, int]]:
    """Return tensors with a pair of conflicting steps, and the kind of conflict."""
    ways: list[set[int]] = []
    for task in range(len(made.steps)):
        producers = races.graph.producers(task)
        ways.append({*producers, *(p for q in producers for p in ways[q])})
    found: set[tuple[str, int]] = set()
    for j, i in itertools.combinations(range(len(made.steps)), 2):
        first, second = made.steps[j], made.steps[i]
        uses = [
            (a, b, a is first.target or b is second.target)
            for a in (first.target, *first.sources)
            for b in (second.target, *second.sources)
        ]
        for a, b, writes in uses:
            if writes and a[0] == b[0] and elements(a) & elements(b):
                if j not in ways[i]:
                    found.add((a[0], UNORDERED))
                elif first.scope == second.scope and made.kinds[first.scope] == "parallel":
                    found.add((a[0], ACROSS))
    return found


@pytest.mark.parametrize("period", ["2026-04", "2026-05-06", "2026-06-11", "2026-07"])
@pytest.mark.parametrize("block", range(4))
def test_generated_programs_against_all_pairs(period: str, block: int) -> None:
    seen: set[int] = set()
    for seed in range(block * 20, block * 20 + 20):
        made = generate(seed)
        races = Races(subject_of(parsed(made), period=period), period)
        assert len(races.subject.tasks) == len(made.steps)
        found = {(races.tensor(c.first), c.what) for c in races.conflicts}
        expected = oracle(made, races)
        # For a tensor with unordered pairs, conflicts between ordered ones do not matter.
        loose = {name for name, what in expected if what == UNORDERED}
        exact = {f for f in found if f[1] == UNORDERED or f[0] not in loose}
        wanted = {f for f in expected if f[1] == UNORDERED or f[0] not in loose}
        assert exact == wanted, f"seed {seed}\n{made.text}"
        seen |= {what for _, what in expected}
    assert UNORDERED in seen


def test_a_date_means_the_rules_of_its_day() -> None:
    program = parsed(generate(0))
    part = race.check(subject_of(program, period="2026-05-14"))
    assert part.summary.endswith("under the rules of 2026-05-06")


def test_c_finds_what_the_definition_finds() -> None:
    lib = library()
    if lib is None:
        pytest.skip("no C compiler here")
    for seed in range(30):
        races = Races(subject_of(parsed(generate(seed)), period="2026-04"), "2026-04")
        given = (races.accesses, races.graph, races.loops)
        for most in (1, 16):
            fast, looked_at = find_conflicts_native(lib, *given, most)
            assert np.array_equal(fast, find_conflicts(*given, most)), seed
            assert looked_at == given[1].tasks
        edges = needed_edges(races.accesses, races.graph)
        assert np.array_equal(needed_edges_native(lib, races.accesses, races.graph), edges)


def test_rows_of_the_generator() -> None:
    """Windows of generated programs can overlap partially."""
    boxes = [s.target for seed in range(20) for s in generate(seed).steps]
    assert len({b[1] for b in boxes}) > 3
    assert all(b[1] + b[3] <= ROWS for b in boxes)


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a program that exceeds the work limit, only the first tasks are checked, and a remark
    says so.
    """
    if library() is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(race, "MAX_STEPS", 1)
    seed, subject = next(
        (seed, s)
        for seed in range(30)
        if len((s := subject_of(parsed(generate(seed)), period="2026-07")).tasks) > 3
        and not race.check(s).findings
    )
    looked_at = Races(subject, "2026-07")
    _ = looked_at.conflicts
    assert 0 < looked_at.looked_at < len(subject.tasks), seed
    assert race.check(subject).summary.startswith(f"the first {looked_at.looked_at} task")


def test_rows_are_told_apart_even_if_their_mixtures_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(5)
    rows = draw.integers(0, 3, (400, 5))
    for mix in (task_accesses._MIX, np.uint64(0)):  # with 0 all mixtures are equal
        monkeypatch.setattr(task_accesses, "_MIX", mix)
        distinct, which = task_accesses._distinct(rows)
        np.testing.assert_array_equal(distinct, np.unique(rows, axis=0))
        np.testing.assert_array_equal(distinct[which], rows)


@pl.jit
def carried_in_a_scope(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        acc = pl.full([16, 128], dtype=pl.FP32, value=0.0)
        for i in pl.parallel(4):
            acc = pl.add(acc, x[i * 16 : i * 16 + 16, :])
        out[:, :] = acc
    return out


@pl.jit
def summed_in_a_scope(
    x: pl.Tensor[[64, 128], pl.FP32], out: pl.InOut[pl.Tensor[[16, 128], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP):
        for i in pl.parallel(4):
            for j in pl.range(2):
                half = pl.add(out[j * 8 : j * 8 + 8, :], x[i * 16 + j * 8 : i * 16 + j * 8 + 8, :])
                out[j * 8 : j * 8 + 8, :] = half
    return out


@pl.jit
def parts_in_a_scope(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    """Each iteration fills its rows of a tile, and rows of an output that a table selects."""
    with pl.at(level=pl.Level.CORE_GROUP):
        rows = pl.create_tensor([64, 128], dtype=pl.FP32)
        for i in pl.parallel(4):
            rows[i * 16 : i * 16 + 16, :] = pl.exp(x[i * 16 : i * 16 + 16, :])
        for i in pl.parallel(4):
            for j in pl.range(2):
                at = i * 16 + j * 8
                out[at : at + 8, :] = rows[at : at + 8, :]
            if i == 3:
                out[0:8, :] = x[0:8, :]
    return out


@pytest.mark.parametrize(
    ("kernel", "name"), [(carried_in_a_scope, "acc"), (summed_in_a_scope, "out")]
)
def test_dependent_iterations_inside_a_scope(kernel, name: str) -> None:
    (finding,) = race.check(subject_of(kernel)).findings
    assert finding.code == "E1103"
    assert f"both access `{name}`" in finding.message


def test_independent_iterations_inside_a_scope() -> None:
    assert race.check(subject_of(parts_in_a_scope)).findings == ()


def masked_rows(valid: int):
    """Tasks read a page and mask rows from `valid` on; other tasks write rows from 8 on."""

    @pl.jit
    def masked(
        x: pl.Tensor[[16, 128], pl.FP32],
        cache: pl.InOut[pl.Tensor[[16, 128], pl.FP32]],
        out: pl.InOut[pl.Tensor[[4, 128], pl.FP32]],
    ):
        for i in pl.range(4):
            with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[cache]):
                page = pl.slice(cache, [16, 128], [0, 0])
                kept = pl.fillpad(pl.set_validshape(page, valid, 128), pad_value=pl.PadValue.zero)
                out[i : i + 1, :] = pl.col_sum(kept)
        for i in pl.range(4):
            with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[cache]):
                cache[8 + i : 9 + i, :] = x[i : i + 1, :]
        return cache, out

    return masked


@pytest.mark.parametrize(("valid", "races"), [(8, False), (9, True)])
def test_rows_that_a_mask_discards_do_not_race(valid: int, races: bool) -> None:
    given = {
        "x": np.ones((16, 128), np.float32),
        "cache": np.zeros((16, 128), np.float32),
        "out": np.zeros((4, 128), np.float32),
    }
    part = race.check(subject_of(masked_rows(valid), given))
    assert [f.code for f in part.findings] == (["E1102"] if races else [])
    assert any("does not use what it reads" in remark for remark in part.remarks) != races


@pytest.mark.parametrize("last", [4, 8])
@pytest.mark.parametrize("count", [2, 24])
def test_windows_overlap_more_often_than_their_valid_parts(count: int, last: int) -> None:
    """The conflicting pair comes after more pairs than are listed."""

    @pl.jit
    def rows(
        x: pl.Tensor[[8, 64], pl.FP32],
        lengths: pl.Tensor[[count], pl.INT32],
        out: pl.Out[pl.Tensor[[count * 4 + 4, 64], pl.FP32]],
    ):
        for i in pl.range(count):
            with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=[out]):
                part = pl.slice(x, [8, 64], [0, 0], valid_shape=[pl.read(lengths, [i]), 64])
                out = pl.assemble(out, part, [i * 4, 0])
        return out

    lengths = np.full(count, 4, np.int32)
    lengths[-2] = last
    x, out = np.ones((8, 64), np.float32), np.zeros((count * 4 + 4, 64), np.float32)
    found = tilelet.check(rows, x, lengths, out, platform="a2a3", only=["race"])
    assert [f.code for f in found.findings] == (["E1102"] if last > 4 else [])
