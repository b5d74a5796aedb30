"""The layout of messages, pinned as text."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.diag.samples import finder, reader

from tilelet.diag import (
    UNKNOWN,
    Diagnostic,
    Label,
    Loc,
    UserErrors,
    render_all,
    render_line,
    render_text,
    use_color,
)

KERNEL = """\
def kernel(x, out):
    acc = pl.matmul(x[0:16, :], w, out_dtype=pl.FP32)
    for k in pl.range(1, 4):
        acc = pl.matmul_acc(
            acc,
            x[16:32, :],
            w,
        )
    total = helper(acc, scale)
    out = pl.assemble(out, total, [0, 0])
    for r in pl.parallel(0, 64):
        with pl.incore():
            y = pl.exp(x)
            z = pl.neg(y)
            w = pl.add(y, z)
        out = pl.assemble(out, w, [r, 0])
    return out
"""
CALL = KERNEL[KERNEL.index("pl.matmul_acc") : KERNEL.index("\n    total")]
HELPERS = """\
def helper(a, b):
    return inner(a, b)

def inner(a, b):
    return pl.mul(a, b)
"""
SOURCES = reader({"kernel.py": KERNEL, "lib/helpers.py": HELPERS})
at = finder(KERNEL, "kernel.py")
in_helpers = finder(HELPERS, "lib/helpers.py")


def error(*labels: Label, notes: tuple[str, ...] = (), helps: tuple[str, ...] = ()) -> Diagnostic:
    return Diagnostic("E0999", "error", "something is wrong with `x`", labels, notes, helps)


LAYOUTS: dict[str, Diagnostic] = {
    "no_place": error(notes=("only a note",)),
    "one_label": error(Label(at("pl.range(1, 4)"), "this loop")),
    "label_without_text": error(Label(at("pl.range(1, 4)"))),
    "two_labels_on_one_line": error(
        Label(at("x[0:16, :]"), "`[16, 128]`"), Label(at("w, out"), "`[64, 128]`")
    ),
    "primary_on_the_right": error(
        Label(at("«w», out_dtype"), "this one"), Label(at("x[0:16, :]"), "that one")
    ),
    "three_labels_on_one_line": error(
        Label(at("(x[0:16, :], «w»"), "second"),
        Label(at("x[0:16, :]"), "first"),
        Label(at("out_dtype=pl.FP32"), "third"),
    ),
    "nested_labels": error(
        Label(at("x[0:16, :]"), "the inner span"),
        Label(at("pl.matmul(x[0:16, :], w, out_dtype=pl.FP32)"), "the outer span"),
    ),
    "same_span_twice": error(Label(at("scale"), "undefined"), Label(at("scale"), "and unused")),
    "same_start": error(
        Label(at("helper(acc, scale)"), "the call"), Label(at("helper"), "the function")
    ),
    "touching_labels": error(
        Label(at("«helper»(acc"), "the function"), Label(at("(acc, scale)"), "its arguments")
    ),
    "silent_label_on_the_right": error(Label(at("helper"), "the function"), Label(at("scale"))),
    "next_lines": error(Label(at("y = pl.exp(x)"), "first"), Label(at("z = pl.neg(y)"), "second")),
    "one_line_between": error(
        Label(at("pl.add(y, z)"), "here"), Label(at("y = pl.exp(x)"), "defined here")
    ),
    "lines_between": error(
        Label(at("pl.assemble(out, w, [r, 0])"), "later"),
        Label(at("x[0:16, :]"), "early"),
        notes=("first note", "second note\nwith a second line"),
        helps=("do this", "or that"),
    ),
    "two_files": error(
        Label(at("helper(acc, scale)"), "called here"),
        Label(in_helpers("def helper(a, b)"), "defined here"),
        helps=("read both",),
    ),
    "lines_from_line_start": error(
        Label(
            at(KERNEL[KERNEL.index("y = pl.exp") : KERNEL.index("\n        out = ")]), "this block"
        )
    ),
    "lines_from_inside_a_line": error(Label(at(CALL))),
    "lines_secondary": error(
        Label(at("scale"), "used here"),
        Label(at("y = pl.exp(x)\n            z = pl.neg(y)"), "both of these"),
    ),
    "lines_with_a_label_inside": error(
        Label(at("x[16:32, :]"), "too small"),
        Label(
            at(CALL),
            "in this call",
        ),
    ),
    "lines_around_lines": error(
        Label(at("y = pl.exp(x)\n            z = pl.neg(y)"), "inner"),
        Label(
            at(
                "with pl.incore():\n            y = pl.exp(x)\n            z = pl.neg(y)\n"
                "            w = pl.add(y, z)"
            ),
            "outer",
        ),
    ),
    "inlined": error(
        Label(
            in_helpers("pl.mul(a, b)")
            .called_from(in_helpers("inner(a, b)"))
            .called_from(at("helper(acc, scale)")),
            "shapes differ",
        ),
        helps=("broadcast first",),
    ),
    "inlined_deeply": error(
        Label(
            Loc("lib/helpers.py", 5, 11, 5, 23)
            .called_from(in_helpers("inner(a, b)"))
            .called_from(Loc("kernel.py", 2, 10, 2, 19))
            .called_from(Loc("kernel.py", 3, 13, 3, 27))
            .called_from(Loc("kernel.py", 9, 12, 9, 30))
            .called_from(Loc("kernel.py", 10, 10, 10, 21))
            .called_from(Loc("kernel.py", 11, 13, 11, 31)),
            "deep",
        )
    ),
    "place_without_end": error(Label(Loc("kernel.py", 9, 12), "starts here")),
    "whole_line": error(Label(Loc("kernel.py", 9), "this line")),
    "behind_the_line": error(Label(Loc("kernel.py", 3, 28, 3, 29), "expected an indented block")),
    "source_missing": error(
        Label(Loc("gone.py", 12, 4, 12, 8), "used here"),
        Label(Loc("gone.py", 3, 4, 3, 8), "defined here"),
        helps=("look there",),
    ),
    "source_partly_missing": error(
        Label(at("scale"), "used here"), Label(Loc("gone.py", 3, 4, 3, 8), "defined here")
    ),
    "file_has_fewer_lines": error(Label(Loc("kernel.py", 99, 4, 99, 8), "used here")),
    "place_unknown": error(Label(UNKNOWN, "somewhere"), helps=("look around",)),
    "empty_line_marked": error(Label(Loc("lib/helpers.py", 3, 0, 3, 0), "an empty line")),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, golden) -> None:
    golden(f"diag/layout/{name}.txt", render_text(LAYOUTS[name], color=False, sources=SOURCES))


def render_source(source: str, *labels: Label, width: int = 120) -> str:
    return render_text(error(*labels), False, reader({"kernel.py": source}), width)


def test_tabs_wide_and_combining_characters_keep_the_marks_aligned(golden) -> None:
    source = '\tname = "層正規化"; scale = "e\u0301"; y = pl.exp(名前, scale)\n'
    find = finder(source, "kernel.py")
    text = render_source(
        source,
        Label(find("名前"), "wide"),
        Label(find("«scale» ="), "after wide and combining ones"),
        Label(find('"層正規化"'), "six cells and two quotes: 広い"),
    )
    golden("diag/layout/wide_characters.txt", text)


def test_columns_are_bytes_in_and_characters_out() -> None:
    source = '"層" + x\n'
    text = render_source(source, Label(Loc("kernel.py", 1, 8, 1, 9)))
    assert "--> kernel.py:1:7\n" in text
    assert text.splitlines()[-1] == "  |        ^"


def test_control_characters_do_not_reach_the_terminal() -> None:
    source = 'x = "\x1b[31m \u202e"\n'
    text = render_source(source, Label(Loc("kernel.py", 1, 0, 1, 1), "here"))
    assert "\x1b" not in text
    assert "\u202e" not in text


LONG = "x = [" + ", ".join(f"value_{i}" for i in range(60)) + "]"


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("start", "value_1,", "value_1,"),
        ("middle", "value_30,", "value_31,"),
        ("end", "value_59", "value_59"),
        ("wider_than_the_screen", "value_10", "value_50"),
    ],
)
def test_long_lines_are_cut_around_the_span(name: str, first: str, last: str, golden) -> None:
    start, end = LONG.index(first), LONG.index(last) + len(last)
    text = render_source(LONG, Label(Loc("kernel.py", 1, start, 1, end), "look here"), width=60)
    source_line = text.splitlines()[3]
    assert len(source_line) <= 60
    golden(f"diag/layout/long_line_{name}.txt", text)


def test_long_line_of_wide_characters_stays_aligned() -> None:
    source = "# " + "広" * 80 + " here " + "広" * 80
    start = len(source[: source.index("here")].encode())
    text = render_source(source, Label(Loc("kernel.py", 1, start, 1, start + 4)), width=60)
    line, marks = text.splitlines()[3:5]
    cells = "".join(c * 2 if c == "広" else c for c in line)
    assert cells[marks.index("^") : marks.rindex("^") + 1] == "here"
    assert len(cells) <= 60


def test_color_adds_only_escape_sequences(golden) -> None:
    for name in ("lines_between", "lines_around_lines", "inlined", "three_labels_on_one_line"):
        colored = render_text(LAYOUTS[name], color=True, sources=SOURCES)
        assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render_text(
            LAYOUTS[name], color=False, sources=SOURCES
        )
    golden("diag/layout/color.txt", colored.replace("\x1b", "ESC"))


@pytest.mark.parametrize(
    ("severities", "closing"),
    [
        ("e", "error: 1 error"),
        ("ee", "error: 2 errors"),
        ("eew", "error: 2 errors, 1 warning"),
        ("w", "warning: 1 warning"),
        ("ewwn", "error: 1 error, 2 warnings"),
    ],
)
def test_render_all_counts(severities: str, closing: str) -> None:
    kinds = {"e": "error", "w": "warning", "n": "note"}
    text = render_all([Diagnostic("E0999", kinds[s], "oh") for s in severities], color=False)
    assert text.split("\n\n")[-1] == closing
    assert text.count("[E0999]: oh") == len(severities)


def test_render_all_of_notes_has_no_closing_line() -> None:
    assert render_all([Diagnostic("W0999", "note", "oh")], color=False) == "note[W0999]: oh"


def test_render_all_says_when_it_stopped() -> None:
    text = render_all([Diagnostic("E0999", "error", "oh")] * 10, color=False, truncated=True)
    assert text.endswith("error: 10 errors (stopped here: there may be more)")


def test_render_line() -> None:
    label = Label(at("scale"), "undefined")
    assert render_line(error(label)) == "kernel.py:9:25: error[E0999]: something is wrong with `x`"
    assert render_line(error()) == "error[E0999]: something is wrong with `x`"


def test_paths_inside_the_working_directory_are_shown_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "here" / "k.py", tmp_path / "there.py"
    inside.parent.mkdir()
    for path in (inside, outside):
        path.write_text("x = 1\n")
    monkeypatch.chdir(inside.parent)
    text = render_text(error(Label(Loc(str(inside), 1)), Label(Loc(str(outside), 1))), color=False)
    assert "--> k.py:1:1\n" in text
    assert f"::: {outside}:1:1\n" in text
    assert text.count("x = 1") == 2


def test_errors_print_themselves(tmp_path: Path) -> None:
    several = UserErrors([LAYOUTS["no_place"]] * 2, truncated=True)
    assert str(several).count("error[E0999]") == 2
    assert "stopped after" in str(several)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "on_terminal", "on_file"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_use_color(
    env: dict[str, str], on_terminal: bool, on_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert use_color(Terminal()) is on_terminal
    assert use_color(io.StringIO()) is on_file


@st.composite
def diagnostics(draw: st.DrawFn) -> tuple[str, Diagnostic]:
    source = draw(st.text(alphabet="ab \t\n層\u0301\x1b()", max_size=60))
    numbers = st.integers(0, 12)
    labels = [
        Label(Loc("kernel.py", *draw(st.tuples(*[numbers] * 4))), f"label{i}")
        for i in range(draw(st.integers(0, 4)))
    ]
    return source, error(*labels, notes=("a note",))


@given(diagnostics(), st.integers(1, 60))
def test_no_place_breaks_the_renderer(case: tuple[str, Diagnostic], width: int) -> None:
    """Wrong spans, unusual characters, tiny terminals: the message is complete."""
    source, diagnostic = case
    text = render_text(diagnostic, False, reader({"kernel.py": source}), width)
    assert text.startswith("error[E0999]: something is wrong with `x`")
    assert "= note: a note" in text
    for label in diagnostic.labels:
        assert label.text in text
    colored = render_text(diagnostic, True, reader({"kernel.py": source}), width)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text


def test_layout_golden_files_are_all_used(request: pytest.FixtureRequest) -> None:
    folder = request.config.rootpath / "tests" / "golden" / "diag" / "layout"
    others = {"wide_characters", "color"}
    cut = {f"long_line_{n}" for n in ("start", "middle", "end", "wider_than_the_screen")}
    assert {p.stem for p in folder.iterdir()} == set(itertools.chain(LAYOUTS, others, cut))
