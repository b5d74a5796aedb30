"""`tilelet examples`: the example kernels, listed and copied wherever Tilelet is installed from."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
from collections.abc import Sequence
from pathlib import Path

from tilelet.cli.messages import print_text
from tilelet.cli.options import JSON
from tilelet.diag.catalogue.command import UnknownExample
from tilelet.diag.files import write_text
from tilelet.diag.json_types import JsonObject
from tilelet.scripts import exit_codes

FOLDER = "share/tilelet/examples"
"""Where an installed Tilelet has them, below the environment's own folder."""


def examples_command(names: Sequence[str], folder: Path | None, formatted: str) -> int:
    """List the examples (or those named), or copy them; files that exist are left alone."""
    known = example_files()
    chosen = [_find(name, known) for name in names] or known
    if formatted == JSON:
        print(json.dumps(_examples_data(chosen, folder), indent=1, ensure_ascii=False))
        return exit_codes.PASSED
    if folder is None:
        width = max(len(path.stem) for path in chosen)
        lines = [f"{path.stem:<{width}}  {_about(path)}" for path in chosen]
        if not names:
            lines += [
                "",
                "`tilelet examples --copy DIR` copies them; `tilelet run DIR/01_hello.py`",
            ]
            lines += ["", "programs that run by name, as `tilelet run qwen3/scope3:tuned`:", ""]
            lines.append(list_models())
        print_text("\n".join(lines))
        return exit_codes.PASSED
    for path in chosen:
        target, is_new = _copy(path, folder)
        print(target if is_new else f"{target}: exists, left as it is")
    return exit_codes.PASSED


def _copy(path: Path, folder: Path) -> tuple[Path, bool]:
    """Copy an example unless the file exists; return the file, and whether it is new."""
    target = folder / path.name
    is_new = not target.exists()
    if is_new:
        write_text(target, path.read_text(encoding="utf-8"))
    return target, is_new


def _examples_data(chosen: Sequence[Path], folder: Path | None) -> JsonObject:
    """Return the examples, copied if there is a folder, and the programs that run by name."""
    from tilelet.models import registry

    examples: list[JsonObject] = []
    for path in chosen:
        entry: JsonObject = {"name": path.stem, "about": _about(path)}
        if folder is not None:
            target, is_new = _copy(path, folder)
            entry |= {"file": str(target), "copied": is_new}
        examples.append(entry)
    programs = [
        {"name": f"{name}:{variant}", "about": v.about}
        for name, model in registry.models().items()
        for variant, v in model.variants.items()
    ]
    return {"version": 1, "examples": examples, "programs": programs}


def list_models() -> str:
    """Every program that ships with Tilelet and its variants, one line each."""
    from tilelet.models import registry

    lines: list[str] = []
    for name, model in registry.models().items():
        lines.append(f"{name}  {model.about}")
        width = max(map(len, model.variants))
        lines += [f"  :{name:<{width}}  {v.about}" for name, v in model.variants.items()]
    return "\n".join(lines)


def example_names() -> list[str]:
    return [path.stem for path in example_files()]


def example_files() -> list[Path]:
    """Return the files of the source tree, if this is one; else the installed ones."""
    tree = Path(__file__).parents[3] / "examples"
    if (tree.parent / "pyproject.toml").is_file():
        return sorted(tree.glob("[0-9]*.py"))
    installed = importlib.metadata.files("tilelet") or []
    # Installers also put compiled files beside them.
    ours = [f for f in installed if f.suffix == ".py" and f.parent.as_posix().endswith(FOLDER)]
    return sorted(Path(str(f.locate())).resolve() for f in ours)


def _find(name: str, known: Sequence[Path]) -> Path:
    wanted = name.removesuffix(".py")
    for path in known:
        if wanted in (path.stem, re.sub(r"^\d+_", "", path.stem)):
            return path
    raise UnknownExample(name, [path.stem for path in known])


def _about(path: Path) -> str:
    """Return the first sentence of the file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())
