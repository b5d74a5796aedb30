"""Meaning of `import pypto` and `import golden` in a script."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from tilelet.compat import aliases
from tilelet.diag.catalogue.command import AnotherPypto
from tilelet.diag.render import render_line
from tilelet.runtime.session import Session


@contextlib.contextmanager
def stand_ins(pypto: str, golden: str, now: Session) -> Generator[None]:
    """Alias `pypto` and `golden` to Tilelet's modules, unless the user chose otherwise."""
    switches = {"pypto": ("--pypto", "installed"), "golden": ("--golden", "script")}
    meant = {"pypto": pypto, "golden": golden}
    chosen = [root for root, (_, other) in switches.items() if meant[root] != other]

    def announce(root: str) -> None:
        now.imports_pypto = now.imports_pypto or root == "pypto"
        other = aliases.find_other(root)
        if other:
            switch = " ".join(switches[root])
            note = AnotherPypto(root, other, "Tilelet's stand-in", switch)
            now.say_once(f"{render_line(note.diagnostic)}; {other} is used with `{switch}`")

    aliases.install(chosen, announce)
    try:
        yield
    finally:
        aliases.uninstall()
