"""Convert the runtime's record of a run to a `TaskStream` equal to the interpreter's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilelet.analysis.aliases import Aliases, accesses, infer_directions
from tilelet.cpu.emit.elements import word_field
from tilelet.cpu.emit.program import Compiled
from tilelet.cpu.run.native import NativeRecord, Word
from tilelet.ir.core import Direction, Function, Op, Program, walk
from tilelet.ir.types import ScalarType, TensorType
from tilelet.ir.views import CallView
from tilelet.tasks.stream import TaskGroup, TaskKind, TaskStream
from tilelet.tasks.window import Buffer, Window


def task_stream(
    record: NativeRecord, program: Program, code: Compiled, buffers: Mapping[int, Buffer]
) -> TaskStream:
    """Return the tasks of a run; `buffers` are those of the arguments, by number."""
    reader = _Reader(program, code, buffers)
    words: Iterable[Any] = (
        np.ctypeslib.as_array(record.words, (record.count,)) if record.count else []
    )
    reader.read([int(w) for w in words])
    _mark_control_writes(program, reader.stream)
    return reader.stream


def _mark_control_writes(program: Program, stream: TaskStream) -> None:
    """Mark the tensors that the control program writes; these writes are not recorded."""
    body = program.main.body
    aliases = Aliases(body, program.functions)
    names = {
        root.name
        for op in walk(body)
        if op.name != "call"
        for value, how in accesses(op, program.functions)
        if how is not Direction.In
        for root in aliases.roots(value)
    }
    stream.rewritten |= {b.id: None for b in stream.regions.buffers if b.name in names}


class _Reader:
    def __init__(self, program: Program, code: Compiled, buffers: Mapping[int, Buffer]) -> None:
        self.stream = TaskStream()
        self._program = program
        self._code = code
        self._buffers = {number: b.without_data for number, b in buffers.items()}
        self._calls = [_Call(op, program) for op in code.calls]
        self._index_of: dict[int, int] = {}  # task ids of the runtime
        self._groups: dict[tuple[int, ...], TaskGroup] = {}

    def read(self, words: Sequence[int]) -> None:
        at = 0
        while at < len(words):
            at = self._task(words, at)

    def _task(self, words: Sequence[int], at: int) -> int:
        number, task_id, is_run, blocks, is_manual, dep_count = words[at : at + 6]
        at += 6
        call = self._calls[number]
        named = [self._index_of[d] for d in words[at : at + dep_count] if d >= 0]
        at += dep_count
        values: list[object] = [None] * len(call.params)
        for i in call.tensors:
            values[i], at = self._window(words, at, call.params[i])
        for i in call.scalars:
            values[i] = _number(words[at], call.params[i])
            at += 1
        key = (number, is_run, blocks, is_manual)
        if key not in self._groups:
            kind = replace(
                call.kind, ran=bool(is_run), blocks=blocks or None, manual=bool(is_manual)
            )
            self._groups[key] = self.stream.group(kind, values)
        group = self._groups[key]
        index = self.stream.add(group, values, tuple(dict.fromkeys(named)))
        self._index_of[task_id] = index
        return at

    def _window(self, words: Sequence[int], at: int, type_: TensorType) -> tuple[Window, int]:
        number, nbytes, site, first_byte, rank = words[at : at + 5]
        at += 5
        parts = [tuple(words[at + i * rank : at + (i + 1) * rank]) for i in range(4)]
        shape, strides, valid, extent = parts
        if number not in self._buffers:
            self._buffers[number] = Buffer(self._code.sites[site].name, nbytes).without_data
        window = Window(
            self._buffers[number],
            type_.dtype,
            first_byte // type_.dtype.itemsize,
            shape,
            strides,
            valid if valid != shape else None,
            extent if extent != shape else None,
        )
        return window, at + 4 * rank


class _Call:
    """An op that submits tasks: a kernel call or a join."""

    def __init__(self, op: Op, program: Program) -> None:
        callee: Function | None = None
        if op.name == "call":
            callee = program.functions[CallView(op).callee]
        self.params: list[Any] = [p.type for p in callee.params] if callee else []
        self.tensors = [i for i, t in enumerate(self.params) if isinstance(t, TensorType)]
        self.scalars = [i for i, t in enumerate(self.params) if not isinstance(t, TensorType)]
        self.kind = TaskKind("", loc=op.loc)
        if callee:
            found = infer_directions(callee, program.functions)
            said = zip(callee.directions, found)
            directions = tuple(f if s is Direction.In else s for s, f in said)
            positions = op.args["no_dep"] or ()
            assert isinstance(positions, tuple)
            no_dep = tuple(p for p in positions if isinstance(p, int))
            self.kind = TaskKind(callee.name, directions, no_dep, loc=op.loc)


def _number(word: int, type_: ScalarType) -> int | float | bool:
    number = getattr(Word.from_buffer_copy(ctypes.c_int64(word)), word_field(type_.dtype))
    return bool(number) if type_.dtype.kind == "bool" else number
