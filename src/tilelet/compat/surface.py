"""Names that scripts import from `pypto.backend`, `pypto.ir` and `pypto`."""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tilelet import __version__, dtypes
from tilelet.diag.core import UserErrors
from tilelet.ir.core import Function, Program
from tilelet.ir.programs import Programs
from tilelet.language.text import parse
from tilelet.runtime.config import BackendType, OptimizationStrategy, RunConfig
from tilelet.runtime.output.console import StageTrace
from tilelet.runtime.programs.compiler import (
    CompiledProgram,
    CompiledPrograms,
    compile_program,
    compile_with_dumps,
)

__all__ = [
    "BackendType",
    "CodegenBackend",
    "DataType",
    "LogLevel",
    "MemoryPlanner",
    "OptimizationStrategy",
    "PartialCodegenError",
    "PassManager",
    "__version__",
    "compile",
    "configure_log",
    "deserialize",
    "get_backend_type",
    "is_backend_configured",
    "pto_isa_include_dir",
    "python_print",
    "reset_for_testing",
    "serialize",
    "set_backend_type",
    "set_log_level",
]

CodegenBackend = BackendType
"""The original name."""

PartialCodegenError = UserErrors
"""The exception that scripts catch for mistakes in kernels."""

_backend: BackendType | None = None


def set_backend_type(backend: BackendType) -> None:
    """Store the processor family, which has no effect on a CPU."""
    global _backend  # noqa: PLW0603
    _backend = backend


def get_backend_type() -> BackendType:
    return _backend or BackendType.Ascend910B


def is_backend_configured() -> bool:
    return _backend is not None


def reset_for_testing() -> None:
    global _backend  # noqa: PLW0603
    _backend = None


def serialize(node: Program | Function) -> bytes:
    """Return a program or function as bytes of its text, which `deserialize` reads."""
    return node.as_python().encode()


def deserialize(data: bytes) -> Program | Function:
    """Return the program or function that was serialized."""
    return parse(bytes(data).decode())


class LogLevel(enum.IntEnum):
    """Levels of `set_log_level`, without effect."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3
    FATAL = 4
    EVENT = 5
    NONE = 6


def set_log_level(level: LogLevel) -> None:
    """Do nothing: Tilelet has no log."""


_set_thread_log_level = set_log_level


def _clear_thread_log_level() -> None:  # pyright: ignore[reportUnusedFunction]
    """As `set_log_level`, for one thread."""


def pto_isa_include_dir() -> Path:
    """Return where headers of external kernels would be; nothing reads them here."""
    return Path("pto-isa") / "include"


def configure_log(level: object) -> None:
    """As `set_log_level`, for the runtime of a device."""


class MemoryPlanner(enum.Enum):
    """The memory planner; accepted without effect."""

    PYPTO = "PYPTO"
    DSA_RP = "DSA_RP"
    PTOAS = "PTOAS"


# Trace levels of a board, as named by test suites.
_SWIMLANE_MAX_LEVEL = 4
_SWIMLANE_FULL_LEVEL = 4
_SWIMLANE_CLI_HELP = "how much to record of the lanes of a chip; without effect here"


def _Stage(name: str) -> AbstractContextManager[None]:  # noqa: N802  # pyright: ignore[reportUnusedFunction]
    """Print a stage of a script's own runner."""
    return StageTrace().stage(name)


class _DataTypes:
    """`pypto.DataType.FP32` and so on: the element types as attributes."""

    def __getattr__(self, name: str) -> dtypes.DType:
        try:
            return dtypes.by_name(name)
        except KeyError:
            raise AttributeError(f"no element type {name!r}") from None


DataType = _DataTypes()


def compile(  # noqa: A001
    program: Program | Programs, output_dir: str | Path | None = None, **settings: Any
) -> CompiledProgram | CompiledPrograms:
    """`ir.compile(program, ...)`: a `CompiledProgram`. Settings are those of `RunConfig`."""
    settings["backend_type"] = settings.pop("codegen", settings.get("backend_type"))  # its old name
    config = RunConfig(output_dir=output_dir, **settings)
    if isinstance(program, Programs):
        return CompiledPrograms(program, config)
    return compile_with_dumps(program, config)


def python_print(program: Program | Function) -> str:
    """Return a program or function as `pl` text."""
    from tilelet.ir.printer import print_function, print_program

    return print_function(program) if isinstance(program, Function) else print_program(program)


class PassManager:
    """`PassManager.get_strategy(strategy).run_passes(program)`."""

    def __init__(self, strategy: OptimizationStrategy = OptimizationStrategy.Default) -> None:
        self.strategy = strategy

    @classmethod
    def get_strategy(
        cls, strategy: OptimizationStrategy = OptimizationStrategy.Default
    ) -> PassManager:
        return cls(strategy)

    @property
    def pass_names(self) -> list[str]:
        from tilelet.passes.pipeline import PASSES

        return [one.__name__ for one in PASSES]

    def get_pass_names(self) -> list[str]:
        return self.pass_names

    def run_passes(
        self, program: Program, dump_ir: bool = False, output_dir: str | None = None
    ) -> Program:
        """Run all passes; `dump_ir` writes one file per pass to `output_dir`."""
        folder = Path(output_dir) if dump_ir and output_dir else None
        return compile_program(program, folder).program
