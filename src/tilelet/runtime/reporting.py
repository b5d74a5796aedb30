"""What the harness says on the console, apart from the verdict."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tilelet.diag.catalogue.command import NoBoard
from tilelet.diag.text import plural
from tilelet.runtime import session
from tilelet.runtime.config import DEFAULT_PLATFORM, RunConfig

NO_MODEL = "profiling: the device model is not part of this version; task counts:"


def platform_of(config: RunConfig) -> str:
    """The platform in force: the configuration's, else the one on the script's command line."""
    return config.platform or session.current().platform or DEFAULT_PLATFORM


def announce(config: RunConfig) -> None:
    """Say, once, what a run on a CPU does not do although the script asks for it."""
    now = session.current()
    platform = platform_of(config)
    if not platform.endswith("sim"):
        now.report([NoBoard(platform).diagnostic])
    if config.board_records:
        now.say_once(f"note: only a board makes the records of {', '.join(config.board_records)}")


def show_tasks(name: str, counts: Mapping[str, int], profiling: bool = False) -> None:
    """Print (or keep, for a machine format) the number of tasks of each kernel."""
    now = session.current()
    now.task_tables.append((name, dict(counts)))
    if now.quiet_diagnostics:
        return
    head = f"{NO_MODEL}\n" if profiling else ""
    now.say_once(head + task_table(name, counts), sys.stdout)


def task_table(name: str, counts: Mapping[str, int]) -> str:
    """Kernels and tasks, one line each, and the total."""
    rows = [(kernel, f"{count:,}") for kernel, count in counts.items()]
    rows.append(("total", f"{sum(counts.values()):,}"))
    left = max(len(kernel) for kernel, _ in [("kernel", ""), *rows])
    right = max(len(count) for _, count in [("", "tasks"), *rows])
    lines = [f"{name}: {plural(len(counts), 'kernel')}"]
    lines.append(f"  {'kernel':<{left}}  {'tasks':>{right}}")
    lines += [f"  {kernel:<{left}}  {count:>{right}}" for kernel, count in rows]
    return "\n".join(lines)
