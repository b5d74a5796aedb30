"""From a frontend program to something that can be called."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tilelet.diag.catalogue.command import CannotWrite
from tilelet.diag.catalogue.python import NestedTooDeeply
from tilelet.diag.catalogue.ranks import RanksOnly
from tilelet.diag.catalogue.windows import DependsOnTaskData
from tilelet.ir.core import Direction, FunctionKind, Program
from tilelet.ir.programs import Programs
from tilelet.runtime import session
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.arrays import Array
from tilelet.runtime.inspection.check import check_after_run
from tilelet.runtime.output import reporting
from tilelet.runtime.output.run_directory import RunDirectory, file_name
from tilelet.runtime.programs import engines
from tilelet.runtime.programs.binding import bind_call, given_names, parameters
from tilelet.runtime.programs.stepwise_calls import StepwiseCalls
from tilelet.runtime.programs.warm_calls import NOT_WARM, WarmCalls
from tilelet.runtime.progress import progress

if TYPE_CHECKING:
    from tilelet.cpu.prepared import PreparedCalls


class Specializable(Protocol):
    """A `@pl.jit` function, or a class with several entries."""

    def specialize(self) -> Program: ...


def compile_program(
    program: Program | Specializable, dump_dir: Path | None = None, config: RunConfig | None = None
) -> CompiledProgram:
    """Run the passes and verify the result. `dump_dir` receives one readable file per pass.

    A `@pl.jit` function whose signature says all shapes and types will do, too: what comes back is
    called as it is, and costs less, because it means now and ever what its names mean now.

    Cautions that the frontend collected are shown, each once per process.
    """
    if not isinstance(program, Program):
        program = program.specialize()
    from tilelet.ir.dump import PassDumper
    from tilelet.ir.verify import verify
    from tilelet.passes.pipeline import run_passes

    now = session.current()
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
            _no_dumps(error)

    dump(lambda to: to.frontend(program))
    try:
        passed = run_passes(program, after=lambda name, p: dump(lambda to: to(name, p)))
        verify(passed)
    except RecursionError:
        raise NestedTooDeeply(program.main.loc) from None
    return CompiledProgram(program, passed, config)


class CompiledProgram(StepwiseCalls):
    """A program after all passes: call it with arrays or tensors in the entry's parameter order.

    Results are written into the arguments. A call gives back the written tensor, or a tuple of
    them. `pl.Out` arguments may be left out: then it gives back these.
    """

    def __init__(self, source: Program, program: Program, config: RunConfig | None = None) -> None:
        self.source = source  # as the frontend made it
        self.program = program  # after all passes
        self.parameters = parameters(program)
        self.config = config or RunConfig()
        self._is_c_kept = False
        self._warm_calls = WarmCalls()

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def platform(self) -> str:
        return reporting.platform_of(self.config)

    @property
    def output_indices(self) -> list[int]:
        """Positions of the parameters that the program writes, without those it also takes in."""
        takes_in = Direction.InOut
        return [
            i for i, p in enumerate(self.parameters) if p.is_written and p.declared is not takes_in
        ]

    @functools.cached_property
    def output_dir(self) -> Path:
        """A folder for what belongs to the program; the compiled object stands for it, too."""
        return run_directory(self.name, self.config).root

    def __fspath__(self) -> str:
        return str(self.output_dir)

    def __str__(self) -> str:
        return self.__fspath__()

    @property
    def has_ranks(self) -> bool:
        """Whether the program dispatches to several ranks."""
        return self.program.main.kind is FunctionKind.Host

    def may_run(self, arguments: Mapping[str, Any], settings: RunConfig) -> bool:
        """Whether a program of several ranks is to be run, after the session has explored it.

        Commands that look at the tasks of one chip refuse it.
        """
        now = session.current()
        config = settings.distributed_config or self.config.distributed_config
        if now.on_ranks is not None:
            return now.on_ranks(self.name, self.program, arguments, config)
        if now.looks_at_tasks:
            raise RanksOnly(self.program.main.loc)
        return True

    @property
    def param_names(self) -> list[str]:
        return [p.name for p in self.parameters]

    @property
    def has_return(self) -> bool:
        """Whether the entry's text ends with `return` and something."""
        return bool(self.source.main.returned)

    @property
    def orchestration_names(self) -> list[str]:
        """The entry; of a class with several of them, see `CompiledPrograms`."""
        return [self.source.entry]

    def __call__(self, *args: Any, config: RunConfig | None = None) -> Any:
        if config is None and self.config.wants_only_results:
            result = self._warm_calls.call(args)
            if result is NOT_WARM:
                result = self._call(args, self.config)
                self._warm_calls.remember(self, args, given_names(self.parameters, len(args)))
            return result
        return self._call(args, config or self.config)

    def _call(self, args: Sequence[Any], settings: RunConfig) -> Any:
        now = session.current()
        if not now.count_only:
            reporting.announce(settings)
        bound, written = bind_call(self.name, self.parameters, args)
        if self.has_ranks:
            if self.may_run(bound, settings):
                self.run_tasks(bound, settings)
            return _results(written)
        directory = run_directory(self.name, settings)
        with progress(f"running {self.name}"):
            if now.count_only:
                tasks = self.count_tasks(bound, lambda: bound)
            else:
                tasks = self.run_tasks(bound, settings, directory=directory)
        if now.count_only or now.recorder:
            reporting.show_recorded(self.name, self.program, tasks, bound)
        elif settings.profiles:
            reporting.show_profile(self.name, self.program, tasks, bound, settings, directory)
        if now.checks:
            platform = reporting.platform_of(settings)
            counts = tasks.counts()
            text = check_after_run(self.name, self.program, bound, platform, counts)
            if text:
                now.say_once(f"{self.name}: done{text}")
        return _results(written)

    def execute(
        self,
        arguments: Mapping[str, Array | Any],
        config: RunConfig | None = None,
        execute: bool = True,
    ) -> dict[str, int]:
        """Run on arguments by name, in place; the number of tasks of each kernel."""
        return self.run_tasks(arguments, config, execute).counts()

    def run_tasks(
        self,
        arguments: Mapping[str, Array | Any],
        config: RunConfig | None = None,
        execute: bool = True,
        directory: RunDirectory | None = None,
    ) -> engines.TaskCounter:
        """Run on arguments by name, in place; the record of the tasks.

        Tasks are recorded with their arguments where somebody wants that, else only counted.
        `directory` gets what `--keep-c` keeps.
        """
        settings = config or self.config
        engine = self._engine(settings, execute, directory)
        return engine.run(self.program, arguments, execute=execute).tasks

    def count_tasks(
        self,
        arguments: Mapping[str, Array | Any],
        data: Callable[[], Mapping[str, Array | Any]] | None = None,
    ) -> engines.TaskCounter:
        """The tasks of a run on arguments by name, none of which is executed.

        They are recorded with their arguments where somebody looks at these, else only counted.
        `data` gives arguments with their data: if what tasks compute decides how many follow, and
        only the number is wanted, they are executed.
        """
        now = session.current()
        looked_at = now.recorder is not None or now.as_runtime or self.config.profiles
        if looked_at or now.most_tasks is not None:
            return self.run_tasks(arguments, execute=False)
        from tilelet.interp.counting import count_tasks

        try:
            return count_tasks(self.program, arguments)
        except DependsOnTaskData:
            if data is None:
                raise
        text = f"note: {self.name} is run: what its tasks compute decides how many follow"
        now.say_once(text, sys.stderr)
        return self.run_tasks(data())

    def prepare(
        self, config: RunConfig | None = None, directory: RunDirectory | None = None
    ) -> None:
        """Do all that `run_tasks` would have to do before it runs: compile the C text."""
        self._engine(config or self.config, True, directory).prepare(self.program)

    def _engine(
        self, settings: RunConfig, execute: bool, directory: RunDirectory | None
    ) -> engines.Engine:
        if self.has_ranks:
            return engines.of_ranks(settings.distributed_config or self.config.distributed_config)
        chosen = settings.engine
        records = session.current().recorder is not None or settings.profiles
        if not execute or (records and self._is_data_dependent()):
            chosen = "interp"
        request = engines.RunRequest(lambda: self._c_folder(directory), records)
        return engines.get(chosen, request)

    def prepared(self) -> PreparedCalls | None:
        """For calls of one signature; None if programs, or this one, are interpreted here."""
        if self.has_ranks or not engines.runs_natively(self.program):
            return None
        from tilelet.cpu.engine import compiled
        from tilelet.cpu.prepared import PreparedCalls

        return PreparedCalls(compiled(self.program))

    def _is_data_dependent(self) -> bool:
        """Whether data decides what a kernel does, which only the interpreter writes down."""
        from tilelet.tasks.control_points import sites

        return any(sites(kernel) for kernel in self.program.kernels)

    def _c_folder(self, directory: RunDirectory | None) -> Path | None:
        """Where the C text goes, if it is to be kept: once for a program."""
        now = session.current()
        if not now.keep_c or directory is None or self._is_c_kept:
            return None
        self._is_c_kept = True
        try:
            folder = now.keep_c_in / file_name(self.name) if now.keep_c_in else directory.path("c")
        except OSError as error:
            raise CannotWrite.of(error) from error
        now.say_once(f"note: the C text of {self.name} is in {folder}")
        return folder

    def task_counts(self, arguments: Mapping[str, Array | Any]) -> dict[str, int]:
        """The number of tasks of each kernel, without executing any."""
        return self.execute(arguments, execute=False)

    def as_python(self) -> str:
        """The program after all passes, as `pl` text."""
        from tilelet.ir.printer import print_program

        return print_program(self.program)


def _results(written: Mapping[str, Any]) -> Any:
    """What a call returns: the written tensor, or a tuple of them."""
    results = tuple(written.values())
    return results[0] if len(results) == 1 else results or None


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
            program = self._programs[entry]
            folder = dump_folder(run_directory(program.name, self._config), self._config)
            self._compiled[entry] = compile_program(program, folder, self._config)
        return self._compiled[entry]

    def __getattr__(self, entry: str) -> CompiledProgram:
        if entry.startswith("_") or entry not in self._programs.by_entry:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {entry!r}")
        return self[entry]

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise self._programs.ambiguous()


def run_directory(name: str, config: RunConfig | None = None) -> RunDirectory:
    """The directory that a run of this program writes to, if it writes anything."""
    chosen = config.directory if config else None
    return RunDirectory(name, root=session.current().build_dir, exact=chosen)


def dump_folder(directory: RunDirectory, config: RunConfig | None = None) -> Path | None:
    """Where pass dumps go, if anybody asked for them."""
    if not session.current().dump_passes and not (config and config.dump_passes):
        return None
    try:
        folder = directory.path("passes_dump")
        folder.mkdir(exist_ok=True)
    except OSError as error:
        _no_dumps(CannotWrite.of(error))
        return None
    return folder


def _no_dumps(error: CannotWrite) -> None:
    """A script's own wish for dumps must not stop its run; one on the command line is an order."""
    if session.current().dump_passes:
        raise error
    session.current().say_once(f"note: no pass dumps: {error.diagnostic.message}")
