"""Overlong, deeply nested or damaged input and terminal commands give messages, never a bug."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.limits import HUNG

KERNEL = """
import numpy as np
import tilelet.language as pl

@pl.jit
def {name}(a: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = {value}
    return out

x, out = np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)
{name}(x, out)
print(out.sum())
"""
ESCAPE = "\x1b]0;title\x07\u202e"


def kernel(value: str = "pl.add(a, 1.0)", name: str = "add") -> str:
    Path("kernel.py").write_text(KERNEL.format(name=name, value=value), encoding="utf-8")
    return "kernel.py"


def assert_message(found: tuple[int, str, str], code: str, exit_code: int = 3) -> None:
    status, out, err = found
    assert status == exit_code, err
    assert code in out + err
    for sign in ("internal error", "Traceback", "\x1b", "\u202e"):
        assert sign not in out + err


# Deep, long, odd


@pytest.mark.parametrize("value", [" + ".join(["1.0"] * 20000), "-" * 20000 + "1.0"])
def test_text_too_deep_for_python(tilelet: Run, value: str) -> None:
    code, _, err = tilelet("run", kernel(f"pl.add(a, {value})"))
    assert code == 3
    assert "E0706" in err
    assert "internal error" not in err


def test_text_too_deep_for_the_frontend(tilelet: Run) -> None:
    assert_message(tilelet("run", kernel(f"pl.add(a, {'-' * 900}1.0)")), "E0123")


@pytest.mark.parametrize("command", ["run", "profile", "check", "tasks"])
def test_recursion_in_a_pass_is_no_bug(
    tilelet: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_deep(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr("tilelet.passes.pipeline.run_passes", too_deep)
    assert_message(tilelet(command, kernel()), "E0123")


@pytest.mark.parametrize("path", ["x" * 300 + ".py", "x/" * 3000 + "k.py", "x" * 5000, "\udcff.py"])
def test_paths_of_scripts_that_no_system_takes(tilelet: Run, path: str) -> None:
    assert_message(tilelet("run", path), "E070")


@pytest.mark.parametrize("option", ["--build-dir", "--keep-c-in"])
def test_folders_that_no_system_takes(tilelet: Run, option: str) -> None:
    found = tilelet("run", "--dump-passes", "--keep-c", option, "x" * 300, kernel())
    assert_message(found, "E0705", 2)


def test_long_names_of_programs(tilelet: Run) -> None:
    script = kernel(name="a" * 5000)
    assert tilelet("run", "--dump-passes", "--keep-c-in", "c", script)[0] == 0
    assert tilelet("profile", script)[0] == 0


@pytest.mark.parametrize("variable", ["TILELET_THREADS", "TILELET_SCHEDULE_SEED"])
@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1"])
def test_numbers_in_the_environment(
    tilelet: Run, variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    assert_message(tilelet("run", kernel()), "E0613")


def test_pipes_in_place_of_files(tilelet: Run) -> None:
    os.mkfifo("pipe.py")
    os.mkfifo("pipe.json")
    os.mkfifo("pipe.toml")
    assert_message(tilelet("run", "pipe.py"), "E0702")
    assert_message(tilelet("compare", "pipe.json", "pipe.json"), "E09")
    assert_message(tilelet("profile", "-p", "pipe.toml", kernel()), "E0901", 2)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100000, '{"version": ' + "9" * 5000 + "}"])
def test_profiles_that_python_does_not_read(tilelet: Run, text: str) -> None:
    Path("p.json").write_text(text)
    assert_message(tilelet("compare", "p.json", "p.json"), "E09")


# Control characters


@pytest.mark.parametrize(
    "arguments",
    [
        [ESCAPE],
        ["run", f"--seed={ESCAPE}", "x.py"],
        ["run", f"{ESCAPE}.py"],
        ["run", "--engine", ESCAPE, "x.py"],
        ["explain", ESCAPE],
        ["compare", ESCAPE, "b"],
        ["profile", "-p", ESCAPE, "x.py"],
        ["check", f"qwen3/{ESCAPE}"],
    ],
)
def test_arguments_do_not_reach_the_terminal_raw(tilelet: Run, arguments: list[str]) -> None:
    code, out, err = tilelet(*arguments)
    assert code in (2, 3)
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err
    assert r"\x1b]0;title\x07" in out + err


def test_names_and_titles_of_machines(tilelet: Run) -> None:
    text = 'name = "../m\\u001b[31m"\ntitle = "\\u001b]0;x\\u0007"\nextends = "a2a3"\n'
    Path("m.toml").write_text(text)
    code, out, err = tilelet("profile", "--platforms", "m.toml,a5", "--build-dir", "b/c", kernel())
    assert code == 0
    assert "\x1b" not in out + err
    assert r"\x1b[31m" in out
    assert sorted(p.name for p in Path("b").iterdir()) == ["c"]  # nothing beside the folder


def test_names_of_outputs(tilelet: Run) -> None:
    script = """
import numpy as np
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run

@pl.program
class P:
    @pl.function
    def main(self, a: pl.Tensor[[16], pl.FP32], out: pl.Out[pl.Tensor[[16], pl.FP32]]):
        out = pl.write(out, [0], 1.0)
        return out

name = "o\\x1b[31m"
specs = [TensorSpec("i\\x1b[0m", [16], "FP32", init_value=1.0),
         TensorSpec(name, [16], "FP32", is_output=True)]
result = run(P, specs, golden_fn=lambda t: t[name].fill(7.0), rtol=0.0, atol=0.0)
print(result.error)
"""
    Path("k.py").write_text(script)
    code, out, err = tilelet("run", "k.py")
    assert code == 1, err
    assert "\x1b" not in out + err
    assert r"o\x1b[31m" in out


# Output that cannot be written


def call(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilelet.cli", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, check=False, text=True, **streams)  # type: ignore[call-overload]


needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has one")


@needs_full_device
@pytest.mark.parametrize(
    "arguments",
    [
        *(["list"], ["explain"], ["run", "kernel.py"], ["profile", "kernel.py"]),
        *(["tasks", "kernel.py"], ["run", "--format", "json", "kernel.py"]),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout(
    arguments: list[str], unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    kernel()
    with Path("/dev/full").open("w") as full:
        done = call(*arguments, stdout=full)
    assert done.returncode == 3
    assert "E0709" in done.stderr
    assert "No space left" in done.stderr
    for sign in ("Traceback", "internal error", "ignored"):
        assert sign not in done.stderr


@needs_full_device
def test_a_full_disk_behind_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("/dev/full").open("w") as full:
        assert call("run", "missing.py", stderr=full).returncode == 3


def test_streams_that_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = f'"{sys.executable}" -m tilelet.cli run "{kernel()}" >&- 2>&-'
    assert os.waitstatus_to_exitcode(os.system(command)) == 0


def test_a_full_disk_behind_pass_dumps(tilelet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text = Path.write_text

    def full(path: Path, *args: object, **named: object) -> int:
        if "passes_dump" in path.parts:
            raise OSError(28, "No space left on device", str(path))
        return write_text(path, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", full)
    script = kernel()
    assert_message(tilelet("run", "--dump-passes", script), "E0709")
    assert tilelet("run", script)[0] == 0


# Ctrl-C


@pytest.mark.parametrize("command", ["run x.py", "gym score my", "check x.py", "optimise x.py"])
def test_ctrl_c_while_modules_are_imported(tmp_path: Path, command: str) -> None:
    """Extension modules turn the exception into an `ImportError`."""
    slow = tmp_path / "ml_dtypes"
    slow.mkdir()
    (slow / "__init__.py").write_text(
        "import sys, time\n"
        "sys.stderr.write('importing\\n')\n"
        "try:\n    time.sleep(2)\n"
        "except BaseException as error:\n    raise ImportError('odd') from error\n"
        "raise ImportError('this is not the real one')\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    argv = [sys.executable, "-m", "tilelet.cli", *command.split()]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    assert process.stderr.readline() == "importing\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=HUNG) == 130
    assert rest == "interrupted\n"


def test_ctrl_c_while_a_script_imports(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import sys, time\n"
        "sys.stderr.write('importing\\n')\n"
        "try:\n    time.sleep(60)\n"
        "except BaseException as error:\n    raise ImportError('odd') from None\n"
    )
    (tmp_path / "script.py").write_text("import slow\n")
    command = [sys.executable, "-m", "tilelet.cli", "run", str(tmp_path / "script.py")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=HUNG) == 130
    assert rest == "interrupted\n"
