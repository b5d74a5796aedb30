"""The pictures of docs/page.md: `python -m tests.report.screenshots docs/page` (make screenshots).

They show scope 3 of a Qwen3 decode layer, as first written and tuned, at a fraction of its size for
the views in which the number of tasks does not matter.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.report.browser import Watched, chromium, no_browser

BASELINE, TUNED = "qwen3/scope3:baseline", "qwen3/scope3:tuned"
RACE = """
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def carried(x: pl.Tensor[[64, 128], pl.FP32], y: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rows"):
            y[r : r + 16, :] = pl.mul(pl.exp(x[r : r + 16, :]), 0.5)
    return y

def golden(t):
    import numpy as np
    t["y"][:] = np.exp(t["x"])
    t["y"][:16] *= 0.5

run_jit(
    carried,
    [TensorSpec("x", [64, 128], pl.FP32, 0.5), TensorSpec("y", [64, 128], pl.FP32, is_output=True)],
    golden_fn=golden, rtol=1e-4, atol=1e-4, runtime_cfg={"enable_profiling": True},
)
"""


def tilelet(folder: Path, *argv: str) -> None:
    command = [sys.executable, "-m", "tilelet.cli", *argv]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)


def pages(folder: Path) -> dict[str, Path]:
    """Return the pages to show, made as a user would."""
    tilelet(folder, "profile", "--no-files", BASELINE, "--html", "baseline.html")
    tilelet(folder, "profile", "--no-files", TUNED, "--html", "tuned.html")
    tilelet(folder, "compare", f"{BASELINE} --hidden 8192", TUNED, "--html", "compare.html")
    (folder / "wrong.py").write_text(RACE)
    tilelet(folder, "run", "--build-dir", "out", "wrong.py")
    (directory,) = (folder / "out").iterdir()
    tilelet(folder, "report", str(directory), "--html", "wrong.html")
    return {name: folder / f"{name}.html" for name in ("baseline", "tuned", "compare", "wrong")}


def save(watched: Watched, target: Path) -> None:
    watched.page.wait_for_timeout(400)
    watched.page.mouse.move(2, 2)
    watched.page.screenshot(path=str(target))
    print(target, flush=True)


def choose(watched: Watched, script: str) -> None:
    watched.page.evaluate(f"() => {{ const {{ state, timeline }} = window.tileletPage; {script} }}")


def main(target: Path) -> None:
    reason = no_browser()
    if reason:
        sys.exit(reason)
    target.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory() as scratch:
        with contextlib.redirect_stderr(io.StringIO()):
            made = pages(Path(scratch))
        _baseline(browser, made["baseline"], target)
        tuned = Watched(browser).open(made["tuned"])
        save(tuned, target / "tuned.png")
        tuned.close()
        dark = Watched(browser, color_scheme="dark").open(made["tuned"])
        choose(dark, "state.chooseTask(80); timeline.zoomToChoice();")
        save(dark, target / "task.png")
        dark.close()
        for name, view in (("compare", "compare"), ("wrong", "numbers")):
            found = Watched(browser).open(made[name])
            found.view(view)
            save(found, target / f"{view}.png")
            found.close()


def _baseline(browser: Any, page: Path, target: Path) -> None:
    found = Watched(browser).open(page)
    save(found, target / "timeline.png")
    kernel = "state.run.kernels.findIndex((k) => state.run.rowOf.get(k.name)?.path_tasks > 9000)"
    choose(found, f"state.chooseKernel({kernel});")
    save(found, target / "serialized.png")
    task = f"state.run.kernelOfTask.indexOf({kernel}, 20000)"
    choose(found, f"state.chooseTask({task}); timeline.zoomToChoice();")
    save(found, target / "chain.png")
    for view in ("source", "kernels", "memory", "graph", "model"):
        choose(found, f"state.chooseKernel({kernel});")
        found.view(view)
        save(found, target / f"{view}.png")
    found.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/page"))
