"""Search for better tile sizes and layouts with the model, verified on the CPU."""

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
    """Find better tile sizes for a script or a shipped program.

    platform   one machine, or several, over which the mean is taken
    vary       names with their values (empty: the tuner chooses); None: all knobs
    objective  "us", "gm_bytes", "tasks" or "cpu_ms"
    executor   where candidates are modelled, instead of `jobs` local processes
    results    file for scores, from which a search resumes

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
