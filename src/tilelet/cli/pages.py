"""`tilelet explain` and `tilelet docs`: text that comes from the code itself."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from tilelet.cli.messages import print_text
from tilelet.diag.catalogue import classes, describe, errors_markdown, explain
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.scripts import exit_codes


def explain_command(code: str | None) -> int:
    """Print what a code means, or all codes."""
    if code is None:
        print_text("\n".join(f"{known}  {describe(cls).title}" for known, cls in classes().items()))
    else:
        print_text(explain(code))
    return exit_codes.PASSED


def docs_command(folder: Path, write: bool) -> int:
    """Write the generated pages, or say which of them are not what the code says."""
    from tilelet.advice.manual import advice_markdown
    from tilelet.compat.compatibility import compatibility_markdown
    from tilelet.dialects.page import portability_markdown
    from tilelet.ops.manual import ops_markdown
    from tilelet.scripts.answers import answers_markdown

    stale = 0
    for name, text in (
        ("ops.md", ops_markdown()),
        ("errors.md", errors_markdown()),
        ("compatibility.md", compatibility_markdown()),
        ("portability.md", portability_markdown()),
        ("advice.md", advice_markdown()),
        ("answers.md", answers_markdown()),
    ):
        path = folder / name
        if write:
            write_page(path, text)
            continue
        current = path.read_text(encoding="utf-8") if path.is_file() else ""
        if current != text:
            stale += 1
            print(f"{path} is not up to date: run `tilelet docs --write`", file=sys.stderr)
            lines = difflib.unified_diff(
                current.splitlines(), text.splitlines(), str(path), "generated", lineterm="", n=0
            )
            print("\n".join(list(lines)[:20]), file=sys.stderr)
    return exit_codes.of_findings(stale > 0)


def write_page(path: Path, text: str) -> None:
    """Write a file that was asked for, and the folders it is in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(str(path), error.strerror or str(error)) from error
