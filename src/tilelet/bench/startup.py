"""Time until a program can run, with an empty cache and with a filled one.

Runs in separate processes, because a process keeps loaded modules:
`python -m tilelet.bench.startup qwen3/decode:optimised '{"hidden": 5120}'` prints seconds as JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tilelet.dataclasses import dataclass

_WARM_STARTS = 3


@dataclass(frozen=True)
class Startup:
    """Return the seconds from Python text to callable code, after the imports."""

    cold: float
    warm: float
    import_seconds: float


def measure(name: str, sizes: dict[str, int]) -> Startup:
    """Time a start with an empty cache, and one with the filled cache."""
    with tempfile.TemporaryDirectory(prefix="tilelet-") as folder:
        cold = _child(name, sizes, folder)
        warm = [_child(name, sizes, folder) for _ in range(_WARM_STARTS)]
    return Startup(
        cold=cold["total"],
        warm=statistics.median(w["total"] for w in warm),
        import_seconds=statistics.median(w["import"] for w in warm),
    )


def warm_environment(cache: str) -> dict[str, str]:
    """Return the environment of a process whose only caches are in `cache`.

    Bytecode is cached there, too, as for an installed package.
    """
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONPYCACHEPREFIX": str(Path(cache) / "bytecode"),
        "TILELET_CACHE_DIR": cache,
    }
    for setting in ("PYTHONDONTWRITEBYTECODE", "TILELET_NO_CACHE"):
        environment.pop(setting, None)
    return environment


def _child(name: str, sizes: dict[str, int], cache: str) -> dict[str, float]:
    """Run `main` in a separate process and return its output."""
    environment = warm_environment(cache)
    command = [sys.executable, "-m", "tilelet.bench.startup", name, json.dumps(sizes)]
    done = subprocess.run(  # noqa: S603 - this Python, no shell
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rsplit("\n", 1)[-1] or "the process was ended")
    return json.loads(done.stdout)


def main(name: str, sizes: str) -> None:
    """Print seconds for the imports, and for each step from text to native code."""
    begin = time.perf_counter()
    from tilelet.runtime.gc_pause import no_garbage

    with no_garbage():  # as `tilelet run` does
        from tilelet.bench.programs import build
        from tilelet.cpu.run.engine import compile_native
        from tilelet.models import registry
        from tilelet.runtime import session
        from tilelet.runtime.programs.compiler import compile_program

        registry.models()  # imports all programs, not only the one that is asked for
    marks = [time.perf_counter()]
    with session.active(session.Session(quiet_diagnostics=True)):
        program = build(name, json.loads(sizes))
        marks.append(time.perf_counter())
        passed = compile_program(program)
        marks.append(time.perf_counter())
        compile_native(passed.program)
        marks.append(time.perf_counter())
    steps = zip(("frontend", "passes", "native"), marks, marks[1:])
    found = {step: end - start for step, start, end in steps}
    print(json.dumps({"import": marks[0] - begin, **found, "total": marks[-1] - marks[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
