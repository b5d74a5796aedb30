"""Run a program natively."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet.analysis.aliases import infer_directions
from tilelet.cpu.emit import sites
from tilelet.cpu.emit.elements import word_field
from tilelet.cpu.emit.program import Compiled, emit_program
from tilelet.cpu.plan.verify import PlanError
from tilelet.cpu.run import build, native
from tilelet.cpu.run.keep import keep_text
from tilelet.dataclasses import dataclass, field, replace
from tilelet.diag.catalogue.harness import BadConfig, TooBig
from tilelet.diag.core import Loc
from tilelet.diag.internal import InternalError
from tilelet.ir.core import Direction, Program, walk
from tilelet.ir.types import ScalarType, TileType
from tilelet.native.memory import available_memory
from tilelet.tasks.arguments import Argument, bind_arguments
from tilelet.tasks.stream import TaskStream
from tilelet.tasks.window import Buffer, Window

if TYPE_CHECKING:
    from tilelet.cpu.run.host import HostOp

_POLL = 0.1  # seconds between checks for Ctrl-C while native code runs
_STOP_SECONDS = 0.15  # seconds a run may take to stop after Ctrl-C
_THREAD_BYTES = 1 << 20  # approximate memory of a thread besides its kernel's tiles
_MAX_PROGRAMS = 32
_DIGITS = 100  # limit for a number in the environment; Python refuses to parse thousands

# Shows a text and the number of tasks so far while a block runs.
Progress = Callable[[str, Callable[[], int] | None], AbstractContextManager[Any]]


def no_progress(_what: str, _count: Callable[[], int] | None) -> AbstractContextManager[Any]:
    return nullcontext()


@dataclass(frozen=True)
class TaskCounts:
    """Number of tasks run per kernel."""

    _counts: Mapping[str, int]

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    @property
    def total(self) -> int:
        return sum(self._counts.values())


@dataclass(frozen=True)
class NativeExecution:
    """Result of a run besides the arrays it wrote."""

    tasks: TaskCounts | TaskStream


class NativeProgram:
    """A program compiled and loaded; `table` is its name in the library."""

    def __init__(
        self,
        program: Program,
        code: Compiled,
        library: ctypes.CDLL,
        table: str = native.TABLE,
    ) -> None:
        self.program = program
        self.code = code
        self._library = library
        self._run, self._run_here, self.table = native.entry_points(library, table)
        self.host_ops: list[HostOp] = []
        if self.code.host_ops:
            from tilelet.cpu.run.host import HostOp

            self.host_ops = [HostOp(op) for op in self.code.host_ops]
        # Arguments that no task writes need no dependencies, whatever the signature says.
        main = replace(program.main, declared=())
        found = infer_directions(main, program.functions)
        self.written = [d is not Direction.In for d in found]

    def run(
        self,
        arguments: Mapping[str, Argument],
        threads: int,
        seed: int,
        progress: Progress = no_progress,
        *,
        records: bool = False,
        given: Sequence[object] = (),
    ) -> TaskCounts | TaskStream:
        """Run; return the number of tasks, or with `records` all of them.

        given  as in `error`
        """
        threads, memory = self.room(threads)
        call = Call(self, arguments, threads, seed, records, memory)
        try:
            with progress(f"running {self.program.name}", call.submitted):
                kind = call.wait()
            if kind != sites.OK:
                raise self.error(kind, call, given)
            if records and call.record.is_incomplete:
                raise TooBig("the record of the tasks", 8 * call.record.count, 0)
            if records:
                from tilelet.cpu.run.record import task_stream

                return task_stream(call.record, self.program, self.code, call.buffers)
        finally:
            if call.has_ended:  # otherwise one of its ops is still running after Ctrl-C
                self._library.tl_free_record(ctypes.byref(call.record))
        counts = zip(self.code.kernels, call.counts)
        return TaskCounts({name: n for name, n in counts if n})

    def enter(self, args: native.RunArgs) -> int:
        """Run native code; return the fault kind, or 0."""
        return self._run(ctypes.byref(self.table), ctypes.byref(args))

    def enter_here(self, args: native.RunArgs) -> int:
        """As `enter`, in the main thread: Ctrl-C stops it if Python's own handler is installed."""
        return self._run_here(ctypes.byref(self.table), ctypes.byref(args))

    def room(self, threads: int) -> tuple[int, int]:
        """Return how many of the threads memory suffices for, and the bytes left for temporaries.

        A tile that this machine cannot hold is reported before anything runs.
        """
        available = available_memory()
        if available is None:
            return threads, 1 << 62
        of_thread = self.table.scratch_bytes + _THREAD_BYTES
        threads = min(threads, max(1, available // of_thread))
        if self.table.scratch_bytes > available:
            nbytes, name, loc = max(_tiles(self.program), key=lambda tile: tile[0])
            raise TooBig(name, max(nbytes, self.table.scratch_bytes), available, loc)
        return threads, max(0, available - threads * of_thread)

    def error(self, kind: int, call: Call, given: Sequence[object] = ()) -> BaseException:
        """Return the error of a run that ended with this fault.

        given  windows whose names it uses in place of those of the parameters, in their order
        """
        if kind == sites.STOPPED:
            return KeyboardInterrupt()
        fault = call.fault
        if kind == sites.HOST:
            return call.errors[int(fault.n[1]) - 1]
        if fault.site < 0:
            needed = call.args.threads * (self.table.scratch_bytes + _THREAD_BYTES)
            fewer = "set `TILELET_THREADS` to a smaller number"
            return TooBig("the threads of the run", needed, available_memory() or 0, help=fewer)
        site, made = self.code.sites[int(fault.site)], None
        if fault.buffer >= 0:
            name, made = self._origin(self.code.sites[int(fault.buffer)], given)
            site = replace(site, name=name)
        return sites.error_of(kind, site, list(fault.n), made)

    def _origin(self, buffer: sites.Site, given: Sequence[object]) -> tuple[str, Loc | None]:
        """Return the name of a buffer, and where the program creates it."""
        if buffer.op != "param":
            return buffer.name, buffer.loc
        for param, window in zip(self.program.main.params, given):
            if param.name == buffer.name and isinstance(window, Window):
                return window.name, window.buffer.made
        return buffer.name, None


def _build_native(program: Program, keep: Path | None, *, with_plans: bool) -> NativeProgram:
    code = emit_program(program)
    if keep is not None:
        keep_text(code, program, keep, with_plans=with_plans)
    return NativeProgram(program, code, build.load(code.units))


def _tiles(program: Program) -> Iterator[tuple[int, str, Loc]]:
    """Return size, name and location of every tile."""
    for kernel in program.kernels:
        for op in walk(kernel.body):
            for value in op.results:
                if isinstance(value.type, TileType):
                    nbytes = math.prod(value.type.shape) * value.type.dtype.itemsize
                    yield nbytes, value.name, op.loc


@dataclass
class _Buffers:
    """Memory of the arguments: overlapping arrays share a buffer."""

    bases: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    names: list[int] = field(default_factory=list[int])
    is_written: list[bool] = field(default_factory=list[bool])

    def add(self, low: int, high: int, name: int, is_written: bool) -> None:
        """Add a range of addresses, merged with those it overlaps."""
        keep: list[int] = []
        for i in range(len(self.bases)):
            if low < self.ends[i] and self.bases[i] < high:
                low, high = min(low, self.bases[i]), max(high, self.ends[i])
                is_written |= self.is_written[i]
                name = min(name, self.names[i])
            else:
                keep.append(i)
        for values in (self.bases, self.ends, self.names, self.is_written):
            values[:] = [values[i] for i in keep]  # type: ignore[index]
        self.bases.append(low)
        self.ends.append(high)
        self.names.append(name)
        self.is_written.append(is_written)

    def of(self, address: int) -> int:
        for i, (low, high) in enumerate(zip(self.bases, self.ends)):
            if low <= address < max(high, low + 1):
                return i
        raise InternalError("an argument has no memory")


class Call:
    """One run: its arguments in the layout of `rt.h`, and its results."""

    def __init__(
        self,
        native_program: NativeProgram,
        arguments: Mapping[str, Argument],
        threads: int,
        seed: int,
        records: bool,
        memory: int,
    ) -> None:
        self._native = native_program
        self.record = native.NativeRecord()
        self.buffers: dict[int, Buffer] = {}  # buffers of the arguments, by number
        self._records = records
        program = native_program.program
        self.bound = bind_arguments(program, arguments, execute=True)
        self.errors: list[BaseException] = []
        self.fault = native.Fault()
        self.cancel = ctypes.c_int32(0)
        self.counts = (ctypes.c_int64 * (len(native_program.code.kernels) + 1))()
        self._callback = native.HostFunction(self._host)
        self._result = sites.STOPPED
        self._done = threading.Event()
        self.windows, self.words = self._split()
        self.args = self._run_args(threads, seed, memory)

    def _split(self) -> tuple[Any, Any]:
        program = self._native.program
        windows = [v for v in self.bound if isinstance(v, Window)]
        packed = (native.Win * (len(windows) + 1))()
        for into, window in zip(packed, windows):
            _pack(into, window)
        numbers = [
            (v, p) for v, p in zip(self.bound, program.main.params) if not isinstance(v, Window)
        ]
        words = (native.Word * (len(numbers) + 1))()
        for word, (value, param) in zip(words, numbers):
            assert isinstance(param.type, ScalarType)
            setattr(word, word_field(param.type.dtype), value)
        return packed, words

    def _run_args(self, threads: int, seed: int, memory: int) -> native.RunArgs:
        buffers = _Buffers()
        tensors = [i for i, v in enumerate(self.bound) if isinstance(v, Window)]
        ranges = [addresses_of(self.bound[i]) for i in tensors]
        for i, (low, high) in zip(tensors, ranges):
            buffers.add(low, high, i, self._native.written[i])
        count = len(buffers.bases)
        owners = [buffers.of(low) for low, _ in ranges]
        for i, owner in zip(tensors, owners):
            self.buffers.setdefault(owner, self.bound[i].buffer)
        self.bases = (ctypes.c_void_p * (count + 1))(*buffers.bases)
        return native.RunArgs(
            windows=self.windows,
            scalars=self.words,
            buffer_of=(ctypes.c_int64 * (len(owners) + 1))(*owners),
            bases=self.bases,
            names=(ctypes.c_int32 * (count + 1))(*buffers.names),
            readonly=(ctypes.c_uint8 * (count + 1))(*[not w for w in buffers.is_written]),
            window_count=len(tensors),
            buffer_count=count,
            threads=threads,
            seed=seed,
            memory=memory,
            cancel=ctypes.pointer(self.cancel),
            host=self._callback,
            counts=self.counts,
            record=ctypes.pointer(self.record) if self._records else None,
            fault=ctypes.pointer(self.fault),
        )

    def _host(self, op: int, windows: object, words: object, _: int) -> int:
        """Callback from native threads; return 0, or the 1-based number of the error."""
        try:
            self._native.host_ops[op].run(_Items(windows), _Items(words))
        except BaseException as error:
            self.errors.append(error)
            return next(i for i, e in enumerate(self.errors, 1) if e is error)
        return 0

    @property
    def has_ended(self) -> bool:
        return self._done.is_set()

    def submitted(self) -> int:
        """Return the number of tasks submitted so far."""
        return sum(self.counts)

    def _enter(self) -> None:
        try:
            self._result = self._native.enter(self.args)
        finally:
            self._done.set()

    def wait(self) -> int:
        """Run to completion; Ctrl-C stops the run if this is the main thread."""
        self._done.clear()
        ctypes.memset(self.counts, 0, ctypes.sizeof(self.counts))
        if threading.current_thread() is not threading.main_thread():
            self._enter()
            return self._result
        # Not `join`: after Ctrl-C some Python versions consider the thread ended while it still
        # runs.
        thread = threading.Thread(target=self._enter, name="tilelet run", daemon=True)
        try:
            try:
                thread.start()
            except RuntimeError:  # no thread available: Ctrl-C is handled after the run
                self._enter()
            while not self._done.wait(_POLL):
                pass
        except BaseException:
            self.cancel.value = 1
            # Tasks check `cancel` between ops. An op on a huge tile ends later by itself; its
            # memory stays alive until then.
            with contextlib.suppress(BaseException):
                self._done.wait(_STOP_SECONDS)
            raise
        return self._result


class _Items(Sequence[Any]):
    """A C array of unknown length as a sequence."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return _Items(ctypes.pointer(self._pointer[index.start or 0]))
        return self._pointer[index]

    def __len__(self) -> int:
        return 1 << 30


def _pack(into: native.Win, window: Window) -> None:
    assert window.buffer.data is not None
    into.data = window.buffer.data.ctypes.data + window.offset * window.dtype.itemsize
    into.rank, into.itemsize = len(window.shape), window.dtype.itemsize
    for i, (extent, stride) in enumerate(zip(window.shape, window.strides)):
        into.shape[i] = into.valid[i] = into.reach[i] = extent
        into.stride[i] = stride


def addresses_of(window: Window) -> tuple[int, int]:
    """Return the address of the window's first byte, and one past its last."""
    assert window.buffer.data is not None
    start = window.buffer.data.ctypes.data
    return start, start + max(window.buffer.nbytes, 1)


class _Slot:
    """A program and its native form, compiled on first use."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._lock = threading.Lock()
        self._native: NativeProgram | PlanError | None = None

    def native(self, keep: Path | None, *, with_plans: bool) -> NativeProgram:
        with self._lock:
            if self._native is None or keep is not None:
                try:
                    self._native = _build_native(self.program, keep, with_plans=with_plans)
                except PlanError as error:
                    self._native = error
            if isinstance(self._native, PlanError):
                raise self._native
            return self._native

    def renew_lock(self) -> None:
        self._lock = threading.Lock()


# Keyed by the identity of the program, which its slot keeps alive.
_programs: OrderedDict[int, _Slot] = OrderedDict()
_lock = threading.Lock()


def _in_forked_child() -> None:
    """Replace locks: in the child only the forking thread continues, so locks held by others stay
    locked.
    """
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    for slot in _programs.values():
        slot.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def compile_native(
    program: Program, keep: Path | None = None, *, with_plans: bool = False
) -> NativeProgram:
    """Return the native form of a program, compiled on first use; raise `PlanError` if its plan is
    wrong. `keep` receives the C and the plans.
    """
    with _lock:
        slot = _programs.setdefault(id(program), _Slot(program))
        _programs.move_to_end(id(program))
        while len(_programs) > _MAX_PROGRAMS:
            _programs.popitem(last=False)
    return slot.native(keep, with_plans=with_plans)


def thread_count() -> int:
    """Return `TILELET_THREADS`, or else the number of cores available to this process."""
    text = os.environ.get("TILELET_THREADS", "")
    if not text:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not text.isdecimal() or len(text) > _DIGITS or not 1 <= int(text) <= 1024:
        raise BadConfig("TILELET_THREADS", text, "a number from 1 to 1024", "environment")
    return int(text)


def schedule_seed() -> int:
    """Return `TILELET_SCHEDULE_SEED` for a random order of ready tasks; -1 for program order."""
    text = os.environ.get("TILELET_SCHEDULE_SEED", "")
    if not text:
        return -1
    if not text.isdecimal() or len(text) > _DIGITS or int(text) >= 1 << 63:
        raise BadConfig("TILELET_SCHEDULE_SEED", text, "a number from 0", "environment")
    return int(text)


@dataclass(frozen=True)
class CpuEngine:
    """Compile programs to C and run them on native threads.

    keep_c      folder for the C text
    progress    shows the progress of a run
    records     record tasks with their arguments instead of only counting them
    with_plans  keep the kernels' plans beside the C text
    report      reports a wrong plan; the program is then interpreted
    """

    keep_c: Path | None = None
    progress: Progress = no_progress
    records: bool = False
    with_plans: bool = False
    report: Callable[[PlanError, Program], None] | None = None

    def prepare(self, program: Program) -> None:
        """Compile the program ahead of `run`."""
        self._compiled(program)

    def _compiled(self, program: Program) -> NativeProgram | None:
        """Return the native form of a program; None if it must be interpreted."""
        if stops_for_a_debugger(program):
            return None
        try:
            with self.progress(f"compiling {program.name}", None):
                return compile_native(program, self.keep_c, with_plans=self.with_plans)
        except PlanError as error:
            if self.report is None:
                raise
            self.report(error, program)
            return None

    def run(
        self, program: Program, arguments: Mapping[str, Argument], *, execute: bool = True
    ) -> NativeExecution:
        """Run on arrays in place. Programs with a breakpoint, and runs that only count, are
        interpreted.

        So are programs on unaligned arrays, because compilers rely on alignment, and programs with
        a wrong plan.
        """
        native_program = None
        if execute and are_aligned(arguments):
            native_program = self._compiled(program)
        if native_program is None:
            from tilelet.interp.interpreter import Interpreter

            return NativeExecution(Interpreter().run(program, arguments, execute=execute).tasks)
        tasks = native_program.run(
            arguments, thread_count(), schedule_seed(), self.progress, records=self.records
        )
        return NativeExecution(tasks)


def stops_for_a_debugger(program: Program) -> bool:
    """Whether the program contains a breakpoint."""
    return any(op.name == "breakpoint" for f in program.functions.values() for op in walk(f.body))


def are_aligned(arguments: Mapping[str, Argument]) -> bool:
    """Whether all elements are aligned for C; otherwise the interpreter runs the program."""
    return all(a.flags.aligned for a in arguments.values() if isinstance(a, np.ndarray))
