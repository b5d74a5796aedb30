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
    """The file named on the command line is not a readable Python script.

    `tilelet run` takes a `.py` file in UTF-8. A directory, a binary file or a file without read
    permission cannot be run.
    """

    code = "E0702"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"`{path}` is not a Python script: {why}")


class NoProgramFound(UserError):
    """The script defines no kernel program.

    Commands that inspect a program look for a `@pl.program` class or a `@pl.jit` function among the
    script's module-level names, or for a builder function that has no required parameters.
    """

    code = "E0703"

    def __init__(self, path: str, why_not: Mapping[str, str] | None = None) -> None:
        """`why_not`: what the script defines, and why each definition cannot be compiled."""
        if not why_not:
            super().__init__(
                f"no program in `{path}`",
                helps=["define a `@pl.program` class or a `@pl.jit` function at module level"],
            )
            return
        super().__init__(
            f"`{path}` runs nothing, and nothing in it can be compiled on its own",
            notes=[f"`{name}` {why}" for name, why in why_not.items()],
            helps=["call it in the script, or give all its parameters types or defaults"],
        )


class BadFlag(UserError):
    """A command-line option or argument is unknown, missing, or has an invalid value.

    `tilelet COMMAND --help` lists the options. Options of the script itself go after the script's
    name if the script parses its arguments, or after `--`. An option that neither Tilelet nor the
    script reads is an error. Environment variables that set an option take the same values.
    """

    code = "E0705"

    def __init__(self, message: str, helps: Sequence[str] = ()) -> None:
        super().__init__(message, helps=helps)


class ScriptRaised(UserError):
    """The script stopped with an exception unrelated to a kernel.

    The note shows Python's traceback without Tilelet's own frames.
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

    A code is a letter and four digits, as in `E0203`; docs/errors.md lists all codes.
    """

    code = "E0707"

    def __init__(self, asked: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(f"no code `{asked}`", helps=did_you_mean(suggestions))


class MissingModule(UserError):
    """A required Python package is not installed.

    Tilelet itself needs only numpy, ml_dtypes and rich; scripts may need more, such as torch for
    their goldens. The help shows the extra that installs it.
    """

    code = "E0708"

    def __init__(self, module: str, needed_by: str, extra: str = "") -> None:
        install = f"tilelet[{extra}]" if extra else module
        super().__init__(
            f"{needed_by} needs the package `{module}`, which is not installed",
            helps=[f"install it: `pip install '{install}'`"],
        )


class CannotWrite(UserError):
    """A file or directory of the run cannot be written.

    Runs write to `build_output/` in the working directory unless told otherwise. Check permissions
    and free space, or choose another directory.
    """

    code = "E0709"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write `{path}`: {reason}")

    @classmethod
    def of(cls, error: OSError, otherwise: str = "a file of the run") -> CannotWrite:
        """Build the message from an `OSError`, which names no file if the disk is full."""
        return cls(str(error.filename or otherwise), error.strerror or str(error))


class UnknownPlatform(UserError):
    """The platform given with `-p` or in `RunConfig` is not known.

    Platforms ending in `sim` run on this CPU. The others also run on this CPU if there is no board.
    """

    code = "E0710"

    def __init__(self, platform: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown platform `{platform}`",
            helps=[*did_you_mean(near(platform, known)), f"platforms are {ticked(known, 'and')}"],
        )


class AnotherPypto(Caution):
    """Another package or folder has the same name as a module that Tilelet replaces.

    Scripts import `pypto` and `golden`; under `tilelet run` these names refer to Tilelet's
    versions. If the real package is also installed, or the script has a folder of that name, the
    note says which one is used and how to choose the other.
    """

    code = "W0701"
    severity = "note"

    def __init__(self, module: str, other_path: str, using: str, switch: str) -> None:
        super().__init__(
            f"`import {module}` uses {using}",
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

    Tilelet replaces the parts that scripts use to define, run and compare kernels. It does not
    replace compiler internals, device workers and distributed programs.
    """

    code = "E0712"

    def __init__(self, what: str, loc: Loc | None = None, known: Sequence[str] = ()) -> None:
        name = what.rsplit(".", 1)[-1]
        helps = did_you_mean(near(name, known))
        if "pto_isa" in name:
            helps = ["it is for kernels in C++, which are not supported: `tilelet explain E0803`"]
        super().__init__(
            f"`{what}` is not available in Tilelet",
            [Label(loc, "imported here")] if loc is not None else [],
            helps=helps,
        )


class NoCompiler(UserError):
    """The native engine needs a C compiler, and none was found.

    The engine compiles each program before running it. It uses `$CC` if set, else `cc`, `gcc` or
    `clang`, else the compiler of the `ziglang` package. The interpreter needs no compiler, but is
    slow.
    """

    code = "E0713"

    def __init__(self, chosen: str = "") -> None:
        message = (
            f"`$CC` is `{chosen}`, which is not a working C compiler"
            if chosen
            else ("no C compiler found")
        )
        super().__init__(
            message,
            helps=[
                "install one: `pip install tilelet[cc]`, or your system's `gcc` or `clang`",
                "or run without one: `tilelet run --engine interp`",
            ],
        )


class CompilerFailed(UserError):
    """The C compiler could not compile the program.

    Common causes are a full disk, too little memory, or a compiler process that was killed. An
    error in the generated C code itself is a bug in Tilelet and is reported as such.
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
    """`TILELET_SANITIZE=1` is set, but Python was started without the address sanitizer.

    The sanitizer's library must be the first one that the process loads. The `tilelet` command
    arranges that; if Python is started in another way, set the environment variables that the
    message gives.
    """

    code = "E0716"

    def __init__(self, variables: Mapping[str, str]) -> None:
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        super().__init__(
            "the address sanitizer is not loaded",
            helps=[f"start Python with `{settings}`", "or run the script with `tilelet run`"],
        )


class UnknownSection(UserError):
    """`tilelet bench` has no section of this name.

    `tilelet bench --list` lists the sections. Without a name, all sections are measured.
    """

    code = "E0715"

    def __init__(self, section: str, known: Sequence[str]) -> None:
        super().__init__(
            f"the bench has no section `{section}`",
            helps=[*did_you_mean(near(section, known)), f"sections are {ticked(known, 'and')}"],
        )


class UnknownExample(UserError):
    """`tilelet examples` has no example of this name.

    `tilelet examples` lists them. Both `softmax` and `03_softmax` are accepted.
    """

    code = "E0717"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no example `{name}`",
            helps=[*did_you_mean(near(name, known)), f"examples are {ticked(known, 'and')}"],
        )


class NoBoard(Caution):
    """A hardware platform was requested, but the program runs on this CPU instead.

    The results are those of the program, with the same rounding. The run says nothing about the
    time on the hardware. Platforms that end in `sim` also run here, without this note.
    """

    code = "W0703"
    severity = "note"

    def __init__(self, platform: str) -> None:
        super().__init__(f"no `{platform}` board found: the program runs on this CPU")
