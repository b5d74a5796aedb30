"""Kernels defined at a prompt, on standard input, in a string or in a notebook."""

import linecache
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.limits import HUNG

import tilelet.language as pl
from tilelet.diag.catalogue.python import SourceUnavailable
from tilelet.diag.core import UserError

KERNEL = """\
import numpy as np
import tilelet.language as pl

@pl.jit
def double(x: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x[:, :], x[:, :])
    return out

"""
CALL = "print(double(np.ones((4, 8), np.float32))[0, 0])\n"
PROGRAM = """\
@pl.program
class Twice:
    @pl.function
    def main(
        self, x: pl.Tensor[[4, 8], pl.FP32], out: pl.Out[pl.Tensor[[4, 8], pl.FP32]]
    ) -> pl.Tensor[[4, 8], pl.FP32]:
        out[:, :] = pl.add(x, x)
        return out

print(Twice.name)
"""
WRONG = "double(np.ones((5, 8), np.float32), np.ones((4, 8), np.float32))\n"


def python(*arguments, text="", stdin=None):
    environment = {**os.environ, "TILELET_ENGINE": "interp"}
    given = {"stdin": stdin} if stdin else {"input": text}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, env=environment, timeout=HUNG, check=False, **given,
    )  # fmt: skip


def test_standard_input_that_is_a_file(tmp_path):
    script = tmp_path / "script"
    script.write_text(KERNEL + CALL + PROGRAM)
    with script.open() as file:
        done = python(stdin=file)
    assert done.stdout == "2.0\nTwice\n", done.stderr


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a prompt keeps its text")
@pytest.mark.parametrize("arguments", [(), ("-i",)])
def test_text_that_nobody_keeps_is_one_clear_message(arguments):
    done = python(*arguments, text=KERNEL + CALL)
    assert "error[E0107]: no source text for `double`: Python does not keep" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.version_info < (3, 13), reason="a prompt keeps nothing")
def test_a_prompt_that_keeps_its_text():
    done = python("-i", text=KERNEL + CALL)
    assert done.stdout == "2.0\n", done.stderr


def test_a_string_that_is_executed():
    names = {}
    exec(KERNEL, names)
    with pytest.raises(SourceUnavailable, match="does not keep the source of an executed string"):
        names["double"](np.ones((4, 8), np.float32))


def test_another_text_of_that_name_is_not_taken_for_it(monkeypatch):
    """Python 3.13 calls the text of `python -c` `<string>`, and so the text that it executes."""
    other = KERNEL.replace("pl.add", "pl.mul")
    lines = other.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, "<string>", (len(other), None, lines, "<string>"))
    names = {}
    exec(KERNEL, names)
    with pytest.raises(SourceUnavailable):
        names["double"](np.ones((4, 8), np.float32))
    exec(other, names)
    np.testing.assert_array_equal(names["double"](np.full((4, 8), 3, np.float32)), 9)


def test_cells_of_a_notebook_and_a_cell_that_is_run_again(monkeypatch):
    names = {}
    for number, op, expected in ((1, "pl.add", 6), (2, "pl.mul", 9)):
        cell, file = KERNEL.replace("pl.add", op), f"<ipython-input-{number}-abc>"
        lines = cell.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, file, (len(cell), None, lines, file))
        exec(compile(cell, file, "exec"), names)
        np.testing.assert_array_equal(names["double"](np.full((4, 8), 3, np.float32)), expected)


def test_a_mistake_in_a_script_has_no_traceback_around_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KERNEL + WRONG)
    done = python(str(script))
    assert done.returncode == 1
    assert done.stderr.startswith("error[E"), done.stderr
    assert "script.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_exceptions_and_other_hooks_stay_as_they_are(tmp_path):
    hook = "import sys\nsys.excepthook = lambda *_: print('mine')\n"
    assert "ZeroDivisionError" in python("-c", "import tilelet.language\n1/0").stderr
    script = tmp_path / "script.py"
    script.write_text(hook + KERNEL + WRONG)
    assert python(str(script)).stdout == "mine\n"


def test_a_notebook_shows_the_message():
    with pytest.raises(UserError) as caught:
        pl.add(1, 2)
    lines = caught.value._render_traceback_()
    assert lines[0].startswith("error[E")
