"""Class names: whoever finds one should know which class it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"
TWICE = 50  # names of two classes; only ever fewer


def test_no_public_class_name_is_used_in_three_modules() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(homes) > 1000
    assert {name: found for name, found in homes.items() if len(found) > 2} == {}
    assert sum(len(found) > 1 for found in homes.values()) <= TWICE
