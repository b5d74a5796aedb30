"""Programs of a script text, written by the user or exported."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import io
import itertools
import linecache
import types
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias

from tilelet.advice.source import Source
from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Machine
from tilelet.diag.catalogue.advice import CannotAdvise
from tilelet.diag.core import Loc, UserError, UserErrors
from tilelet.dialects import dialect_named
from tilelet.export.script import ExportCase, script_text
from tilelet.ir.core import Block, Op, Program
from tilelet.runtime import run, session
from tilelet.runtime.handlers.export import Export
from tilelet.runtime.handlers.record import Record, RecordedRun
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
    """The modelled machine, and options for running scripts."""

    machine: Machine
    period: str | None
    options: RecordingOptions


@dataclass(frozen=True)
class Ran:
    """The runs of a text; `why` says why it failed."""

    why: str
    runs: Sequence[RecordedRun] = ()


class Programs(Protocol):
    """A text that rules may change, and its programs.

    text   the original
    path   file name in the locations of its programs
    """

    @property
    def text(self) -> str: ...

    @property
    def path(self) -> str: ...

    def runs(self, text: str) -> Ran:
        """Record the programs of a version of the text without executing kernels."""
        ...

    def inputs(self) -> list[Inputs]:
        """Return the inputs of each program."""
        ...

    def origin(self, loc: Loc) -> Loc:
        """Map a location in the original text to one that the user knows."""
        ...

    def parts(self) -> Sequence[Source]:
        """Return the files that an exported text was made from."""
        ...


@dataclass(frozen=True)
class ScriptPrograms:
    """A script; each version is run from the top."""

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
        return self._recorded(dataclasses.replace(self.target, text=text), execute=False)

    def inputs(self) -> list[Inputs]:
        return [run.arguments for run in self._recorded(self.target, execute=True).runs]

    def origin(self, loc: Loc) -> Loc:
        return loc

    def parts(self) -> Sequence[Source]:
        return ()

    def _recorded(self, target: Target, *, execute: bool) -> Ran:
        """Run the script without output."""
        options = dataclasses.replace(
            self.setting.options, execute=execute, quiet=True, keep_arguments=True
        )
        with silence():
            recording = record(target, options)
        why = ""
        if recording.code == exit_codes.COULD_NOT_RUN:
            errors = [d for d in recording.diagnostics if d.severity == "error"]
            why = f"{errors[0].code}: {errors[0].message}" if errors else "it stopped"
        return Ran(why, recording.runs)


@contextlib.contextmanager
def silence() -> Generator[None]:
    """Discard the output of script versions."""
    kept = io.StringIO()
    with contextlib.redirect_stderr(kept), contextlib.redirect_stdout(kept):
        yield


@dataclass
class ExportedPrograms:
    """A shipped program, exported to one file.

    Versions of that file supply only the program. It gets the inputs of the shipped program, so
    that inputs and goldens are computed once.
    """

    target: Target
    setting: Setting
    text: str
    path: str
    case: ExportCase

    @classmethod
    def of(cls, target: Target, setting: Setting, dialect: str = NEWEST) -> ExportedPrograms:
        """Export the programs of a target to one text."""
        options, handler = setting.options, Export()
        now = Session(handler, seed=options.seed, quiet_diagnostics=True)
        with session.active(now), silence(), stand_ins(options.pypto, options.golden, now):
            outcome = target.run(now)
        if len(handler.cases) != 1:
            errors = [*outcome.errors, *now.diagnostics]
            why = errors[0].message if errors else "it runs none, or several, of its own accord"
            raise CannotAdvise(target.name, why)
        program, specs, ran = handler.cases[0]
        about = f"{target.name}: program `{program.name}`."
        case = ExportCase(program, specs, ran.golden, ran.rtol, ran.atol, about)
        text = script_text(case, dialect_named(dialect)).text
        name = PurePath(target.name.partition(":")[0]).name
        return cls(target, setting, text, f"{name}.py", case)

    def runs(self, text: str) -> Ran:
        options, handler = self.setting.options, Record()
        now = Session(handler, seed=options.seed, quiet_diagnostics=True)
        case = self.case
        with session.active(now), silence(), stand_ins(options.pypto, options.golden, now):
            try:
                program = self._program(text)
                result = run(program, list(case.specs), case.golden, rtol=case.rtol, atol=case.atol)
            except (UserError, UserErrors) as error:
                first = error.diagnostics[0] if isinstance(error, UserErrors) else error.diagnostic
                return Ran(f"{first.code}: {first.message}")
        errors = [d for d in now.diagnostics if d.severity == "error"]
        if errors or not handler.runs:
            why = f"{errors[0].code}: {errors[0].message}" if errors else str(result.error)
            return Ran(why)
        return Ran("", handler.runs)

    def inputs(self) -> list[Inputs]:
        (run_,) = self.runs(self.text).runs
        return [{name: run_.arguments[name] for name in run_.arguments}]

    def origin(self, loc: Loc) -> Loc:
        """Map a location to the files that the program was made from."""
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
        """Source files of the program's functions, reduced to these."""
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
        """Import the text as a module without running its `main`."""
        path = f"{_VERSION}{next(_serial)}>/{self.path}"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        module = types.ModuleType("version")
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - Tilelet wrote it
        found = getattr(module, self.case.program.name, None)
        if found is None:  # the name of a `@pl.jit` function
            found = getattr(module, self.case.program.main.name)
        return found


def _functions_at(text: str, lines: Sequence[int]) -> str:
    """Blank all lines outside functions that contain one of these lines."""
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
    """Map lines of an exported text to locations of the same ops in the original."""
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
