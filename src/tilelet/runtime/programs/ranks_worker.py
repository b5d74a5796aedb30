"""`DistributedWorker`: registered programs of several ranks, with resident tensors.

On a board each rank is a process with its own memory. Here the ranks share this process, unless
MPI runs one in each: a resident tensor is an array used in place, of which each process has its
rank's shard, and a submitted run completes at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilelet.diag.catalogue.ranks import BadWorker, BadWorkerCall, WorkerClosed
from tilelet.diag.text import plural
from tilelet.frontend.module import SourceOrigin
from tilelet.ranks.windows import KeptWindows
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.arrays import as_array, as_tensor, is_array, is_tensor
from tilelet.runtime.data.worker_memory import WorkerMemory

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
            raise BadWorker("reset_persistent_windows=True needs persistent=True")
        several = isinstance(compiled, Sequence)
        self._programs = [*(compiled if several else [compiled]), *extra_compiled]
        self._config = config
        self.kept_windows = (
            KeptWindows(reset_persistent_windows is not False) if persistent else None
        )
        self._callbacks = self._bound(callbacks or {}, sub_worker_overrides or {})
        self._memory = WorkerMemory()
        self._stacks: list[StackedDeviceTensor] = []
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
                raise BadWorker(f"{', '.join(unknown)}: not {what} of this program")
        missing = sorted(empty - set(callbacks) - set(overrides))
        if missing:
            raise BadWorker(f"no function for the callback {', '.join(missing)}")
        for name, function in {**callbacks, **overrides}.items():
            found[name] = _with_list(function)
        return found

    # Runs

    def __call__(self, *args: object, config: RunConfig | None = None) -> Any:
        if len(self._programs) > 1:
            raise BadWorkerCall("the call is ambiguous: several programs; use run(program, ...)")
        return self.run(self._programs[0], *args, config=config)

    def run(self, compiled: CompiledProgram, *args: object, config: RunConfig | None = None) -> Any:
        """Run a program on tensors, in place."""
        self._check_open("run")
        if compiled not in self._programs:
            raise BadWorker(f"`{compiled.name}` is not a program of this worker")
        if len(args) != len(compiled.parameters):
            wanted = plural(len(compiled.parameters), "argument")
            raise BadWorkerCall(f"`{compiled.name}` takes {wanted}, and gets {len(args)}")
        for parameter, arg in zip(compiled.parameters, args):
            self._check_argument(parameter.name, arg)
        plain = [a.whole if isinstance(a, StackedDeviceTensor) else a for a in args]
        own = copy.copy(compiled)
        own.callbacks, own.kept_windows = self._callbacks, self.kept_windows
        own.resident = {
            p.name: a.worker_ids
            for p, a in zip(compiled.parameters, args)
            if isinstance(a, StackedDeviceTensor)
        }
        return own(*plain, config=config or self._config or compiled.config)

    def _check_argument(self, name: str, arg: object) -> None:
        """Check that the processes of the ranks of a board would see a host tensor."""
        if not is_tensor(arg) or arg.is_shared() or self._memory.owns(arg):  # type: ignore[attr-defined]
            return
        raise BadWorkerCall(
            f"the tensor of `{name}` is not in shared memory",
            "call `.share_memory_()` before `prepare()`, or make it with `alloc_tensor`",
        )

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

    @property
    def _owned_tensors(self) -> list[object]:  # tests of the public runtime count them
        return [*self._memory.tensors, *self._stacks]

    def alloc_tensor(
        self, shape: Sequence[int], dtype: object, *, init: object = None, worker_id: int = 0
    ) -> Any:
        """Return a resident tensor: a torch tensor for a torch dtype, else an array."""
        self._check_ranks("alloc_tensor", [worker_id])
        return self._memory.alloc_tensor(shape, dtype, init)

    def free_tensor(self, tensor: object) -> None:
        self._check_open("free_tensor")
        if not self._memory.owns(tensor):
            raise BadWorker("not a tensor of this worker")
        self._memory.free(as_array(tensor).ctypes.data)

    def malloc(self, nbytes: int, *, worker_id: int = 0) -> int:
        """Return the address of so many bytes on a rank."""
        self._check_ranks("malloc", [worker_id])
        return self._memory.malloc(nbytes)

    def free(self, ptr: int, *, worker_id: int = 0) -> None:
        self._check_ranks("free", [worker_id])
        self._memory.free(ptr)

    def copy_to(
        self, dst_dev_ptr: object, src_host_ptr: int, nbytes: int, *, worker_id: int = 0
    ) -> None:
        """Copy host memory to a tensor, or to bytes, of this worker."""
        self._check_ranks("copy_to", [worker_id])
        self._memory.copy_to(dst_dev_ptr, src_host_ptr, nbytes)

    def copy_from(
        self, dst_host_ptr: int, src_dev_ptr: object, nbytes: int, *, worker_id: int = 0
    ) -> None:
        """Copy a tensor, or bytes, of this worker to host memory."""
        self._check_ranks("copy_from", [worker_id])
        self._memory.copy_from(dst_host_ptr, src_dev_ptr, nbytes)

    def alloc_stacked_tensor(
        self, host: Any, *, worker_ids: Sequence[int] | None = None
    ) -> StackedDeviceTensor:
        """Copy a stack so that shard i is resident on rank `worker_ids[i]` (default: i)."""
        shards = int(host.shape[0])
        ids = tuple(range(shards)) if worker_ids is None else tuple(worker_ids)
        if len(ids) != shards:
            raise BadWorker(f"{shards} shards, and {len(ids)} worker_ids")
        self._check_ranks("alloc_stacked_tensor", ids)
        copy = as_array(host).copy()
        made = StackedDeviceTensor(as_tensor(copy) if is_tensor(host) else copy, ids)
        self._stacks.append(made)
        return made

    def free_stacked_tensor(self, stacked: StackedDeviceTensor) -> None:
        self._check_stack("free_stacked_tensor", stacked)
        self._stacks.remove(stacked)

    def copy_stacked_from(self, stacked: StackedDeviceTensor, host: object) -> None:
        """Copy the shards of a stack to host memory."""
        self._check_stack("copy_stacked_from", stacked)
        if session.current().over_mpi:
            from tilelet.ranks.mpi import gather_shards

            gather_shards(as_array(stacked.whole), stacked.worker_ids)
        as_array(host)[...] = as_array(stacked.whole)

    def release_inherited_host_tensor_refs(self) -> None:
        """No-op: tensors were copied when they became resident."""

    def close(self) -> None:
        self._memory.clear()
        self._stacks.clear()
        self.closed = True

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise WorkerClosed(what)

    def _check_ranks(self, what: str, ids: Sequence[int]) -> None:
        self._check_open(what)
        configs = [p.ranks_config(self._config or p.config) for p in self._programs]
        world = min(c.world if c is not None else 1 for c in configs)
        wrong = [i for i in ids if not 0 <= i < world]
        if wrong:
            raise BadWorker(f"`{what}`: no worker {wrong[0]} in a world of {world}")

    def _check_stack(self, what: str, stacked: object) -> None:
        self._check_open(what)
        if not any(s is stacked for s in self._stacks):
            advice = "pass what `alloc_stacked_tensor` returned"
            raise BadWorker(f"`{what}` needs a stack of this worker", advice)

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
