"""Output on a terminal: colors, and no line wider than the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tilelet.diag.tables import Table, WideTable, show

ROOT = Path(__file__).parents[2]
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HELLO = str(ROOT / "examples/01_hello.py")
MATMUL = str(ROOT / "examples/07_gemm_epilogue.py")

pytestmark = pytest.mark.usefixtures("module_cache")


def on_terminal(
    folder: Path, *argv: str, columns: int = 80, settings: dict[str, str] | None = None
) -> tuple[int, str]:
    """Return exit code and output on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    names = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    environment |= {
        "PYTHONPATH": str(ROOT / "src"),
        "TERM": "xterm-256color",
        **(settings or {}),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tilelet.cli", *argv],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: all writers have closed the other end
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return process.wait(), shown.decode()


@pytest.mark.parametrize(
    "argv",
    [
        ["profile", "--no-files", MATMUL],
        ["compare", f"{HELLO}@a2a3", f"{HELLO}@a5"],
        ["check", "--memory", MATMUL],
        ["tasks", MATMUL],
        ["list"],
        ["examples"],
        ["bench", "--list"],
    ],
    ids=lambda argv: argv[0],
)
def test_nothing_is_wider_than_the_terminal(tmp_path: Path, argv: list[str]) -> None:
    columns = 64
    code, shown = on_terminal(tmp_path, *argv, columns=columns)
    assert code == 0, shown
    # What a progress line overwrites disappears.
    lines = [
        ANSI.sub("", line.rpartition("\r")[2]) for line in shown.replace("\r\n", "\n").split("\n")
    ]
    assert [line for line in lines if len(line) > columns] == []


def test_colors_on_a_terminal_and_when_forced(tmp_path: Path) -> None:
    code, shown = on_terminal(tmp_path, "run", HELLO)
    assert code == 0
    assert "\x1b[1;32mPASS\x1b[0m" in shown
    assert "\x1b[1;31merror" in on_terminal(tmp_path, "run", "nope.py")[1]
    assert "\x1b[1m" in on_terminal(tmp_path, "profile", "--no-files", HELLO)[1]


@pytest.mark.parametrize(
    "argv", [["run", HELLO], ["profile", "--no-files", HELLO], ["run", "no.py"]]
)
def test_no_color_is_obeyed(tmp_path: Path, argv: list[str]) -> None:
    shown = on_terminal(tmp_path, *argv, settings={"NO_COLOR": "1"})[1]
    assert not re.search(r"\x1b\[[0-9;]*m", re.sub(r"\x1b\[0?m", "", shown))


@pytest.mark.parametrize(
    "argv", [["run", HELLO], ["profile", "--no-files", HELLO], ["run", "no.py"]]
)
def test_colors_can_be_forced_and_are_not_there_otherwise(tmp_path: Path, argv: list[str]) -> None:
    names = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    environment |= {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tilelet.cli", *argv]
    for settings, colored in (({}, False), ({"FORCE_COLOR": "1"}, True)):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ("\x1b[" in done.stdout + done.stderr) is colored


class Terminal:
    """A stream that claims to be a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


def shown_at(columns: int, table: Table, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    show([table], stream)  # type: ignore[arg-type]
    return [ANSI.sub("", line).rstrip() for line in stream.text.splitlines()]


def test_a_wide_table_is_shown_in_parts_and_no_figure_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads = ["kernel", *(f"column {i}" for i in range(9))]
    figures = [f"{i},123,456.78" for i in range(9)]
    table = Table("wide", heads, [["matmul", *figures]], notes=["a note"])
    lines = shown_at(60, table, monkeypatch)
    assert max(map(len, lines)) <= 60
    words = " ".join(lines).split()
    assert [w for w in words if w in figures] == figures
    assert words.count("matmul") == 3
    assert words.count("wide") == 1
    assert "\n".join(lines).count("a note") == 1


def test_a_text_that_other_programs_read_is_shown_where_it_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = WideTable("t", ["a", "b"], [["x", "1"]], plain="TOTAL    1    of everything")
    assert "TOTAL    1    of everything" in shown_at(60, table, monkeypatch)
    assert "TOTAL" not in "".join(shown_at(20, table, monkeypatch))
