"""The code on the pages runs."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tilelet.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]


def code_of(page: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))


def test_tutorial_program_passes(tmp_path: Path) -> None:
    script = tmp_path / "softmax.py"
    script.write_text(code_of("docs/tutorial.md"))
    command = [sys.executable, "-m", "tilelet.cli", "run", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "16384/16384 elements matched" in done.stdout


def test_the_readme_shows_what_diverge_prints(tmp_path: Path) -> None:
    """The planted bug of the README is reported at its line, with its fix and text."""
    (tmp_path / "softmax.py").write_text(code_of("README.md"))
    command = [sys.executable, "-m", "tilelet.cli", "diverge", "softmax.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert done.stderr.strip() == shown.strip()


def test_the_figures_of_the_readme_are_those_of_its_sources() -> None:
    """The pages that they come from are generated; other tests compare them with the code."""
    text = (ROOT / "README.md").read_text()
    steps = (ROOT / "docs/qwen3.md").read_text()
    counts = [
        re.search(rf"^\| \d+ \| `{name}`[^|]*\| ([\d,]+) \|", steps, re.MULTILINE)
        for name in ("baseline", "tuned")
    ]
    rows = (ROOT / "docs/calibration.md").read_text()
    errors = [
        re.search(rf"^\| scope3-{name} \|[^|]*\|[^|]*\| (\S+)% \|", rows, re.MULTILINE)
        for name in ("before", "after")
    ]
    total = re.search(
        r"^(\d+) comparisons: median error (\S+)%.* (\d+)% of the", rows, re.MULTILINE
    )
    shown = [found[1] if found else "" for found in (*counts, *errors)]
    assert f"{shown[0]} tasks → {shown[1]}" in text
    assert f"{shown[2]} % and {shown[3]} %" in text
    assert total is not None
    left_out = re.search(r"left out of the fit: median error (\S+)%", rows)
    assert left_out is not None
    assert f"{left_out[1]} % if a row's family is left out" in text
    assert f"{total[1]} rows | median error {total[2]} %; {total[3]} % inside" in text


PAGES = sorted(p.relative_to(ROOT) for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
by_page = pytest.mark.parametrize("page", PAGES, ids=str)


@by_page
def test_links_between_pages_exist(page: Path) -> None:
    path = ROOT / page
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!http)([^)#\s]+)", re.sub(r"`[^`]*`", "", text)):
        assert (path.parent / target).exists(), f"{page} links to {target}"


@by_page
def test_code_on_a_page_is_python(page: Path) -> None:
    if page.name in ("errors.md", "ops.md"):
        return  # deliberate mistakes, and signatures; both are made from tested code
    for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        ast.parse(code)


@by_page
def test_commands_on_a_page_exist(page: Path) -> None:
    """Every `tilelet COMMAND --option` on a page names a command and its options."""
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["tilelet"] or words[1].startswith("-"):
                continue
            assert words[1] in COMMANDS, line
            known = COMMANDS[words[1]].parser()
            given = {w.partition("=")[0] for w in words[2:] if re.match(r"--?[a-z]", w)}
            # Shipped programs have options of their own.
            if not any(w.startswith("qwen3/") for w in words):
                assert given <= set(known.own_options), line


def test_the_site_is_built(tmp_path: Path) -> None:
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())
    assert any(entry["location"].startswith("errors.html#") for entry in index["docs"])
