"""How a text becomes the programs that it runs: a script of the user's, or an exported one."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import io
import itertools
import linecache
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias

from tilelet.advice.source import Source
from tilelet.device.machine.description import Machine
from tilelet.device.run import Recorded
from tilelet.diag.catalogue.advice import CannotAdvise
from tilelet.diag.core import Loc, UserError, UserErrors
from tilelet.dialects import dialect_named
from tilelet.export.script import Case, script_text
from tilelet.ir.core import Block, Op, Program
from tilelet.runtime import run, session
from tilelet.runtime.session import Session
from tilelet.scripts import exit_codes
from tilelet.scripts.recording import RecordingOptions, record
from tilelet.scripts.stand_ins import stand_ins
from tilelet.scripts.target import Target

Inputs: TypeAlias = Mapping[str, Any]

NEWEST = "2026-08"
_VERSION = "<version "
_serial = itertools.count()


@dataclass(frozen=True)
class Setting:
    """Where programs are modelled, and how scripts run."""

    machine: Machine
    period: str | None
    options: RecordingOptions


@dataclass(frozen=True)
class Run:
    """A program as a text makes it: its tasks, arguments, and how its outputs are compared."""

    recorded: Recorded
    given: Inputs
    comparison: Any = None


@dataclass(frozen=True)
class Ran:
    """What a text ran; `why` it could not, or empty."""

    why: str
    runs: Sequence[Run] = ()


class Programs(Protocol):
    """A text that can be changed, and what it runs.

    text   as it stands
    path   what places in its programs name as their file
    """

    @property
    def text(self) -> str: ...

    @property
    def path(self) -> str: ...

    def runs(self, text: str) -> Ran:
        """What a version of the text runs; no kernel is executed."""
        ...

    def inputs(self) -> list[Inputs]:
        """What the text gives to each of its programs."""
        ...

    def origin(self, loc: Loc) -> Loc:
        """The place that the user knows, for one of the text as it stands."""
        ...

    def parts(self) -> Sequence[Source]:
        """Files that the text was made of, if it is not the user's own."""
        ...


@dataclass(frozen=True)
class ScriptPrograms:
    """A script: every version is run from its top."""

    target: Target
    setting: Setting

    @property
    def text(self) -> str:
        assert self.target.text is not None
        return self.target.text

    @property
    def path(self) -> str:
        return self.target.name

    def runs(self, text: str) -> Ran:
        found: list[Run] = []

        def look(run: Recorded, given: Inputs, comparison: Any) -> None:
            found.append(Run(run, given, comparison))

        why = self._recorded(dataclasses.replace(self.target, text=text), look, execute=False)
        return Ran(why, found)

    def inputs(self) -> list[Inputs]:
        found: list[Inputs] = []

        def look(_: Recorded, given: Inputs, __: Any) -> None:
            found.append({name: _copied(value) for name, value in given.items()})

        self._recorded(self.target, look, execute=True)
        return found

    def origin(self, loc: Loc) -> Loc:
        return loc

    def parts(self) -> Sequence[Source]:
        return ()

    def _recorded(
        self, target: Target, look: Callable[[Recorded, Inputs, Any], None], *, execute: bool
    ) -> str:
        """Run the script in silence; why it could not, or empty."""
        options = dataclasses.replace(self.setting.options, execute=execute, quiet=True)
        with silence():
            recording = record(target, options, look)
        if recording.code == exit_codes.COULD_NOT_RUN:
            errors = [d for d in recording.diagnostics if d.severity == "error"]
            return f"{errors[0].code}: {errors[0].message}" if errors else "it stopped"
        return ""


def _copied(value: Any) -> Any:
    """Arrays of their own; all else cannot change."""
    return value.copy() if hasattr(value, "copy") else value


@contextlib.contextmanager
def silence() -> Generator[None]:
    """What versions of a script print is not for the user."""
    kept = io.StringIO()
    with contextlib.redirect_stderr(kept), contextlib.redirect_stdout(kept):
        yield


@dataclass
class ExportedPrograms:
    """A program that ships, as the one file that `tilelet export` makes of it.

    Of a version of that file only the program is taken; it gets the inputs that the program as it
    ships gets, so that nothing is drawn and no golden is computed twice.
    """

    target: Target
    setting: Setting
    text: str
    path: str
    case: Case

    @classmethod
    def of(cls, target: Target, setting: Setting, dialect: str = NEWEST) -> ExportedPrograms:
        """What a target would run, as text of a release of the language."""
        cases: list[Case] = []

        def keep(program: Program, specs: Sequence[Any], case: Any) -> None:
            about = f"{target.name}: program `{program.name}`."
            cases.append(Case(program, specs, case.golden, case.rtol, case.atol, about))

        options = setting.options
        now = Session(count_only=True, seed=options.seed, on_case=keep, quiet_diagnostics=True)
        with session.active(now), silence(), stand_ins(options.pypto, options.golden, now):
            outcome = target.run(now)
        if len(cases) != 1:
            errors = [*outcome.errors, *now.diagnostics]
            why = errors[0].message if errors else "it runs none, or several, of its own accord"
            raise CannotAdvise(target.name, why)
        text = script_text(cases[0], dialect_named(dialect)).text
        name = PurePath(target.name.partition(":")[0]).name
        return cls(target, setting, text, f"{name}.py", cases[0])

    def runs(self, text: str) -> Ran:
        found: list[Run] = []

        def keep(name: str, program: Program, tasks: Any, given: Inputs, comparison: Any) -> None:
            found.append(Run(Recorded(name, program, tasks), given, comparison))

        options = self.setting.options
        now = Session(count_only=True, seed=options.seed, quiet_diagnostics=True, recorder=keep)
        case = self.case
        with session.active(now), silence(), stand_ins(options.pypto, options.golden, now):
            try:
                program = self._program(text)
                result = run(program, list(case.specs), case.golden, rtol=case.rtol, atol=case.atol)
            except (UserError, UserErrors) as error:
                first = error.diagnostics[0] if isinstance(error, UserErrors) else error.diagnostic
                return Ran(f"{first.code}: {first.message}")
        errors = [d for d in now.diagnostics if d.severity == "error"]
        if errors or not found:
            why = f"{errors[0].code}: {errors[0].message}" if errors else str(result.error)
            return Ran(why)
        return Ran("", found)

    def inputs(self) -> list[Inputs]:
        (run_,) = self.runs(self.text).runs
        return [{name: run_.given[name] for name in run_.given}]

    def origin(self, loc: Loc) -> Loc:
        """The place in the files that the program was made of."""
        if loc.line <= 0 or not (loc.file == self.path or loc.file.startswith(_VERSION)):
            return loc
        origins = self._origins
        inside = [line for line in origins if loc.line <= line <= loc.end_line]
        above = [line for line in origins if line <= loc.line]
        return origins.get(min(inside) if inside else max(above, default=0), loc)

    @cached_property
    def _origins(self) -> dict[int, Loc]:
        options = self.setting.options
        with stand_ins(options.pypto, options.golden, session.current()):
            return _origins(self._program(self.text), self.case.program)

    def parts(self) -> Sequence[Source]:
        return self._parts

    @cached_property
    def _parts(self) -> list[Source]:
        """What the functions of the program say, each file once: nothing else of it is run."""
        lines: dict[str, list[int]] = {}
        for loc in self._origins.values():
            for at in (loc, *loc.callers):
                lines.setdefault(at.file, []).append(at.line)
        found: list[Source] = []
        for file, used in lines.items():
            text = "".join(linecache.getlines(file))
            if text:
                found.append(Source(file, _functions_at(text, used)))
        return found

    def _program(self, text: str) -> Program:
        """The text as a module, without running its `main`."""
        path = f"{_VERSION}{next(_serial)}>/{self.path}"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        module = types.ModuleType("version")
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - Tilelet wrote it
        found = getattr(module, self.case.program.name, None)
        if found is None:  # a `@pl.jit` function: its own name
            found = getattr(module, self.case.program.main.name)
        return found


def _functions_at(text: str, lines: Sequence[int]) -> str:
    """The text with all lines blank that belong to no function with one of these lines."""
    kept: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            inside = range(node.lineno, (node.end_lineno or 0) + 1)
            if any(line in inside for line in lines):
                kept.update(inside)
    rows = text.splitlines(keepends=True)
    imports = [n for n, row in enumerate(rows, 1) if row.startswith(("import ", "from "))]
    whole = {n for n in imports if "(" not in rows[n - 1]}
    return "".join(row if n in kept | whole else "\n" for n, row in enumerate(rows, 1))


def _origins(made: Program, first: Program) -> dict[int, Loc]:
    """Lines of an exported text, with the places that the same ops have in the original."""
    own, others = _ops(made.main.body), _ops(first.main.body)
    matcher = difflib.SequenceMatcher(
        None, [op.name for op in own], [op.name for op in others], autojunk=False
    )
    found: dict[int, Loc] = {}
    for a, b, size in matcher.get_matching_blocks():
        for op, other in zip(own[a : a + size], others[b : b + size]):
            found.setdefault(op.loc.line, other.loc)
    return found


def _ops(block: Block) -> list[Op]:
    return [op for o in block.ops for op in (o, *(i for b in o.blocks for i in _ops(b)))]
