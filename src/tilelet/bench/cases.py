"""Bench cases: programs with their data and work."""

from __future__ import annotations

import copy
import ctypes
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

import ml_dtypes
import numpy as np

from tilelet.bench import programs
from tilelet.bench.data import Data
from tilelet.bench.peaks import Machine
from tilelet.cpu.emit import sites
from tilelet.cpu.run import engine
from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import Array
from tilelet.models import registry
from tilelet.models.qwen3.shapes import DecodeShape
from tilelet.runtime.config import RunConfig
from tilelet.runtime.programs.compiler import CompiledProgram, compile_program

BF16 = np.dtype(ml_dtypes.bfloat16)
FP32 = np.dtype(np.float32)
INT8 = np.dtype(np.int8)
_INT8_STD = 24.0  # few of a million normal numbers reach the ends of INT8
_CONFIG = RunConfig(engine="cpu")


@dataclass(frozen=True)
class UsefulWork:
    """Useful operations of a run, and bytes it must read or write at least once."""

    flops: float
    nbytes: float


@dataclass
class BenchCase:
    """One program, compiled, on its arguments.

    label  name of the row; name and sizes are arguments of `programs.build`
    """

    label: str
    name: str
    sizes: dict[str, int]
    arguments: dict[str, Array]
    work: UsefulWork
    compiled: CompiledProgram = field(init=False)

    def __post_init__(self) -> None:
        self.compiled = compile_program(programs.build(self.name, self.sizes), config=_CONFIG)

    def run(self) -> int:
        """Run once with the default number of threads; return the number of tasks."""
        return self.compiled.run_tasks(self.arguments, _CONFIG).total

    def call(self) -> None:
        """Call the program as a loop of a user does: repeated calls check arguments once."""
        self.compiled(*[self.arguments[name] for name in self.compiled.param_names])

    def call_alone(self) -> None:
        """Call the program on one thread."""
        with one_thread():
            self.call()

    def runtime_alone(self, machine: Machine) -> Callable[[], int]:
        """Return a function that runs the program with empty kernels and returns the number of
        tasks.
        """
        native = copy.copy(engine.compile_native(self.compiled.program))
        empty = machine.empty_program(ctypes.addressof(native.table))
        native.table = type(native.table).from_address(empty.address)
        threads, memory = native.room(engine.thread_count())
        seed = engine.schedule_seed()
        call = engine.Call(native, self.arguments, threads, seed, records=False, memory=memory)

        def run() -> int:
            before = call.submitted()
            assert native.enter(call.args) == sites.OK
            assert empty.address  # keeps the copy alive
            return call.submitted() - before

        return run


@contextmanager
def one_thread() -> Generator[None]:
    before = os.environ.get("TILELET_THREADS")
    os.environ["TILELET_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TILELET_THREADS"]
        else:
            os.environ["TILELET_THREADS"] = before


def model_case(data: Data, label: str, name: str, sizes: dict[str, int]) -> BenchCase:
    """Return a case of a model program on full contexts."""
    model, variant = registry.resolve(name)
    shape = model.shape_for(variant, **sizes)
    arguments = data.arguments(model.specs(shape), shape.max_seq)
    work = UsefulWork(_model_flops(model.name, shape), _touched_bytes(arguments))
    return BenchCase(label, name, sizes, arguments, work)


def _model_flops(model: str, s: DecodeShape) -> float:
    """Count the operations of the products, as if every sequence were full."""
    qkv = s.hidden * (s.hidden + 2 * s.kv_width)
    rest = s.hidden * s.hidden + 3 * s.hidden * s.intermediate
    # Scores and outputs: two products over each position that a query sees.
    seen = 2 * s.heads * s.head_dim * s.batch * s.max_seq
    if model == "prefill":
        causal = seen * (s.max_seq + 1) / 2
        return 2 * (s.batch * s.max_seq * (qkv + rest) + causal)
    parts = {
        "scope1": s.batch * qkv,
        "scope2": seen,
        "scope3": s.batch * rest,
        "decode": s.batch * (qkv + rest) + seen,
    }
    return 2.0 * parts[model]


def _touched_bytes(arguments: dict[str, Array]) -> float:
    """Sum the bytes of all arguments except the RoPE tables, of which few rows are read."""
    return float(sum(a.nbytes for name, a in arguments.items() if not name.startswith("rope_")))


def matmul_case(data: Data, rows: int, inner: int, columns: int, row_tile: int = 16) -> BenchCase:
    """Return a case of a single matrix product."""
    arguments = {
        "x": data.normal("x", (rows, inner), BF16),
        "w": data.normal("w", (inner, columns), BF16, inner**-0.5),
        "out": data.normal("out", (rows, columns), FP32, 0.0),
    }
    work = UsefulWork(2.0 * rows * inner * columns, _touched_bytes(arguments))
    sizes = {"rows": rows, "inner": inner, "columns": columns, "row_tile": row_tile}
    return BenchCase(
        f"[{rows},{inner}]x[{inner},{columns}]", "bench/matmul", sizes, arguments, work
    )


def int8_case(data: Data, inner: int, columns: int) -> BenchCase:
    """Return a case of one row times INT8 weights, whose bound is reading them."""
    arguments: dict[str, Array] = {
        "x": data.normal("x", (1, inner), INT8, _INT8_STD),
        "w": data.normal("w", (inner, columns), INT8, _INT8_STD),
        "scale": data.normal("scale", (1, columns), FP32),
        "out": data.normal("out", (1, columns), FP32, 0.0),
    }
    work = UsefulWork(0.0, _touched_bytes(arguments))
    sizes = {"inner": inner, "columns": columns}
    return BenchCase(
        f"[1,{inner}]x[{inner},{columns}] INT8", "bench/int8_row", sizes, arguments, work
    )


def vector_case(data: Data, op: str, rows: int, columns: int) -> BenchCase:
    """Return a case of a memory-bound program."""
    shape = (rows, columns)
    arguments = {"x": data.normal("x", shape, FP32)}
    if op in ("add", "swiglu"):
        arguments["y"] = data.normal("y", shape, FP32)
    if op in ("rmsnorm", "layernorm"):
        arguments["weight"] = data.normal("weight", (1, columns), FP32)
    if op == "layernorm":
        arguments["bias"] = data.normal("bias", (1, columns), FP32)
    arguments["out"] = data.normal("out", shape, BF16 if op == "cast" else FP32, 0.0)
    work = UsefulWork(0.0, _touched_bytes(arguments))
    sizes = {"rows": rows, "columns": columns}
    return BenchCase(f"{op} [{rows},{columns}]", f"bench/{op}", sizes, arguments, work)
