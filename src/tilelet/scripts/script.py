"""Run a user's script as `__main__`, and classify how it ends."""

from __future__ import annotations

import ast
import linecache
import sys
import sysconfig
import traceback
import types
from bdb import BdbQuit
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tilelet.compat.aliases import ROOTS, is_alias, names_of
from tilelet.dataclasses import dataclass, field
from tilelet.diag.catalogue.command import (
    FileMissing,
    MissingModule,
    NotAScript,
    NotProvided,
    ScriptRaised,
)
from tilelet.diag.catalogue.python import InvalidSyntax, NestedTooDeeply
from tilelet.diag.core import Diagnostic, Loc, UserError, UserErrors
from tilelet.diag.internal import InternalError
from tilelet.diag.text import near
from tilelet.diag.tracebacks import give_place, in_package, user_frames, user_traceback
from tilelet.frontend.module import ModuleBuilder
from tilelet.runtime.output.bug_report import bug_text
from tilelet.runtime.session import Session
from tilelet.runtime.torch_scripts.repeatable import repeatable
from tilelet.scripts import interrupt, output
from tilelet.scripts.discover import compile_found
from tilelet.scripts.exit_codes import COULD_NOT_RUN, FINDINGS, INTERRUPTED
from tilelet.scripts.waiting import notes_on_stderr


@dataclass
class ScriptExit:
    """The outcome of a script: its exit code and pending messages."""

    code: int = 0
    errors: list[Diagnostic] = field(default_factory=list[Diagnostic])
    truncated: bool = False
    traceback: str = ""
    bug: str = ""

    @property
    def says_why(self) -> bool:
        """Whether the script failed for a reason other than its arguments."""
        return bool(self.errors or self.traceback or self.bug)


class Script:
    """A Python file or a module; its arguments are in `sys.argv`."""

    def __init__(self, path: str, module: str | None = None, text: str | None = None) -> None:
        self.path = path
        self.module = module
        self.text = text  # replacement for the contents of the file
        # Absolute, as Python has it: the script may change the working directory.
        self.file = str(Path(path).absolute())

    def run(self, now: Session) -> ScriptExit:
        """Run the file to its end. Only Ctrl-C and a broken pipe come out as exceptions."""
        linecache.checkcache(self.file)
        with self._shown_in_messages():
            return self._run(now)

    def _run(self, now: Session) -> ScriptExit:
        try:
            source = self._source()
            code = compile(source, self.file, "exec", dont_inherit=True)
        except UserError as error:
            return ScriptExit(COULD_NOT_RUN, [error.diagnostic])
        except SyntaxError as error:
            invalid = InvalidSyntax(_syntax_loc(error) or Loc(self.file, 0), error.msg)
            return ScriptExit(COULD_NOT_RUN, [invalid.diagnostic])
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            return self._raised(error)  # RecursionError: nested too deeply for Python's compiler
        with (
            repeatable(now.seed, deferred=not now.handler.executes),
            self._as_main(levels_up(source)) as module,
            watched_output() as output,
            notes_on_stderr(self.file),
        ):
            try:
                begun = ModuleBuilder.begun
                exec(code, module.__dict__)  # noqa: S102
                if not now.programs_seen and not now.results:
                    if output.says_skipped:
                        print(f"note: {self.path} says that it skips: nothing was run")
                    else:
                        made = ModuleBuilder.begun > begun
                        compile_found(self.path, vars(module), now, made)
            except (KeyboardInterrupt, BrokenPipeError):
                raise
            except SystemExit as stop:
                return self._stopped(stop, now)
            except BaseException as error:
                return self._failed(error, now)
        return ScriptExit()

    @contextmanager
    def _shown_in_messages(self) -> Generator[None]:
        """Register the lines that run with `linecache`, from which kernels are parsed."""
        if self.text is None:
            yield
            return
        lines = self.text.splitlines(keepends=True)
        linecache.cache[self.file] = (len(self.text), None, lines, self.file)
        try:
            yield
        finally:
            linecache.cache.pop(self.file, None)

    def _source(self) -> bytes:
        if self.text is not None:
            return self.text.encode()
        path = Path(self.path)
        try:
            if path.is_dir():
                raise NotAScript(self.path, "it is a directory")
            if not path.exists():
                others = near(path.stem, [file.stem for file in path.parent.glob("*.py")])
                raise FileMissing(self.path, [str(path.with_name(f"{name}.py")) for name in others])
            # A shell's `<(...)` has a writer; another pipe might block.
            if path.is_fifo() and not self.path.startswith(("/dev/", "/proc/")):
                raise NotAScript(self.path, "it is a pipe")
            source = path.read_bytes()
        except OSError as error:
            raise NotAScript(self.path, error.strerror or str(error)) from error
        if b"\0" in source:
            raise NotAScript(self.path, "it is a binary file")
        return source

    @contextmanager
    def _as_main(self, levels: int) -> Generator[types.ModuleType]:
        """Set up the interpreter state of a script, and restore it at the end.

        A script that imports its neighbors by `from .` is part of a package: as many folders as it
        goes up, and all that are packages by their files. Packages of the folder that Tilelet is
        started in come last: repositories of kernels put theirs on `PYTHONPATH`, for `golden` too.
        """
        module = types.ModuleType("__main__")
        module.__dict__.update(__file__=self.file, __spec__=None, __builtins__=__builtins__)
        saved = sys.modules["__main__"], list(sys.path)
        sys.modules["__main__"] = module
        if self.module:
            package = self.module.rpartition(".")[0]
            module.__dict__["__package__"] = package or None
            sys.path.insert(0, str(Path.cwd()))
        else:
            folder = Path(self.path).resolve().parent
            sys.path.insert(0, str(folder))
            if levels:
                names: list[str] = []
                while folder.name and (len(names) < levels or (folder / "__init__.py").exists()):
                    names.insert(0, folder.name)
                    folder = folder.parent
                module.__dict__["__package__"] = ".".join(names)
                sys.path.insert(1, str(folder))
            sys.path.append(str(Path.cwd()))
        try:
            yield module
        finally:
            sys.modules["__main__"], sys.path[:] = saved

    def _stopped(self, stop: SystemExit, now: Session) -> ScriptExit:
        """Return the exit code of a `SystemExit`, as Python interprets it."""
        if stop.code == FINDINGS and not now.handler.executes and now.programs_seen:
            return _stopped_while_counting()
        if stop.code is None or isinstance(stop.code, int):
            return ScriptExit(stop.code or 0)
        print(stop.code, file=sys.stderr)
        return ScriptExit(1)

    def _failed(self, error: BaseException, now: Session) -> ScriptExit:
        if isinstance(error, BdbQuit):
            print("the run was ended in the debugger", file=sys.stderr)
            return ScriptExit(INTERRUPTED)
        if isinstance(error, UserErrors):
            return ScriptExit(COULD_NOT_RUN, list(error.diagnostics), error.truncated)
        if isinstance(error, UserError):
            give_place(error)
            return ScriptExit(COULD_NOT_RUN, [error.diagnostic])
        if isinstance(error, AttributeError) and is_alias(getattr(error.obj, "__name__", "")):
            missing = self._missing_name(error)
            return ScriptExit(COULD_NOT_RUN, [missing.diagnostic])
        if isinstance(error, ImportError):
            known = self._import_problem(error)
            if known is not None:
                return ScriptExit(COULD_NOT_RUN, [known.diagnostic])
        if output.failed_by(error) or interrupt.explains(error):
            raise error
        if isinstance(error, MemoryError):
            print("out of memory", file=sys.stderr)
            return ScriptExit(COULD_NOT_RUN)
        if isinstance(error, RecursionError) and _is_ours(error):
            return ScriptExit(COULD_NOT_RUN, [NestedTooDeeply(Loc(self.file, 0)).diagnostic])
        if isinstance(error, InternalError) or _is_ours(error):
            directory = now.run_directory(Path(self.path).stem)
            return ScriptExit(COULD_NOT_RUN, bug=bug_text(error, Path(self.path).name, directory))
        failed_check = isinstance(error, AssertionError) and now.programs_seen
        if failed_check and not now.handler.executes:
            return _stopped_while_counting()
        return self._raised(error)

    def _import_problem(self, error: ImportError) -> UserError | None:
        """Explain a failed import, if Tilelet knows more than Python."""
        name = error.name or ""
        frame = _last_user_frame(error)
        loc = Loc(frame.filename, frame.lineno or 0) if frame else None
        if name.partition(".")[0] in ROOTS:
            wanted = _imported_name(error) or name
            parent = wanted.rpartition(".")[0]
            return NotProvided(wanted, loc, names_of(parent))
        if isinstance(error, ModuleNotFoundError) and name == "torch":
            return MissingModule("torch", f"`{self.path}`", "torch")
        return None

    def _missing_name(self, error: AttributeError) -> UserError:
        """Return the missing name `pypto.x.y` of a failed import."""
        frame = _last_user_frame(error)
        loc = Loc(frame.filename, frame.lineno or 0) if frame else None
        module = str(getattr(error.obj, "__name__", ""))
        return NotProvided(f"{module}.{error.name}", loc, names_of(module))

    def _raised(self, error: BaseException) -> ScriptExit:
        """Return the traceback of the script's own exception, without Tilelet's frames."""
        text = user_traceback(error)
        frames = user_frames(error)
        loc = Loc(frames[-1].filename, frames[-1].lineno or 0) if frames else None
        if isinstance(error, SyntaxError):
            loc = _syntax_loc(error) or loc
        return ScriptExit(
            COULD_NOT_RUN, [ScriptRaised(self.path, text, loc).diagnostic], traceback=text
        )


def _syntax_loc(error: SyntaxError) -> Loc | None:
    """Return where Python found a syntax error; None if it does not say."""
    if not error.filename or not error.lineno:
        return None
    before = (error.text or "")[: max((error.offset or 1) - 1, 0)]
    return Loc(error.filename, error.lineno, len(before.encode()))


def levels_up(source: bytes) -> int:
    """Return the maximum level of relative imports in a text."""
    imports = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom)]
    return max((n.level for n in imports), default=0)


class WatchedOutput:
    """A stream that records whether SKIPPED was printed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.says_skipped = False

    def write(self, text: str) -> int:
        self.says_skipped = self.says_skipped or "SKIPPED" in text
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def watched_output() -> Generator[WatchedOutput]:
    """Watch stdout for scripts that print SKIPPED and run nothing."""
    watched, stdout = WatchedOutput(sys.stdout), sys.stdout
    sys.stdout = watched  # type: ignore[assignment]
    try:
        yield watched
    finally:
        if sys.stdout is watched:
            sys.stdout = stdout


def _stopped_while_counting() -> ScriptExit:
    """Explain a script's failed check of results that were not computed."""
    text = "note: no kernel was executed: what the script says about its outputs does not count"
    print(text, file=sys.stderr)
    return ScriptExit()


def _in_library(frame: traceback.FrameSummary) -> bool:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["purelib"], paths["platlib"]}
    return frame.filename.startswith("<frozen") or any(
        Path(frame.filename).is_relative_to(folder) for folder in folders
    )


def _is_ours(error: BaseException) -> bool:
    """Whether an unexpected exception is a bug of Tilelet rather than a mistake in the script."""
    if isinstance(error, TypeError | ValueError):
        return False  # a wrong call of one of our functions
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if in_package(frame):
            return True
        if not _in_library(frame):
            return False
    return False


def _last_user_frame(error: BaseException) -> traceback.FrameSummary | None:
    users = [frame for frame in user_frames(error) if not _in_library(frame)]
    return users[-1] if users else None


def _imported_name(error: ImportError) -> str | None:
    """Return `module.name` of a failed `from module import name`."""
    name = getattr(error, "name_from", None)
    if name is None and "cannot import name" in str(error):
        name = str(error).split("'")[1]  # Python before 3.12 has it only in the text
    return f"{error.name}.{name}" if name else None
