"""Repeat calls of a native program on arrays of the same signature: only addresses differ.

A small program takes less time than the work around it: checking and describing arguments, starting
threads, querying free memory. This is done once per signature, which is the shapes, strides,
element types and flags of the arrays.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Sequence
from signal import SIG_DFL, SIG_IGN, SIGINT, default_int_handler
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet.cpu.emit import sites
from tilelet.cpu.emit.elements import word_field
from tilelet.cpu.run import native
from tilelet.cpu.run.engine import (
    Call,
    NativeProgram,
    Progress,
    addresses_of,
    schedule_seed,
    thread_count,
)
from tilelet.ir.core import Value
from tilelet.ir.types import ScalarType
from tilelet.tasks.arguments import scalar_value
from tilelet.tasks.window import Window

if TYPE_CHECKING:
    from signal import getsignal
else:
    from _signal import getsignal  # `signal.getsignal` spends 5 us on an enum

# Nanoseconds. Single-threaded runs this short are slower on several threads, which must be started.
_SHORT_RUN_NS = 300_000
# A multi-threaded run this short, thread start included, may be faster on one thread.
_MAX_TRIED_NS = 2_000_000
# A run this short is executed by the calling thread with the others' help: it needs no progress
# display.
_BRIEF = 200_000_000
# Consecutive slow runs that are no longer attributed to noise, and the number of runs until the
# faster way is tried again.
_STRIKES = 3
_PAUSE = 200
# Seconds for which a measurement of free memory stays valid.
_FRESH = 1.0

Array = np.ndarray[Any, np.dtype[Any]]
Enter = Callable[[native.RunArgs], int]


def _address(array: Array) -> int:
    return array.ctypes.data


def _field_address(array: Array) -> int:
    """Read the element address from the first field of the array object."""
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


def _fastest_address() -> Callable[[Array], int]:
    """Return the fastest way to get an array's address: ten times faster where CPython's object
    layout is confirmed.
    """
    if sys.implementation.name == "cpython":
        samples = [np.zeros(3), np.zeros((4, 4), np.int8)[1:, ::-1]]
        if all(_field_address(a) == _address(a) for a in samples):
            return _field_address
    return _address


address_of = _fastest_address()


class _Prepared:
    """The description of one call, reused with the addresses of another."""

    def __init__(self, native: NativeProgram, arguments: Sequence[Any]) -> None:
        params = native.program.main.params
        self._native = native
        named = dict(zip([p.name for p in params], arguments))
        threads, memory = native.room(thread_count())
        self.call = Call(native, named, threads, schedule_seed(), False, memory)
        self._looked = time.monotonic()
        tensors = [(i, v) for i, v in enumerate(self.call.bound) if isinstance(v, Window)]
        # Overlapping arrays need the general path.
        self.is_simple = len(self.call.buffers) == len(tensors)
        self._tensors: list[tuple[int, Any, int, int]] = []
        for (i, window), packed in zip(tensors, self.call.windows):
            low, high = addresses_of(window)
            self._tensors.append((i, packed, address_of(arguments[i]) - low, high - low))
        numbers = [(i, p) for i, p in enumerate(params) if isinstance(p.type, ScalarType)]
        self._numbers: list[tuple[int, Value, Any]] = [
            (i, p, word) for (i, p), word in zip(numbers, self.call.words)
        ]
        self.call.bound, self.call.buffers = [], {}  # do not keep the caller's arrays alive

    def point_to(self, arguments: Sequence[Any]) -> bool:
        """Fill in these arguments; return False if arrays among them overlap."""
        ranges: list[tuple[int, int]] = []
        bases = self.call.bases
        for k, (i, packed, lead, nbytes) in enumerate(self._tensors):
            address = address_of(arguments[i])
            low = address - lead
            high = low + nbytes
            for other_low, other_high in ranges:
                if low < other_high and other_low < high:
                    return False
            ranges.append((low, high))
            packed.data = address
            bases[k] = low
        for i, param, word in self._numbers:
            assert isinstance(param.type, ScalarType)
            dtype = param.type.dtype
            setattr(word, word_field(dtype), scalar_value(param, dtype, arguments[i]))
        return True

    def look_for_memory(self, threads: int) -> None:
        """Set the thread count and the free memory, which is queried again after a while."""
        now = time.monotonic()
        if threads != self.call.args.threads or now - self._looked > _FRESH:
            self.call.args.threads, self.call.args.memory = self._native.room(threads)
            self._looked = now


class PreparedCalls:
    """Run a program on arguments of one signature, from any thread."""

    def __init__(self, native: NativeProgram) -> None:
        self.native = native
        # Descriptions not in use by any thread.
        self._idle: list[_Prepared] = []
        self._is_short = self._is_brief = False
        self._strikes = 0
        self._pause = 0  # multi-threaded runs until a shorter way is tried again

    def run(
        self, arguments: Sequence[object], progress: Progress, given: Sequence[object] = ()
    ) -> bool:
        """Run on the entry's arguments in order; return False without running if arrays among them
        overlap. `given`: as in `NativeProgram.error`.
        """
        try:
            prepared = self._idle.pop()
        except IndexError:
            prepared = _Prepared(self.native, arguments)
        if not prepared.is_simple or not prepared.point_to(arguments):
            return False
        enter = self._enter_of_this_thread() if self._is_short or self._is_brief else None
        if enter is None:
            kind = self._run_on_threads(prepared, arguments, progress)
        elif self._is_short:
            kind = self._run_alone(enter, prepared)
        else:
            kind = self._run_briefly(enter, prepared)
        if kind != sites.OK:
            raise self.native.error(kind, prepared.call, given)
        self._idle.append(prepared)
        return True

    def _enter_of_this_thread(self) -> Enter | None:
        """Return how this thread enters the program; None if Ctrl-C could not stop it."""
        if threading.current_thread() is threading.main_thread():
            handler = getsignal(SIGINT)
            if handler is default_int_handler or getattr(handler, "raises_interrupt", False):
                return self.native.enter_here
            if handler not in (SIG_DFL, SIG_IGN):
                return None
        return self.native.enter

    def _run_alone(self, enter: Enter, prepared: _Prepared) -> int:
        prepared.look_for_memory(threads=1)
        begin = time.perf_counter_ns()
        kind = enter(prepared.call.args)
        if time.perf_counter_ns() - begin < _SHORT_RUN_NS:
            self._strikes = 0
        else:
            self._strikes += 1
            if self._strikes == _STRIKES:
                self._is_short, self._strikes, self._pause = False, 0, _PAUSE
        return kind

    def _run_briefly(self, enter: Enter, prepared: _Prepared) -> int:
        prepared.look_for_memory(thread_count())
        begin = time.perf_counter_ns()
        kind = enter(prepared.call.args)
        self._judge(time.perf_counter_ns() - begin)
        return kind

    def _judge(self, taken: int) -> None:
        """Decide from a multi-threaded run how to make the next one."""
        self._pause = max(0, self._pause - 1)
        self._is_short = self._pause == 0 and taken < _MAX_TRIED_NS
        self._is_brief = taken < _BRIEF

    def _run_on_threads(
        self, prepared: _Prepared, arguments: Sequence[object], progress: Progress
    ) -> int:
        call = prepared.call
        prepared.look_for_memory(thread_count())
        call.bound = list(arguments)  # an op may continue for a while after Ctrl-C
        begin = time.perf_counter_ns()
        with progress(f"running {self.native.program.name}", call.submitted):
            kind = call.wait()
        call.bound = []
        self._judge(time.perf_counter_ns() - begin)
        return kind
