"""Imports point one way: `ALLOWED` is the drawing of docs/design.md as a table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tilelet"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")

# Each package with the packages that it may import; a package comes before its importers.
ALLOWED = {
    "dataclasses": "",
    "dtypes": "",
    "diag": "dtypes",
    "numerics": "dtypes",
    "ir": "diag dtypes",
    "syntax": "diag dtypes ir",
    "ops": "diag dtypes ir numerics syntax",
    "analysis": "diag dtypes ir",
    "passes": "analysis diag dtypes ir ops",
    "frontend": "analysis diag dtypes ir ops syntax",
    "tasks": "analysis diag dtypes ir numerics",
    "native": "diag",
    "checkpoint": "diag",
    "interp": "analysis diag dtypes ir native numerics ops syntax tasks",
    "cpu": "analysis diag dtypes interp ir native numerics ops syntax tasks",
    "device": "analysis diag dtypes ir native ops syntax tasks",
    "ranks": "analysis cpu device diag dtypes interp ir numerics ops syntax tasks",
    "dialects": "diag dtypes frontend ir ops passes syntax",
    "divergence": "analysis diag dtypes interp ir numerics ops tasks",
    "checks": "analysis device diag divergence dtypes interp ir native numerics ops syntax tasks",
    "report": "analysis device diag dtypes ir tasks",
    "runtime": "analysis checkpoint checks cpu device diag divergence dtypes frontend interp ir"
    " native numerics passes ranks report tasks",
    "language": "diag dtypes frontend ir ops runtime syntax",
    "equivalence": "checks diag dtypes frontend interp ir ops passes runtime syntax",
    "export": "diag dialects dtypes frontend ir language ops passes runtime syntax",
    "models": "analysis checkpoint cpu device diag dtypes interp ir language native ranks runtime"
    " tasks",
    "compat": "diag dialects dtypes frontend ir language ops passes ranks runtime syntax",
    "scripts": "analysis checks compat device diag divergence frontend interp ir models runtime",
    "calibration": "device diag dtypes interp ir language models native passes runtime scripts"
    " tasks",
    "tuning": "checks device diag equivalence ir models runtime scripts",
    "advice": "checks device diag dialects divergence equivalence export interp ir runtime scripts"
    " tuning",
    "static": "analysis diag dtypes frontend ir language syntax",
    "oracle": "advice checks device diag dialects divergence dtypes frontend interp ir runtime"
    " scripts static tasks",
    "optimise": "advice device diag equivalence oracle scripts tuning",
    "gym": "advice device diag ir optimise oracle runtime scripts static tuning",
    "lsp": "advice analysis checks device diag equivalence frontend ir language report runtime"
    " scripts static",
    "bench": "cpu device diag dtypes interp ir language models native runtime scripts tasks tuning",
    "cli": "advice bench calibration checks compat cpu device diag dialects divergence dtypes"
    " equivalence export frontend gym interp ir language lsp models native ops optimise"
    " oracle passes ranks report runtime scripts static tasks tuning",
}


OF_THE_WHOLE = ("__init__.py", "__main__.py")
"""Files that stand above all packages."""


def imports(tree: ast.AST) -> set[str]:
    """Return the packages of Tilelet that a module imports, at its top or later."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("tilelet."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            head, *rest = node.module.split(".")
            if head == "tilelet":
                found.update(rest[:1] or [a.name for a in node.names])
    return found - {"__version__", "dataclasses"}  # the latter as the standard library's


def edges() -> dict[str, dict[str, list[str]]]:
    """Return each package's imports, with the files that have them."""
    found: dict[str, dict[str, list[str]]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        inside = file.relative_to(SOURCE)
        if str(inside) in OF_THE_WHOLE:
            continue
        package = inside.parts[0].removesuffix(".py")
        into = found.setdefault(package, {})
        for target in imports(ast.parse(file.read_text(encoding="utf-8"))) - {package}:
            into.setdefault(target, []).append(str(inside))
    return found


def test_imports_point_one_way() -> None:
    wrong = [
        f"{package} -> {target}: {', '.join(files)}"
        for package, targets in edges().items()
        for target, files in targets.items()
        if target not in ALLOWED[package].split()
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_cycle() -> None:
    """Every package comes after all that it may import."""
    seen: set[str] = set()
    for package, allowed in ALLOWED.items():
        assert set(allowed.split()) <= seen, package
        seen.add(package)


def test_the_table_has_every_package() -> None:
    packages = {p.parent.name for p in SOURCE.glob("*/__init__.py")}
    modules = {p.stem for p in SOURCE.glob("*.py") if p.name not in OF_THE_WHOLE}
    assert set(ALLOWED) == packages | modules


def test_the_drawing_and_its_table_of_folders_name_every_package() -> None:
    _, drawing, rest = DESIGN.split("```", 2)
    table = rest[: rest.index("\n## ")]
    for package in ALLOWED:
        assert re.search(rf"\b{package}\b", drawing), package
        assert re.search(rf"`{package}(/|\.py)", table), package


def test_the_drawing_orders_packages_as_the_table_does() -> None:
    """Packages in one row of the drawing are imported from the same row or higher ones."""
    _, drawing, _ = DESIGN.split("```", 2)
    heads = ("below all of them", "read the results", "run them", "on top")
    rows = [line for line in drawing.splitlines() if line.strip().startswith(heads)]
    assert len(rows) == len(heads)
    level = {p: i for i, row in enumerate(rows) for p in re.findall(r"\w+", row) if p in ALLOWED}
    for package, allowed in ALLOWED.items():
        for below in set(allowed.split()) & set(level):
            assert level[below] <= level.get(package, 1), f"{package} -> {below}"


def test_the_files_that_the_design_names_exist() -> None:
    for name in re.findall(r"`((?:\w+/)+(?:[\w*]+\.\w+)?)`", DESIGN):
        assert any(any(base.glob(name)) for base in (SOURCE, ROOT)), name
