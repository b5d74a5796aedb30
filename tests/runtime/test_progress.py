"""The progress line that a terminal shows during long runs."""

from __future__ import annotations

import io
import re
import sys
import threading
import time

import pytest
from tests.interp.build import Build, index, ramp, tensor
from tests.limits import HUNG

from tilelet.cpu.run.engine import CpuEngine
from tilelet.passes.pipeline import run_passes
from tilelet.runtime import progress as module
from tilelet.runtime.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def shows(self, text: str) -> None:
        """Wait until the text appears."""
        for _ in range(2000):
            if text in self.plain:
                return
            time.sleep(0.005)
        pytest.fail(f"`{text}` is not in {self.plain!r}")

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace stderr. No fixture: pytest restores stderr before the test begins."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(module, "DELAY", 0.0)
    return made


def test_what_goes_on_and_how_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with progress("running P", lambda: 12345):
        terminal.shows("running P: 12,345 tasks")


def test_a_block_inside_another_takes_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with progress("running P"):
        terminal.shows("running P")
        with progress("compiling P"):
            terminal.shows("compiling P")
            seen = len(terminal.plain)
        deadline = time.monotonic() + HUNG
        while "running P" not in terminal.plain[seen:] and time.monotonic() < deadline:
            time.sleep(0.005)
        assert "running P" in terminal.plain[seen:]


def test_nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(module, "DELAY", 60.0)
    with progress("running P"):
        pass
    assert terminal.getvalue() == ""


def test_nothing_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(module, "DELAY", 0.0)
    before = threading.active_count()
    with progress("running P"):
        assert threading.active_count() == before
    assert sys.stderr.getvalue() == ""  # pyright: ignore[reportAttributeAccessIssue]


def test_a_debugger_gets_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    entered: list[int] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: entered.append(len(terminal.getvalue())))
    with progress("running P"):
        terminal.shows("running P")
        breakpoint()  # noqa: T100
        time.sleep(0.3)
        assert entered == [len(terminal.getvalue())]


def test_several_threads_share_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_of(monkeypatch)

    def work(n: int) -> None:
        with progress(f"running P{n}"):
            time.sleep(0.05)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert module._activities == []
    assert module._display is None


def test_tasks_of_a_native_run_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    b = Build()
    x, n = b.param("x", tensor([4, 8])), b.param("n", index())

    def iteration(s: Build, _: object) -> list:
        s.scope(lambda t: [t.put(x, t.op("add", lhs=t.whole(x), rhs=1.0), [0, 0])])
        return []

    b.for_(n, iteration)
    program = run_passes(b.program())
    given = {"x": ramp(4, 8), "n": 400_000}
    for _ in range(100):  # one run may be over before anything is shown
        CpuEngine(progress=progress).run(program, given)
        if re.search(r"running P: [\d,]*\d tasks", terminal.plain):
            return
    pytest.fail(f"no tasks in {terminal.plain!r}")
