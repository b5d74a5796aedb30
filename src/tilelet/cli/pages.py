"""`tilelet explain` and `tilelet docs`: text that comes from the code itself."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from tilelet.diag.catalogue import classes, describe, errors_markdown, explain
from tilelet.diag.core import UserError
from tilelet.diag.render import render_text, use_color


def explain_command(code: str | None) -> int:
    """Print what a code means, or all codes."""
    if code is None:
        for known, cls in classes().items():
            print(f"{known}  {describe(cls).title}")
        return 0
    try:
        print(explain(code))
    except UserError as error:
        print(render_text(error.diagnostic, use_color(sys.stderr)), file=sys.stderr)
        return 2
    return 0


def docs_command(folder: Path, write: bool) -> int:
    """Write the generated pages, or say which of them are not what the code says."""
    from tilelet.ops.manual import ops_markdown

    stale = 0
    for name, text in (("ops.md", ops_markdown()), ("errors.md", errors_markdown())):
        path = folder / name
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            continue
        current = path.read_text(encoding="utf-8") if path.is_file() else ""
        if current != text:
            stale += 1
            print(f"{path} is not up to date: run `tilelet docs --write`", file=sys.stderr)
            lines = difflib.unified_diff(
                current.splitlines(), text.splitlines(), str(path), "generated", lineterm="", n=0
            )
            print("\n".join(list(lines)[:20]), file=sys.stderr)
    return 1 if stale else 0
