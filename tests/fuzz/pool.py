"""Processes that judge cases in parallel; the case that kills or hangs one is identified."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import Case
from tests.fuzz.usage import session_usage
from tests.fuzz.verdict import Verdict

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # CPU seconds without an answer, before Ctrl-C
SHORT = 20.0  # the same for texts, which may have an endless loop
ASLEEP = 300.0  # wall seconds in which no thread wants a core, before Ctrl-C
GRACE = 30.0  # CPU seconds to answer Ctrl-C
SAMPLE = 1.0  # wall seconds between two looks at a worker
BATCHES = 60  # per process, after which a new one takes over: libraries are never unloaded


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    cases: list[Case] = field(default_factory=list)
    optimise: str = ""
    at: int = -1
    budget: float = 0.0  # CPU seconds to the next answer
    begun: float | None = None  # CPU time when the budget was granted
    used: float = 0.0  # CPU time at the last sample
    slept: float = 0.0
    interrupted: bool = False
    left: int = BATCHES
    rest: bytes = b""
    judged: set[int] = field(default_factory=set)

    def give(self, cases: list[Case], optimise: str) -> None:
        self.cases, self.optimise, self.at, self.judged = cases, optimise, -1, set()
        self.left -= 1
        self.heard()
        message = {"cases": [c.to_json() for c in cases], "optimise": optimise}
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def left_over(self) -> list[tuple[list[Case], str]]:
        """Batches of the cases without a verdict; single cases if none of them is to blame yet."""
        unjudged = [c for i, c in enumerate(self.cases) if i not in self.judged]
        self.cases = []
        if self.at < 0:
            return [([case], self.optimise) for case in unjudged]
        return [(unjudged, self.optimise)] if unjudged else []

    def heard(self) -> None:
        may_loop = self.at >= 0 and not self.cases[self.at].is_generated
        self.grant(SHORT if may_loop else PATIENCE)
        self.interrupted = False

    def grant(self, budget: float) -> None:
        """Count from the next sample on."""
        self.budget, self.begun, self.slept = budget, None, 0.0

    def sample(self, elapsed: float) -> None:
        usage = session_usage(self.process.pid)
        if self.begun is None:
            self.begun = usage.cpu
        elif usage.is_asleep and usage.cpu == self.used:
            # The pool itself may have been stopped, which is not idle time of the worker.
            self.slept += min(elapsed, 2 * SAMPLE)
        self.used = usage.cpu

    @property
    def is_late(self) -> bool:
        if not self.cases or self.begun is None:
            return False
        return self.used - self.begun > self.budget or self.slept > ASLEEP


class Pool:
    """`judge(batches)` distributes batches and yields verdicts as they come."""

    def __init__(
        self,
        jobs: int,
        environment: dict[str, str] | None = None,
        module: str = "tests.fuzz.worker",
    ) -> None:
        self._jobs = jobs
        self._module = module
        self._environment = {**os.environ, **(environment or {})}
        self._selector = selectors.DefaultSelector()
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._sampled = time.monotonic()

    def close(self) -> None:
        for worker in list(self._workers):
            self._end(worker)

    def judge(self, batches: Iterator[tuple[list[Case], str]]) -> Iterator[tuple[Case, Verdict]]:
        again: list[tuple[list[Case], str]] = []

        def following() -> tuple[list[Case], str] | None:
            return again.pop() if again else next(batches, None)

        busy = 0
        while True:
            while busy < self._jobs and (batch := following()) is not None:
                worker = self._idle.pop() if self._idle else self._start()
                worker.give(*batch)
                busy += 1
            if not busy:
                break
            for worker in self._ready():
                found, ended = self._answers(worker)
                yield from found
                if not ended:
                    continue
                busy -= 1
                again += worker.left_over()
                if worker.process.poll() is not None or not worker.left:
                    self._end(worker)
                else:
                    self._idle.append(worker)

    def _start(self) -> _Worker:
        command = [sys.executable, "-m", self._module]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=self._environment, start_new_session=True,
        )  # fmt: skip
        worker = _Worker(process)
        self._workers.add(worker)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        if worker not in self._workers:
            return
        self._workers.discard(worker)
        assert worker.process.stdout is not None
        self._selector.unregister(worker.process.stdout)
        with contextlib.suppress(OSError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        for pipe in (worker.process.stdin, worker.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _ready(self) -> list[_Worker]:
        found = [key.data for key, _ in self._selector.select(timeout=SAMPLE)]
        elapsed = time.monotonic() - self._sampled
        if elapsed < SAMPLE:
            return found
        self._sampled += elapsed
        for worker in self._workers:
            if worker.cases:
                worker.sample(elapsed)
        return [*found, *(w for w in self._workers if w.is_late and w not in found)]

    def _answers(self, worker: _Worker) -> tuple[list[tuple[Case, Verdict]], bool]:
        """Read the answers so far, and whether the batch has ended."""
        assert worker.process.stdout is not None
        said = worker.process.stdout.read()
        if said is None:
            return self._late(worker)
        if not said:
            return self._died(worker)
        *lines, worker.rest = (worker.rest + said).split(b"\n")
        found: list[tuple[Case, Verdict]] = []
        for line in lines:
            number, what, shown = json.loads(line)
            if what == "ended":
                return found, True
            worker.at = number
            worker.heard()
            if what == "is":
                worker.judged.add(number)
                found.append((worker.cases[number], Verdict(*shown)))
        return found, False

    def _late(self, worker: _Worker) -> tuple[list[tuple[Case, Verdict]], bool]:
        if not worker.interrupted:
            worker.interrupted = True
            worker.grant(GRACE)
            with contextlib.suppress(OSError):
                os.kill(worker.process.pid, signal.SIGINT)
            return [], False
        return self._blamed(worker, Verdict("hang", "no answer, not even to Ctrl-C"))

    def _died(self, worker: _Worker) -> tuple[list[tuple[Case, Verdict]], bool]:
        code = worker.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if worker.interrupted:
            return self._blamed(worker, Verdict("hang", f"no answer; ended by Ctrl-C, {how}"))
        return self._blamed(worker, Verdict("crash", how))

    def _blamed(self, worker: _Worker, verdict: Verdict) -> tuple[list[tuple[Case, Verdict]], bool]:
        """Return the current case, if any; otherwise all cases were being compiled together."""
        with contextlib.suppress(OSError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        worker.left = 0
        unjudged = [i for i in range(len(worker.cases)) if i not in worker.judged]
        if worker.at < 0 and len(unjudged) == 1:
            worker.at = unjudged[0]
        if worker.at < 0:
            return [], True
        worker.judged.add(worker.at)
        return [(worker.cases[worker.at], verdict)], True


def judged(pool: Pool, cases: Sequence[Case], optimise: str = "-O0") -> list[Verdict]:
    """Return the verdicts of some cases, in their order."""
    found = {id(case): verdict for case, verdict in pool.judge(iter([(list(cases), optimise)]))}
    return [found[id(case)] for case in cases]
