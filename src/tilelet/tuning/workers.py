"""Parallel evaluation in local processes or on an `Executor`."""

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
"""Attempts for a candidate whose process dies: the second time, it is to blame."""

_IDLE_SECONDS = 5.0  # seconds for a thread that has nothing left to do


class Lost(Exception):  # noqa: N818 - it is an answer
    """A candidate's process died repeatedly."""


class Workers:
    """Distributes calls and collects their results in order."""

    def __init__(self, make: Callable[[], Executor], own: int = 0) -> None:
        """`own`: number of local processes that `make` starts."""
        self._make = make
        self._own = own
        self._executor: Executor | None = None

    def begin_with(self, function: Callable[..., object], *call: object) -> None:
        """Start all local processes with this call, so that later calls find them warm."""
        executor = self._executor = self._executor or self._make()
        with contextlib.suppress(BrokenProcessPool):  # errors are reported with the result
            for _ in range(self._own - 1):
                executor.submit(function, *call)

    def map(
        self, function: Callable[..., T], calls: Sequence[tuple[object, ...]]
    ) -> Generator[tuple[int, T | Lost]]:
        """Yield results as they arrive, each with the index of its call."""
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
                # One of them is to blame: run them one by one.
                yield from self._one_by_one(function, calls, lost)
                return

    def _round(
        self,
        function: Callable[..., T],
        calls: Sequence[tuple[object, ...]],
        waiting: dict[int, int],
    ) -> Generator[tuple[int, T | Lost], None, list[int]]:
        """Run the pending calls; return those whose process died."""
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
                if type(error).__name__ != "KilledWorker":  # dask's own, after its retries
                    raise
                del waiting[number]
                yield number, Lost(str(error).partition("\n")[0])
                continue
            del waiting[number]
            yield number, answer
        return sorted(lost)

    def _one_by_one(
        self,
        function: Callable[..., T],
        calls: Sequence[tuple[object, ...]],
        numbers: Sequence[int],
    ) -> Generator[tuple[int, T | Lost]]:
        for number in numbers:
            for _, answer in self.map(function, [calls[number]]):
                yield number, answer

    def close(self) -> None:
        """Release the workers without waiting for running calls."""
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
            manager.join(_IDLE_SECONDS)


class _WithoutMain(ProcessPoolExecutor):
    """Start processes that do not import the caller's main module, which may lack a guard."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        with _hidden_main():  # processes are started here
            return super().submit(fn, *args, **kwargs)


@contextlib.contextmanager
def _hidden_main() -> Generator[None]:
    """Hide the main module from `multiprocessing`.

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
    """An executor that the caller shuts down."""

    def __init__(self, executor: Executor) -> None:
        self._behind = executor

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._behind.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the caller owns the executor."""


@contextlib.contextmanager
def workers(jobs: int | None = None, executor: Executor | str | None = None) -> Generator[Workers]:
    """Return an executor with `jobs` local processes, or the given one."""
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
    # Ctrl-C goes to all processes of the terminal; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _dask(address: str) -> Generator[Any]:
    """Connect to `dask://HOST:PORT`."""
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
        # Dask would retry indefinitely.
        socket.create_connection((parts.hostname, port), timeout=10).close()
        client: Any = Client(f"tcp://{parts.hostname}:{port}", timeout="10s")
    except (OSError, TimeoutError) as error:
        raise SchedulerUnreachable(address, str(error).partition("\n")[0]) from None
    try:
        yield client
    finally:
        client.close()
