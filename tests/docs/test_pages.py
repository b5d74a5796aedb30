"""The code on the pages runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_readme_kernel_compiles(tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(code_of("README.md") + "\nprint(len(add.specialize().main.body.ops))\n")
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", ["README.md", "docs/tutorial.md", "docs/page.md", "docs/design.md"]
)
def test_links_between_pages_exist(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{page} links to {target}"
