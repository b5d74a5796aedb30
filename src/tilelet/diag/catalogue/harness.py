"""Specs, goldens and arguments of a run (E06xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import (
    did_you_mean,
    near,
    optional,
    plural,
    quoted_names,
    shape_text,
    size_text,
)


def _param(param_loc: Loc | None, text: str) -> list[Label]:
    return [Label(param_loc, text)] if param_loc is not None else []


class GoldenRaised(UserError, code="E0601"):
    """The golden function raised an exception."""

    def __init__(self, traceback: str, loc: Loc | None = None) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        super().__init__(
            "the golden function raised an exception", _param(loc, last), notes=[traceback.strip()]
        )


class GoldenWrongShape(UserError, code="E0602"):
    """A result of the golden has a different shape than the output it is compared with."""

    def __init__(self, name: str, got: Sequence[int], expected: Sequence[int]) -> None:
        super().__init__(
            f"golden result `{name}` has shape `{shape_text(got)}`, but the output has "
            f"`{shape_text(expected)}`",
            helps=[f'write in place: `tensors["{name}"][:] = ...`'],
        )


class GoldenWroteNothing(UserError, code="E0603"):
    """The golden function returned without writing any output."""

    def __init__(self, outputs: Sequence[str], loc: Loc | None = None) -> None:
        super().__init__(
            f"the golden function wrote none of the outputs {quoted_names(outputs, 'and')}",
            _param(loc, "this golden function"),
            helps=[f'write in place: `tensors["{outputs[0]}"][:] = ...`' if outputs else ""],
        )


class SpecMismatch(UserError, code="E0604"):
    """A `TensorSpec` or `ScalarSpec` does not match the parameter at its position."""

    def __init__(
        self, name: str, what: str, spec: object, param: object, param_loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"spec `{name}` has {what} `{spec}`, but the parameter has `{param}`",
            _param(param_loc, f"{what} `{param}`"),
            helps=[f"give the spec {what} `{param}`, or change the parameter"],
        )


class MissingSpec(UserError, code="E0605"):
    """A parameter of the entry function has no spec."""

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(f"no spec for the parameter `{name}`", _param(param_loc, "has no spec"))


class ExtraSpec(UserError, code="E0606"):
    """A spec does not match any parameter of the entry function."""

    def __init__(self, name: str, params: Sequence[str]) -> None:
        super().__init__(
            f"spec `{name}` has no parameter",
            notes=[f"the parameters are {quoted_names(params, 'and')}"],
            helps=did_you_mean(near(name, params)),
        )


class TooBig(UserError, code="E0607"):
    """A tensor, or all tensors together, need more memory than is free."""

    def __init__(
        self,
        name: str,
        size: int,
        available: int,
        loc: Loc | None = None,
        help: str = "use smaller dimensions",
    ) -> None:
        is_refused = size <= available
        super().__init__(
            f"`{name}` needs {size_text(size)}, {size_text(available)} are free",
            _param(loc, size_text(size)),
            notes=["a memory limit is set: see `ulimit -v`"] if is_refused else [],
            helps=[help],
        )


class GoldenUnknownName(UserError, code="E0608"):
    """The golden function returns a result under a name that is not an output."""

    def __init__(self, name: str, outputs: Sequence[str]) -> None:
        super().__init__(
            f"golden result `{name}` is not an output",
            notes=[f"the outputs are {quoted_names(outputs, 'and')}"],
            helps=did_you_mean(near(name, outputs)),
        )


class ArgumentCount(UserError, TypeError, code="E0609"):
    """A kernel is called with too many or too few arguments."""

    def __init__(
        self, kernel: str, got: int, params: Sequence[str], loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"`{kernel}` expects {plural(len(params), 'argument')}, got {got}",
            _param(loc, f"takes {quoted_names(params, 'and')}"),
        )


class ArgumentMismatch(UserError, code="E0610"):
    """A kernel is called with an array that does not match its parameter."""

    def __init__(
        self, name: str, what: str, got: object, expected: object, param_loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"argument `{name}` has {what} `{got}`, but the parameter has `{expected}`",
            _param(param_loc, f"{what} `{expected}`"),
        )


class InitValueFailed(UserError, code="E0611"):
    """The `init_value` of a spec could not be converted into the tensor's data."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"`init_value` of spec `{name}` gives no data: {why}")


class GoldenDataMissing(UserError, code="E0612"):
    """Stored inputs or expected results were requested but are not in the directory."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(
            f"no stored data for `{name}` in `{directory}`",
            helps=["save data in a run first, or omit `golden_data=`"],
        )


class BadConfig(UserError, code="E0613"):
    """A field of a run configuration, or an environment variable, has an invalid value."""

    def __init__(
        self, field: str, got: object, expected: str, where: str = "run configuration"
    ) -> None:
        super().__init__(f"`{field}={got}` in the {where}, expected {expected}")


class DynamicDimConflict(UserError, code="E0614"):
    """The arguments give one dynamic dimension two different extents."""

    def __init__(self, symbol: str, first: str, first_value: int, second: str, value: int) -> None:
        super().__init__(
            f"dynamic dimension `{symbol}` is {first_value} in `{first}` but {value} in `{second}`",
            helps=["pass arrays with equal extents, or use two `pl.dynamic` symbols"],
        )


class UnknownData(UserError, code="E0615"):
    """An array's element type does not exist in the language, or the object is not an array."""

    def __init__(self, name: str, got: str, accepted: Iterable[str] = (), why: str = "") -> None:
        shown = list(accepted)
        verdict = f"cannot be used: {why}" if why else "does not exist in the language"
        super().__init__(
            f"data of `{name}` is `{got}`, which {verdict}",
            helps=[f"use {quoted_names(shown)}"] if shown else [],
        )


class ArgumentMissing(UserError, code="E0616"):
    """A program is run without data for one of its parameters."""

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"no argument for the parameter `{name}`", _param(param_loc, "has no argument")
        )


class ArgumentUnknown(UserError, code="E0617"):
    """A program is run with an argument whose name is not one of its parameters."""

    def __init__(self, name: str, params: Sequence[str]) -> None:
        super().__init__(
            f"argument `{name}` has no parameter",
            notes=[f"the parameters are {quoted_names(params, 'and')}"],
            helps=did_you_mean(near(name, params)),
        )


class BadSpec(UserError, code="E0620"):
    """A `TensorSpec` or `ScalarSpec` is incomplete or invalid."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message, helps=optional(help))


class UnknownConfigField(UserError, code="E0621"):
    """A run configuration has a field that no version of the harness knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown field `{name}` in the run configuration",
            helps=did_you_mean(near(name, known)),
        )


class ComparatorFailed(UserError, code="E0623"):
    """A comparison function given in `compare_fn` raised an exception or returned an invalid
    result.
    """

    def __init__(self, name: str, why: str, traceback: str = "") -> None:
        super().__init__(
            f"the comparison of output `{name}` {why}", notes=optional(traceback.strip())
        )


class OutputMismatch(UserError, code="E0624"):
    """An output of the program differs from the golden's by more than the tolerance."""

    def __init__(self, name: str, report: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"output `{name}` does not match the golden",
            _param(loc, "this output"),
            notes=[report],
        )


class ReadOnlyOutput(UserError, code="E0625"):
    """The array for an output cannot be written to."""

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"the array for output `{name}` is read-only",
            _param(param_loc, "written by the program"),
            helps=["pass a writable copy: `array.copy()`"],
        )


class OverlappingOutput(UserError, code="E0628"):
    """Elements of the array for an output share memory."""

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"elements of the array for output `{name}` share memory",
            _param(param_loc, "written by the program"),
            helps=["pass a copy: `tensor.contiguous()`, `array.copy()`"],
        )


class BadDataFile(UserError, code="E0626"):
    """A stored input or expected result cannot be read, or does not match its spec."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"stored data of `{name}` cannot be used: {why}")


class BadRunCall(UserError, code="E0627"):
    """The arguments of `run` match no supported form."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"invalid call of `run`: {why}",
            helps=["write `run(program, specs, golden_fn=...)` or `run(program, *tensors)`"],
        )
