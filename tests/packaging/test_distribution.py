"""The wheel and the source distribution: complete, and sufficient for a user."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
BUILD = "from setuptools import build_meta as b; b.build_sdist({0!r}); b.build_wheel({0!r})"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, built from a copy of the tree."""
    tree = tmp_path_factory.mktemp("tree") / "tilelet"
    unwanted = shutil.ignore_patterns(
        ".*", "__pycache__", "*.egg-info", "build", "dist", "build_output", "node_modules"
    )
    shutil.copytree(ROOT, tree, ignore=unwanted)
    shutil.copy(ROOT / ".pre-commit-config.yaml", tree)
    made = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(str(made))],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def wheel_names(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_has_every_file_of_the_package_and_the_examples(built: Path) -> None:
    names = wheel_names(built)
    package = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/tilelet").rglob("*")
        if path.is_file() and path.suffix in (".py", ".c", ".h", ".toml", ".typed", ".js", ".css")
    }
    assert package <= names
    shipped = {name.rpartition("/")[2] for name in names if "share/tilelet/examples" in name}
    assert shipped == set(EXAMPLES)
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]


def test_the_source_distribution_has_tests_pages_and_examples(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    wanted = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src/tilelet", "tests", "docs", "examples", "bench", "web/src", "web/test")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md"} <= names
    assert not [name for name in names if name.endswith((".pyc", ".so"))]


def test_the_metadata(built: Path) -> None:
    from tilelet import __version__

    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        (name,) = [n for n in file.namelist() if n.endswith("dist-info/METADATA")]
        metadata = email.message_from_bytes(file.read(name))
    assert metadata["Version"] == __version__
    urls = dict(text.split(", ", 1) for text in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= urls.keys()
    required = metadata.get_all("Requires-Dist", [])
    users = [text.replace(" ", "") for text in required if 'extra == "torch"' in text]
    assert users == ['torch>=2.4;extra=="torch"']
    pinned = [text for text in required if text.startswith("torch==")]
    assert all('extra == "dev"' in text for text in pinned)
    versions = {f"3.{minor}" for minor in range(10, 14)}
    classifiers = metadata.get_all("Classifier", [])
    assert versions <= {text.rpartition(" ")[2] for text in classifiers}


def test_the_changelog_has_the_version() -> None:
    from tilelet import __version__

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, newest, *_ = re.findall(r"^## \[(.*?)\](.*)", text, re.MULTILINE)
    assert unreleased == ("Unreleased", "")
    assert newest[0] == __version__
    assert re.fullmatch(r" - \d{4}-\d{2}-\d{2}", newest[1])


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package folder of a prefix that the wheel was installed into."""
    prefix = tmp_path_factory.mktemp("prefix")
    (wheel,) = built.glob("*.whl")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    command += ["--ignore-installed", "--prefix", str(prefix), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    (package,) = prefix.rglob("tilelet/__init__.py")
    return package.parents[1]


def tilelet(installed: Path, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "NO_COLOR": "1"}
    environment["TILELET_CACHE_DIR"] = str(folder / "cache")
    return subprocess.run(
        [sys.executable, "-m", "tilelet.cli", *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installed_tilelet_lists_copies_and_runs_its_examples(
    installed: Path, tmp_path: Path
) -> None:
    done = tilelet(installed, tmp_path, "examples")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[: len(EXAMPLES)]] == [
        name.removesuffix(".py") for name in EXAMPLES
    ]
    done = tilelet(installed, tmp_path, "examples", "hello", "03_softmax", "--copy", "mine")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "01_hello.py",
        "03_softmax.py",
    ]
    text = (tmp_path / "mine/01_hello.py").read_text()
    assert text == (ROOT / "examples/01_hello.py").read_text()
    done = tilelet(installed, tmp_path, "run", "--engine", "interp", "mine/01_hello.py")
    assert done.returncode == 0, done.stderr
    assert "PASS" in done.stdout


def test_an_example_that_was_changed_is_not_overwritten(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "01_hello.py").write_text("mine")
    done = tilelet(installed, tmp_path, "examples", "hello", "--copy", ".")
    assert done.returncode == 0
    assert "exists, left as it is" in done.stdout
    assert (tmp_path / "01_hello.py").read_text() == "mine"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_test_all_runs_what_is_installed(tmp_path: Path) -> None:
    """Stand-ins for Python and `make test` show the versions that are used, and the summary."""
    for version in ("3.10", "3.12"):
        python = tmp_path / f"python{version}"
        python.write_text("#!/bin/sh\nexit 0\n")
        python.chmod(0o755)
    fake = tmp_path / "fake-make"
    fake.write_text('#!/bin/sh\necho "MADE $*"\ncase "$*" in *3.12*) exit 1;; esac\n')
    fake.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "PYENV_ROOT": str(tmp_path),
    }
    command = ["make", "-f", str(ROOT / "Makefile"), "test-all", f"MAKE={fake}"]
    command += ["VERSIONS=3.10 3.12 3.99"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "VENV=.venv-3.10" in done.stdout
    assert "VENV=.venv-3.12" in done.stdout
    assert "Python 3.99: not installed" in done.stdout
    assert "tested with: 3.10 3.12\nfailed with: 3.12" in done.stdout
