"""Unmodified scripts of every era: verdicts, console lines, exit codes, artifacts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilelet.cli.main import main

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = Path(__file__).parent / "scripts"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tilelet(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_cache: Path,
) -> Run:
    """`tilelet("run", "seed_scale", "-p", "a5")` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*argv: str) -> tuple[int, str, str]:
        place = [str(SCRIPTS / f"{a}.py") if (SCRIPTS / f"{a}.py").is_file() else a for a in argv]
        code = main(place)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def write(text: str) -> str:
    Path("script.py").write_text(text, encoding="utf-8")
    return "script.py"


def test_the_oldest_style(tilelet: Run) -> None:
    code, out, err = tilelet("run", "seed_scale")
    assert code == 0
    assert out == "  y: PASS (8192/8192 elements matched)\n=== All 1 cases passed ===\n"
    assert "no `a5` board found" in err
    (directory,) = Path("build_output").iterdir()
    assert directory.name.startswith("ScaleProgram_")
    dumps = sorted(p.name for p in (directory / "passes_dump").iterdir())
    assert dumps[0] == "00_frontend.py"
    assert "02_after_Outline.py" in dumps


def test_a_simulated_platform_says_nothing_about_boards(tilelet: Run) -> None:
    assert "board" not in tilelet("run", "seed_scale", "-p", "a2a3sim")[2]


def test_a_mismatch_is_1_and_shows_where(tilelet: Run) -> None:
    code, out, err = tilelet("run", "seed_scale", "--wrong", "-p", "a2a3sim")
    assert code == 1
    assert "  y: FAIL (" in out
    assert "=== 1 of 1 cases failed ===" in out
    assert "Result: Output 'y' does not match golden.\nMismatched elements: " in out
    assert "rtol=0.01, atol=0.01" in out
    assert "Relative L2 error: " in out
    assert "Worst elements:\n  [" in out
    assert "First mismatching rows:\n  row [0]: " in out
    assert "does not match" not in err  # the script printed the verdict, so the runner does not


def test_a_script_that_ignores_a_failure_still_exits_1(tilelet: Run) -> None:
    code, out, err = tilelet("run", "seed_scale", "--wrong", "--ignore", "-p", "a2a3sim")
    assert code == 1
    assert "Mismatched elements" not in out
    assert "Output 'y' does not match golden.\nMismatched elements: " in err
    (directory,) = Path("build_output").iterdir()
    assert "Worst elements" in (directory / "report" / "mismatch.txt").read_text()


def test_profiling_flags_of_every_era_print_the_modelled_report(tilelet: Run) -> None:
    for script, flag in [
        ("seed_scale", "--runtime-profiling"),
        ("seed_scale", "--enable-profiling"),
        ("apr_state", "--enable-l2-swimlane"),
        ("head_jit", "--enable-chip-swimlane"),
    ]:
        code, out, _ = tilelet("run", script, "-p", "a2a3sim", flag)
        assert code == 0
        assert "Task Statistics by Function [modelled]" in out
        assert re.search(r"^TOTAL +\d+ +[0-9.]+ +[0-9.]+", out, re.MULTILINE)
        assert re.search(
            r"^Total Test Time: [0-9.]+ us \(from earliest dispatch", out, re.MULTILINE
        )


def test_the_golden_package(tilelet: Run) -> None:
    code, out, _ = tilelet("run", "apr_state", "-p", "a2a3")
    assert code == 0
    lines = [line.split(" (")[0] for line in out.splitlines()]
    assert lines[:2] == ["[RUN] compile ...", "[RUN] compile done"]
    assert "[RUN]   'state' PASS  shape=(32, 64) dtype=torch.float32 " in lines
    assert lines[-1] == "[RUN] PASS"
    assert not Path("build_output").exists()


def test_goldens_are_computed_once(tilelet: Run) -> None:
    assert "from the cache" not in tilelet("run", "apr_state")[1]
    assert "golden unchanged: from the cache" in tilelet("run", "apr_state")[1]
    assert "from the cache" not in tilelet("run", "apr_state", "--steps", "2")[1]
    assert "from the cache" not in tilelet("run", "--no-golden-cache", "apr_state")[1]


def test_saved_data_is_replayed(tilelet: Run) -> None:
    assert tilelet("run", "--save-data", "apr_state")[0] == 0
    (directory,) = Path("build_output").iterdir()
    files = sorted(str(p.relative_to(directory)) for p in directory.rglob("*.npz"))
    assert files == ["data/in/state.npz", "data/in/x.npz", "data/out/state.npz"]
    assert tilelet("run", "apr_state", "--golden-data", str(directory / "data"))[0] == 0
    assert tilelet("run", "apr_state", "--golden-data", str(directory))[0] == 0
    # The stored golden is for three steps: with two, the results must differ.
    assert tilelet("run", "apr_state", "--steps", "2", "--golden-data", str(directory))[0] == 1
    (directory / "data" / "in" / "x.npz").unlink()
    code, out, _ = tilelet("run", "apr_state", "--golden-data", str(directory))
    assert code == 3
    assert "error[E0612]: no stored data for `x`" in out


def test_the_modern_style(tilelet: Run) -> None:
    code, out, _ = tilelet("run", "head_jit")
    assert code == 0
    assert "ratio_allclose(max_error_ratio=0.005): 0/8192 elements not close, 41 allowed" in out
    assert "(64/64 elements matched)" in out


def test_nothing_compared_is_said(tilelet: Run) -> None:
    code, out, _ = tilelet("run", "head_jit", "--no-golden")
    assert code == 0
    assert "[RUN] validation skipped: no golden\n" in out
    code, out, _ = tilelet("run", "head_jit", "--compile-only")
    assert code == 0
    assert "[RUN] validation skipped: the program was only compiled\n" in out
    assert "runtime ..." not in out


def test_kernels_called_directly(tilelet: Run) -> None:
    assert tilelet("run", "head_direct") == (0, "OK\n", LEFT_OUT)


def test_counting_tasks(tilelet: Run) -> None:
    code, out, _ = tilelet("tasks", "seed_scale")
    assert code == 0
    assert out == (
        "ScaleProgram: 1 kernel\n"
        "  kernel          tasks\n"
        "  scale_incore_0      4\n"
        "  total               4\n"
    )
    assert tilelet("tasks", "apr_state", "--steps", "7")[1].endswith(
        "add         7\n  total       7\n"
    )
    code, out, err = tilelet("tasks", "head_direct")
    assert code == 0
    assert "add_incore_0      2" in out
    assert "no kernel was executed" in err


def test_counting_tasks_for_programs(tilelet: Run) -> None:
    code, out, _ = tilelet("tasks", "--format", "json", "head_jit")
    assert code == 0
    assert json.loads(out)["tasks"] == [
        {"program": "centre_rows", "total": 4, "kernels": {"centre": 4}}
    ]


PARSES = """
import tilelet.language as pl

def build():
    return pl.parse(TEXT)

TEXT = '''
@pl.function
def double(x: pl.Tensor[[16, 16], pl.FP32]) -> pl.Tensor[[16, 16], pl.FP32]:
    return pl.add(x, x)
'''
print(build().name)
"""


def test_a_script_may_build_programs_and_run_none(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "parses.py").write_text(PARSES)
    code, out, _ = tilelet("run", str(tmp_path / "parses.py"))
    assert code == 0
    assert out.startswith("double\nnote: ")
    assert out.endswith("makes programs and runs none\n")


def test_packages_of_the_folder_it_is_started_in(tilelet: Run) -> None:
    folder = Path("own_models") / "small"
    folder.mkdir(parents=True)
    Path("own_models", "shared.py").write_text("NAME = 'shared'\n")
    (folder / "main.py").write_text("from own_models.shared import NAME\nprint(NAME, 'SKIPPED')\n")
    code, out, _ = tilelet("run", str(folder / "main.py"))
    assert code == 0
    assert out.startswith("shared SKIPPED\n")


def test_a_script_may_be_part_of_a_package(tilelet: Run, tmp_path: Path) -> None:
    folder = tmp_path / "parts" / "inner"
    folder.mkdir(parents=True)
    (tmp_path / "parts" / "sizes.py").write_text("ROWS = 64\n")
    (folder / "names.py").write_text("HINT = 'launched'\n")
    imports = "from ..sizes import ROWS\nfrom .names import HINT\nimport names\n"
    checks = "\nassert (ROWS, HINT, names.HINT) == (64, 'launched', 'launched')\n"
    (folder / "launch.py").write_text(imports + BLOCKS + checks)
    code, out, err = tilelet("tasks", str(folder / "launch.py"))
    assert code == 0, err
    assert "launched      1       4" in out


DYNAMIC = """
import tilelet.language as pl

M = pl.dynamic("M")

@pl.jit
def kernel(x: pl.Tensor[[M, 16], pl.FP32], out: pl.Out[pl.Tensor[[M, 16], pl.FP32]]):
    for i in pl.range(0, pl.tensor.dim(x, 0)):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[i : i + 1, :] = pl.neg(x[i : i + 1, :])
    return out
"""


def test_tasks_of_a_kernel_of_any_extent(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "dynamic.py").write_text(DYNAMIC)
    code, out, err = tilelet("tasks", str(tmp_path / "dynamic.py"))
    assert code == 0, err
    assert "total" in out


MISTAKE = """
import numpy as np
import pypto.language as pl
from pypto.backend.pto_backend import PartialCodegenError

@pl.jit
def kernel(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.add(x, 1.0)
    return out

try:
    kernel(np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32))
except PartialCodegenError as error:
    print("caught", error.diagnostics[0].code)
"""


def test_scripts_may_catch_mistakes(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "mistake.py").write_text(MISTAKE)
    code, out, _ = tilelet("run", str(tmp_path / "mistake.py"))
    assert code == 0
    assert out.startswith("caught E0207\n")


BLOCKS = """
import tilelet.language as pl

@pl.jit
def kernel(x: pl.Tensor[[64, 16], pl.FP32], out: pl.Out[pl.Tensor[[64, 16], pl.FP32]]):
    for i in pl.spmd(4, name_hint="launched"):
        out[i * 16 : i * 16 + 16, :] = pl.neg(x[i * 16 : i * 16 + 16, :])
    for i in pl.range(3):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="alone"):
            out[i * 16 : i * 16 + 16, :] = x[i * 16 : i * 16 + 16, :]
    return out
"""


def test_blocks_stand_beside_tasks(tilelet: Run, tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(BLOCKS)
    assert tilelet("tasks", str(tmp_path / "launch.py"))[1] == (
        "kernel: 2 kernels\n"
        "  kernel    tasks  blocks\n"
        "  launched      1       4\n"
        "  alone         3       3\n"
        "  total         4       7\n"
    )
    out = tilelet("tasks", "--format", "json", str(tmp_path / "launch.py"))[1]
    (table,) = json.loads(out)["tasks"]
    assert table["total"] == 4
    assert table["blocks"] == {"launched": 4}


def test_results_in_json(tilelet: Run) -> None:
    code, out, err = tilelet("run", "--format", "json", "seed_scale", "--wrong", "-p", "a2a3")
    document = json.loads(out)
    assert code == 1
    codes = [d["code"] for d in document["diagnostics"]]
    assert codes == ["W0101", "W0703", "E0624"]
    assert "Mismatched elements" in document["diagnostics"][-1]["notes"][0]
    assert document["results"][0]["passed"] is False
    assert "y: FAIL" in err


KERNEL = """
import pypto.language as pl

@pl.jit
def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.{op}(x[:, :])
    return out
"""


def test_a_script_that_runs_nothing_is_compiled(tilelet: Run) -> None:
    code, out, _ = tilelet("run", write(KERNEL.format(op="exp")))
    assert code == 0
    assert out == "kernel: compiled, 1 kernel; script.py runs nothing by itself\n"
    assert "kernel_incore_0      1" in tilelet("tasks", "script.py")[1]


READING = """
import pypto.language as pl

@pl.jit
def kernel(
    x: pl.Tensor[[16, 128], pl.FP32],
    settings: pl.Tensor[[1], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
):
    factor = pl.read(settings, [0])
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.mul(x[:, :], factor)
    return out
"""


def test_what_such_a_script_would_read_is_zero(tilelet: Run) -> None:
    code, out, err = tilelet("tasks", write(READING))
    assert code == 0, err
    assert "kernel_incore_0      1" in out


DECIDED_BY_TASKS = """
import pypto.language as pl

@pl.jit
def kernel(x: pl.Tensor[[16, 128], pl.INT32], out: pl.Out[pl.Tensor[[16, 128], pl.INT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x[:, :], 1)
    for i in pl.range(pl.read(out, [0, 0])):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.add(x[:, :], 2)
    return out
"""


def test_such_a_script_whose_tasks_decide_how_many_follow(tilelet: Run) -> None:
    code, out, err = tilelet("tasks", write(DECIDED_BY_TASKS))
    assert code == 0, err
    assert out == (
        "kernel: compiled, 2 kernels; what its tasks compute decides how many follow,"
        " and there are no inputs\n"
    )


INLINES = """
import pypto.language as pl

@pl.jit.inline
def doubled(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x[:, :], x[:, :])
    return out

@pl.jit.inline
def of_any_type(x):
    return pl.add(x, x)
"""


def test_functions_to_inline_are_compiled_by_themselves_where_that_can_be(tilelet: Run) -> None:
    code, out, _ = tilelet("run", write(INLINES))
    assert (code, out) == (0, "doubled: compiled, 1 kernel; script.py runs nothing by itself\n")
    assert "doubled_incore_0      1" in tilelet("tasks", "script.py")[1]
    first, middle, last = INLINES.partition("@pl.jit.inline\ndef of_any")
    code, _, err = tilelet("run", write(first.partition("@")[0] + middle + last))
    assert code == 3
    assert "`of_any_type` is inlined where a program calls it" in err


FUNCTION = """
import pypto.language as pl
from pypto import ir

@pl.function
def twice(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out = pl.assemble(out, pl.add(x, x), [0, 0])
    return out

text = "@pl.function\\ndef one(x: pl.Tensor[[8, 8], pl.FP32]):\\n    return pl.exp(x)\\n"
assert "pl.exp" in ir.python_print(pl.parse(text))
"""


def test_a_function_outside_a_class_is_a_program_of_its_own(tilelet: Run) -> None:
    code, out, _ = tilelet("run", write(FUNCTION))
    assert (code, out) == (0, "twice: compiled, 1 kernel; script.py runs nothing by itself\n")
    assert "twice_incore_0      1" in tilelet("tasks", "script.py")[1]


BUILT = (
    FUNCTION
    + """
assert "pl.add(" in twice.as_python()
program = ir.Program([twice], "doubling", ir.Span.unknown())
assert isinstance(program, ir.Program) and not isinstance(twice, ir.Program)
print(program.name, list(program.functions), ir.compile(program) is not None)
"""
)


def test_functions_make_a_program(tilelet: Run) -> None:
    code, out, _ = tilelet("run", write(BUILT))
    assert code == 0
    assert "doubling ['twice'] True" in out


PARSED = """
import torch
import pypto.language as pl
from pypto import ir
from pypto.runtime import TensorSpec, run

text = '''
@pl.function
def plus_one(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x[:, :], 1.0)
    return out
'''

@pl.function
def twice(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.add(x, x)
    return out

def golden(tensors, params):
    tensors["out"][:] = tensors["x"] + 1

program = ir.Program([pl.parse(text)], "increase", ir.Span.unknown())
assert str(program) == ir.python_print(program)
assert "pl.add(" in str(program.get_function("plus_one"))
specs = [
    TensorSpec("x", [16, 64], torch.float32, init_value=torch.randn),
    TensorSpec("out", [16, 64], torch.float32, is_output=True),
]
assert run(program, specs, golden).passed
both = ir.compile(ir.Program([pl.parse(text), twice], "two"))
print(both.orchestration_names)
x, out = torch.ones(16, 64), torch.zeros(16, 64)
both["twice"](x, out)
assert out.eq(2).all()
"""


def test_parsed_functions_make_a_program(tilelet: Run) -> None:
    code, out, err = tilelet("run", write(PARSED))
    assert code == 0, err
    assert "['plus_one', 'twice']" in out


def test_a_mistake_in_a_kernel_is_3_with_file_line_and_caret(tilelet: Run) -> None:
    code, out, err = tilelet("run", write(KERNEL.format(op="expp")))
    assert (code, out) == (3, "")
    assert err.startswith("error[E0")
    assert "--> script.py:7" in err
    assert "^" in err
    assert "Traceback" not in err


MISTAKES = """
import pypto.language as pl
from golden import TensorSpec, run
import numpy as np

@pl.jit
def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:, :] = pl.exp(x[:, :])
    return out

def golden(t):
    t["out"][:] = np.exp(t["x"])

x = TensorSpec("x", [16, 128], pl.FP32, np.random.randn)
y = TensorSpec("y", [16, 64], pl.FP32)
z = TensorSpec("out", [16, 128], pl.BF16, is_output=True)
out = TensorSpec("out", [16, 128], pl.FP32, is_output=True)
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("run(kernel, [x], golden)", "error[E0605]: no spec for the parameter `out`"),
        ("run(kernel, [x, out, out], golden)", "two specs are called `out`"),
        ("run(kernel, [x, out, y], golden)", "error[E0606]: spec `y` has no parameter"),
        (
            "run(kernel, [y, out], golden)",
            "spec `y` has shape `[16, 64]`, but the parameter has `[16, 128]`",
        ),
        (
            "run(kernel, [x, z], golden)",
            "spec `out` has dtype `pl.BF16`, but the parameter has `pl.FP32`",
        ),
        ("run(kernel, [x, out], golden, rtol=-1)", "`rtol=-1` in the run configuration"),
        ("run(kernel, golden_fn=golden)", "there is no list of specs"),
        ("run(kernel, [x, out], 3)", "unexpected argument of type `int`"),
        ("run(kernel, [x, out], golden, golden_fn=golden)", "`golden_fn` is given twice"),
        ("run(kernel, [x, out], golden, runtime_cfg={'plattform': 'a5'})", "`plattform`"),
        ("run(kernel, [x, out], golden_fn=3)", "the golden is a `int`"),
        ("run(kernel, [x, out], lambda t: None)", "wrote none of the outputs `out`"),
        ("run(kernel, [x, out], lambda t: t['y'])", "KeyError: 'y'"),
        ("run(kernel, [x, out], golden, compare_fn={'y': len})", "comparison of output `y`"),
        ("run(kernel, [x, out], golden, compare_fn={'out': len})", "comparison of output `out`"),
        ("run(kernel, [x, out], golden, runtime_dir='nowhere')", "an existing directory"),
    ],
)
def test_mistakes_in_a_call_of_run(tilelet: Run, call: str, message: str) -> None:
    code, out, err = tilelet("run", write(MISTAKES + call))
    assert code == 3
    assert message in err
    assert "error[E" in err
    assert "internal error" not in err
    assert "[RUN] FAIL" in out


def test_a_platform_counts_although_the_script_reads_no_arguments(tilelet: Run) -> None:
    script = write(MISTAKES + "run(kernel, [x, out], golden)")
    assert "no `a2a3` board found" in tilelet("run", script, "-p", "a2a3")[2]
    assert "no `a5` board found" in tilelet("run", script, "--platform=a5")[2]
    assert "board" not in tilelet("run", script, "-p", "a5sim")[2]


def test_a_fault_while_running_names_the_line(tilelet: Run) -> None:
    text = MISTAKES.replace("x[:, :]", "x[n : n + 16, :]").replace(
        "    with pl.at", "    n = pl.read(i, [0])\n    with pl.at"
    )
    text = text.replace("def kernel(", "def kernel(i: pl.Tensor[[4], pl.INT32], ")
    call = "run(kernel, [TensorSpec('i', [4], pl.INT32, 5), x, out], golden)"
    code, _, err = tilelet("run", write(text + call))
    assert code == 3
    assert "error[E0501]" in err
    assert "--> script.py" in err


LEFT_OUT = "note: not checked: memory, init, tolerance (left to `tilelet check`)\n"


def environment(**extra: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"} | extra


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("not a folder")
    script = tmp_path / "script.py"
    script.write_text(MISTAKES + "run(kernel, [x, out], golden)")
    done = subprocess.run(
        [sys.executable, "-m", "tilelet.cli", "run", str(script)],
        env=environment(HOME=str(home), XDG_CACHE_HOME=str(home)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.endswith(LEFT_OUT)
    assert "[RUN] PASS" in done.stdout


def test_a_script_run_by_python_itself(tmp_path: Path, own_cache: Path) -> None:
    script = tmp_path / "script.py"
    text = MISTAKES + "import sys\nsys.exit(not run(kernel, [x, out], golden).passed)"
    script.write_text("import tilelet.compat.pypto" + text)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(TILELET_CACHE_DIR=str(own_cache)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "[RUN] PASS" in done.stdout


def test_without_torch(tmp_path: Path, own_cache: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "torch.py").write_text("raise ImportError('torch is blocked', name='torch')\n")
    script = tmp_path / "script.py"
    script.write_text(MISTAKES + "run(kernel, [x, out], golden)")
    env = environment(TILELET_CACHE_DIR=str(own_cache))
    env["PYTHONPATH"] += os.pathsep + str(blocked)
    done = subprocess.run(
        [sys.executable, "-m", "tilelet.cli", "run", str(script), "-p", "a2a3sim"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.endswith(LEFT_OUT)
    assert "[RUN] PASS" in done.stdout


def test_a_folder_that_cannot_be_written_to(tilelet: Run) -> None:
    Path("build_output").write_text("in the way")
    code, _, err = tilelet("run", "seed_scale", "-p", "a2a3sim")
    assert code == 0
    assert "note: no pass dumps: cannot write" in err
    code, _, err = tilelet("run", "--dump-passes", "apr_state")
    assert code == 3


def test_a_script_that_skips_by_its_own_decision(tilelet: Run) -> None:
    script = write(
        "import pypto.language as pl\n"
        "@pl.jit\n"
        "def kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n"
        "    with pl.at(level=pl.Level.CORE_GROUP):\n"
        "        y[:, :] = pl.add(x, 1.0)\n"
        "    return y\n"
    )
    assert tilelet("run", script)[0] == 3
    Path(script).write_text(Path(script).read_text() + "print('SKIPPED: not today')\n")
    code, out, _ = tilelet("run", script)
    assert code == 0
    assert "nothing was run" in out


def test_a_module_of_a_package(tilelet: Run) -> None:
    Path("kernels/inner").mkdir(parents=True)
    Path("kernels/__init__.py").write_text("")
    Path("kernels/shared.py").write_text("FACTOR = 3.0\n")
    Path("kernels/inner/__init__.py").write_text("")
    Path("kernels/inner/scale.py").write_text(
        "import sys\n"
        "import numpy as np\n"
        "import pypto.language as pl\n"
        "from ..shared import FACTOR\n"
        "@pl.jit\n"
        "def scale(x: pl.Tensor, y: pl.Out[pl.Tensor]):\n"
        "    with pl.at(level=pl.Level.CORE_GROUP):\n"
        "        y[:, :] = pl.mul(x, FACTOR)\n"
        "    return y\n"
        "if __name__ == '__main__':\n"
        "    y = np.zeros((16, 16), np.float32)\n"
        "    scale(np.ones((16, 16), np.float32), y)\n"
        "    print(y[0, 0], sys.argv[1:])\n"
    )
    code, out, err = tilelet("run", "-m", "kernels.inner.scale", "--size", "4")
    assert (code, out) == (0, "3.0 ['--size', '4']\n"), err
    assert tilelet("tasks", "-m", "kernels.inner.scale")[0] == 0
    assert "kernels.inner.other" in tilelet("run", "-m", "kernels.inner.other")[2]
