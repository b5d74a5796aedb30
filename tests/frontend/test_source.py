"""Definitions cut out of their file: the same AST with the same places as in the whole file."""

from __future__ import annotations

import ast
import importlib
import types
from pathlib import Path

import pytest

from tilelet.frontend import source
from tilelet.frontend.source import SourceFile, find_function, nodes_in, spelling, statements_in


def located(node: ast.AST) -> str:
    return ast.dump(node, include_attributes=True)


def first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return node.decorator_list[0].lineno if node.decorator_list else node.lineno


def cut_out(text: str) -> list[bool]:
    """Whether each definition of `text` is found correctly without parsing the whole text."""
    found: list[bool] = []
    for expected in SourceFile("<all>", text).definitions:
        alone = SourceFile("<all>", text)
        node = next(alone.definitions_at(first_line(expected)))
        assert located(node) == located(expected)
        found.append("tree" not in vars(alone))
    assert found
    return found


PLAIN = {
    "header over several lines": "@d(\n  1,\n)\n@e\ndef f(\n  x,\n) -> int:\n  return x\ny = 1",
    "inside other blocks": "if a:\n  class C:\n    @d\n    def m(self):\n        pass\n  z = 0\n",
    "comments and empty lines": "def f():\n    a = 1\n# out here\n\n\n    return a\n# end\nb = 2",
    "brackets closed at the left": "def f():\n    x = g(\n        1\n)\n    return x\nf()\n",
    "no line after it": "def f():\n    return 1",
    "one line": "def f(): return 1\ndef g(): return 2\n",
    "tabs": "class C:\n\tdef m(self):\n\t\treturn 1\n\n\tdef n(self):\n\t\treturn 2\n",
    "wide characters": "def f():\n    s = 'ä→'; t = s\n    return t\n",
}
UNCLEAR = {
    "string at the left": 'def f():\n    s = """\nx = 1\n    """\n    return s\n',
    "arguments at the left": "def f():\n    x = g(\n1,\n    )\n    return x\n",
    "continued at the left": "def f():\n    x = 1 + \\\n2\n    return x\n",
    "form feed": "def f():\n    a = 1\n\f    return a\n",
    "carriage returns": "def f():\r    a = 1\r    return a\r",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN.keys())
def test_a_definition_is_parsed_alone(text: str) -> None:
    assert all(cut_out(text))


@pytest.mark.parametrize("text", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_the_whole_file_is_parsed_where_the_end_is_unclear(text: str) -> None:
    assert not any(cut_out(text))


def test_all_definitions_of_the_models() -> None:
    folder = Path(importlib.import_module("tilelet.models.qwen3").__file__ or "").parent
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\ndef " in text:
            assert all(cut_out(text)), path.name


def test_methods_come_with_their_class() -> None:
    file = SourceFile("<class>", "class C:\n    def m(self):\n        return 1\n")
    (cls,) = [d for d in [next(file.definitions_at(1))] if isinstance(d, ast.ClassDef)]
    assert next(file.definitions_at(2)) is cls.body[0]


def test_a_function_is_found_in_a_file_that_is_broken_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "changed.py"
    text = "def f():\n    return 1\n\n"
    names: dict[str, types.FunctionType] = {}
    exec(compile(text, str(path), "exec"), names)
    path.write_text(text + "def (", encoding="utf-8")
    monkeypatch.setattr(source, "_files", {})
    _, node = find_function(names["f"])
    assert ast.unparse(node) == "def f():\n    return 1"
    assert SourceFile(str(path), text + "def (").definitions == []


def test_statements_are_found_at_any_depth() -> None:
    text = (
        "try:\n  a\nexcept E:\n  b\nelse:\n  c\nfinally:\n  d\n"
        "match x:\n  case 1:\n    for i in y:\n      e\n    else:\n      f\n"
        "with w:\n  if g:\n    h\n  else:\n    while j:\n      k\nlambda: l\n"
    )
    tree = ast.parse(text)
    expected = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    found = list(statements_in(tree.body))
    assert len(found) == len(expected)
    assert set(found) == set(expected)


def test_nodes_are_those_of_ast_walk_without_operators() -> None:
    tree = ast.parse("x[1:n] = f(a.b, *c, k=-d) if e < g else [h for h in i]")
    expected = {n for n in ast.walk(tree) if n._fields}
    assert {n for n in nodes_in(tree) if n._fields} == expected


@pytest.mark.parametrize("text", ["a", "a.b.c", "f(x).b", "(1).real", "'s'.join", "a[0].b"])
def test_spelling_is_that_of_unparse(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert spelling(node) == ast.unparse(node)
