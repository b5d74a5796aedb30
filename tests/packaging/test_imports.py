"""An install without extras imports only declared dependencies."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import tilelet

SOURCE = Path(tilelet.__file__).parent
DECLARED = {"ml_dtypes", "numpy", "rich", "tilelet", "tomli"}
OPTIONAL = {"ending.py", "lsp", "mcp.py", "mpi.py", "pytest_plugin.py"}
"""Files of the extras and of plugins: imported only where their package is."""


def imported(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the packages that a module imports whenever it is imported."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            yield (statement.module or "").partition(".")[0]
        elif isinstance(statement, (ast.ClassDef, ast.With)):
            yield from imported(statement.body)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.dump(statement.test):
            yield from imported([*statement.body, *statement.orelse])


def test_modules_import_what_is_declared() -> None:
    wrong = {
        f"{file.relative_to(SOURCE)}: {name}"
        for file in SOURCE.rglob("*.py")
        if not OPTIONAL & set(file.relative_to(SOURCE).parts)
        for name in imported(ast.parse(file.read_text(encoding="utf-8")).body)
        if name not in DECLARED | set(sys.stdlib_module_names)
    }
    assert not wrong
