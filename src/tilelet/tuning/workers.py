"""Many candidates at once: in processes here, or wherever an `Executor` takes them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tilelet.diag.catalogue.command import MissingModule
from tilelet.diag.catalogue.tuner import BadExecutor, SchedulerUnreachable, WorkersLost

T = TypeVar("T")

_ATTEMPTS = 2
"""How often a candidate is tried whose process dies: the second death is its own fault."""

_PATIENCE = 5.0  # seconds for a thread that has nothing left to do


class Lost(Exception):  # noqa: N818 - it is an answer
    """Nobody could finish this candidate."""


class Workers:
    """Hands out calls, and gets their answers in order."""

    def __init__(self, make: Callable[[], Executor], own: int = 0) -> None:
        """`own`: how many processes `make` will start here."""
        self._make = make
        self._own = own
        self._executor: Executor | None = None

    def begin_with(self, function: Callable[..., object], *call: object) -> None:
        """Every process of our own starts now, with this: later calls find it warm."""
        executor = self._executor = self._executor or self._make()
        with contextlib.suppress(BrokenProcessPool):  # whoever asks for the answer will be told
            for _ in range(self._own - 1):
                executor.submit(function, *call)

    def map(
        self, function: Callable[..., T], calls: Sequence[tuple[Any, ...]]
    ) -> Generator[tuple[int, T | Lost]]:
        """The answers as they come, each with the number of its call."""
        waiting = dict.fromkeys(range(len(calls)), 0)  # call -> attempts so far
        while waiting:
            lost = yield from self._round(function, calls, waiting)
            if not lost:
                return
            self.close()  # a pool whose process died takes no more work
            for number in lost:
                waiting[number] += 1
                if waiting[number] >= _ATTEMPTS and len(lost) == 1:
                    del waiting[number]
                    yield number, Lost("the process that worked on it died")
            if len(lost) > 1:
                # One of them is to blame: alone, it kills only itself.
                yield from self._one_by_one(function, calls, lost)
                return

    def _round(
        self, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], waiting: dict[int, int]
    ) -> Generator[tuple[int, T | Lost], None, list[int]]:
        """Try all that wait; returns the calls whose process died."""
        executor = self._executor = self._executor or self._make()
        futures: dict[Future[T], int] = {}
        try:
            for number in waiting:
                futures[executor.submit(function, *calls[number])] = number
        except BrokenProcessPool:
            return list(waiting)
        lost: list[int] = []
        for future in concurrent.futures.as_completed(futures):
            number = futures[future]
            try:
                answer = future.result()
            except BrokenProcessPool:
                lost.append(number)
                continue
            except concurrent.futures.CancelledError:
                raise WorkersLost("the work was cancelled") from None
            except concurrent.futures.BrokenExecutor as error:
                raise WorkersLost(str(error)) from error
            except Exception as error:
                if type(error).__name__ != "KilledWorker":  # dask's, after tries of its own
                    raise
                del waiting[number]
                yield number, Lost(str(error).partition("\n")[0])
                continue
            del waiting[number]
            yield number, answer
        return sorted(lost)

    def _one_by_one(
        self, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], numbers: Sequence[int]
    ) -> Generator[tuple[int, T | Lost]]:
        for number in numbers:
            for _, answer in self.map(function, [calls[number]]):
                yield number, answer

    def close(self) -> None:
        """Let go of the workers. What they still do is not waited for."""
        executor, self._executor = self._executor, None
        if executor is None:
            return
        processes = dict(getattr(executor, "_processes", None) or {})
        manager: threading.Thread | None = getattr(executor, "_executor_manager_thread", None)
        executor.shutdown(wait=False, cancel_futures=True)
        for process in processes.values():
            process.terminate()
        if manager is not None:
            # Python, when it ends, writes to a pipe that this thread may be closing.
            manager.join(_PATIENCE)


class _WithoutMain(ProcessPoolExecutor):
    """Processes that do not import the caller's main module, which may have no guard around it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        with _hidden_main():  # processes are started here
            return super().submit(fn, *args, **kwargs)


@contextlib.contextmanager
def _hidden_main() -> Generator[None]:
    """Let `multiprocessing` find nothing to import in the main module.

    Spawned processes import `__main__` by its spec or file; what they are sent must not be defined
    there.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Borrowed(Executor):
    """An executor that somebody else will shut down."""

    def __init__(self, executor: Executor) -> None:
        self._behind = executor

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._behind.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Not ours to do."""


@contextlib.contextmanager
def workers(jobs: int | None = None, executor: Executor | str | None = None) -> Generator[Workers]:
    """`jobs` processes on this machine, or what `executor` names or is."""
    if isinstance(executor, str):
        with _dask(executor) as client:
            yield Workers(lambda: _Borrowed(client.get_executor()))
        return
    if executor is not None:
        borrowed = _Borrowed(executor)
        yield Workers(lambda: borrowed)
        return
    count = jobs or os.cpu_count() or 1
    # Spawned, not forked: the parent has threads.
    context = multiprocessing.get_context("spawn")
    pool = Workers(lambda: _WithoutMain(count, context, initializer=_begin_worker), count)
    try:
        yield pool
    finally:
        pool.close()


def _begin_worker() -> None:
    # Ctrl-C goes to all processes of the terminal; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _dask(address: str) -> Generator[Any]:
    """`dask://HOST:PORT`."""
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "dask" or not parts.hostname or port is None:
        raise BadExecutor(address)
    try:
        from distributed import Client
    except ImportError:
        raise MissingModule("distributed", "`--executor dask://...`", "dask") from None
    try:
        # Dask would try for as long as it may, even if there is nobody.
        socket.create_connection((parts.hostname, port), timeout=10).close()
        client: Any = Client(f"tcp://{parts.hostname}:{port}", timeout="10s")
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachable(address, str(error).partition("\n")[0]) from None
    try:
        yield client
    finally:
        client.close()
