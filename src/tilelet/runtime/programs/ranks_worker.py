"""`DistributedWorker`: registered programs of several ranks, with resident tensors.

On a board each rank is a process with its own memory. Here the ranks share this process, unless
MPI runs one in each: a resident tensor is an array used in place, of which each process has its
rank's shard, and a submitted run completes at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet.frontend.module import SourceOrigin
from tilelet.ranks.windows import KeptWindows
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.arrays import as_array, as_tensor, dtype_of, is_array, is_tensor

if TYPE_CHECKING:
    from tilelet.runtime.programs.compiler import CompiledProgram

Callback = Callable[..., Any]


class StackedDeviceTensor:
    """Shards of a stack, each on the rank that uses it."""

    def __init__(self, whole: Any, worker_ids: tuple[int, ...]) -> None:
        self.whole = whole
        self.worker_ids = worker_ids

    @property
    def shape(self) -> Any:
        return self.whole.shape

    @property
    def dtype(self) -> Any:
        return self.whole.dtype


class DistributedRunHandle:
    """A submitted run, which is complete."""

    def __init__(self, result: Any) -> None:
        self._result = result
        self.done = True

    def result(self, timeout: float | None = None) -> Any:
        del timeout
        return self._result

    wait = result


class WorkerProgram:
    """A program that a worker has registered."""

    def __init__(self, worker: DistributedWorker, compiled: CompiledProgram) -> None:
        self.compiled = compiled
        self._worker = worker

    @property
    def closed(self) -> bool:
        return self._worker.closed

    def __call__(self, *args: object, config: RunConfig | None = None) -> Any:
        return self._worker.run(self.compiled, *args, config=config)


class DistributedWorker:
    """Runs programs of several ranks; a context manager.

    persistent  windows are kept from run to run, and zeroed before each, unless
                `reset_persistent_windows=False`
    callbacks   functions for sub-workers whose body is `...`, by name; each gets a list of tensors
    sub_worker_overrides  functions in place of sub-workers that have a body
    """

    def __init__(
        self,
        compiled: CompiledProgram | Sequence[CompiledProgram],
        config: RunConfig | None = None,
        *,
        extra_compiled: Sequence[CompiledProgram] = (),
        persistent: bool = False,
        reset_persistent_windows: bool | None = None,
        callbacks: Mapping[str, Callback] | None = None,
        sub_worker_overrides: Mapping[str, Callback] | None = None,
        startup_timeout_s: float | None = None,
        inherited_host_tensors: Sequence[object] = (),
    ) -> None:
        del startup_timeout_s, inherited_host_tensors  # options of processes, without effect here
        if reset_persistent_windows and not persistent:
            raise ValueError("reset_persistent_windows=True needs persistent=True")
        several = isinstance(compiled, Sequence)
        self._programs = [*(compiled if several else [compiled]), *extra_compiled]
        self._config = config
        self._kept = KeptWindows(reset_persistent_windows is not False) if persistent else None
        self._callbacks = self._bound(callbacks or {}, sub_worker_overrides or {})
        self._owned_tensors: list[object] = []
        self.closed = False

    def _bound(
        self, callbacks: Mapping[str, Callback], overrides: Mapping[str, Callback]
    ) -> dict[str, Callback]:
        """Return the function of every sub-worker, which the scheduler calls with arrays."""
        found: dict[str, Callback] = {}
        empty: set[str] = set()
        for program in self._programs:
            origin = program.program.origin
            for name, method in origin.methods.items() if isinstance(origin, SourceOrigin) else ():
                if method.is_callback:
                    found[name] = _with_tensors(method.python)
                    if not method.body:
                        empty.add(name)
        for given, known, what in (
            (callbacks, empty, "callbacks"),
            (overrides, set(found), "sub-workers"),
        ):
            unknown = sorted(set(given) - known)
            if unknown:
                raise ValueError(f"{', '.join(unknown)}: not {what} of this program")
        missing = sorted(empty - set(callbacks) - set(overrides))
        if missing:
            raise ValueError(f"no function for the callback {', '.join(missing)}")
        for name, function in {**callbacks, **overrides}.items():
            found[name] = _with_list(function)
        return found

    # Runs

    def __call__(self, *args: object, config: RunConfig | None = None) -> Any:
        if len(self._programs) > 1:
            raise TypeError("the call is ambiguous: several programs; use run(program, ...)")
        return self.run(self._programs[0], *args, config=config)

    def run(self, compiled: CompiledProgram, *args: object, config: RunConfig | None = None) -> Any:
        """Run a program on tensors, in place."""
        self._check_open("run")
        if compiled not in self._programs:
            raise ValueError(f"{compiled.name} is not a program of this worker")
        if len(args) != len(compiled.parameters):
            raise TypeError(f"{compiled.name} takes {len(compiled.parameters)} arguments")
        plain = [a.whole if isinstance(a, StackedDeviceTensor) else a for a in args]
        own = copy.copy(compiled)
        own.callbacks, own.kept_windows = self._callbacks, self._kept
        own.resident = frozenset(
            p.name for p, a in zip(compiled.parameters, args) if isinstance(a, StackedDeviceTensor)
        )
        return own(*plain, config=config or self._config or compiled.config)

    def submit(
        self, compiled: CompiledProgram, *args: object, config: RunConfig | None = None
    ) -> DistributedRunHandle:
        return DistributedRunHandle(self.run(compiled, *args, config=config))

    def register(self, compiled: CompiledProgram) -> WorkerProgram:
        self._check_open("register")
        if compiled not in self._programs:
            self._programs.append(compiled)
        return WorkerProgram(self, compiled)

    # Resident tensors

    def alloc_tensor(
        self, shape: Sequence[int], dtype: object, *, init: object = None, worker_id: int = 0
    ) -> Any:
        """Return a resident tensor: a torch tensor for a torch dtype, else an array."""
        del worker_id
        self._check_open("alloc_tensor")
        element = dtype_of(dtype)
        assert element is not None, f"no element type {dtype}"
        array = np.zeros(tuple(shape), element.numpy)
        if init is not None:
            array[...] = as_array(init)
        made = as_tensor(array) if type(dtype).__module__.startswith("torch") else array
        self._owned_tensors.append(made)
        return made

    def free_tensor(self, tensor: object) -> None:
        kept = [t for t in self._owned_tensors if t is not tensor]
        if len(kept) == len(self._owned_tensors):
            raise ValueError("not a tensor of this worker")
        self._owned_tensors = kept

    def alloc_stacked_tensor(
        self, host: Any, *, worker_ids: Sequence[int] | None = None
    ) -> StackedDeviceTensor:
        """Copy a stack so that shard i is resident on rank `worker_ids[i]` (default: i)."""
        self._check_open("alloc_stacked_tensor")
        shards = int(host.shape[0])
        ids = tuple(range(shards)) if worker_ids is None else tuple(worker_ids)
        if len(ids) != shards:
            raise ValueError(f"{shards} shards, and {len(ids)} worker_ids")
        copy = as_array(host).copy()
        made = StackedDeviceTensor(as_tensor(copy) if is_tensor(host) else copy, ids)
        self._owned_tensors.append(made)
        return made

    free_stacked_tensor = free_tensor

    def copy_stacked_from(self, stacked: StackedDeviceTensor, host: object) -> None:
        self._check_open("copy_stacked_from")
        if session.current().over_mpi:
            from tilelet.ranks.mpi import gather_shards

            gather_shards(as_array(stacked.whole), stacked.worker_ids)
        as_array(host)[...] = as_array(stacked.whole)

    def release_inherited_host_tensor_refs(self) -> None:
        """No-op: tensors were copied when they became resident."""

    def close(self) -> None:
        self._owned_tensors.clear()
        self.closed = True

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise RuntimeError(f"{what} called after close")

    def __enter__(self) -> DistributedWorker:  # noqa: PYI034 - `Self` is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def program_callbacks(compiled: CompiledProgram) -> dict[str, Callback]:
    """The sub-workers of a program that have a body."""
    origin = compiled.program.origin
    methods = origin.methods.items() if isinstance(origin, SourceOrigin) else ()
    return {
        name: _with_tensors(method.python)
        for name, method in methods
        if method.is_callback and method.body
    }


def _as_torch(value: object) -> Any:
    """Convert an operand of a sub-worker to a torch tensor."""
    return as_tensor(as_array(value)) if is_array(value) else value


def _with_tensors(function: Callback) -> Callback:
    return lambda *arrays: function(*[_as_torch(a) for a in arrays])


def _with_list(function: Callback) -> Callback:
    return lambda *arrays: function([_as_torch(a) for a in arrays])
