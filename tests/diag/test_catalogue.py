"""The catalogue is complete, and every message is pinned."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from tests.diag.samples import FILE, SAMPLES, build, reader, source_of

from tilelet.diag import Caution, UserError, render_text
from tilelet.diag.catalogue import classes, describe, errors_markdown, explain, text_beside
from tilelet.diag.catalogue.command import UnknownCode

ALL = list(classes().values())
AREAS = {
    "python": "E01",
    "names": "E02",
    "ops": "E03",
    "scopes": "E04",
    "windows": "E05",
    "harness": "E06",
    "command": "E07",
    "unsupported": "E08",
    "device": "E09",
    "models": "E10",
    "checks": "E11",
    "diverge": "E115",
    "advice": "E13",
    "tuner": "E14",
    "generate": "E15",
    "portability": "E12",
    "page": "E16",
    "ranks": "E17",
    "oracle": "E18",
    "sampling": "E155",
    "checkpoint": "E156",
}
each_class = pytest.mark.parametrize("cls", ALL, ids=[f"{c.code}-{c.__name__}" for c in ALL])


def area(cls: type[UserError]) -> str:
    return cls.__module__.rsplit(".", 1)[1]


def test_every_class_has_a_sample() -> None:
    missing = [cls.__name__ for cls in ALL if cls not in SAMPLES]
    assert not missing, f"add samples to tests/diag/samples.py for {missing}"


@each_class
def test_code_is_in_its_areas_range(cls: type[UserError]) -> None:
    assert re.fullmatch(r"[EW]\d{4}", cls.code)
    assert "code" in vars(cls), "each class has its own code"
    if issubclass(cls, Caution):
        assert cls.code.startswith("W")
        assert cls.severity in ("warning", "note")
        known = ("cautions", "checks", "command", "device", "diverge", "portability", "tuner")
        assert area(cls) in known or ".advice.rules." in cls.__module__
    else:
        assert cls.code.startswith(AREAS[area(cls)])
        assert cls.severity == "error"


@each_class
def test_text_beside_the_class_explains(cls: type[UserError]) -> None:
    text = describe(cls)
    sentences = re.findall(r"[.?!](?:\s|$|\))", text.body)
    assert len(sentences) >= 2, f"{cls.__name__}: say what it means and how to fix it"
    assert text_beside(cls)[cls.code], "the docstring is the summary; the file has the explanation"


def test_headings_of_explanations_are_codes_and_titles() -> None:
    for path in {Path(inspect.getfile(cls)).with_suffix(".md") for cls in ALL}:
        headings = re.findall(r"^#+ ([EW]\d{4}.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        module = {cls for cls in ALL if inspect.getfile(cls) == str(path.with_suffix(".py"))}
        assert headings == sorted(f"{cls.code}: {describe(cls).title}" for cls in module), path


@each_class
def test_message_is_pinned(cls: type[UserError], golden) -> None:
    problem = build(cls)
    text = render_text(problem.diagnostic, color=False, sources=reader({FILE: source_of(cls)}))
    golden(f"diag/{cls.code}.txt", text)


@each_class
def test_message_follows_the_style(cls: type[UserError]) -> None:
    d = build(cls).diagnostic
    assert "\n" not in d.message
    assert not d.message.endswith(".")
    assert d.message.startswith("Python ") or re.match(r"[`a-z0-9]", d.message)
    assert all((*d.notes, *d.helps)), "no empty note or help"
    for label in d.labels:
        assert label.loc.file == FILE


@each_class
def test_example_is_a_program(cls: type[UserError]) -> None:
    if not describe(cls).example or cls.__name__ == "InvalidSyntax":
        return
    tree = ast.parse(source_of(cls))
    assert tree.body


@pytest.mark.parametrize("area_name", ["python", "names", "ops", "scopes", "windows"])
def test_kernel_mistakes_have_examples(area_name: str) -> None:
    without = {c.__name__ for c in ALL if area(c) == area_name and not describe(c).example}
    assert without <= {"SourceUnavailable", "NestedTooDeeply"}


def test_golden_folder_has_no_leftovers(request: pytest.FixtureRequest) -> None:
    folder = request.config.rootpath / "tests" / "golden" / "diag"
    codes = {p.stem for p in folder.glob("[EW][0-9]*.txt")}
    assert codes == set(classes())


def test_explain(golden) -> None:
    golden("diag/explain_E0206.txt", explain("E0206"))
    assert explain("e0206") == explain("E0206")


def test_explain_unknown_code_suggests_near_ones() -> None:
    with pytest.raises(UnknownCode) as caught:
        explain("E026")
    assert "`E0206`" in caught.value.diagnostic.helps[0]


def test_errors_markdown_has_a_section_per_code() -> None:
    page = errors_markdown()
    headings = re.findall(r"^### (\w+): (.+)$", page, re.MULTILINE)
    assert sorted(code for code, _ in headings) == sorted(classes())
    assert ("E0307", "dtype mismatch") in headings
    assert page.count("```python") == sum(bool(describe(cls).example) for cls in ALL)
    assert page.startswith("# Error codes\n")
