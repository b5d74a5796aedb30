"""A rewriting that another length, table or branch refutes is never applied."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from tilelet.advice.advisor import Advisor, Report
from tilelet.advice.programs import Setting
from tilelet.advice.report import diagnostics, ladder, to_data
from tilelet.device.machine.description import load_machine
from tilelet.equivalence import execute
from tilelet.equivalence.claims import Claim
from tilelet.equivalence.data_control import data_control, integer_trials
from tilelet.scripts.recording import RecordingOptions
from tilelet.scripts.target import Target

SETTING = Setting(load_machine("a2a3"), None, RecordingOptions(platform="a2a3", quiet=True))

HEAD = """\
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run


@pl.program
class Program:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[32, 64], pl.FP32],
        n: pl.Tensor[[1], pl.INT32],
        table: pl.Tensor[[16], pl.INT32],
        z: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
"""

TAIL = """

if __name__ == "__main__":
    rows = np.random.default_rng(7).standard_normal((32, 64)).astype(np.float32)
    specs = [
        TensorSpec("x", (32, 64), pl.FP32, rows),
        TensorSpec("n", (1,), pl.INT32, np.array([16], np.int32)),
        TensorSpec("table", (16,), pl.INT32, np.arange(16, dtype=np.int32)),
        TensorSpec("z", (16, 64), pl.FP32, is_output=True),
    ]
    run(Program, specs)
"""

FILL = """
for r in pl.range(16):
    with pl.at(level=pl.Level.CORE_GROUP):
        z = pl.assemble(z, pl.full([1, 64], dtype=pl.FP32, value=0.0), [r, 0])
count = pl.read(n, [0])
"""

WRITTEN = """
with pl.at(level=pl.Level.CORE_GROUP):
    z[r : r + 1, :] = pl.exp(x[r : r + 1, :])
"""

ROWS_OF_A_LENGTH = FILL + "for r in pl.range(count):" + textwrap.indent(WRITTEN, "    ")

ROWS_OF_A_BRANCH = (
    FILL
    + "if count > 3:\n    for r in pl.range(16):"
    + textwrap.indent(textwrap.indent(WRITTEN, "    "), "    ")
)

ROWS_OF_A_TABLE = (
    FILL + "for i in pl.range(16):\n    r = pl.read(table, [i])" + textwrap.indent(WRITTEN, "    ")
)

ADDED_ONCE = (
    FILL
    + """
for i in pl.range(count):
    j = i % 16
    with pl.at(level=pl.Level.CORE_GROUP):
        z[j : j + 1, :] = pl.add(z[j : j + 1, :], x[i : i + 1, :])
"""
)

WRONG = {
    "length": ROWS_OF_A_LENGTH,
    "branch": ROWS_OF_A_BRANCH,
    "table": ROWS_OF_A_TABLE,
    "once": ADDED_ONCE,
}

LATER_SCOPE = """
count = pl.read(n, [0])
for i in pl.range(count):
    with pl.at(level=pl.Level.CORE_GROUP):
        t = pl.exp(x[i : i + 1, :])
    with pl.at(level=pl.Level.CORE_GROUP):
        z[i : i + 1, :] = pl.add(t, x[i : i + 1, :])
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.chdir(tmp_path)


def advisor(body: str, *, unproved: bool = False) -> Advisor:
    text = HEAD + textwrap.indent(body.strip("\n") + "\nreturn z\n", " " * 8) + TAIL
    path = Path("kernel.py")
    path.write_text(text, encoding="utf-8")
    return Advisor(Target(str(path), text=text), SETTING, unproved=unproved)


def applied(report: Report) -> set[str]:
    return {name for step in report.steps for name in step.finding.rules}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("unproved", [False, True])
def test_what_other_integers_refute_is_not_applied(body: str, *, unproved: bool) -> None:
    report = advisor(body, unproved=unproved).fix()
    assert not applied(report) & {"fill", "zeros-read-back"}
    assert "value=0.0), [r, 0])" in report.text


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_what_other_integers_refute_is_not_said(body: str) -> None:
    rewritten = {f.rule.name for f in advisor(body).advise().findings if f.after is not None}
    assert not rewritten & {"fill", "zeros-read-back"}


def test_text_json_and_python_tell_the_claim() -> None:
    report = advisor(LATER_SCOPE, unproved=True).fix()
    assert "round-trip" in applied(report)
    claims = {step.finding.claim for step in report.steps}
    assert claims <= {Claim.PROVED, Claim.TRIED}
    assert {step["claim"] for step in to_data(report)["steps"]} == {c.value for c in claims}
    notes = [note for d in diagnostics(report) for note in d.notes]
    assert any("proved" in note or "holds for the inputs tried" in note for note in notes)


def test_what_holds_for_all_lengths_is_proved_and_applied() -> None:
    report = advisor(LATER_SCOPE).fix()
    assert "round-trip" in applied(report)
    assert {step.finding.claim for step in report.steps} == {Claim.PROVED}


def test_what_is_tried_but_not_proved_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "MAX_WORK", 1)
    report = advisor(LATER_SCOPE).fix()
    assert not report.steps
    assert report.held_back > 0
    assert report.text == report.original
    claims = {f.claim for f in report.findings if f.after is not None}
    assert claims == {Claim.TRIED}
    report = advisor(LATER_SCOPE, unproved=True).fix()
    assert {step.finding.claim for step in report.steps} == {Claim.TRIED}


def test_tasks_that_another_length_lets_race_are_not_proved() -> None:
    """Rows `i % 16` are distinct while there are at most 16 of them."""
    own = advisor(ADDED_ONCE)
    text = Path("kernel.py").read_text(encoding="utf-8")
    parallel = text.replace("for i in pl.range", "for i in pl.parallel")
    start = own._first(text)
    assert own._claim(text, start, rounding=False) is Claim.PROVED
    assert own._claim(parallel, start, rounding=False) is Claim.TRIED


SHARED_MEMORY = """\
import numpy as np
import tilelet.language as pl


@pl.jit
def kernel(x: pl.Tensor[[16, 64], pl.FP32], z: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    for r in pl.range(16):
        with pl.at(level=pl.Level.CORE_GROUP):
            z = pl.assemble(z, pl.full([1, 64], dtype=pl.FP32, value=0.0), [r, 0])
    for r in pl.range(16):
        with pl.at(level=pl.Level.CORE_GROUP):
            z[r : r + 1, :] = pl.exp(x[r : r + 1, :])
    return z


if __name__ == "__main__":
    a = np.ones((16, 64), np.float32)
    kernel(a, a)
"""


def test_arguments_that_share_memory() -> None:
    """The fill decides what `x` holds."""
    Path("kernel.py").write_text(SHARED_MEMORY, encoding="utf-8")
    target = Target("kernel.py", text=SHARED_MEMORY)
    assert not Advisor(target, SETTING, unproved=True).fix().steps
    apart = SHARED_MEMORY.replace("kernel(a, a)", "kernel(a, a.copy())")
    assert Advisor(Target("kernel.py", text=apart), SETTING).fix().steps


def test_other_integers_are_those_that_decide() -> None:
    subject = advisor(ROWS_OF_A_LENGTH)._first(Path("kernel.py").read_text()).subject
    assert subject is not None
    program = subject.runs[0].run.program
    assert data_control(program).elements
    given = {
        "x": np.zeros((32, 64), np.float32),
        "n": np.array([16], np.int32),
        "table": np.arange(16, dtype=np.int32),
        "z": np.zeros((16, 64), np.float32),
    }
    made = list(integer_trials(program, given))
    assert len({int(m["n"][0]) for m in made}) > 4
    assert 0 in {int(m["n"][0]) for m in made}
    assert all(m["x"] is given["x"] for m in made)
    assert any((m["table"] != given["table"]).any() for m in made)


OPEN_SHAPES = """\
import numpy as np
import tilelet.language as pl


@pl.jit
def kernel(x: pl.Tensor, z: pl.Out[pl.Tensor], whole):
    rows, _ = x.shape
    for r in pl.range(rows):
        with pl.at(level=pl.Level.CORE_GROUP):
            z = pl.assemble(z, pl.full([1, 64], dtype=pl.FP32, value=0.0), [r, 0])
    for t in pl.range(TILES):
        at = ROW
        with pl.at(level=pl.Level.CORE_GROUP):
            z[at : at + 4, :] = pl.exp(x[at : at + 4, :])
    for t in pl.range(whole, rows):
        with pl.at(level=pl.Level.CORE_GROUP):
            z[t : t + 1, :] = pl.exp(x[t : t + 1, :])
    return z


if __name__ == "__main__":
    x = np.ones((16, 64), np.float32)
    kernel(x, x.copy(), 16)
"""
WHOLE_TILES = OPEN_SHAPES.replace("TILES", "rows // 4").replace("ROW", "t * 4")
FIRST_TILES = (
    OPEN_SHAPES.replace("TILES", "4").replace("ROW", "t * 4")
    .replace("pl.range(rows)", "pl.range(0, rows, 4)").replace("pl.full([1,", "pl.full([4,")
)  # fmt: skip
ALL_TILES = """\
import numpy as np
import tilelet.language as pl


@pl.jit
def kernel(x: pl.Tensor, z: pl.InOut[pl.Tensor]):
    rows, _ = x.shape
    for k in pl.range(rows // 8):
        for r in pl.range(0, 16, 4):
            with pl.at(level=pl.Level.CORE_GROUP):
                z[r : r + 4, :] = pl.add(z[r : r + 4, :], pl.exp(x[r : r + 4, :]))
    return z


if __name__ == "__main__":
    x = np.ones((16, 64), np.float32)
    kernel(x, x.copy())
"""
ALL_ROWS = OPEN_SHAPES.replace("TILES", "(rows + 3) // 4").replace("ROW", "pl.min(t * 4, rows - 4)")
DECLARED = (
    WHOLE_TILES.replace("pl.Tensor", "pl.Tensor[[16, 64], pl.FP32]")
    .replace("whole)", "whole: pl.Scalar[pl.INDEX])")
    .replace("pl.range(whole,", "pl.range(16,")
)


def fixed(text: str, *, unproved: bool = False) -> Report:
    Path("kernel.py").write_text(text, encoding="utf-8")
    return Advisor(Target("kernel.py", text=text), SETTING, unproved=unproved).fix()


def test_a_fill_that_matters_for_other_shapes() -> None:
    """One of 17 rows keeps the value of the fill."""
    assert not fixed(WHOLE_TILES).steps
    assert "fill" not in applied(fixed(WHOLE_TILES, unproved=True))


def test_a_fill_that_matters_for_a_multiple_of_the_shape() -> None:
    """With 32 rows, 16 keep the value of the fill; with 17, 15 or 8 the function is rejected."""
    assert "fill" not in applied(fixed(FIRST_TILES, unproved=True))


def test_a_loop_without_an_iteration_for_small_shapes() -> None:
    """With 4 rows, the windows past the last row are never read."""
    assert "read-modify-write" not in applied(fixed(ALL_TILES, unproved=True))


def test_shapes_that_a_call_decides_are_tried() -> None:
    report = fixed(ALL_ROWS)
    assert not report.steps
    assert report.held_back
    report = fixed(ALL_ROWS, unproved=True)
    assert "fill" in applied(report)
    assert {step.finding.claim for step in report.steps} == {Claim.TRIED}


def test_declared_shapes_are_proved() -> None:
    report = fixed(DECLARED)
    assert "fill" in applied(report)
    assert {step.finding.claim for step in report.steps} == {Claim.PROVED}
    assert "proved" in {cell for row in ladder(report).rows for cell in row}


FEWER = """\
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

BLOCKS = 64


@pl.jit
def kernel(
    x: pl.Tensor[[1024, 128], pl.FP32],
    n: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[1024, 128], pl.FP32]],
):
    for r in pl.parallel(0, pl.read(n, [0]), 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
    return out


if __name__ == "__main__":
    specs = [
        TensorSpec("x", (1024, 128), pl.FP32, np.ones((1024, 128), np.float32)),
        TensorSpec("n", (1,), pl.INT32, np.array([BLOCKS * 16], np.int32)),
        TensorSpec("out", (1024, 128), pl.FP32, is_output=True),
    ]
    run_jit(kernel, specs)
"""


def test_a_number_that_decides_the_inputs_is_left_alone() -> None:
    """Half of the blocks are faster, and half of the problem."""
    target = Target("program.py", text=FEWER)
    assert Advisor(target, SETTING).advise().findings == []
