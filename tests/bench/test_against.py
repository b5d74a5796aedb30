"""`tilelet bench --against`: two trees measured in turn."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, command_line

from tilelet.bench import against, contestant
from tilelet.bench.against import TreeComparison
from tilelet.bench.timing import Seconds

__all__ = ["command_line"]  # a fixture


def _tree(folder: Path, body: str) -> Path:
    """Return a tree whose cases run `body`."""
    package = folder / "src" / "tilelet" / "bench"
    package.mkdir(parents=True)
    for init in (package / "__init__.py", package.parent / "__init__.py"):
        init.touch()
    package.joinpath("data.py").write_text("class Data: pass\n")
    package.joinpath("cases.py").write_text(
        f"class BenchCase:\n def run(self):\n  {body}\ndef vector_case(*_):\n return BenchCase()\n"
    )
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cases(section: str, _: bool) -> dict[str, list[Any]]:
        return {"a sum": ["vector", "add", 16, 64]} if section == "vector" else {}

    monkeypatch.setattr(against, "cases", cases)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("small")
def test_a_tree_that_does_less_is_faster(command_line: Run, tmp_path: Path) -> None:
    tree = _tree(tmp_path / "other", "pass")
    code, out, _ = command_line("bench", "--quick", "--against", str(tree), "--json", "found.json")
    assert code == 1
    assert out.splitlines()[0] == f"this tree / {tree}: below 1 is faster"
    (line,) = (line for line in out.splitlines() if "a sum" in line)
    assert line.endswith("slower")
    (case,) = json.loads(Path("found.json").read_text())["cases"]
    assert case["is_slower"]
    assert case["processor_ratio"][0] > 2
    assert len(case["rounds"]) == 5


@pytest.mark.usefixtures("small")
def test_a_wheel_that_does_more_is_slower(command_line: Run, tmp_path: Path) -> None:
    folder = _tree(tmp_path / "other", "sum(range(10**6))")
    wheel = shutil.make_archive(str(tmp_path / "other"), "zip", folder / "src")
    code, out, _ = command_line("bench", "--quick", "--against", wheel)
    assert code == 0
    assert "slower" not in out


@pytest.mark.usefixtures("small")
def test_a_tree_that_fails_gets_a_row(command_line: Run, tmp_path: Path) -> None:
    tree = _tree(tmp_path / "other", "raise ValueError('odd')")
    code, out, _ = command_line("bench", "--quick", "--against", str(tree))
    assert code == 1
    assert f"failed: {tree}: ValueError: odd" in out


@pytest.mark.parametrize("tree", ["no-such-revision", "--upload-pack=x", "text.txt", "empty"])
def test_what_is_no_tree(
    tree: str, command_line: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("no archive")
    Path("empty").mkdir()
    code, _, err = command_line("bench", f"--against={tree}")
    assert code != 0
    assert f"`--against={tree}` in the command line, expected a git revision" in err


def test_a_revision_of_this_checkout() -> None:
    if not (Path(against.__file__).parents[3] / ".git").exists():
        pytest.skip("no git checkout")
    with against.package_folder("HEAD") as folder:
        assert (folder / "tilelet" / "bench" / "cases.py").is_file()


def test_slower_means_in_three_quarters_of_the_rounds() -> None:
    def found(*ratios: float) -> TreeComparison:
        rounds = [(Seconds(9.0, r), Seconds(1.0, 1.0)) for r in ratios]
        return TreeComparison("vector", "a sum", rounds)

    assert found(1.1, 1.1, 1.1, 0.9, 1.1).is_slower
    assert not found(1.1, 1.1, 0.9, 0.9, 1.1).is_slower
    assert not found(1.02, 1.02, 1.02).is_slower
    assert found(1.1).ratios(against.by_clock) == [9.0]
    assert not TreeComparison("vector", "a sum").is_slower


@pytest.mark.parametrize("is_quick", [False, True])
def test_every_case_can_be_asked_for(is_quick: bool) -> None:
    for section in ("matmul", "scope1", "scope3", "attention", "decode", "prefill", "vector"):
        assert against.cases(section, is_quick)
    assert against.cases("goldens", is_quick) == {}


def test_the_contestant_starts_in_trees_that_lack_newer_modules() -> None:
    """Everything it imports from the package at start-up must exist in older trees."""
    text = Path(contestant.__file__).read_text(encoding="utf-8")
    imports = [n for n in ast.parse(text).body if isinstance(n, (ast.Import, ast.ImportFrom))]
    names = [n.module if isinstance(n, ast.ImportFrom) else n.names[0].name for n in imports]
    assert not [name for name in names if name and name.startswith("tilelet")]
