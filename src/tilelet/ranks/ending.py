"""The end of a process of MPI: a failure that the other ranks do not share ends them, too.

A rank that returns or raises waits for the others in `MPI_Finalize`, and they may wait for it in
the program. So every rank ends by exchanging exit codes with the others, and a rank that has failed
waits for them only for a limited time.
"""

from __future__ import annotations

import time
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from tilelet.ranks.terminal import discarded_errors, say, silence, wait_until_read

COMM = MPI.COMM_WORLD
FAILED = 3  # the exit code of such a run in one process
MAX_SKEW_SECONDS = 5.0
"""How long a failed rank waits for the others to fail, too: rank 0 then reports for all."""


class Ending:
    """Exit codes of all ranks, and which rank is the first to report a failure."""

    def __init__(self) -> None:
        self._codes = COMM.Dup()  # apart from the collectives of the program
        self._reported = MPI.Win.Allocate(4, 4, comm=COMM)
        memory: Any = self._reported.tomemory()
        np.frombuffer(memory, np.int32)[0] = 0
        self._reported.Lock_all()
        COMM.Barrier()

    def fail(self, text: str, code: int = FAILED) -> NoReturn:
        """End all ranks; the first that fails says why."""
        if self._is_first():
            say(f"{text}\nrank {COMM.rank} has failed: the run ends\n".lstrip())
            wait_until_read()
        if not COMM.rank:
            silence()  # MPI would print a message of its own
        COMM.Abort(code)
        raise SystemExit(code)

    def join(self, code: int) -> None:
        """Exchange exit codes with the other ranks; report a failure that rank 0 does not share."""
        codes = np.zeros(COMM.size, np.int32)
        exchange = self._codes.Iallgather(np.array([code], np.int32), codes)
        until = time.monotonic() + MAX_SKEW_SECONDS
        while not exchange.Test():
            if code and time.monotonic() > until:
                self.fail(discarded_errors(), code)
            time.sleep(1e-3)
        if code and COMM.rank == np.flatnonzero(codes)[0] and COMM.rank:
            say(f"{discarded_errors()}\nrank {COMM.rank} has failed\n".lstrip())
        self._reported.Unlock_all()
        self._reported.Free()
        self._codes.Free()

    def _is_first(self) -> bool:
        old = np.zeros(1, np.int32)
        one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
        self._reported.Compare_and_swap(one, zero, old, 0, 0)
        self._reported.Flush(0)
        return not old[0]


ENDING = Ending()
