"""The command line and the environment (E07xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, ticked


class FileMissing(UserError):
    """The file named on the command line does not exist.

    Paths are relative to the working directory.
    """

    code = "E0701"

    def __init__(self, path: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(f"no file `{path}`", helps=did_you_mean(suggestions))


class NotAScript(UserError):
    """The file named on the command line is not a Python script that can be read.

    `tilelet run` takes a `.py` file in UTF-8. A directory, a binary file or a file without read
    permission cannot be run.
    """

    code = "E0702"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"`{path}` is not a Python script: {why}")


class NoProgramFound(UserError):
    """The script defines no kernel program.

    Commands that inspect a program look for a `@pl.program` class or a `@pl.jit` function among the
    script's module-level names, or for a builder function that needs no arguments.
    """

    code = "E0703"

    def __init__(self, path: str, why_not: Mapping[str, str] | None = None) -> None:
        """`why_not`: what the script does define, and why it cannot be compiled as it is."""
        if not why_not:
            super().__init__(
                f"no program in `{path}`",
                helps=["define a `@pl.program` class or a `@pl.jit` function at module level"],
            )
            return
        super().__init__(
            f"`{path}` runs nothing, and nothing in it can be compiled as it is",
            notes=[f"`{name}` {why}" for name, why in why_not.items()],
            helps=["call it in the script, or give all its parameters types or defaults"],
        )


class BadFlag(UserError):
    """An option or argument of the command line is unknown, missing, or has a bad value.

    `tilelet COMMAND --help` lists the options. Options of the script itself go after the script's
    name if the script parses its arguments, or after `--`. An option that neither Tilelet nor the
    script reads is an error. Environment variables that set an option take the same values.
    """

    code = "E0705"

    def __init__(self, message: str, helps: Sequence[str] = ()) -> None:
        super().__init__(message, helps=helps)


class ScriptRaised(UserError):
    """The script stopped with an exception that is not about a kernel.

    The note shows Python's traceback, without Tilelet's own frames.
    """

    code = "E0706"

    def __init__(self, path: str, traceback: str, loc: Loc | None = None) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        super().__init__(
            f"`{path}` raised an exception",
            [Label(loc, last)] if loc is not None else [],
            notes=[traceback.strip()],
        )


class UnknownCode(UserError):
    """`tilelet explain` was asked about a code that does not exist.

    Codes are a letter and four digits, as in `E0203`; docs/errors.md lists all.
    """

    code = "E0707"

    def __init__(self, asked: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(f"no code `{asked}`", helps=did_you_mean(suggestions))


class MissingModule(UserError):
    """Something needs a Python package that is not installed.

    Tilelet itself needs only numpy, ml_dtypes and rich; scripts may need more, such as torch for
    their goldens. The help shows the extra that brings it.
    """

    code = "E0708"

    def __init__(self, module: str, needed_by: str, extra: str = "") -> None:
        install = f"tilelet[{extra}]" if extra else module
        super().__init__(
            f"{needed_by} needs the package `{module}`, which is not installed",
            helps=[f"install it: `pip install '{install}'`"],
        )


class CannotWrite(UserError):
    """A file or directory that the run makes cannot be written.

    Runs write below `build_output/` in the working directory unless told otherwise. Check
    permissions and free space, or choose another directory.
    """

    code = "E0709"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write `{path}`: {reason}")

    @classmethod
    def of(cls, error: OSError, otherwise: str = "a file of the run") -> CannotWrite:
        """What the system says; on a full disk it names no file."""
        return cls(str(error.filename or otherwise), error.strerror or str(error))


class UnknownPlatform(UserError):
    """The platform given with `-p` or in `RunConfig` is not known.

    Platforms ending in `sim` run on this CPU; the others are modelled on this CPU too when no board
    is there.
    """

    code = "E0710"

    def __init__(self, platform: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown platform `{platform}`",
            helps=[*did_you_mean(near(platform, known)), f"platforms are {ticked(known, 'and')}"],
        )


class AnotherPypto(Caution):
    """Another package or folder has the name of one that Tilelet stands in for.

    Scripts import `pypto` and `golden`; under `tilelet run` these names mean Tilelet's versions. If
    the real package is installed too, or the script has its own folder of that name, the note says
    which one is used and how to choose the other.
    """

    code = "W0701"
    severity = "note"

    def __init__(self, module: str, other_path: str, using: str, switch: str) -> None:
        super().__init__(
            f"`import {module}` means {using}",
            notes=[f"another `{module}` is at {other_path}"],
            helps=[f"to use the other one: `{switch}`"],
        )


class UnknownEngine(UserError):
    """The engine given with `--engine`, `TILELET_ENGINE` or `RunConfig(engine=...)` does not exist.

    An engine executes a compiled program: `cpu` as native code, `interp` by interpreting it.
    """

    code = "E0711"

    def __init__(self, engine: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown engine `{engine}`",
            helps=[*did_you_mean(near(engine, known)), f"engines are {ticked(known, 'and')}"],
        )


class NotProvided(UserError):
    """The script imports something from `pypto` or `golden` that Tilelet does not have.

    Tilelet stands in for the parts that scripts use to define, run and compare kernels. Compiler
    internals, device workers and distributed programs are not among them.
    """

    code = "E0712"

    def __init__(self, what: str, loc: Loc | None = None, known: Sequence[str] = ()) -> None:
        name = what.rsplit(".", 1)[-1]
        helps = did_you_mean(near(name, known))
        if "pto_isa" in name:
            helps = ["it is for kernels in C++, which are not supported: `tilelet explain E0803`"]
        super().__init__(
            f"`{what}` is not part of Tilelet's stand-in",
            [Label(loc, "imported here")] if loc is not None else [],
            helps=helps,
        )


class NoCompiler(UserError):
    """The native engine needs a C compiler, and none was found.

    It compiles a program before it runs it. `$CC` is used if it is set, else `cc`, `gcc` or
    `clang`, else the compiler of the `ziglang` package. The interpreter needs none, but is slow.
    """

    code = "E0713"

    def __init__(self, chosen: str = "") -> None:
        message = (
            f"`$CC` is `{chosen}`, which is no working C compiler" if chosen else "no C compiler"
        )
        super().__init__(
            message,
            helps=[
                "install one: `pip install tilelet[cc]`, or your system's `gcc` or `clang`",
                "or run without: `tilelet run --engine interp`",
            ],
        )


class CompilerFailed(UserError):
    """The C compiler could not compile the program.

    Usual causes are a full disk, too little memory, or a compiler that was ended from outside. A
    complaint about the C text itself is a bug in Tilelet, and is reported as one.
    """

    code = "E0714"

    def __init__(self, compiler: str, why: str, output: str = "") -> None:
        last = "\n".join(output.strip().splitlines()[-12:])
        super().__init__(
            f"the C compiler `{compiler}` failed: {why}",
            notes=[last] if last else [],
            helps=["or run without it: `tilelet run --engine interp`"],
        )


class SanitizerNotLoaded(UserError):
    """`TILELET_SANITIZE=1` is set, but Python has started without the address sanitizer.

    Its library must be the first that a process loads. The command `tilelet` sees to that itself;
    where Python is started in another way, the environment has to.
    """

    code = "E0716"

    def __init__(self, variables: Mapping[str, str]) -> None:
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        super().__init__(
            "the address sanitizer is not loaded",
            helps=[f"start Python with `{settings}`", "or run the script with `tilelet run`"],
        )


class UnknownSection(UserError):
    """`tilelet bench` was asked for a section that it does not have.

    `tilelet bench --list` names them all. Without a name, all sections are measured.
    """

    code = "E0715"

    def __init__(self, section: str, known: Sequence[str]) -> None:
        super().__init__(
            f"the bench has no section `{section}`",
            helps=[*did_you_mean(near(section, known)), f"sections are {ticked(known, 'and')}"],
        )


class UnknownExample(UserError):
    """`tilelet examples` was asked for an example that it does not have.

    `tilelet examples` names them all. Both `softmax` and `03_softmax` will do.
    """

    code = "E0717"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no example `{name}`",
            helps=[*did_you_mean(near(name, known)), f"examples are {ticked(known, 'and')}"],
        )


class NoBoard(Caution):
    """A hardware platform was asked for, and the program runs on this CPU instead.

    Results are real: the same program, with the same rounding. Nothing is said about the time that
    the hardware would take. Platforms that end in `sim` run here too, without this note.
    """

    code = "W0703"
    severity = "note"

    def __init__(self, platform: str) -> None:
        super().__init__(f"no `{platform}` board here: the program runs on this CPU")
