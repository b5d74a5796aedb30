"""Tile sizes and layouts that are better, found with the model and checked on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilelet.tuning.knobs import Setting
    from tilelet.tuning.tune_result import TuneResult


def tune(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    platform: str | Sequence[str] = "a2a3",
    vary: Mapping[str, Sequence[Setting]] | None = None,
    objective: str = "us",
    candidates: int = 200,
    seconds: float = float("inf"),
    seed: int = 0,
    jobs: int | None = None,
    executor: Executor | str | None = None,
    results: str | Path | None = None,
) -> TuneResult:
    """Better tile sizes for a script, or for a program that ships with Tilelet.

    platform   a machine, or several: then the mean over them counts
    vary       names with their values (none: the tuner chooses); None: whatever can be varied
    objective  "us", "gm_bytes", "tasks" or "cpu_ms"
    executor   where candidates are modelled, in place of `jobs` processes here
    results    file to keep scores in, and to go on from

    The winner's values are `outcome.winner.settings`; `outcome.patch` is the change to make.
    """
    from tilelet.scripts.target import Target
    from tilelet.tuning import tuner
    from tilelet.tuning.evaluate import Question

    machines = (platform,) if isinstance(platform, str) else tuple(platform)
    return tuner.tune(
        tuner.Request(
            Question(Target(str(script), tuple(arguments)), machines),
            vary={name: tuple(values) for name, values in (vary or {}).items()},
            objective=objective,
            candidates=candidates,
            seconds=seconds,
            seed=seed,
            jobs=jobs,
            executor=executor,
            results=Path(results) if results is not None else None,
        )
    )
