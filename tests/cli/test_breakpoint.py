"""`breakpoint()` on a terminal: the debugger stops in the kernel and can be left cleanly."""

import os
import select
import subprocess
import sys
import textwrap
import time

import pytest
from tests.limits import HUNG

pty = pytest.importorskip("pty")

SCRIPT = """\
import numpy as np

import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

ROWS = 8


@pl.jit
def double(x: pl.Tensor[[ROWS, 4], pl.FP32], out: pl.Out[pl.Tensor[[ROWS, 4], pl.FP32]]):
    for r in pl.range(0, ROWS, 4):
        with pl.at(level=pl.Level.CORE_GROUP):
            e = pl.add(x[r : r + 4, :], x[r : r + 4, :])
            breakpoint()
            out[r : r + 4, :] = e
    return out


def golden(tensors):
    tensors["out"][:] = 2 * tensors["x"]


if __name__ == "__main__":
    specs = [
        TensorSpec("x", [ROWS, 4], pl.FP32, init_value=np.ones),
        TensorSpec("out", [ROWS, 4], pl.FP32, is_output=True),
    ]
    result = run_jit(double, specs, golden_fn=golden)
    print("passed:", result.passed)
"""
STOP = SCRIPT.splitlines().index("            breakpoint()") + 1


class Terminal:
    """A process on its own pseudo-terminal, with a peer that answers its prompts."""

    def __init__(self, command, folder):
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        environment.pop("PYTHONBREAKPOINT", None)
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment
        )
        os.close(slave)
        self.text = ""

    def answer(self, *answers):
        """Answer one prompt after the other; return the exit code."""
        waiting = list(answers)
        end = time.monotonic() + HUNG
        seen = 0
        while time.monotonic() < end:
            ready, _, _ = select.select([self._master], [], [], 0.2)
            if ready:
                try:
                    new = os.read(self._master, 65536)
                except OSError:  # the other end is closed
                    break
                if not new:
                    break
                self.text += new.decode(errors="replace")
            if waiting and self.text.count("(Pdb) ") > seen:
                seen += 1
                os.write(self._master, (waiting.pop(0) + "\n").encode())
        os.close(self._master)
        return self._process.wait(60)


@pytest.fixture(params=["tilelet run", "python"])
def terminal(request, tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    ways = {"tilelet run": ["-m", "tilelet.cli", "run", "script.py"], "python": ["script.py"]}
    return Terminal([sys.executable, *ways[request.param]], tmp_path)


def test_the_kernels_names_and_quit(terminal):
    code = terminal.answer("p float(e.sum())", "p r", "p ROWS * 100", "p float(np.max(x))", "q")
    text = terminal.text
    assert f"script.py({STOP})" in text, text
    assert "-> breakpoint()" in text
    for value in ("32.0", "0", "800", "1.0"):
        assert f"{value}\r\n" in text, value
    assert "the run was ended in the debugger" in text
    for word in ("reproduce", "Traceback", "progress.py", "debugger.py", "BdbQuit"):
        assert word not in text, text
    assert code == 130


def test_continue_and_next_go_to_the_next_stop_and_to_the_end(terminal):
    code = terminal.answer("n", "p r", "c")
    assert terminal.text.count(f"script.py({STOP})") >= 2, terminal.text
    assert "4\r\n" in terminal.text
    assert "passed: True" in terminal.text
    assert "debug" not in terminal.text
    assert code == 0
