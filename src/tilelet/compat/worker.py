"""`ChipWorker`: registered programs and resident tensors, in this process.

A worker of PyPTO owns a device. Here programs are compiled objects and memory is the host's, so a
worker only stores references.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.arrays import as_array
from tilelet.runtime.data.worker_memory import WorkerMemory
from tilelet.runtime.programs.compiler import CompiledProgram
from tilelet.runtime.programs.stepwise_calls import CallConfig

__all__ = ["ChipWorker", "RegistrationHandle", "Worker"]


class RegistrationHandle:
    """A registered program, callable until it is unregistered."""

    def __init__(self, worker: ChipWorker, compiled: CompiledProgram) -> None:
        self.compiled = compiled
        self.closed = False
        self._worker = worker

    def __call__(self, *args: object, config: RunConfig | None = None) -> Any:
        if self.closed:
            raise RuntimeError(f"{self.compiled.name} is no longer registered")
        return self._worker.run(self.compiled, *args, config=config)

    def unregister(self) -> None:
        self.closed = True

    def __enter__(self) -> RegistrationHandle:  # noqa: PYI034 - `Self` is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()


class ChipWorker:
    """Runs programs as direct calls do."""

    def __init__(self, config: RunConfig | None = None, **_: object) -> None:
        self.config = config or RunConfig()
        self.initialized = True
        self._handles: dict[int, RegistrationHandle] = {}
        self._memory = WorkerMemory()

    @property
    def aicpu_dlopen_count(self) -> int:
        """Number of registered programs."""
        return len(self._handles)

    host_dlopen_count = aicpu_dlopen_count

    def init(self) -> None:
        self.initialized = True

    def register(self, compiled: CompiledProgram) -> RegistrationHandle:
        self._check_open()
        known = self._handles.get(id(compiled))
        if known is None or known.closed:
            known = self._handles[id(compiled)] = RegistrationHandle(self, compiled)
        return known

    def run(self, compiled: CompiledProgram, *args: object, config: RunConfig | None = None) -> Any:
        self._check_open()
        return compiled(*args, config=config)

    def alloc_tensor(self, shape: Sequence[int], dtype: object, init: object = None) -> Any:
        """Return a resident tensor: a torch tensor for a torch dtype, else an array."""
        self._check_open()
        return self._memory.alloc_tensor(shape, dtype, init)

    def free_tensor(self, tensor: object) -> None:
        """Release a tensor; its memory is freed with the last reference."""
        self._memory.free(as_array(tensor).ctypes.data)

    def copy_to(self, dst_dev_ptr: object, src_host_ptr: int, nbytes: int) -> None:
        """Copy host memory to a tensor of this worker."""
        self._check_open()
        self._memory.copy_to(dst_dev_ptr, src_host_ptr, nbytes)

    def copy_from(self, dst_host_ptr: int, src_dev_ptr: object, nbytes: int) -> None:
        """Copy a tensor of this worker to host memory."""
        self._check_open()
        self._memory.copy_from(dst_host_ptr, src_dev_ptr, nbytes)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.unregister()
        self.initialized = False

    def _check_open(self) -> None:
        if not self.initialized:
            raise RuntimeError("the worker is closed")

    def __enter__(self) -> ChipWorker:  # noqa: PYI034
        self.init()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Worker:
    """The low-level worker: callables are registered and run by number."""

    def __init__(self, **_: object) -> None:
        self._worker = ChipWorker()
        self._handles: dict[int, RegistrationHandle] = {}

    def init(self) -> None:
        self._worker.init()

    def register(self, callable_: CompiledProgram) -> int:
        number = len(self._handles)
        self._handles[number] = self._worker.register(callable_)
        return number

    def run(self, number: int, args: Sequence[object], config: CallConfig | None = None) -> None:
        """Run a registered callable; results are in `args`."""
        self._handles[number](*args, config=config.config if config else None)

    def unregister(self, number: int) -> None:
        self._handles.pop(number).unregister()

    unregister_callable = unregister  # its name in May 2026

    def close(self) -> None:
        self._worker.close()
