"""The analysis behind the server: reuse, interruption, and the figures of other commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.limits import HUNG

from tilelet.device.machine.description import load_machine
from tilelet.device.memory.plan import plan_json
from tilelet.device.run import DeviceRun
from tilelet.diag.tables import byte_text
from tilelet.lsp import analysis
from tilelet.lsp.analysis import Analysis, AnalysisStoppedError, Analyzer
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.target import Target

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
HEAD = "import tilelet.language as pl\n\nROWS, COLS, TILE = 64, 128, 16\n"
KERNEL = """

@pl.jit.inline
def twice{n}(x):
    return pl.add(x, x)


@pl.jit
def kernel{n}(
    a: pl.Tensor[[ROWS, COLS], pl.FP32], out: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]]
):
    for r in pl.parallel(0, ROWS, TILE):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[r : r + TILE, :] = twice{n}(a[r : r + TILE, :])
    return out
"""
TEXT = HEAD + "".join(KERNEL.replace("{n}", str(n)) for n in range(3))


def facts(found: Analysis) -> list[Any]:
    """Return everything that an editor shows, for comparison."""
    runs = [(m.program.name, m.profile.total_us, m.profile.tasks) for m in found.modelled]
    places = [(n, d.value.type, d.value.loc) for n, ds in found.values.items() for d in ds]
    return [found.diagnostics, runs, places, [s.text for s in found.suggestions]]


@pytest.mark.parametrize(
    ("change", "rebuilt"),
    [
        (("", ""), []),
        (("twice1(a[", "pl.neg(a["), ["kernel1"]),
        (("pl.add(x, x)", "pl.mul(x, x)"), ["kernel0"]),  # in the function that it inlines
        (("TILE = 64, 128, 16", "TILE = 64, 128, 32"), ["kernel0", "kernel1", "kernel2"]),
        (("def kernel1(", "def kernel1(\n"), ["kernel1", "kernel2"]),  # lines of later ones move
        (("twice2(a[", "range(a["), ["kernel2"]),
    ],
)
def test_an_edit_lowers_only_the_kernels_that_it_reaches(
    change: tuple[str, str], rebuilt: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = analysis._build

    def counted(program: Any) -> Any:
        built.append(program.name)
        return build(program)

    monkeypatch.setattr(analysis, "_build", counted)
    warm = Analyzer()
    warm.analyze(TEXT, "kernel.py")
    built.clear()
    text = TEXT.replace(*change, 1) if change[0] else TEXT
    again = warm.analyze(text, "kernel.py")
    assert built == rebuilt
    assert facts(again) == facts(Analyzer().analyze(text, "kernel.py"))


def test_values_from_a_run_and_unsaved_neighbors_are_part_of_what_is_kept(tmp_path: Path) -> None:
    path, other = tmp_path / "kernel.py", tmp_path / "sizes.py"
    other.write_text("TILE = 16\n")
    text = TEXT.replace("ROWS, COLS, TILE = 64, 128, 16", "from sizes import TILE\n"
                        "import random\nROWS, COLS = random.randint(64, 64), 128")  # fmt: skip
    warm = Analyzer()
    assert not warm.analyze(text, str(path)).modelled
    warm.known[str(path)] = {"ROWS": 64, "COLS": 128}
    assert warm.analyze(text, str(path)).modelled[0].profile.tasks == 4
    found = warm.analyze(text, str(path), others={other: "TILE = 32\n"})
    assert found.modelled[0].profile.tasks == 2


def test_a_stopped_analysis_leaves_nothing_half_done() -> None:
    """Wherever an analysis is interrupted, the next one is right."""
    wanted = facts(Analyzer().analyze(TEXT, "kernel.py"))
    for after in (0, 1, 3, 10, 40, 150, 600):
        asked = 0

        def stop(after: int = after) -> bool:
            nonlocal asked
            asked += 1
            return asked > after

        warm = Analyzer()
        with pytest.raises(AnalysisStoppedError):
            warm.analyze(TEXT, "kernel.py", stop)
        assert asked <= after + 20, "it went on for long"
        assert facts(warm.analyze(TEXT, "kernel.py")) == wanted


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_figures_are_those_of_the_commands(path: Path) -> None:
    """Examples have no diagnostics, and modelled ones show the figures of `profile`."""
    found = Analyzer().analyze(path.read_text(), str(path))
    assert not [d for d in found.diagnostics if d.severity == "error"]
    recording = record(Target(str(path)), RecordingOptions(platform="a2a3", quiet=True))
    runs = [DeviceRun(run, load_machine("a2a3")).summary for run in recording.runs]
    said = {(p.tasks, round(p.total_us, 6), p.interval, p.bound) for p in runs}
    shown = {(m.profile.tasks, round(m.profile.total_us, 6), m.profile.interval, m.profile.bound)
             for m in found.modelled}  # fmt: skip
    assert shown <= said
    if path.stem in ("01_hello", "03_softmax", "05_layernorm", "06_rope"):
        assert shown


def test_lenses_give_the_time_of_one_block() -> None:
    """A task of several blocks: count and time agree with the table of `profile`."""
    pytest.importorskip("lsprotocol")
    from tilelet.lsp import features

    path = ROOT / "examples" / "05_layernorm.py"
    found = Analyzer().analyze(path.read_text(), str(path))
    recording = record(Target(str(path)), RecordingOptions(platform="a2a3", quiet=True))
    (row,) = DeviceRun(recording.runs[0], load_machine("a2a3")).summary.functions
    assert row.count > 1
    _, scope = [lens.command.title for lens in features.code_lenses(found) if lens.command]
    assert scope.startswith(f"1 task · {row.count} blocks · {row.exec_us / row.count:.2f} us each ")


def hover(found: Analysis, line: int, column: int) -> str:
    lsp = pytest.importorskip("lsprotocol.types")
    from tilelet.lsp import features

    shown: Any = features.hover(found, found.text, lsp.Position(line, column))
    return shown.contents.value if shown is not None else ""


@pytest.mark.parametrize("name", ["02_tiled_matmul", "04_rmsnorm", "05_layernorm", "06_rope"])
def test_hover_gives_the_bytes_of_the_memory_plan(name: str) -> None:
    """Each tile that `profile` places at a name has the same memories and sizes in its hover."""
    path = ROOT / "examples" / f"{name}.py"
    text = path.read_text()
    found = Analyzer().analyze(text, str(path))
    recording = record(Target(str(path)), RecordingOptions(platform="a2a3", quiet=True))
    (run,) = recording.runs
    placed = [
        (tile["name"], tile["line"], f"{space['space']} {byte_text(tile['bytes'])}")
        for plan in DeviceRun(run, load_machine("a2a3")).plans
        for space in plan_json(plan)["spaces"]
        for tile in space["tiles"]
    ]
    compared = 0
    for node in analysis.assigned_names(found):
        shown = hover(found, node.lineno - 1, node.col_offset)
        sizes = [size for tile, line, size in placed if (tile, line) == (node.id, node.lineno)]
        assert all(size in shown for size in sizes)
        compared += len(sizes)
    assert compared >= 2


def test_hover_shows_padding_buffers_and_shared_storage() -> None:
    """A name whose storage another one made, a padded tile, and a pipelined one."""
    text = """import tilelet.language as pl


@pl.jit
def kernel(a: pl.Tensor[[64, 20], pl.BF16], out: pl.Out[pl.Tensor[[16, 20], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        total = pl.full([16, 20], dtype=pl.FP32, value=0.0)
        for r in pl.pipeline(0, 64, 16, stage=2):
            narrow = a[r : r + 16, :]
            total = pl.add(total, pl.cast(narrow, target_type=pl.FP32))
        out[:, :] = total
    return out
"""
    found = Analyzer().analyze(text, "kernel.py")
    lines = text.split("\n")

    def hover_at(part: str) -> str:
        number = next(n for n, line in enumerate(lines) if part in line)
        return hover(found, number, lines[number].index(part))

    assert "on chip: Vec 2.0 KB (2 buffers)" in hover_at("narrow = ")  # rows of 40 bytes take 64
    assert "on chip: Vec 1.5 KB" in hover_at("total = pl.add")  # rows of 80 bytes take 96


def test_two_kernels_of_one_name_both_have_figures() -> None:
    again = KERNEL.replace("{n}", "0").replace("twice0(a[r : r + TILE, :])", "a[r : r + TILE, :]")
    found = Analyzer().analyze(HEAD + KERNEL.replace("{n}", "0") + again, "kernel.py")
    assert [m.program.node.lineno for m in found.modelled] == [12, 27]


@pytest.mark.parametrize("end", range(0, len(TEXT) // 3, 7))
def test_half_typed_files_are_analyzed(end: int) -> None:
    found = Analyzer().analyze(TEXT[:end], "kernel.py")
    assert all(d.severity in ("error", "warning", "note") for d in found.diagnostics)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_the_server_ends_with_its_client(how: str) -> None:
    """A client that exits without `shutdown` leaves no server behind."""
    pytest.importorskip("pygls")
    params = {"processId": None, "rootUri": None, "capabilities": {}}
    ask = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    client = (
        "import subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, '-m', 'tilelet', 'lsp'],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"ask = {ask!r}\n"
        "server.stdin.write(f'Content-Length: {len(ask)}\\r\\n\\r\\n{ask}'.encode())\n"
        "server.stdin.flush()\n"
        "server.stdout.readline()\n"
        "print(server.pid, flush=True)\n"
        "server.stdin.close() if sys.argv[1] == 'closed' else time.sleep(600)\n"
        "sys.exit(server.wait(600))\n"
    )
    command = [sys.executable, "-c", client, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        pid = int(ran.stdout.readline())
        if how == "killed":
            ran.kill()
        assert ran.wait(HUNG) == (0 if how == "closed" else -9)
    deadline = time.monotonic() + HUNG
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the server is still running"
        time.sleep(0.1)


CHAIN = """\
import tilelet.language as pl


@pl.jit
def kernel(x: pl.Tensor[[104, 32], pl.FP32], z: pl.InOut[pl.Tensor[[105, 32], pl.FP32]]):
    for i in pl.range(104):
        with pl.at(level=pl.Level.CORE_GROUP):
            z[i + 1 : i + 2, :] = SOURCE[i : i + 1, :]
    return z
"""


@pytest.mark.parametrize(("source", "codes"), [("z", set()), ("x", {"W1307"})])
def test_iterations_that_depend_on_each_other_stay_in_order(
    source: str, codes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In program order a parallel loop computes the same; its tasks need not keep that order."""
    monkeypatch.setattr(analysis, "_PROOF_BUDGET", 1 << 27)
    found = Analyzer().analyze(CHAIN.replace("SOURCE", source), "kernel.py")
    assert {s.diagnostic.code for s in found.suggestions} == codes
