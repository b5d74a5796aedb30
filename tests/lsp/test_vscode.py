"""The VS Code extension: its manifest agrees with its code, and its package is complete."""

from __future__ import annotations

import importlib.util
import json
import re
import zipfile
from pathlib import Path

import tilelet

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
PACKAGE = json.loads((FOLDER / "package.json").read_text())
CODE = (FOLDER / "src" / "extension.js").read_text()


def test_the_manifest_agrees_with_the_code() -> None:
    declared = {c["command"] for c in PACKAGE["contributes"]["commands"]}
    assert declared == set(re.findall(r'registerCommand\("([\w.]+)"', CODE))
    settings = PACKAGE["contributes"]["configuration"]["properties"]
    assert {f"tilelet.{n}" for n in re.findall(r'settings\.get\("(\w+)"\)', CODE)} == set(settings)
    assert settings["tilelet.command"]["default"] == ["tilelet", "lsp"]
    assert PACKAGE["version"] == tilelet.__version__


def test_commands_of_the_server_are_the_ones_it_is_asked_for() -> None:
    known = (Path(tilelet.__file__).parent / "lsp" / "features.py").read_text()
    for command in re.findall(r'atCursor\("([\w.]+)"\)', CODE):
        assert f'"{command}"' in known


def test_it_is_packaged(tmp_path: Path, monkeypatch) -> None:
    spec = importlib.util.spec_from_file_location("pack", FOLDER / "pack.py")
    assert spec is not None
    assert spec.loader is not None
    pack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pack)
    for name in ("package.json", "README.md"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "extension.js").write_text("// built by build.mjs")
    monkeypatch.setattr(pack, "FOLDER", tmp_path)
    with zipfile.ZipFile(pack.pack(tmp_path / "out" / "tilelet.vsix")) as archive:
        names = set(archive.namelist())
        manifest = archive.read("extension.vsixmanifest").decode()
        main = json.loads(archive.read("extension/package.json"))["main"]
    assert {"[Content_Types].xml", f"extension/{main.removeprefix('./')}"} <= names
    assert f'Version="{tilelet.__version__}"' in manifest
