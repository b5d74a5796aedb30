"""Execute a script and print the plain values of its module as JSON: `python -m ... FILE`."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from pathlib import Path

from tilelet.diag.json_types import JsonObject
from tilelet.runtime.session import Session
from tilelet.scripts.stand_ins import stand_ins


def plain_values(path: str) -> JsonObject:
    """Return numbers, texts and lists of them that a script defines when it is imported."""
    sys.path.insert(0, str(Path(path).resolve().parent))
    with contextlib.redirect_stdout(sys.stderr), stand_ins("tilelet", "tilelet", Session()):
        names = runpy.run_path(path, run_name="values")
    return {n: v for n, v in names.items() if not n.startswith("__") and _is_plain(v)}


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(value, (bool, int, float, str))


if __name__ == "__main__":
    print(json.dumps(plain_values(sys.argv[1])))
