"""`tilelet bench`: measure the native engine against this machine and against other libraries."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.bench import against
from tilelet.bench.report import Report, save_document, time_text
from tilelet.bench.runner import Bench, machine_text
from tilelet.bench.sections import SECTIONS
from tilelet.cli.messages import print_text
from tilelet.diag.catalogue.command import UnknownSection
from tilelet.diag.tables import Table, show
from tilelet.runtime import session
from tilelet.runtime.output.run_directory import build_root
from tilelet.scripts import exit_codes

if TYPE_CHECKING:
    from rich.status import Status


def list_sections() -> int:
    """Print the sections."""
    width = max(map(len, SECTIONS))
    print_text("\n".join(f"{name:<{width}}  {s.about}" for name, s in SECTIONS.items()))
    return exit_codes.PASSED


def bench_command(sections: Sequence[str], is_quick: bool, path: Path | None) -> int:
    """Measure the sections; return 1 if something failed or gave wrong results."""
    chosen = _chosen_sections(sections)
    report = Report(options={"sections": chosen, "quick": is_quick})
    path = path or _default_path()
    report.save(path)  # find an unwritable path before measuring, not after
    _measure(report, chosen, is_quick)
    _show_all(report)
    report.save(path)
    print(f"\nsaved as {path}")
    if report.interrupted:
        return exit_codes.INTERRUPTED
    return exit_codes.of_findings(bool(report.failed))


def against_command(tree: str, sections: Sequence[str], is_quick: bool, path: Path | None) -> int:
    """Compare this tree with another one; return 1 if a case is slower here or failed."""
    chosen = _chosen_sections(sections)
    path = path or _default_path()
    found: list[against.TreeComparison] = []
    progress = Progress()
    progress.start()
    try:
        against.compare(tree, chosen, is_quick, progress.say, found.append)
    except KeyboardInterrupt:
        progress.print("interrupted: the comparison ends here")
        return exit_codes.INTERRUPTED
    finally:
        progress.stop()
        show([_comparison_table(tree, found)])
    save_document({"against": tree, "cases": [c.document() for c in found]}, path)
    print(f"\nsaved as {path}")
    return exit_codes.of_findings(any(c.is_slower or c.error for c in found))


def _comparison_table(tree: str, found: Sequence[against.TreeComparison]) -> Table:
    heads = ["", "CPU time", f"{tree}", "ratio", "quartiles", "wall ratio", "quartiles", ""]
    table = Table(f"this tree / {tree}: below 1 is faster", heads)
    for each in found:
        if not each.rounds:
            table.rows.append([each.label, *[""] * 6, f"failed: {each.error}"])
            continue
        times = [statistics.median(s.processor for s in side) for side in zip(*each.rounds)]
        ratios = [
            text
            for of in (against.by_processor, against.by_clock)
            for text in _spread(against.quartiles(each.ratios(of)))
        ]
        verdict = "slower" if each.is_slower else ""
        table.rows.append([each.label, *map(time_text, times), *ratios, verdict])
    return table


def _spread(quartiles: Sequence[float]) -> tuple[str, str]:
    low, middle, high = (f"{q:.3f}" for q in quartiles)
    return middle, f"{low}..{high}"


def _chosen_sections(asked: Sequence[str]) -> list[str]:
    """Return the named sections in their own order; all if none is named."""
    for name in asked:
        if name not in SECTIONS:
            raise UnknownSection(name, list(SECTIONS))
    return [name for name in SECTIONS if not asked or name in asked]


def _default_path() -> Path:
    return build_root() / time.strftime("bench_%Y%m%d_%H%M%S.json")


def _measure(report: Report, chosen: Sequence[str], is_quick: bool) -> None:
    """Measure all sections; Ctrl-C ends this and keeps the results so far."""
    now = session.Session(engine="cpu", quiet_diagnostics=True)
    progress, left = Progress(), list(chosen)
    progress.start()
    with session.active(now):
        try:
            bench = Bench(report, is_quick, progress.say)
            progress.print(machine_text(report.machine))
            while left:
                bench.run(left[0], SECTIONS[left[0]].run)
                progress.print(report.section_table(left.pop(0)))
        except KeyboardInterrupt:
            report.interrupted = True
            progress.print("interrupted: these are the results so far")
            if left:
                progress.print(report.section_table(left[0]))
        finally:
            progress.stop()


def _show_all(report: Report) -> None:
    tables = [report.engine_table(), report.reach_table()]
    print()
    show([table if table.rows else table.title for table in tables if table is not None])


class Progress:
    """Show what is being measured: a moving line on a terminal, one line each elsewhere."""

    def __init__(self) -> None:
        self._status: Status | None = None
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(file=sys.stderr).status("")

    def start(self) -> None:
        if self._status:
            self._status.start()

    def stop(self) -> None:
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        if self._status:
            from rich.markup import escape

            self._status.update(escape(text))
        else:
            print(f"{text} ...", file=sys.stderr, flush=True)

    def print(self, part: str | Table | None) -> None:
        """Print a text or table to stdout while the moving line is paused."""
        if part is None:
            return
        self.stop()
        show([part])
        print(flush=True)
        self.start()
