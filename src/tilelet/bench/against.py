"""Compare this tree with another: the same cases in turn, time ratios with their spread.

Each tree runs in its own process; a round runs both, in alternating order, so that other load
affects both. Ratios are taken within rounds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tilelet.bench import contestant
from tilelet.bench.sizes import (
    HIDDEN_5120,
    HIDDEN_8192,
    LAYER_5120,
    PREFILL,
    SMALL,
    SMALL_PREFILL,
)
from tilelet.bench.timing import Effort, Seconds, quartiles
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.harness import BadConfig
from tilelet.diag.json_types import JsonObject

MIN_SLOWDOWN = 1.03  # slower than this in three quarters of the rounds is reported
_MIN_ROUND = 0.05  # seconds: shorter runs are repeated within a round
_EXPECTED = "a git revision of this checkout, a source folder, an sdist or a wheel"


class ContestantError(Exception):
    """One of the trees could not run a case."""


# --- the other tree -------------------------------------------------------------------------------


@contextmanager
def package_folder(tree: str) -> Generator[Path]:
    """Yield the folder that holds package `tilelet` of a revision, folder, sdist or wheel."""
    with tempfile.TemporaryDirectory(prefix="tilelet-") as made:
        root = Path(tree)
        if not root.is_dir():
            root = Path(made)
            _unpack(tree, root)
        found = [p for p in (root, root / "src", *root.glob("*/src")) if (p / "tilelet").is_dir()]
        if not found:
            raise BadConfig("--against", tree, _EXPECTED, "command line")
        yield found[0]


def _unpack(tree: str, folder: Path) -> None:
    try:
        if zipfile.is_zipfile(tree):
            with zipfile.ZipFile(tree) as wheel:
                wheel.extractall(folder)  # noqa: S202 - a zip: no path leaves the folder
        elif Path(tree).is_file():
            _extract(Path(tree), folder)
        else:
            archive = folder / "tree.tar"
            _archive_revision(tree, archive)
            _extract(archive, folder)
    except (OSError, subprocess.CalledProcessError, tarfile.TarError, zipfile.BadZipFile):
        raise BadConfig("--against", tree, _EXPECTED, "command line") from None


def _archive_revision(revision: str, archive: Path) -> None:
    git = shutil.which("git")
    if git is None:
        raise FileNotFoundError("git")
    here = ["-C", str(Path(__file__).resolve().parent)]
    top = subprocess.run(  # noqa: S603 - the user's own git, no shell
        [git, *here, "rev-parse", "--show-toplevel"], capture_output=True, check=True, text=True
    )
    command = ["archive", "-o", str(archive), "--end-of-options", revision, "src"]
    subprocess.run(  # noqa: S603 - the user's own git, no shell
        [git, "-C", top.stdout.strip(), *command], capture_output=True, check=True
    )


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):
            files.extractall(folder, filter="data")
        else:  # an old patch release of Python
            files.extractall(folder)  # noqa: S202 - the user's own archive


# --- processes ------------------------------------------------------------------------------------


class Contestant:
    """A process that runs cases with the package of one tree."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        text = Path(contestant.__file__).read_text(encoding="utf-8")
        self._process = subprocess.Popen(  # noqa: S603 - this Python, no shell
            [sys.executable, "-c", text],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._ask({"package": str(folder)})

    def __enter__(self) -> Contestant:  # noqa: PYI034 - `Self` needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def prepare(self, case: Sequence[object]) -> None:
        self._ask({"case": list(case)})

    def run(self, count: int) -> Seconds:
        answer = self._ask({"run": count})
        return Seconds(answer["clock"], answer["processor"])

    def _ask(self, request: JsonObject) -> JsonObject:
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise ContestantError(f"{self.name}: the process ended")
        found = json.loads(answer)
        if "error" in found:
            raise ContestantError(f"{self.name}: {found['error']}")
        return found


# --- what is compared -----------------------------------------------------------------------------

_VECTOR_OPS = ("add", "cast", "softmax", "rmsnorm")


def cases(section: str, is_quick: bool) -> dict[str, list[Any]]:
    """Return requests for the cases of a section by label; empty if it is not compared."""
    inner, columns = (1024, 2048) if is_quick else (5120, 25600)
    rows, width = (512, 2048) if is_quick else (16384, 2048)
    wide = SMALL if is_quick else HIDDEN_8192
    narrow = SMALL if is_quick else HIDDEN_5120
    layer = SMALL if is_quick else LAYER_5120
    models = {
        "scope1": [(f"scope1:{v}", wide) for v in ("per_block", "chunked", "wide")],
        "scope3": [(f"scope3:{v}", narrow) for v in ("baseline", "refactored", "tuned")],
        "attention": [(f"scope2:{v}", wide) for v in ("staged", "fused", "padding_free")],
        "decode": [
            *((f"decode:{v}", wide) for v in ("baseline", "optimised")),
            ("decode:optimised", layer),
        ],
        "prefill": [("prefill:tuned", SMALL_PREFILL if is_quick else PREFILL)],
    }
    if section == "matmul":
        shapes = [(16, 16), (512, 128)]
        return {
            f"[{m},{inner}]x[{inner},{columns}]": ["matmul", m, inner, columns, tile]
            for m, tile in shapes
        }
    if section == "vector":
        return {f"{op} [{rows},{width}]": ["vector", op, rows, width] for op in _VECTOR_OPS}
    return {
        f"{name}, hidden {sizes['hidden']}": ["model", name, f"qwen3/{name}", sizes]
        for name, sizes in models.get(section, [])
    }


@dataclass
class TreeComparison:
    """Times of one case in both trees, round by round: this tree's first."""

    section: str
    label: str
    rounds: list[tuple[Seconds, Seconds]] = field(default_factory=list[tuple[Seconds, Seconds]])
    error: str = ""

    def ratios(self, of: Callable[[Seconds], float]) -> list[float]:
        """Return the times of this tree divided by those of the other, sorted."""
        return sorted(of(mine) / of(other) for mine, other in self.rounds)

    @property
    def is_slower(self) -> bool:
        """Whether this tree takes more processor time in three quarters of the rounds."""
        return bool(self.rounds) and quartiles(self.ratios(by_processor))[0] > MIN_SLOWDOWN

    def document(self) -> JsonObject:
        names = ("this", "other")
        return {
            "section": self.section,
            "case": self.label,
            "error": self.error,
            "is_slower": self.is_slower,
            "clock_ratio": quartiles(self.ratios(by_clock)) if self.rounds else [],
            "processor_ratio": quartiles(self.ratios(by_processor)) if self.rounds else [],
            "rounds": [{n: [t.clock, t.processor] for n, t in zip(names, r)} for r in self.rounds],
        }


def by_clock(seconds: Seconds) -> float:
    return seconds.clock


def by_processor(seconds: Seconds) -> float:
    return seconds.processor


def compare(
    tree: str,
    sections: Sequence[str],
    is_quick: bool,
    say: Callable[[str], None],
    done: Callable[[TreeComparison], None],
) -> None:
    """Compare this tree with `tree` in all cases of the sections."""
    effort = Effort(5, 2.0) if is_quick else Effort(15, 30.0, fewest=5)
    with ExitStack() as stack:
        folder = stack.enter_context(package_folder(tree))
        here = Path(__file__).resolve().parents[2]
        mine = stack.enter_context(Contestant("this tree", here))
        other = stack.enter_context(Contestant(tree, folder))
        for section in sections:
            for label, case in cases(section, is_quick).items():
                say(f"{section}: {label}")
                found = TreeComparison(section, label)
                try:
                    _measure(found, mine, other, case, effort)
                except ContestantError as error:
                    found.error = str(error)
                done(found)


def _measure(
    found: TreeComparison,
    mine: Contestant,
    other: Contestant,
    case: Sequence[object],
    effort: Effort,
) -> None:
    both = (mine, other)
    for each in both:
        each.prepare(case)
    count = max(1, round(_MIN_ROUND / max(mine.run(1).clock, 1e-6)))
    spent = 0.0
    for i in range(effort.rounds):
        if i >= effort.fewest and spent > effort.seconds:
            break
        order = both if i % 2 == 0 else both[::-1]
        times = {each: each.run(count) for each in order}
        spent += count * sum(t.clock for t in times.values())
        found.rounds.append((times[mine], times[other]))
