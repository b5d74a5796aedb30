"""A process that judges cases: a line of JSON in for a batch, lines out for each of its cases."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.fuzz.cases import Case
from tests.fuzz.verdict import Verdict, judge_all


def _end_with_parent() -> None:
    """Make a killed driver end its workers, whose programs may not terminate."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    # The pipe is for answers only: output of programs is discarded.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    gc.freeze()  # exclude imported objects from collections
    gc.set_threshold(100_000)  # collections would take a fifth of the time
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            batch = json.loads(line)
            cases = [Case.from_json(c) for c in batch["cases"]]
            for number, what, said in judge_all(cases, Path(folder), batch["optimise"]):
                shown = [said.kind, said.detail, said.inputs] if isinstance(said, Verdict) else said
                print(json.dumps([number, what, shown]), file=answers)
            print(json.dumps([-1, "ended", ""]), file=answers)


if __name__ == "__main__":
    main()
