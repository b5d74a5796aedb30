"""The command line and the environment (E07xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.diag.core import Caution, Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, quoted_names


class FileMissing(UserError, code="E0701"):
    """The file or module named on the command line does not exist."""

    def __init__(self, path: str, suggestions: Sequence[str] = (), what: str = "file") -> None:
        super().__init__(f"no {what} `{path}`", helps=did_you_mean(suggestions))


class NotAScript(UserError, code="E0702"):
    """The file named on the command line is not a readable Python script."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"`{path}` is not a Python script: {why}")


class NoProgramFound(UserError, code="E0703"):
    """The script defines no kernel program."""

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


class BadFlag(UserError, code="E0705"):
    """A command-line option or argument is unknown, missing, or has an invalid value."""

    def __init__(self, message: str, helps: Sequence[str] = ()) -> None:
        super().__init__(message, helps=helps)


class ScriptRaised(UserError, code="E0706"):
    """The script stopped with an exception unrelated to a kernel."""

    def __init__(self, path: str, traceback: str, loc: Loc | None = None) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        super().__init__(
            f"`{path}` raised an exception",
            [Label(loc, last)] if loc is not None else [],
            notes=[traceback.strip()],
        )


class UnknownCode(UserError, code="E0707"):
    """`tilelet explain` was asked about a code that does not exist."""

    def __init__(self, asked: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(f"no code `{asked}`", helps=did_you_mean(suggestions))


class MissingModule(UserError, code="E0708"):
    """A required Python package is not installed."""

    def __init__(self, module: str, needed_by: str, extra: str = "") -> None:
        install = f"tilelet[{extra}]" if extra else module
        super().__init__(
            f"{needed_by} needs the package `{module}`, which is not installed",
            helps=[f"install it: `pip install '{install}'`"],
        )


class CannotWrite(UserError, code="E0709"):
    """A file or directory of the run cannot be written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write `{path}`: {reason}")

    @classmethod
    def of(cls, error: OSError, otherwise: str = "a file of the run") -> CannotWrite:
        """Build the message from an `OSError`, which names no file if the disk is full."""
        return cls(str(error.filename or otherwise), error.strerror or str(error))


class UnknownPlatform(UserError, code="E0710"):
    """The platform given with `-p` or in `RunConfig` is not known."""

    def __init__(self, platform: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown platform `{platform}`",
            helps=[
                *did_you_mean(near(platform, known)),
                f"platforms are {quoted_names(known, 'and')}",
            ],
        )


class AnotherPypto(Caution, code="W0701"):
    """Another package or folder has the same name as a module that Tilelet replaces."""

    severity = "note"

    def __init__(self, module: str, other_path: str, using: str, switch: str) -> None:
        super().__init__(
            f"`import {module}` uses {using}",
            notes=[f"another `{module}` is at {other_path}"],
            helps=[f"to use the other one: `{switch}`"],
        )


class UnknownEngine(UserError, code="E0711"):
    """The engine of `--engine`, `TILELET_ENGINE` or `RunConfig(engine=...)` does not exist."""

    def __init__(self, engine: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown engine `{engine}`",
            helps=[*did_you_mean(near(engine, known)), f"engines are {quoted_names(known, 'and')}"],
        )


class NotProvided(UserError, code="E0712"):
    """The script imports something from `pypto` or `golden` that Tilelet does not have."""

    def __init__(self, what: str, loc: Loc | None = None, known: Sequence[str] = ()) -> None:
        name = what.rsplit(".", 1)[-1]
        helps = did_you_mean(near(name, known))
        super().__init__(
            f"`{what}` is not available in Tilelet",
            [Label(loc, "imported here")] if loc is not None else [],
            helps=helps,
        )


class NoCompiler(UserError, code="E0713"):
    """The native engine needs a C compiler, and none was found."""

    def __init__(self, chosen: str = "") -> None:
        message = (
            f"`$CC` is `{chosen}`, which is not a working C compiler"
            if chosen
            else ("no C compiler found")
        )
        super().__init__(
            message,
            helps=[
                "install one: `pip install 'tilelet[cc]'`, or your system's `gcc` or `clang`",
                "or run without one: `tilelet run --engine interp`",
            ],
        )


class CompilerFailed(UserError, code="E0714"):
    """The C compiler could not compile the program."""

    def __init__(self, compiler: str, why: str, output: str = "") -> None:
        last = "\n".join(output.strip().splitlines()[-12:])
        super().__init__(
            f"the C compiler `{compiler}` failed: {why}",
            notes=[last] if last else [],
            helps=["or run without it: `tilelet run --engine interp`"],
        )


class SanitizerNotLoaded(UserError, code="E0716"):
    """`TILELET_SANITIZE=1` is set, but Python was started without the address sanitizer."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        settings = " ".join(f"{name}={value}" for name, value in variables.items())
        super().__init__(
            "the address sanitizer is not loaded",
            helps=[f"start Python with `{settings}`", "or run the script with `tilelet run`"],
        )


class UnknownSection(UserError, code="E0715"):
    """`tilelet bench` has no section of this name."""

    def __init__(self, section: str, known: Sequence[str]) -> None:
        super().__init__(
            f"the bench has no section `{section}`",
            helps=[
                *did_you_mean(near(section, known)),
                f"sections are {quoted_names(known, 'and')}",
            ],
        )


class UnknownExample(UserError, code="E0717"):
    """`tilelet examples` has no example of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no example `{name}`",
            helps=[*did_you_mean(near(name, known)), f"examples are {quoted_names(known, 'and')}"],
        )


class NoBoard(Caution, code="W0703"):
    """A hardware platform was requested, but the program runs on this CPU instead."""

    severity = "note"

    def __init__(self, platform: str) -> None:
        super().__init__(f"no `{platform}` board found: the program runs on this CPU")
