"""Kernels in editors: type checkers report nothing, and hovering shows the manual.

With the package as it is installed: a wheel in an environment of its own, and files elsewhere.
"""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tilelet.ir.spec import REGISTRY

ROOT = Path(__file__).parents[2]
pytest.importorskip("pyright")

USER_FILE = """
import numpy as np

import tilelet
import tilelet.language as pl
from tilelet.runtime import RunConfig, compile_program

M = pl.dynamic("M")


@pl.jit.inline
def doubled(x: pl.Tile):
    return pl.add(x, x)


@pl.jit.incore
def kernel(x: pl.Tensor[[16, 64], pl.BF16], out: pl.InOut[pl.Tensor[[16, 64], pl.FP32]]):
    tile = pl.cast(x[:, :], pl.FP32)
    out[:, :] = pl.sub(doubled(tile), 0.5) * 2.0 - tile / 3
    return out


@pl.jit
def entry(
    x: pl.Tensor[[M, 64], pl.BF16], n: pl.Scalar[pl.INT32], out: pl.Out[pl.Tensor[[M, 64], pl.FP32]]
):
    for r in pl.parallel(0, n // 16 * 16, 16):
        if r + 16 < n:
            out[r : r + 16, :] = kernel(x[r : r + 16, :], out[r : r + 16, :])
        with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):
            total = pl.create_tensor([16, 1], dtype=pl.FP32)
            for k in pl.range(4):
                part = pl.row_sum(pl.cast(pl.slice(x, [16, 16], [r, k * 16]), pl.FP32))
                total = pl.add(total, part)
            out[r : r + 16, 0:1] = total
        pl.static_print(n, total.shape)
    return out


@pl.program
class Both:
    @pl.function(type=pl.FunctionType.Opaque)
    def main(
        self, x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        with pl.auto_incore():
            out[:, :] = pl.exp(x)
        return out


x = np.zeros((32, 64), np.float32)
entry(x, 32, x, config=RunConfig(engine="interp"))
compiled = compile_program(Both)
compiled(x, x)
print(tilelet.__version__)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("typed")
    source = folder / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / ".venv"
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    shutil.rmtree(source)
    return folder


def user_files():
    """The kernel of the README, the program of the tutorial, the examples, and a user's file."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    yield "readme.py", blocks[0]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)
    yield "tutorial.py", "\n".join(blocks)
    for example in (ROOT / "examples").glob("*.py"):
        yield example.name, example.read_text()
    yield "user.py", USER_FILE


@pytest.fixture(scope="module")
def checked(project):
    """Return the diagnostics of each file in both modes; the package is read only once."""
    for name, text in user_files():
        for mode in ("basic", "strict"):
            path = project / mode / name
            path.parent.mkdir(exist_ok=True)
            own = "# pyright: " in text  # a file's own choice overrides that of the project
            path.write_text(text if own else f"{text}\n# pyright: {mode}\n")
    settings = {"include": ["basic", "strict"], "venvPath": ".", "venv": ".venv"}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["basic", "strict"])
def test_type_checkers_have_nothing_to_say(checked, mode):
    messages = [
        f"{Path(d['file']).name}:{d['range']['start']['line'] + 1}: {d['message']}"
        for d in checked["generalDiagnostics"]
        if Path(d["file"]).parent.name == mode
    ]
    assert messages == []
    assert checked["summary"]["filesAnalyzed"] == 2 * len(list(user_files())) > 28


class Editor:
    """A client of the language server, as in an editor."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
        self._server: Any = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self._number = 0
        root = folder.as_uri()
        self.ask("initialize", processId=None, rootUri=root, capabilities={},
                 workspaceFolders=[{"uri": root, "name": "typed"}])  # fmt: skip
        self._send(method="initialized", params={})

    def open(self, path):
        document = {"languageId": "python", "version": 1, "text": path.read_text()}
        document["uri"] = path.as_uri()
        self._send(method="textDocument/didOpen", params={"textDocument": document})

    def hover(self, path, line, column):
        place = {"line": line, "character": column}
        answer = self.ask("textDocument/hover", textDocument={"uri": path.as_uri()}, position=place)
        return answer["contents"]["value"] if answer else ""

    def ask(self, method, **params):
        self._number += 1
        self._send(id=self._number, method=method, params=params)
        while True:
            message = self._receive()
            if message.get("id") == self._number and "method" not in message:
                return message["result"]
            if "method" in message and "id" in message:  # a server request: no answer
                self._send(id=message["id"], result=None)

    def _send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._server.stdin.flush()

    def _receive(self):
        length = 0
        while line := self._server.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length, "the language server has ended"
        return json.loads(self._server.stdout.read(length))

    def close(self):
        self._server.kill()
        self._server.wait()
        self._server.stdin.close()
        self._server.stdout.close()


def test_hovering_shows_the_manual_of_every_op(project):
    import tilelet.language as pl

    ops = [n for n, spec in REGISTRY.items() if getattr(getattr(pl, n, None), "spec", None) is spec]
    assert len(ops) > 100
    (project / "pyrightconfig.json").write_text('{"venvPath": ".", "venv": ".venv"}')
    path = project / "hover.py"
    path.write_text("import tilelet.language as pl\n" + "".join(f"pl.{n}\n" for n in ops))
    editor = Editor(project)
    try:
        editor.open(path)
        silent = []
        for line, name in enumerate(ops, 1):
            text = editor.hover(path, line, len("pl.") + 1)
            flat = " ".join(re.sub(r"&nbsp;|\\", " ", text).split())
            start = " ".join(REGISTRY[name].doc.split())[:20]
            if start not in flat:
                silent.append((name, text))
    finally:
        editor.close()
    assert silent == []
