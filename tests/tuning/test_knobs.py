"""The variable parts of a program, and their values."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tuning.kernels import SCRIPT, question

from tilelet.diag import UserError
from tilelet.scripts.target import Target
from tilelet.tuning.knobs import Knob, subject_of
from tilelet.tuning.values import neighbors, values_for


def test_numbers_of_a_script(tmp_path: Path) -> None:
    subject = subject_of(question(tmp_path).target)
    found = {knob.name: (knob.value, knob.loc.line if knob.loc else 0) for knob in subject.knobs}
    assert found == {
        "ROWS": (64, 5),
        "COLUMNS": (512, 5),
        "TILE": (16, 6),
        "UNUSED": (32, 7),
        "TIMES": (2, 8),
        "build_program.wide": (64, 11),
    }


def test_layout_arguments_have_their_lines(tmp_path: Path) -> None:
    text = """
a = f(chunk=4, other=5)
b = f(stage=2), f(stage=3)
c = pl.split(pl.SplitMode.UP_DOWN)
"""
    knobs = subject_of(question(tmp_path, text).target).knobs
    assert [(k.name, k.value) for k in knobs] == [
        ("chunk@2", 4),
        ("stage@3:13", 2),
        ("stage@3:25", 3),
        ("split@4", "pl.SplitMode.UP_DOWN"),
    ]
    assert knobs[3].others == ("pl.SplitMode.NONE", "pl.SplitMode.LEFT_RIGHT")


def test_what_is_no_constant_is_left_out(tmp_path: Path) -> None:
    text = "A = 1\nA = 2\nB = -3\nC = True\nD = 1.5\nE = A * 2\nF: int = 7\n"
    assert [k.name for k in subject_of(question(tmp_path, text).target).knobs] == ["F"]


def test_another_text_differs_in_the_number_only(tmp_path: Path) -> None:
    text = SCRIPT.replace("TILE = 16", 'NAME = "ä"; TILE = 16  # rows')
    subject = subject_of(question(tmp_path, text).target)
    varied = subject.varied({"TILE": 128, "build_program.wide": 8}).text
    assert varied == text.replace("TILE = 16", "TILE = 128").replace(
        "wide: int = 64", "wide: int = 8"
    )


def test_sizes_of_a_shipped_program() -> None:
    target = Target("qwen3/scope3:refactored", ("--k-chunk", "256"))
    subject = subject_of(target)
    values = {knob.name: knob.value for knob in subject.knobs}
    assert values["k_chunk"] == 256
    assert values["mlp_out_chunk"] == 64
    assert "eps" not in values
    assert subject.varied({"k_chunk": 512}).arguments[-2:] == ("--k-chunk", "512")


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="E0701"):
        _ = subject_of(Target("qwen3/scope9")).knobs


@given(st.integers(16, 4096), st.lists(st.integers(1, 30000), max_size=3))
def test_values_contain_the_present_one_and_stay_near(value: int, sizes: list[int]) -> None:
    values = values_for(Knob("tile", value), sizes)
    assert value in values
    assert list(values) == sorted(set(values), key=int)
    assert all(isinstance(v, int) and value <= 8 * v and v <= 8 * value for v in values)
    if value % 16 == 0:
        assert all(isinstance(v, int) and v % 16 == 0 for v in values)


def test_values_divide_the_sizes() -> None:
    values = values_for(Knob("mlp", 64), [25600])
    assert {80, 128, 160, 256, 320, 400, 512} <= set(values)


def test_neighbors() -> None:
    assert neighbors([1, 2, 4, 8], 4) == [2, 4, 8]
    assert neighbors([1, 2, 4, 8], 1) == [1, 2]
