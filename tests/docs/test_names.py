"""Pages for contributors name files, modules and functions that exist."""

import ast
import re
import subprocess
import textwrap
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tilelet.language as pl

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md", ROOT / "docs" / "device-model.md"]
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
PAGES = [*GUIDES, *DECISIONS]
WRITTEN_BY_SCRIPTS = {
    *("advice.md", "answers.md", "bench.md", "calibration.md", "leaderboard.md", "qwen3.md"),
}
PROSE = [
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if page.name not in WRITTEN_BY_SCRIPTS and "<!-- Generated" not in page.read_text("utf-8")
]
PLACEHOLDERS = {"NNNN-short-title.md"}
SUFFIXES = (".py", ".c", ".h", ".md", ".toml", ".json", ".ts", ".js", ".css")


@cache
def files() -> str:
    """All files under version control and their folders, one per line between slashes."""
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    paths = {Path(line) for line in done.stdout.splitlines()}
    if not paths:
        pytest.skip("not a clone: there is no list of its files")
    folders = {parent for path in paths for parent in path.parents}
    return "".join(f"/{p.as_posix()}\n" for p in paths) + "".join(f"/{p}/\n" for p in folders)


@cache
def words_of_the_source() -> frozenset[str]:
    text = "\n".join(
        p.read_text(encoding="utf-8") for p in (ROOT / "src" / "tilelet").rglob("*.py")
    )
    return frozenset(re.findall(r"\w+", text))


def is_there(name: str) -> bool:
    """Whether a path, which may lack its first folders, or a dotted name of Tilelet exists."""
    if name.endswith((*SUFFIXES, "/")) and name not in PLACEHOLDERS:
        path = re.escape(name).replace(r"\*", "[^/]*")
        return re.search(rf"/{path}$", files(), re.MULTILINE) is not None
    first, *rest = name.split(".")
    if first == "pl" and rest:
        return has(pl, rest)
    if first == "tilelet" and rest:
        return has(import_module("tilelet"), rest)
    return True


def has(value: Any, attributes: list[str]) -> bool:
    """Whether an object has an attribute; modules are imported when asked for."""
    for attribute in attributes:
        if not hasattr(value, attribute):
            try:
                import_module(f"{value.__name__}.{attribute}")
            except (ImportError, AttributeError):
                return False
        value = getattr(value, attribute)
    return True


def names_on(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"`(\w[\w./*-]*)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_and_modules_exist(page: Path) -> None:
    assert not [name for name in names_on(page) if not is_there(name)]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_named_functions_exist(page: Path) -> None:
    """Decisions may name what existed before them; guides describe what exists now."""
    named = [name for name in names_on(page) if re.fullmatch(r"_?[a-z]\w*_\w+", name)]
    named += decorators_on(page)
    assert named
    assert not [name for name in named if name not in words_of_the_source()]


def decorators_on(page: Path) -> list[str]:
    """Names in the decorators of the page's examples; attributes may be new with the example."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    nodes = [node for block in blocks for node in ast.parse(textwrap.dedent(block)).body]
    decorators = [
        d for node in nodes if isinstance(node, ast.FunctionDef) for d in node.decorator_list
    ]
    return [n.id for d in decorators for n in ast.walk(d) if isinstance(n, ast.Name)]


def test_missing_names_are_found() -> None:
    assert is_there("cpu/emit/ops_elementwise.py")
    assert is_there("ops_*.py")
    assert is_there("schedule/")
    assert not is_there("cpu/ops_elementwise.py")
    assert not is_there("gpu/")
    assert not is_there("tilelet.advice.nothing")
    assert not is_there("pl.nothing")


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_prose_wraps_at_100_columns(page: Path) -> None:
    """Rows of tables and code may be longer."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [s for s in text.splitlines() if not s.lstrip().startswith(("|", "!["))]
    assert not [line for line in lines if len(line) > 100]
