"""`tilelet walkthrough`: docs/qwen3.md and its plot, written and checked."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilelet.diag.tables import number
from tilelet.models.qwen3.walkthrough import page
from tilelet.runtime import session
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.target import Target

if TYPE_CHECKING:
    from tilelet.advice.programs import Setting

PAGE = "qwen3.md"
LADDERS = "## What `tilelet advise --fix` does alone"
ADVISED = ("scope3", "decode")
PROGRAMS = tuple(section.model for section in page.SECTIONS)


def write_page(folder: Path, *, keep_cpu: bool) -> int:
    """Measure, and write page and plot; 3 if a program cannot run."""
    return _run_guarded(lambda: _write(folder, keep_cpu))


def check_page(folder: Path, names: list[str]) -> int:
    """0 if the page is up to date, 1 if it is not."""
    return _run_guarded(lambda: _check(folder, names))


def write_ladders(folder: Path, names: list[str]) -> int:
    """Advise on programs as first written, and write their ladders into the page."""
    return _run_guarded(lambda: _write_ladders(folder, names or list(ADVISED)))


def _write_ladders(folder: Path, names: list[str]) -> int:
    for name in names:
        made = _ladder(name)
        text, ladders = _split_page(_read(folder / PAGE))
        kept = {part.partition("\n")[0]: part for part in ladders.split("### ")[1:]}
        kept[f"qwen3/{name}"] = made.removeprefix("### ")
        parts = [f"### {kept[title].rstrip()}\n" for title in sorted(kept)]
        section = f"\n{LADDERS}\n\n{_ABOUT}\n" + "\n".join(parts)
        (folder / PAGE).write_text(text + section, encoding="utf-8")
    return 0


_ABOUT = """\
Each step is a rewriting of the program as first written, found, run, compared and modelled by
`tilelet advise NAME --variant baseline --fix -p a2a3`; [advice.md](advice.md) says what each rule
does. Made by `tilelet walkthrough --ladders`.
"""


def _ladder(name: str) -> str:
    """The ladder of one program, as a table."""
    from tilelet.advice.advisor import Advisor
    from tilelet.advice.programs import ExportedPrograms, Setting
    from tilelet.advice.report import ladder
    from tilelet.cli.profile import machines_of
    from tilelet.scripts.recording import RecordingOptions

    (machine,) = machines_of(["a2a3"])
    target = Target(f"qwen3/{name}", ("--variant", "baseline"))
    setting = Setting(machine, None, RecordingOptions(platform=machine.name, quiet=True))
    report = Advisor(target, setting, programs=ExportedPrograms.of(target, setting)).fix()
    table = ladder(report)
    text = f"### qwen3/{name}\n\n" + _markdown_table(table.heads, table.rows)
    return text + _chunks(target, setting) if name == "decode" else text


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    every = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in every)


_CHUNK = "for db in pl.parallel(0, HIDDEN_BLOCKS, chunk=4):"


def _chunks(target: Target, setting: Setting) -> str:
    """Say whether another `chunk` of the down projection is better: its published review asks."""
    from tilelet.advice.programs import ExportedPrograms
    from tilelet.advice.proof import examine

    programs = ExportedPrograms.of(target, setting, "2026-04")
    assert programs.text.count(_CHUNK) == 1
    rows: list[tuple[str, str, str]] = []
    for chunk in (1, 2, 4, 8, 16, 32, 64):
        text = programs.text.replace(_CHUNK, _CHUNK.replace("chunk=4", f"chunk={chunk}"))
        costs = examine(programs, text, setting).costs
        assert costs is not None
        rows.append((f"`chunk={chunk}`", number(costs.us, 0), f"{costs.tasks:,}"))
    about = "The down projection's `chunk=4` as first written, and other values, all else as it is:"
    return f"\n{about}\n\n" + _markdown_table(("down projection", "us", "tasks"), rows)


def _split_page(text: str) -> tuple[str, str]:
    """Split the page into the text before its ladders, and the ladders."""
    before, heading, ladders = text.partition(f"\n{LADDERS}\n")
    return before, heading + ladders


def _run_guarded(work: Callable[[], int]) -> int:
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
    text = page.page(chapters, processor) + _split_page(_read(folder / PAGE))[1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(text, encoding="utf-8")
    (folder / page.PLOT).write_text(page.plot(chapters), encoding="utf-8")
    say(f"{folder / PAGE} and {folder / page.PLOT} written")
    return 0


def _processor() -> str:
    from tilelet.bench.host import cpu_name
    from tilelet.cpu.run.engine import thread_count

    return f"{cpu_name()}, {thread_count()} threads"


def _check(folder: Path, names: list[str]) -> int:
    """Compare what the code gives with the files; of some programs, only their own sections."""
    chapters = page.chapters_of(names)
    current = page.without_cpu(_split_page(_read(folder / PAGE))[0])
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
    """Return what is out of date, and where; nothing if all is up to date."""
    if current.strip() == wanted.strip():
        return ""
    lines = difflib.unified_diff(
        current.splitlines(), wanted.splitlines(), str(path), "generated", lineterm="", n=0
    )
    return "\n".join([f"{path} is not up to date: run `make walkthrough`", *list(lines)[:20]])
