"""Fixtures for every test: golden texts, caches, and the Hypothesis profiles."""

from __future__ import annotations

import difflib
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tilelet.cli.blas import use_one_blas_thread

use_one_blas_thread()  # before NumPy is imported: BLAS threads of two workers block each other

from tilelet.cpu.run import build  # noqa: E402
from tilelet.native import cache, private  # noqa: E402
from tilelet.native.toolchain import find_compiler  # noqa: E402

GOLDEN_DIR = Path(__file__).parent / "golden"

# "default" is repeatable; HYPOTHESIS_PROFILE=explore looks for new counterexamples.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def heed_ctrl_c() -> None:
    """Stop ignoring SIGINT, which a shell lets its background jobs ignore, and they their children.

    Tests send it, to this process and to processes they start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    heed_ctrl_c()
    config.addinivalue_line("markers", "optimized: compile programs as optimized as users do")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ instead of comparing"
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="all generated kernels, all schedules, sanitizers, clusters (many minutes)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection while tests are collected: nothing allocated there is garbage.

    Freezing what was collected keeps 10,000 tests and all modules out of every later collection;
    the threshold makes those rare: by default they are a fifth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        if "torch" in sys.modules:  # its threads, too, would wait for those of the other workers
            sys.modules["torch"].set_num_threads(1)
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(autouse=True)
def compile_level(request: pytest.FixtureRequest) -> None:
    """Compile quickly, except in tests of the engine and those marked `optimized`."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    if folder not in ("bench", "cpu") and request.node.get_closest_marker("optimized") is None:
        request.getfixturevalue("compile_quickly")


@pytest.fixture
def compile_quickly(monkeypatch: pytest.MonkeyPatch, thorough: bool) -> None:
    """Compile programs without optimization, which takes a quarter of the time.

    With `--thorough` all tests compile as users do: optimizers have bugs.
    """
    if not thorough:
        monkeypatch.setattr(build, "OPTIMIZE", "-O0")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("diag/E0201.txt", text)`: `text` must equal that file of tests/golden."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN_DIR / name
        text = text if text.endswith("\n") else text + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {name}: run pytest with --update-golden\n{text}")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "this run", lineterm=""
            )
            pytest.fail("\n".join(["text differs from its golden file", *diff]), pytrace=False)

    return check


@pytest.fixture(scope="session")
def compiled_runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the C library, which takes seconds to compile, and no program.

    The library comes from the user's own cache, which all test processes share.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("TILELET_")]:
            patch.delenv(name)
        shared = cache.open_root()
        compiler = find_compiler()
        with build._jobs(compiler) as jobs:
            library = build._Library(jobs, compiler, build._parts(has_products=True))
            library.use(tmp_path_factory.mktemp("objects"), lambda _: None)
    folder = tmp_path_factory.mktemp("runtime") / "cache"
    root = private.make_folder(folder / "cpu")
    for entry in library.keys.values():
        shutil.copytree(shared / entry, root / entry)
    shutil.copy(shared / private.KEY, root)  # a seal is useless without its key
    return folder


@pytest.fixture
def own_cache(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    compiled_runtime: Path,
) -> Path:
    """A cache of the test's own that contains only the C library."""
    folder = tmp_path_factory.mktemp("own") / "cache"
    shutil.copytree(compiled_runtime, folder)
    monkeypatch.setenv("TILELET_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def module_cache(
    tmp_path_factory: pytest.TempPathFactory, compiled_runtime: Path
) -> Iterator[Path]:
    """A cache shared by the tests of one module."""
    folder = tmp_path_factory.mktemp("module") / "cache"
    shutil.copytree(compiled_runtime, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILELET_CACHE_DIR", str(folder))
        yield folder
