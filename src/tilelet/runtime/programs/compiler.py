"""Compilation of frontend programs to callables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.python import NestedTooDeeply
from tilelet.dtypes import Argument, Arguments
from tilelet.ir.core import Direction, FunctionKind, Program
from tilelet.ir.programs import Programs
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig
from tilelet.runtime.output.run_directory import RunDirectory, file_name
from tilelet.runtime.programs import engines
from tilelet.runtime.programs.binding import bind_call, given_names, parameters
from tilelet.runtime.programs.stepwise_calls import StepwiseCalls
from tilelet.runtime.programs.warm_calls import NOT_WARM, WarmCalls
from tilelet.runtime.session import Session

if TYPE_CHECKING:
    from tilelet.cpu.run.prepared import PreparedCalls
    from tilelet.ranks.config import DistributedConfig
    from tilelet.ranks.windows import KeptWindows


class Specializable(Protocol):
    """A `@pl.jit` function, or a class with several entries."""

    def specialize(self) -> Program: ...


def compile_program(
    program: Program | Specializable,
    dump_dir: Path | None = None,
    config: RunConfig | None = None,
    *,
    now: Session | None = None,
) -> CompiledProgram:
    """Run the passes and verify the result. `dump_dir` receives one readable file per pass.

    A `@pl.jit` function with declared shapes and types is accepted, too. Calls of the result are
    cheaper, because global names keep their present values.

    Cautions of the frontend are shown once per session: `now`, or the current one.
    """
    if not isinstance(program, Program):
        program = program.specialize()
    from tilelet.ir.dump import PassDumper
    from tilelet.ir.verify import verify
    from tilelet.passes.pipeline import run_passes

    now = now or session.current()
    now.programs_seen += 1
    now.report(program.cautions)
    dumper = PassDumper(dump_dir) if dump_dir else None

    def dump(write: Callable[[PassDumper], object]) -> None:
        nonlocal dumper
        try:
            if dumper:
                write(dumper)
        except CannotWrite as error:
            dumper = None
            now.cannot_dump(error)

    dump(lambda to: to.frontend(program))
    try:
        passed = run_passes(program, after=lambda name, p: dump(lambda to: to(name, p)))
        verify(passed)
    except RecursionError:
        raise NestedTooDeeply(program.main.loc) from None
    return CompiledProgram(program, passed, config)


def compile_with_dumps(program: Program, config: RunConfig | None = None) -> CompiledProgram:
    """Compile a program, with pass dumps in its own run directory if requested."""
    now = session.current()
    folder = now.dump_folder(now.run_directory(program.name, config), config)
    return compile_program(program, folder, config, now=now)


class CompiledProgram(StepwiseCalls):
    """A program after all passes: call it with arrays or tensors in the entry's parameter order.

    Results are written into the arguments. A call returns the written tensor, or a tuple of them.
    If `pl.Out` arguments are omitted, it returns these.
    """

    def __init__(self, source: Program, program: Program, config: RunConfig | None = None) -> None:
        self.source = source  # from the frontend
        self.program = program  # after all passes
        self.parameters = parameters(program)
        self.config = config or RunConfig()
        self._is_c_kept = False
        # Set by a worker of several ranks: sub-workers, persistent windows and resident parameters.
        self.callbacks: Mapping[str, Callable[..., object]] | None = None
        self.kept_windows: KeptWindows | None = None
        self.resident: Mapping[str, Sequence[int]] = {}
        self._warm_calls = WarmCalls()

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def platform(self) -> str:
        return session.current().platform_of(self.config)

    @property
    def output_indices(self) -> list[int]:
        """Positions of the parameters that the program writes but does not read."""
        takes_in = Direction.InOut
        return [
            i for i, p in enumerate(self.parameters) if p.is_written and p.declared is not takes_in
        ]

    @functools.cached_property
    def output_dir(self) -> Path:
        """The output directory of the program; the compiled object is path-like itself."""
        return session.current().run_directory(self.name, self.config).root

    def __fspath__(self) -> str:
        return str(self.output_dir)

    def __str__(self) -> str:
        return self.__fspath__()

    @property
    def has_ranks(self) -> bool:
        """Whether the program dispatches to several ranks."""
        return self.program.main.kind is FunctionKind.Host

    def ranks_config(self, config: RunConfig) -> DistributedConfig | None:
        """Return the ranks that the configuration requests, else the program's own."""
        return config.distributed_config or self.config.distributed_config

    @property
    def param_names(self) -> list[str]:
        return [p.name for p in self.parameters]

    @property
    def has_return(self) -> bool:
        """Whether the entry returns a value."""
        return bool(self.source.main.returned)

    @property
    def orchestration_names(self) -> list[str]:
        """The entry; of a class with several of them, see `CompiledPrograms`."""
        return [self.source.entry]

    def __call__(self, *args: object, config: RunConfig | None = None) -> Any:
        if config is None and self.config.wants_only_results:
            result = self._warm_calls.call(args)
            if result is NOT_WARM:
                result = self._call(args, self.config)
                self._warm_calls.remember(self, args, given_names(self.parameters, len(args)))
            return result
        return self._call(args, config or self.config)

    def _call(self, args: Sequence[object], settings: RunConfig) -> Any:
        call = ProgramCall(self, args, settings, session.current())
        call.session.handler.call(call)
        results = tuple(call.written.values())
        return results[0] if len(results) == 1 else results or None

    def execute(
        self,
        arguments: Arguments,
        config: RunConfig | None = None,
        execute: bool = True,
    ) -> dict[str, int]:
        """Run on arguments by name, in place; return the number of tasks of each kernel."""
        return self.run_tasks(arguments, config, execute).counts()

    def run_tasks(
        self,
        arguments: Arguments,
        config: RunConfig | None = None,
        execute: bool = True,
        directory: RunDirectory | None = None,
        *,
        records: bool = False,
        most_tasks: int | None = None,
        now: Session | None = None,
    ) -> engines.TaskCounter:
        """Run on arguments by name, in place; return the record of the tasks.

        directory   receives the C text of `--keep-c`
        records     record the tasks with their arguments, not only their number
        most_tasks  limit of recorded tasks if none is executed; None: no limit
        """
        engine = self._engine(config, execute, directory, records, most_tasks, now)
        return engine.run(self.program, arguments, execute=execute).tasks

    def prepare(
        self,
        config: RunConfig | None = None,
        directory: RunDirectory | None = None,
        *,
        records: bool = False,
        now: Session | None = None,
        **worker: Any,
    ) -> Any:
        """Compile the C text ahead of `run_tasks`.

        For a program of several ranks, return a `DistributedWorker` with its options.
        """
        if self.has_ranks:
            from tilelet.runtime.programs.ranks_worker import DistributedWorker

            return DistributedWorker(self, config, **worker)
        return self._engine(config, True, directory, records, None, now).prepare(self.program)

    def _engine(
        self,
        config: RunConfig | None,
        execute: bool,
        directory: RunDirectory | None,
        records: bool,
        most_tasks: int | None,
        now: Session | None,
    ) -> engines.ProgramEngine:
        settings, now = config or self.config, now or session.current()
        if self.has_ranks:
            from tilelet.runtime.programs.ranks_worker import program_callbacks

            callbacks = program_callbacks(self) if self.callbacks is None else self.callbacks
            return engines.of_ranks(
                self.ranks_config(settings),
                callbacks,
                self.kept_windows,
                settings.engine or now.chosen_engine,
                now.over_mpi,
                self.resident,
            )
        records = records or settings.profiles
        chosen = settings.engine
        if not execute or (records and self._is_data_dependent()):
            chosen = "interp"
        folder = functools.partial(self._c_folder, directory, now)
        return engines.get(chosen, engines.RunRequest(folder, records, most_tasks, directory, now))

    def prepared(self) -> PreparedCalls | None:
        """Return a fast path for calls of one signature; None if the program is interpreted."""
        if self.has_ranks or not engines.runs_natively(self.program):
            return None
        from tilelet.cpu.plan.verify import PlanError
        from tilelet.cpu.run.engine import compile_native
        from tilelet.cpu.run.prepared import PreparedCalls

        try:
            return PreparedCalls(compile_native(self.program))
        except PlanError:
            return None  # `run_tasks` reports it

    def _is_data_dependent(self) -> bool:
        """Whether kernels have data-dependent control flow, which only the interpreter records."""
        from tilelet.tasks.control_points import sites

        return any(sites(kernel) for kernel in self.program.kernels)

    def _c_folder(self, directory: RunDirectory | None, now: Session) -> Path | None:
        """Return the directory of the C text if it is to be kept, once per program."""
        if not now.keep_c or directory is None or self._is_c_kept:
            return None
        self._is_c_kept = True
        try:
            folder = now.keep_c_in / file_name(self.name) if now.keep_c_in else directory.path("c")
        except OSError as error:
            raise CannotWrite.of(error) from error
        now.say_once(f"note: the C text of {self.name} is in {folder}")
        return folder

    def task_counts(self, arguments: Arguments) -> dict[str, int]:
        """Return the number of tasks of each kernel without executing any."""
        return self.execute(arguments, execute=False)

    def as_python(self) -> str:
        """Return the program after all passes as `pl` text."""
        from tilelet.ir.printer import print_program

        return print_program(self.program)


@dataclass(frozen=True)
class ProgramCall:
    """A call of a compiled program, for the handler of its session."""

    program: CompiledProgram
    given: Sequence[Any]
    config: RunConfig
    session: Session

    @functools.cached_property
    def _bound(self) -> tuple[dict[str, Argument], dict[str, object]]:
        return bind_call(self.program.name, self.program.parameters, self.given)

    @property
    def arguments(self) -> dict[str, Argument]:
        """Arguments by parameter name. Arrays share the memory of the caller's tensors."""
        return self._bound[0]

    @property
    def written(self) -> dict[str, Any]:
        """The tensors that the call returns, by parameter name."""
        return self._bound[1]


class CompiledPrograms:
    """A class with several entries: `compiled["name"]` and `compiled.name` are programs of it."""

    def __init__(self, programs: Programs, config: RunConfig | None = None) -> None:
        self._programs = programs
        self._config = config
        self._compiled: dict[str, CompiledProgram] = {}

    @property
    def name(self) -> str:
        return self._programs.name

    @property
    def orchestration_names(self) -> list[str]:
        return list(self._programs.by_entry)

    def __getitem__(self, entry: str) -> CompiledProgram:
        if entry not in self._programs.by_entry:
            raise KeyError(f"{self.name} has no entry {entry!r}, only {self.orchestration_names}")
        if entry not in self._compiled:
            config = self._config or RunConfig()
            if config.output_dir is not None:
                folder = Path(config.output_dir) / "next_levels" / entry
                config = config.with_settings({"output_dir": folder})
            program = replace(self._programs[entry], name=entry)
            self._compiled[entry] = compile_with_dumps(program, config)
        return self._compiled[entry]

    def __getattr__(self, entry: str) -> CompiledProgram:
        if entry.startswith("_") or entry not in self._programs.by_entry:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {entry!r}")
        return self[entry]

    def __call__(self, *_: object, **__: object) -> Any:
        raise self._programs.ambiguous()
