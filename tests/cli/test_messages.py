"""Messages that were wrong or missing when a newcomer wrote kernels from the docs."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.limits import HUNG

from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.model import load
from tilelet.models.qwen3.random_checkpoint import write_random_checkpoint
from tilelet.report.server import HOST, PageServer, ServedPage

HEAD = "import numpy as np\nimport tilelet.language as pl\n\n\n@pl.jit\n"


def kernel(parameters: dict[str, str], out: str, *body: str) -> str:
    """Return a script with one kernel that has these statements in its scope."""
    given = ", ".join(f"{name}: {type_}" for name, type_ in parameters.items())
    lines = [f"def kern({given}, out: pl.Out[{out}]):"]
    lines += ["    with pl.at(level=pl.Level.CORE_GROUP):"]
    lines += [f"        {line}" for line in body]
    Path("k.py").write_text("\n".join([f"{HEAD}{lines[0]}", *lines[1:], "    return out\n"]))
    return "k.py"


def fp32(*shape: int) -> str:
    return f"pl.Tensor[{list(shape)}, pl.FP32]"


def test_a_column_has_no_rows_to_be_narrow(tilelet: Run) -> None:
    name = kernel({"x": fp32(4, 64)}, fp32(4, 1), "out[:, :] = pl.row_sum(x[:, :])")
    code, _, err = tilelet("check", name)
    assert code == 1
    assert "error[E0912]: column `row_sum` [4, 1] FP32 has 16 bytes" in err
    assert "rows of" not in err


def test_alignment_is_not_a_question_of_space(tilelet: Run) -> None:
    name = kernel({"x": fp32(4, 64)}, fp32(4, 1), "out[:, :] = pl.row_sum(x[:, :])")
    call = "kern(np.ones((4, 64), np.float32), np.ones((4, 1), np.float32))"
    Path(name).write_text(f"{Path(name).read_text()}\n{call}\n")
    code, out, _ = tilelet("verdict", name)
    assert code == 1
    assert "1 finding; tiles fit on chip" in out


@pytest.mark.parametrize(
    ("parameters", "out", "statement", "help_"),
    [
        (
            {"x": fp32(32, 128), "b": fp32(128)},
            fp32(32, 128),
            "out[:, :] = pl.add(x[:, :], b[:])",
            "make it a row: `pl.reshape(v, [1, 128])`",
        ),
        (
            {"x": fp32(32, 1), "b": fp32(1, 32)},
            fp32(32, 32),
            "out[:, :] = x[:, :] - b[:, :]",
            "expand one of them to `[32, 32]` first: `pl.row_expand(",
        ),
        (
            {"x": fp32(32, 128)},
            fp32(32, 64),
            "out[:, 0:64] = x[:, :]",
            "store a part of the tile, `tile[:, 0:64]`, or take a window `[32, 128]`",
        ),
        (
            {"x": fp32(32, 128), "s": "pl.Scalar[pl.FP32]"},
            fp32(32, 128),
            "out[:, :] = pl.mul(x[:, :], pl.exp(s))",
            "`pl.mul(pl.full([1, 8], dtype=pl.FP32, value=1.0), s)`",
        ),
    ],
)
def test_shapes_that_do_not_fit_have_a_help(
    tilelet: Run, parameters: dict[str, str], out: str, statement: str, help_: str
) -> None:
    code, _, err = tilelet("run", kernel(parameters, out, statement))
    assert code == 3
    assert help_ in err


COMPARED = """
from golden import TensorSpec, run

out = TensorSpec("out", [16, 64], DTYPE, is_output=True)
specs = [TensorSpec("x", [16, 64], pl.FP32, INPUT), out]
run(kern, specs, golden_fn=golden)
"""


def compared(body: list[str], golden: str, given: str, dtype: str = "pl.FP32") -> str:
    name = kernel({"x": fp32(16, 64)}, f"pl.Tensor[[16, 64], {dtype}]", *body)
    text = COMPARED.replace("INPUT", given).replace("DTYPE", dtype)
    Path(name).write_text(f"{Path(name).read_text()}\n\ndef golden(t):\n    {golden}\n{text}")
    return name


def test_nan_of_a_division_is_not_blamed_on_memory(tilelet: Run) -> None:
    body = ["t = pl.sub(x[:, :], x[:, :])", "out[:, :] = pl.div(t, t)"]
    name = compared(body, 't["out"][:] = 1.0', "np.ones((16, 64), np.float32)")
    code, out, err = tilelet("run", name)
    assert code == 1
    assert "pl.create_tensor" not in out + err
    assert "0 / 0" in out + err


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_infinities_print_no_warnings_of_our_own(tilelet: Run) -> None:
    body = ["out[:, :] = pl.cast(pl.mul(pl.exp(x[:, :]), 3e38), pl.FP16)"]
    golden = 't["out"][:] = np.float16(2.0)'
    name = compared(body, golden, "np.full((16, 64), 80, np.float32)", "pl.FP16")
    code, _, err = tilelet("diverge", name)
    assert code == 1
    assert "RuntimeWarning" not in err


def test_what_a_loop_uses_is_not_unused(tilelet: Run) -> None:
    """The carried maximum is used in the loop; its last value is not used."""
    body = [
        "m = pl.row_max(x[:, 0:16])",
        "total = pl.full([16, 16], dtype=pl.FP32, value=0.0)",
        "for i in pl.range(1, 4):",
        "    part = pl.slice(x, [16, 16], [0, i * 16])",
        "    m_new = pl.maximum(m, pl.row_max(part))",
        "    total = pl.add(total, pl.exp(pl.row_expand_sub(part, m_new)))",
        "    m = m_new",
        "out[:, 0:16] = total",
    ]
    given = "np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)"
    name = compared(body, 't["out"][:] = 1.0', given)
    _, out, err = tilelet("diverge", name)
    assert "used nowhere" not in out + err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    config = Qwen3Config(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        num_hidden_layers=1, head_dim=32, vocab_size=200, tie_word_embeddings=True,
    )  # fmt: skip
    write_random_checkpoint(tmp_path / "model", config, layers_per_shard=4)
    return tmp_path / "model"


def test_ids_may_have_the_form_that_transformers_gives(model: Path) -> None:
    import numpy as np

    loaded = load(model, engine="interp", max_seq=64)
    flat, nested = np.array([1, 2, 3]), np.array([[1, 2, 3]])
    new = [list(loaded.generate(ids, max_new_tokens=1)) for ids in (flat, nested)]
    assert new[0] == new[1]


def test_wrong_ids_are_shown_in_the_users_script(tilelet: Run, model: Path) -> None:
    text = "import numpy as np\nfrom tilelet.models.qwen3.model import load\n"
    text += f"model = load({str(model)!r}, engine='interp', max_seq=64)\n"
    Path("s.py").write_text(f"{text}list(model.generate(np.zeros((2, 3), np.int64)))\n")
    code, _, err = tilelet("run", "s.py")
    assert code == 3
    assert "error[E1505]" in err
    assert "--> s.py:4" in err


def test_layer_types_that_are_no_list(tilelet: Run, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "layer_types": 7}))
    code, _, err = tilelet("generate", str(model), "--tokens", "1 2")
    assert code == 3
    assert "layer_types" in err
    assert "internal error" not in err


def test_a_malformed_request_is_answered(capfd: pytest.CaptureFixture[str]) -> None:
    server = PageServer(ServedPage(lambda: "page", lambda: "{}"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with socket.create_connection((HOST, server.port), timeout=HUNG) as connection:
            connection.sendall(b"GET http://[/ HTTP/1.0\r\n\r\n")
            assert b" 400 " in connection.recv(100)
    finally:
        server.shutdown()
        server.server_close()
    assert capfd.readouterr().err == ""


RECAST = """
import tilelet.language as pl
from tilelet.runtime import TensorSpec, run_jit

@pl.jit
def kernel(
    x: pl.Tensor[[64, 16], pl.INT8],
    n: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[16, 2], pl.INT32]],
):
    k = pl.read(n, [0])
    part = pl.reinterpret_view(x[0:16, k : k + 8], pl.INT32)
    with pl.at(level=pl.Level.CORE_GROUP):
        out[:] = part[:]
    return out

run_jit(
    kernel,
    [
        TensorSpec("x", [64, 16], pl.INT8, 1),
        TensorSpec("n", [1], pl.INT32, 3),
        TensorSpec("out", [16, 2], pl.INT32, is_output=True),
    ],
)
"""


@pytest.mark.parametrize("engine", ["cpu", "interp"])
def test_a_view_of_torn_elements_says_so(tilelet: Run, engine: str) -> None:
    """Rows that begin at byte 3 are not aligned for integers; they have no gaps."""
    Path("k.py").write_text(RECAST)
    _, _, err = tilelet("run", "--engine", engine, "k.py")
    assert "error[E0512]" in err
    assert "does not consist of whole elements of the new type" in err


def test_the_place_of_kept_files_is_named(tilelet: Run) -> None:
    tilelet("examples", "hello", "--copy", ".")
    code, _, err = tilelet("run", "--dump-passes", "--save-data", "01_hello.py")
    assert code == 0
    places = [line.rpartition(" is in ")[2] for line in err.splitlines() if " is in " in line]
    places += [line.rpartition(" are in ")[2] for line in err.splitlines() if " are in " in line]
    assert [Path(place).name for place in places] == ["passes_dump", "data"]
    assert all(any(Path(place).iterdir()) for place in places)


def test_export_without_specs_says_what_is_missing(tilelet: Run) -> None:
    name = kernel({"x": fp32(16, 64)}, fp32(16, 64), "out[:, :] = pl.exp(x)")
    code, out, err = tilelet("export", name, "--json")
    assert code == 3, err
    assert json.loads(out)["diagnostics"][0]["code"] == "E1253"


def test_working_directory_that_is_gone(
    tilelet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = tilelet("run", str(tmp_path / "k.py"))
    assert (code, err.partition("`")[0]) == (3, "error[E0701]: no working directory ")


def test_gym_optimise_wants_a_folder_before_it_works(tilelet: Run) -> None:
    Path("k.py").write_text("")
    code, _, err = tilelet("gym", "optimise", "k.py", "add")
    assert (code, "`k.py` is not a folder" in err) == (2, True)
