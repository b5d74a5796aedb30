"""`tilelet story`: docs/qwen3.md and its plot, written and checked."""

from __future__ import annotations

import argparse
import difflib
import sys
import time
from pathlib import Path

from tilelet.diag.core import UserError
from tilelet.diag.render import render_text, text_width, use_color
from tilelet.models.qwen3.walkthrough import page
from tilelet.runtime import session
from tilelet.runtime.session import Session

STALE, WRONG_USAGE, COULD_NOT_RUN = 1, 2, 3
PAGE = "qwen3.md"


def story_command(options: argparse.Namespace) -> int:
    """0 if the page is written or up to date, 1 if it is not, 3 if a program cannot run."""
    known = [section.model for section in page.SECTIONS]
    names = [name for name in options.only.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown or (names and options.write):
        why = f"there is no `{unknown[0]}`: " if unknown else "`--only` goes with `--check`: "
        print(f"error: {why}there are {', '.join(known)}", file=sys.stderr)
        return WRONG_USAGE
    try:
        with session.active(Session(quiet_diagnostics=True)):
            if options.check:
                return _check(options.dir, names)
            return _write(options.dir, options.keep_cpu)
    except UserError as error:
        shown = render_text(error.diagnostic, use_color(sys.stderr), width=text_width(sys.stderr))
        print(shown, file=sys.stderr)
    except (page.GoldenFailedError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    return COULD_NOT_RUN


def _write(folder: Path, keep_cpu: bool) -> int:
    begin = time.perf_counter()

    def say(what: str) -> None:
        print(f"  {time.perf_counter() - begin:6.1f} s  {what}", file=sys.stderr, flush=True)

    chapters = page.chapters_of([], say)
    if keep_cpu:
        old = _read(folder / PAGE)
        if not all(chapter.keep_cpu(old) for chapter in chapters):
            print(f"error: {folder / PAGE} has no CPU times for these steps", file=sys.stderr)
            return COULD_NOT_RUN
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
    return STALE if any(stale) else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _difference(path: Path, current: str, wanted: str) -> str:
    """What is not up to date, and where; nothing if all is."""
    if current.strip() == wanted.strip():
        return ""
    lines = difflib.unified_diff(
        current.splitlines(), wanted.splitlines(), str(path), "generated", lineterm="", n=0
    )
    return "\n".join([f"{path} is not up to date: run `make story`", *list(lines)[:20]])
