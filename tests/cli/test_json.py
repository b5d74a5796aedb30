"""With `--json`, standard output is one JSON document, whatever goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

from tilelet.cli.commands import listed_commands
from tilelet.scripts import exit_codes

SCRIPTS = {
    "missing.py": None,
    "folder.py": "",
    "empty.py": b"",
    "syntax.py": b"x = 1\ndef f(:\n",
    "raises.py": b"1 / 0\n",
    "binary.py": b"\xff\xfe\x00",
}
"""Scripts that cannot run, by name; None: no file, "": a directory."""

COMMANDS = [
    c.name
    for c in listed_commands()
    if c.parser().takes_script and "--json" in c.parser().own_options
]


def document(text: str) -> dict[str, Any]:
    return json.loads(text)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_that_cannot_run(tilelet: Run, command: str, name: str) -> None:
    content = SCRIPTS[name]
    if content == "":
        Path(name).mkdir()
    elif isinstance(content, bytes):
        Path(name).write_bytes(content)
    code, out, err = tilelet(command, name, "--json")
    assert code == exit_codes.COULD_NOT_RUN
    codes = ("E0701", "E0702", "E0703", "E0706", "E0116")
    assert document(out)["diagnostics"][0]["code"] in codes
    assert "internal error" not in err


@pytest.mark.parametrize(
    "argv",
    [
        ("runn", "--json"),
        ("run", "--sed", "1", "k.py", "--format", "json"),
        ("run", "--format=json", "--nope", "k.py"),
        ("gym", "--json"),
        ("calibrate", "nope", "--json"),
        ("calibrate", "kit", "--json"),
        ("gym", "score", "k.py", "--json"),
        ("profile", "k.py", "-p", "a3", "--json"),
        ("explain", "E9999", "--json"),
        ("examples", "helo", "--json"),
    ],
)
def test_wrong_usage(tilelet: Run, argv: tuple[str, ...]) -> None:
    Path("k.py").write_text("print()\n")
    code, out, _ = tilelet(*argv)
    assert code == exit_codes.WRONG_USAGE
    assert document(out)["errors"] == 1


def test_syntax_error_has_a_place(tilelet: Run) -> None:
    Path("k.py").write_text("x = 1\ny = f(:\n")
    label = document(tilelet("run", "k.py", "--json")[1])["diagnostics"][0]["labels"][0]
    assert (label["line"], label["column"]) == (2, 7)


def test_export(tilelet: Run) -> None:
    tilelet("examples", "hello", "--copy", ".")
    exported = document(tilelet("export", "01_hello.py", "--json")[1])["export"]
    assert "import pypto.language as pl" in exported["text"]
    assert (exported["program"], exported["file"]) == ("add", None)
    code, out, _ = tilelet("export", "01_hello.py", "-o", "portable.py", "--json")
    assert (code, document(out)["export"]["file"]) == (0, "portable.py")
    assert Path("portable.py").read_text() == exported["text"]


def test_gym_show(tilelet: Run) -> None:
    (task,) = document(tilelet("gym", "show", "softmax", "--json")[1])["tasks"]
    assert task["name"] == "softmax"
    assert "def softmax(" in task["script"]


def test_kit(tilelet: Run) -> None:
    scripts = document(tilelet("calibrate", "kit", "kit", "--json")[1])["scripts"]
    assert all(Path(script).is_file() for script in scripts)
    assert "kit/dispatch.py" in scripts


def test_explain(tilelet: Run) -> None:
    (code,) = document(tilelet("explain", "e0203", "--json")[1])["codes"]
    assert (code["code"], code["title"]) == ("E0203", "type changed in loop")
    every = document(tilelet("explain", "--json")[1])["codes"]
    assert every == document(tilelet("explain", "--all", "--json")[1])["codes"]
    assert code in every


def test_examples(tilelet: Run) -> None:
    first = document(tilelet("examples", "hello", "--copy", "k", "--json")[1])["examples"]
    again = document(tilelet("examples", "hello", "--copy", "k", "--json")[1])["examples"]
    assert [e["copied"] for e in first + again] == [True, False]
    listing = document(tilelet("examples", "--json")[1])
    assert "qwen3/scope3:tuned" in [p["name"] for p in listing["programs"]]
