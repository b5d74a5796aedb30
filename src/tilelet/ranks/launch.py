"""One process per rank: a supervisor that reports a killed rank; only the first rank prints."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys

from tilelet.diag.catalogue.ranks import NoMpi
from tilelet.ranks.terminal import say, silence

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_PR_SET_PDEATHSIG = 1


def start_rank() -> int:
    """Become an MPI rank; return its number.

    The process that `mpiexec` started stays behind as the supervisor of its child: if the child is
    killed, the supervisor reports which rank it was.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise NoMpi
    if hasattr(os, "fork"):
        _supervise()
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Python's handler would not run inside a call of MPI
    # A run that ends with an error frees nothing; the transport of MPICH warns of each object.
    os.environ.setdefault("UCX_LOG_LEVEL", "error")
    try:
        from mpi4py import MPI  # noqa: F401 - finds the library
    except (ImportError, RuntimeError):
        raise NoMpi("an MPI library, which mpi4py does not find") from None
    from tilelet.ranks.ending import COMM

    if COMM.rank:
        silence()
    return int(COMM.rank)


def end_rank(code: int) -> None:
    """Wait for the other ranks at the end of a command with this exit code."""
    from tilelet.ranks.ending import ENDING

    sys.stdout.flush()
    sys.stderr.flush()
    ENDING.join(code)


def _supervise() -> None:
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(1)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rank gets Ctrl-C from the terminal, too

    def pass_on(number: int, _: object) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and code not in (-signal.SIGINT, -signal.SIGTERM):
        rank = next((os.environ[v] for v in _RANK_VARIABLES if v in os.environ), "?")
        say(f"rank {rank} was killed ({signal.Signals(-code).name}): the run ends\n")
    os._exit(code if code >= 0 else 128 - code)
