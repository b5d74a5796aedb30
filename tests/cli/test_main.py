"""The command line: usage, pages, scripts without kernels, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.limits import HUNG

from tilelet import __version__

ROOT = Path(__file__).parent.parent.parent


def write(text: str, name: str = "script.py") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


@pytest.mark.parametrize("command", ["run", "tasks", "explain", "docs"])
def test_every_command_has_help_with_examples(tilelet: Run, command: str) -> None:
    code, out, _ = tilelet(command, "--help")
    assert code == 0
    assert f"tilelet {command}" in out.split("Examples:")[1]


def test_version(tilelet: Run) -> None:
    assert tilelet("version") == (0, f"tilelet {__version__}\n", "")
    assert tilelet("--version")[1] == f"tilelet {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "usage: tilelet COMMAND"),
        (["fly"], "no command `fly`"),
        (["run"], "required: SCRIPT"),
        (["run", "--engin", "interp", "x.py"], "did you mean `--engine`?"),
        (["run", "--engine", "warp", "x.py"], "unknown engine `warp`"),
        (["run", "--seed", "many", "x.py"], "`--seed`: `many` is not a whole number"),
        (
            ["run", "--format", "xml", "x.py"],
            "`--format`: `xml` is none of `text`, `json` and `sarif`",
        ),
        (["explain", "E0000"], "no code `E0000`"),
        (["docs"], "one of the arguments --write --check is required"),
    ],
)
def test_wrong_usage_is_2(tilelet: Run, argv: list[str], message: str) -> None:
    code, out, err = tilelet(*argv)
    assert (code, out) == (2, "")
    assert message in err


def test_explain(tilelet: Run) -> None:
    code, out, _ = tilelet("explain", "e0604")
    assert code == 0
    assert out.startswith("error[E0604]: spec mismatch\n")
    code, out, _ = tilelet("explain", "spec", "mismatch")
    assert "E0604  spec mismatch\n" in out


def test_docs_are_written_and_checked(tilelet: Run) -> None:
    assert tilelet("docs", "--check")[0] == 1
    assert tilelet("docs", "--write")[0] == 0
    assert sorted(p.name for p in Path("docs").iterdir()) == [
        "advice.md",
        "answers.md",
        "bench.md",
        "commands.md",
        "compatibility.md",
        "errors.md",
        "ops.md",
        "portability.md",
    ]
    assert tilelet("docs", "--check") == (0, "", "")
    Path("docs/ops.md").write_text("old")
    code, _, err = tilelet("docs", "--check")
    assert code == 1
    assert "docs/ops.md is not up to date" in err
    assert "errors.md" not in err


def test_the_script_is_main_and_gets_its_own_arguments(tilelet: Run) -> None:
    text = "import sys\nassert __name__ == '__main__'\nprint(sys.argv, sys.path[0])\nsys.exit(0)\n"
    script = write(text)
    code, out, _ = tilelet(
        "run", "--seed", "3", script, "-d", "0", "--engine", "interp", "--", "-h", "--engine"
    )
    assert code == 0
    assert out == f"{[script, '-d', '0', '-h', '--engine']} {Path.cwd()}\n"


def test_modules_beside_the_script_can_be_imported(tilelet: Run) -> None:
    Path("sub").mkdir()
    write("X = 5\n", "sub/beside_the_script.py")
    script = write("import beside_the_script as b\nraise SystemExit(b.X)\n", "sub/script.py")
    assert tilelet("run", script)[0] == 5
    assert "beside_the_script" in sys.modules
    del sys.modules["beside_the_script"]


def test_the_interpreter_is_left_as_it_was(tilelet: Run) -> None:
    before = sys.modules["__main__"], sys.argv, list(sys.path), list(sys.meta_path)
    tilelet("run", write("import pypto, golden\nraise SystemExit\n"))
    assert (sys.modules["__main__"], sys.argv, list(sys.path), list(sys.meta_path)) == before
    assert "pypto" not in sys.modules
    assert "golden" not in sys.modules


@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
    ],
)
def test_a_scripts_own_exit_code(tilelet: Run, text: str, code: int, printed: str) -> None:
    got, _, err = tilelet("run", write(text))
    assert (got, err) == (code, printed)


@pytest.mark.parametrize("command", ["check", "profile", "advise", "tune"])
def test_recording_commands_name_a_scripts_own_exit_code(tilelet: Run, command: str) -> None:
    got, out, err = tilelet(command, write("raise SystemExit(7)"))
    assert (got, out, err) == (7, "", "note: the script ended with exit code 7\n")


def test_a_script_that_raises_shows_its_own_frames_only(tilelet: Run) -> None:
    script = write("def f():\n    return {}['key']\n\nf()\n")
    code, out, err = tilelet("run", script)
    assert (code, out) == (3, "")
    place = Path("script.py").absolute()
    assert err.startswith(f'Traceback (most recent call last):\n  File "{place}", line 4')
    assert "KeyError: 'key'\nscript.py:2:1: error[E0706]: `script.py` raised" in err
    assert "tilelet/cli" not in err


def test_what_is_no_script(tilelet: Run) -> None:
    Path("folder").mkdir()
    Path("binary.py").write_bytes(b"\0\1")
    write("", "kernels.py")
    code, _, err = tilelet("run", "kernel.py")
    assert code == 3
    assert err == "error[E0701]: no file `kernel.py`\n  = help: did you mean `kernels.py`?\n"
    assert "it is a directory" in tilelet("run", "folder")[2]
    assert "it is a binary file" in tilelet("run", "binary.py")[2]
    code, _, err = tilelet("run", write("def f(:\n"))
    assert code == 3
    assert err == (
        "error[E0116]: invalid syntax\n --> script.py:1:7\n  |\n1 | def f(:\n  |       ^\n"
    )
    Path("latin.py").write_bytes(b'name = "\xe9"\n')
    code, _, err = tilelet("run", "latin.py")
    assert code == 3
    assert "error[E0116]: invalid syntax: (unicode error)" in err
    assert "latin.py:1" in err
    assert "Traceback" not in err


def test_a_script_without_programs(tilelet: Run) -> None:
    code, _, err = tilelet("run", write("X = 1\n"))
    assert code == 3
    assert "error[E0703]: no program in `script.py`" in err


def test_names_that_tilelet_does_not_stand_in_for(tilelet: Run) -> None:
    code, _, err = tilelet("run", write("from golden import TensorSpecs\n"))
    assert code == 3
    assert "error[E0712]: `golden.TensorSpecs` is not available in Tilelet" in err
    assert "--> script.py:1:1" in err
    assert "did you mean `TensorSpec`" in err
    code, _, err = tilelet("run", write("from pypto import passes\n"))
    assert code == 3
    assert "did you mean" not in err  # `pypto.pypto_core.passes` is elsewhere
    code, _, err = tilelet("run", write("import pypto.inner.passes\n"))
    assert code == 3
    assert "`pypto.inner` is not available in" in err
    code, _, err = tilelet("run", write("import pypto.ir\npypto.ir.sterilize()\n"))
    assert code == 3
    assert "`pypto.ir.sterilize` is not available in" in err


def test_feature_detection_by_import_error_works(tilelet: Run) -> None:
    text = (
        "try:\n    from pypto.runtime import Worker\nexcept ImportError:\n    raise SystemExit(9)\n"
    )
    assert tilelet("run", write(text))[0] == 9


def test_a_missing_torch_is_named(tilelet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = tilelet("run", write("import torch\n"))
    assert code == 3
    assert "needs the package `torch`, which is not installed" in err
    assert "pip install 'tilelet[torch]'" in err


def test_options_of_tilelet_may_stand_after_the_script(tilelet: Run) -> None:
    parses = "import argparse\np = argparse.ArgumentParser()\n"
    script = write(f"{parses}p.parse_args()\nraise SystemExit(5)\n")
    assert tilelet("run", script, "--engine", "interp", "--seed", "5")[0] == 5


def test_python_m_tilelet_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tilelet", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert __version__ in done.stdout


def test_machine_formats_have_stdout_for_themselves(tilelet: Run) -> None:
    script = write("print('chatter')\n1 / 0\n")
    code, out, err = tilelet("run", "--format", "json", script)
    document = json.loads(out)
    assert code == 3
    assert "chatter" in err
    assert [d["code"] for d in document["diagnostics"]] == ["E0706"]
    assert document["diagnostics"][0]["labels"][0]["line"] == 2
    assert document["results"] == []
    code, out, _ = tilelet("run", "--format", "sarif", script)
    assert json.loads(out)["runs"][0]["results"][0]["ruleId"] == "E0706"


def test_another_golden_is_announced_and_can_be_chosen(tilelet: Run) -> None:
    Path("golden").mkdir()
    write("WHO = 'mine'\n", "golden/__init__.py")
    script = write("import golden\nprint(getattr(golden, 'WHO', 'tilelet'))\nraise SystemExit\n")
    code, out, err = tilelet("run", script)
    assert (code, out) == (0, "tilelet\n")
    assert "`import golden` uses Tilelet's stand-in" in err
    assert "--golden script" in err
    code, out, err = tilelet("run", "--golden", "script", script)
    assert (code, out, err) == (0, "mine\n", "")
    del sys.modules["golden"]


def test_a_folder_of_data_called_golden_is_not_another_golden(tilelet: Run) -> None:
    Path("golden").mkdir()
    script = write("from golden import TensorSpec\nraise SystemExit\n")
    assert tilelet("run", script) == (0, "", "")


TWO_MISTAKES = """
import tilelet.language as pl

@pl.jit
def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        a = pl.expp(x)
        b = pl.sqroot(x)
        out[:, :] = pl.exp(x)
    return out

kernel.specialize()
"""


def test_several_mistakes_in_every_format(tilelet: Run) -> None:
    script = write(TWO_MISTAKES)
    code, out, err = tilelet("run", script)
    assert (code, out) == (3, "")
    assert "--> script.py:7:" in err
    assert "--> script.py:8:" in err
    assert err.endswith("error: 2 errors\n")
    code, out, _ = tilelet("run", "--format", "json", script)
    assert code == 3
    assert [d["labels"][0]["line"] for d in json.loads(out)["diagnostics"]] == [7, 8]
    code, out, _ = tilelet("run", "--format", "sarif", script)
    assert code == 3
    assert len(json.loads(out)["runs"][0]["results"]) == 2


def test_a_bug_in_tilelet_is_not_blamed_on_the_script(
    tilelet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilelet.passes import pipeline

    names: dict[str, Any] = {}
    text = "def broken(program):\n    return {}['inside']\n"
    exec(compile(text, pipeline.__file__, "exec"), names)
    monkeypatch.setattr(pipeline, "PASSES", (names["broken"],))
    script = write(TWO_MISTAKES.replace("expp", "exp").replace("sqroot", "sqrt"))
    code, _, err = tilelet("run", script)
    assert code == 3
    assert err.startswith("internal error: KeyError: 'inside'\nthis is a bug in Tilelet")
    (report,) = Path("build_output").glob("script_*/report/reproducer.txt")
    assert "in broken" in report.read_text()


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


def test_ctrl_c_is_one_line_and_130(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "tilelet.cli", "run", str(script)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HUNG)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_broken_pipe_is_silent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("for _ in range(100_000):\n    print('line')\nraise SystemExit\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "tilelet.cli", "run", str(script)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=HUNG) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_starting_imports_neither_torch_nor_rich(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pypto.runtime import RunConfig, TensorSpec, run\n"
        "print([m for m in ('torch', 'rich') if m in sys.modules])\nraise SystemExit\n"
    )
    command = [sys.executable, "-m", "tilelet.cli", "run", str(script)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_pld_lacks_is_an_error_at_its_line(tilelet: Run, tmp_path: Path) -> None:
    text = "import pypto.language.distributed as pld\npld.tensor.put_async\n"
    (tmp_path / "k.py").write_text(text)
    code, _, err = tilelet("run", "k.py")
    assert code == 3
    assert "error[E1713]: `pld.tensor.put_async` is not supported" in err
    assert "k.py:2" in err


def test_a_mistake_outside_kernels_has_its_line(tilelet: Run) -> None:
    text = "from golden import TensorSpec\nTensorSpec('x', [0, 4], 'float32')\n"
    code, _, err = tilelet("run", write(text))
    assert code == 3
    assert "error[E0620]: `x` has shape `[0, 4]`" in err
    assert "--> script.py:2:1" in err
    code, _, err = tilelet("run", write("import pypto.language as pl\n\npl.exp(3)\n"))
    assert code == 3
    assert "error[E0120]: `pl.exp` called outside a kernel" in err
    assert "--> script.py:3:1" in err


def test_programs_are_listed_and_run_by_name(tilelet: Run) -> None:
    code, out, _ = tilelet("list")
    assert code == 0
    assert "qwen3/scope3" in out
    assert ":baseline" in out
    sizes = ["--hidden", "256", "--intermediate", "256"]
    code, out, _ = tilelet("run", "qwen3/scope3:refactored", *sizes)
    assert code == 0
    assert "elements matched" in out
    code, out, _ = tilelet("tasks", "qwen3/scope3", "--variant", "baseline")
    assert code == 0
    assert "33,411" in out


def test_an_unknown_program_gets_a_suggestion(tilelet: Run) -> None:
    code, _, err = tilelet("run", "qwen3/scope4")
    assert code == 3
    assert "did you mean `qwen3/scope" in err


UNTYPED = """
import tilelet.language as pl

@pl.jit
def scale(x, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y[:, :] = pl.mul(x[:, :], 2.0)
    return y

def build_program(rows, cols=4):
    raise AssertionError
"""


def test_what_the_script_does_define_is_not_asked_for(tilelet: Run) -> None:
    code, _, err = tilelet("run", write(UNTYPED))
    assert code == 3
    assert "error[E0703]: `script.py` runs nothing, and nothing in it can be compiled" in err
    assert "note: `scale` has no type for `x`" in err
    assert "note: `build_program` needs `rows`" in err
    assert "define a `@pl.program`" not in err


RETIRED = """
import tilelet.language as pl

def make():
    @pl.program
    class P:
        @pl.function
        def main(self, x: pl.Tensor[[16, 128], pl.FP32], y: pl.Tensor[[16, 128], pl.FP32]):
            with pl.incore():
                y = pl.assemble(y, pl.exp(x), [0, 0])
            return y
    return P

A = make()

@pl.program
class B:
    @pl.function
    def main(self, x: pl.Tensor[[16, 128], pl.FP32], y: pl.Tensor[[16, 128], pl.FP32]):
        with pl.incore():
            y = pl.assemble(y, pl.exp(x), [0, 0])
        return y
"""


def test_a_retired_spelling_is_noted_once_per_file(tilelet: Run) -> None:
    write(RETIRED, "other.py")
    code, _, err = tilelet("run", write(f"from other import A as C, B as D\n{RETIRED}"))
    assert code == 0
    assert err.count("note[W0101]: `pl.incore()` is deprecated") == 2
    assert "other.py:" in err
    del sys.modules["other"]


def test_options_in_messages_and_pages_exist(tilelet: Run) -> None:
    """Messages never suggest an option to a command that lacks it."""
    from tests.diag.samples import SAMPLES, build

    from tilelet.cli.commands import COMMANDS

    texts = [str(build(cls)) for cls in SAMPLES]
    texts += [(ROOT / page).read_text() for page in ("README.md", "docs/tutorial.md")]
    texts += [command.manual() for command in COMMANDS.values()]
    for text in texts:
        for name, rest in re.findall(r"\btilelet (\w+)((?: [^`\n|#]*)?)", text):
            if name not in COMMANDS:
                continue
            # Options after the script belong to the script, too.
            before = re.split(r"\S+\.py\b|qwen3/\S+", rest)[0]
            given = re.findall(r"(?<!\S)--[\w-]+", before)
            assert set(given) <= set(COMMANDS[name].parser().own_options), (name, given)
