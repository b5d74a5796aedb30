"""`tilelet walkthrough`: docs/qwen3.md and its plot, written and checked."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tilelet.models.qwen3.walkthrough import page
from tilelet.runtime import session
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes

PAGE = "qwen3.md"
PROGRAMS = tuple(section.model for section in page.SECTIONS)


def write_page(folder: Path, *, keep_cpu: bool) -> int:
    """Measure, and write page and plot; 3 if a program cannot run."""
    return _guarded(lambda: _write(folder, keep_cpu))


def check_page(folder: Path, names: list[str]) -> int:
    """0 if the page is up to date, 1 if it is not."""
    return _guarded(lambda: _check(folder, names))


def _guarded(work: Callable[[], int]) -> int:
    try:
        with session.active(Session(quiet_diagnostics=True)):
            return work()
    except (page.GoldenFailedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    return exit_codes.COULD_NOT_RUN


def _write(folder: Path, keep_cpu: bool) -> int:
    begin = time.perf_counter()

    def say(what: str) -> None:
        print(f"  {time.perf_counter() - begin:6.1f} s  {what}", file=sys.stderr, flush=True)

    chapters = page.chapters_of([], say)
    if keep_cpu:
        old = _read(folder / PAGE)
        if not all(chapter.keep_cpu(old) for chapter in chapters):
            print(f"error: {folder / PAGE} has no CPU times for these steps", file=sys.stderr)
            return exit_codes.COULD_NOT_RUN
        processor = page.processor_of(old)
    else:
        for chapter in chapters:
            chapter.run()
        processor = _processor()
    text = page.page(chapters, processor)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(text, encoding="utf-8")
    (folder / page.PLOT).write_text(page.plot(chapters), encoding="utf-8")
    say(f"{folder / PAGE} and {folder / page.PLOT} written")
    return 0


def _processor() -> str:
    from tilelet.bench.host import cpu_name
    from tilelet.cpu.engine import thread_count

    return f"{cpu_name()}, {thread_count()} threads"


def _check(folder: Path, names: list[str]) -> int:
    """Compare what the code gives with the files; of some programs, only their own sections."""
    chapters = page.chapters_of(names)
    current = page.without_cpu(_read(folder / PAGE))
    if names:
        stale = [
            _difference(
                folder / PAGE,
                page.section_of(current, chapter.section.title),
                page.without_cpu(chapter.markdown()),
            )
            for chapter in chapters
        ]
    else:
        whole = page.without_cpu(page.page(chapters, ""))
        stale = [_difference(folder / PAGE, current, whole)]
        drawn = page.plot(chapters)
        stale.append(_difference(folder / page.PLOT, _read(folder / page.PLOT), drawn))
    for difference in stale:
        if difference:
            print(difference, file=sys.stderr)
    return exit_codes.of_findings(any(stale))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _difference(path: Path, current: str, wanted: str) -> str:
    """What is not up to date, and where; nothing if all is."""
    if current.strip() == wanted.strip():
        return ""
    lines = difflib.unified_diff(
        current.splitlines(), wanted.splitlines(), str(path), "generated", lineterm="", n=0
    )
    return "\n".join([f"{path} is not up to date: run `make walkthrough`", *list(lines)[:20]])
