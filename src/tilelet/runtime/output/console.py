"""The console lines of a run, in the two styles that users of the harness know.

`StageTrace`, of the `golden` package: `[RUN] compile ...`, `[RUN]   'out' PASS ...`, `[RUN] PASS`.
`Terse`, the older one: `  out: PASS (4096/4096 elements matched)`, `=== All 1 cases passed ===`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from tilelet.diag.canvas import FAIL, PASS, paint
from tilelet.diag.render import use_color
from tilelet.diag.text import escape_controls
from tilelet.runtime.data.specs import TensorSpec


class StageTrace:
    """One line per stage and output, each marked `[RUN]`."""

    def say(self, text: str) -> None:
        print(f"[RUN] {text}", flush=True)

    def detail(self, text: str) -> None:
        self.say(f"  {text}")

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Print a stage and its duration."""
        self.say(f"{name} ...")
        start = time.perf_counter()
        yield
        self.say(f"{name} done ({time.perf_counter() - start:.2f}s)")

    def passed(self, spec: TensorSpec, matched: int, total: int, remark: str) -> None:
        counts = "" if remark else f"  ({matched}/{total} elements matched)"
        name, remark = escape_controls(spec.name), escape_controls(remark)
        text = f"  '{name}' {_verdict(True)}  shape={spec.shape} dtype={spec.dtype}{counts}"
        self.say(f"{text}  {remark}" if remark else text)

    def failed(self, spec: TensorSpec, mismatched: int, total: int, remark: str) -> None:
        counts = escape_controls(remark) or f"{mismatched}/{total} elements differ"
        name = escape_controls(spec.name)
        self.say(f"  '{name}' {_verdict(False)}  shape={spec.shape} dtype={spec.dtype}  ({counts})")

    def skipped(self, why: str) -> None:
        self.say(f"validation skipped: {escape_controls(why)}")

    def finish(self, passed: bool, seconds: float, findings: str = "") -> None:
        """Print the verdict on the run, followed by `findings`."""
        self.say(f"{_verdict(passed)}{findings} ({seconds:.2f}s)")

    @staticmethod
    def mismatch_text(names: Sequence[str], reports: Sequence[str]) -> str:
        return "\n".join([f"Output(s) does not match golden: {list(names)}", *reports])


class Terse(StageTrace):
    """Only the verdict of each output and of the whole."""

    def say(self, text: str) -> None:
        print(text, flush=True)

    @contextmanager
    def stage(self, name: str) -> Generator[None]:  # noqa: ARG002
        yield

    def passed(self, spec: TensorSpec, matched: int, total: int, remark: str) -> None:
        counts = escape_controls(remark) or f"{matched}/{total} elements matched"
        self.say(f"  {escape_controls(spec.name)}: {_verdict(True)} ({counts})")

    def failed(self, spec: TensorSpec, mismatched: int, total: int, remark: str) -> None:
        counts = escape_controls(remark) or f"{mismatched}/{total} elements differ"
        self.say(f"  {escape_controls(spec.name)}: {_verdict(False)} ({counts})")

    def finish(self, passed: bool, seconds: float, findings: str = "") -> None:  # noqa: ARG002
        if findings:
            self.say(f"{_verdict(passed)}{findings}")
        self.say("=== All 1 cases passed ===" if passed else "=== 1 of 1 cases failed ===")

    @staticmethod
    def mismatch_text(names: Sequence[str], reports: Sequence[str]) -> str:  # noqa: ARG004
        return "\n".join(reports)


def _verdict(passed: bool) -> str:
    color = use_color(sys.stdout)
    return paint("PASS", PASS, color) if passed else paint("FAIL", FAIL, color)


class Silent(StageTrace):
    """For `tilelet tasks`, whose output is the table alone."""

    def say(self, text: str) -> None:
        """Print nothing."""
