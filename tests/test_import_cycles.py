"""No module of the package imports itself through others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"

# Packages in which functions import modules that import their own module.
WITH_DEFERRED_CYCLES = frozenset({"cli", "diag", "ir", "models", "runtime"})
FACADE = "tilelet"  # its attributes are imported on first use, so that importing it is cheap


def _module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {_module_of(path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def statements(node: ast.AST, *, deferred: bool) -> Iterator[ast.AST]:
    """Return all statements that run on import; with `deferred`, also those inside functions."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and not deferred:
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from statements(child, deferred=deferred)


def imports(name: str, *, deferred: bool) -> set[str]:
    found: set[str] = set()
    for node in statements(modules()[name], deferred=deferred and name != FACADE):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` runs the module; only other names need the package.
            inner = {alias: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in modules() else node.module for full in inner.values()}
    return found & modules().keys() - {name}


def cycles(*, deferred: bool) -> list[set[str]]:
    """Return sets of modules that import each other, directly or not."""
    reachable = {name: imports(name, deferred=deferred) for name in modules()}
    edges = {name: set(found) for name, found in reachable.items()}
    for found in reachable.values():
        pending = list(found)
        while pending:
            new = edges[pending.pop()] - found
            found |= new
            pending += new
    in_cycle = {name for name in reachable if name in reachable[name]}
    groups = {
        frozenset(n for n in in_cycle if n in reachable[name] and name in reachable[n])
        for name in in_cycle
    }
    return sorted(map(set, groups), key=sorted)


def test_modules_are_imported_in_one_order() -> None:
    assert cycles(deferred=False) == []


def test_functions_do_not_import_upwards() -> None:
    known = {f"tilelet.{package}" for package in WITH_DEFERRED_CYCLES}
    found = {".".join(name.split(".")[:2]) for group in cycles(deferred=True) for name in group}
    assert found <= known
