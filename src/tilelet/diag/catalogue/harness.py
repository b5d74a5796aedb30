"""Specs, goldens and arguments of a run (E06xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import (
    did_you_mean,
    near,
    optional,
    plural,
    shape_text,
    size_text,
    ticked,
)


def _param(param_loc: Loc | None, text: str) -> list[Label]:
    return [Label(param_loc, text)] if param_loc is not None else []


class GoldenRaised(UserError):
    """The golden function raised an exception.

    The golden computes the expected results on the host; without it nothing can be compared. The
    note shows Python's traceback.
    """

    code = "E0601"

    def __init__(self, traceback: str, loc: Loc | None = None) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        super().__init__(
            "the golden function raised an exception", _param(loc, last), notes=[traceback.strip()]
        )


class GoldenWrongShape(UserError):
    """A result of the golden has a different shape than the output it is compared with.

    A golden writes into the tensors it is given: `tensors["out"][:] = ...`. Comparing different
    shapes would silently broadcast.
    """

    code = "E0602"

    def __init__(self, name: str, got: Sequence[int], expected: Sequence[int]) -> None:
        super().__init__(
            f"golden result `{name}` has shape `{shape_text(got)}`, but the output has "
            f"`{shape_text(expected)}`",
            helps=[f'write in place: `tensors["{name}"][:] = ...`'],
        )


class GoldenWroteNothing(UserError):
    """The golden function returned without writing any output.

    It receives a dictionary of tensors and writes the expected values into the outputs in place. A
    common mistake is `tensors["out"] = ...` on a copy, or `out = ...`, which only rebinds a name.
    """

    code = "E0603"
    example = """
        def golden(tensors):
            out = torch.exp(tensors["x"])
        """

    def __init__(self, outputs: Sequence[str], loc: Loc | None = None) -> None:
        super().__init__(
            f"the golden function wrote none of the outputs {ticked(outputs, 'and')}",
            _param(loc, "this golden function"),
            helps=[f'write in place: `tensors["{outputs[0]}"][:] = ...`' if outputs else ""],
        )


class SpecMismatch(UserError):
    """A `TensorSpec` or `ScalarSpec` does not match the parameter at its position.

    Specs are in the order of the entry function's parameters and repeat their names, shapes and
    dtypes. The message shows both; change the one that is wrong.
    """

    code = "E0604"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out

        specs = [
            TensorSpec("x", [16, 64], torch.float32, init_value=torch.randn),
            TensorSpec("out", [16, 128], torch.float32, is_output=True),
        ]
        run_jit(kernel, specs, golden_fn=golden)
        """

    def __init__(
        self, name: str, what: str, spec: object, param: object, param_loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"spec `{name}` has {what} `{spec}`, but the parameter has `{param}`",
            _param(param_loc, f"{what} `{param}`"),
            helps=[f"give the spec {what} `{param}`, or change the parameter"],
        )


class MissingSpec(UserError):
    """A parameter of the entry function has no spec.

    Every parameter needs data: a `TensorSpec` for a tensor, a `ScalarSpec` for a scalar, in
    parameter order.
    """

    code = "E0605"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out

        run_jit(kernel, [TensorSpec("x", [16, 128], torch.float32)], golden_fn=golden)
        """

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(f"no spec for the parameter `{name}`", _param(param_loc, "has no spec"))


class ExtraSpec(UserError):
    """A spec does not match any parameter of the entry function.

    Its data would not be used. Remove the spec, or correct its name.
    """

    code = "E0606"

    def __init__(self, name: str, params: Sequence[str]) -> None:
        super().__init__(
            f"spec `{name}` has no parameter",
            notes=[f"the parameters are {ticked(params, 'and')}"],
            helps=did_you_mean(near(name, params)),
        )


class TooBig(UserError):
    """A tensor, or all tensors together, need more memory than is free.

    Sizes are added up before anything is allocated, so that the machine does not start to swap. Use
    smaller dimensions, for example a shorter sequence.
    """

    code = "E0607"

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


class GoldenUnknownName(UserError):
    """The golden function returns a result under a name that is not an output.

    The result would not be compared with anything. Use the name of a spec with `is_output=True`, or
    of a parameter declared `pl.Out`.
    """

    code = "E0608"

    def __init__(self, name: str, outputs: Sequence[str]) -> None:
        super().__init__(
            f"golden result `{name}` is not an output",
            notes=[f"the outputs are {ticked(outputs, 'and')}"],
            helps=did_you_mean(near(name, outputs)),
        )


class ArgumentCount(UserError, TypeError):
    """A kernel is called with too many or too few arguments.

    Tensors and scalars are passed in parameter order; run options go in `config=`.
    """

    code = "E0609"

    def __init__(
        self, kernel: str, got: int, params: Sequence[str], loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"`{kernel}` expects {plural(len(params), 'argument')}, got {got}",
            _param(loc, f"takes {ticked(params, 'and')}"),
        )


class ArgumentMismatch(UserError):
    """A kernel is called with an array that does not match its parameter.

    Shapes and dtypes must equal those of the annotation. Nothing is converted, because a converted
    copy would not receive the results. Convert the array before the call.
    """

    code = "E0610"

    def __init__(
        self, name: str, what: str, got: object, expected: object, param_loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"argument `{name}` has {what} `{got}`, but the parameter has `{expected}`",
            _param(param_loc, f"{what} `{expected}`"),
        )


class InitValueFailed(UserError):
    """The `init_value` of a spec could not be converted into the tensor's data.

    It is a number, an array of the spec's shape (or one that reshapes to it by merging or splitting
    axes), or a callable that returns one. The callable raised an exception or returned something
    else.
    """

    code = "E0611"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"`init_value` of spec `{name}` gives no data: {why}")


class GoldenDataMissing(UserError):
    """Stored inputs or expected results were requested but are not in the directory.

    `golden_data=` replays the data that an earlier run saved in `data/in` and `data/out`. Run once
    with saving enabled, or pass the right directory.
    """

    code = "E0612"

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(
            f"no stored data for `{name}` in `{directory}`",
            helps=["save data in a run first, or omit `golden_data=`"],
        )


class BadConfig(UserError):
    """A field of a run configuration, or an environment variable, has an invalid value.

    The message says what is expected.
    """

    code = "E0613"

    def __init__(
        self, field: str, got: object, expected: str, where: str = "run configuration"
    ) -> None:
        super().__init__(f"`{field}={got}` in the {where}, expected {expected}")


class DynamicDimConflict(UserError):
    """The arguments give one dynamic dimension two different extents.

    A `pl.dynamic` symbol stands for one extent in the whole call. Use two symbols if the extents
    may differ.
    """

    code = "E0614"

    def __init__(self, symbol: str, first: str, first_value: int, second: str, value: int) -> None:
        super().__init__(
            f"dynamic dimension `{symbol}` is {first_value} in `{first}` but {value} in `{second}`",
            helps=["pass arrays with equal extents, or use two `pl.dynamic` symbols"],
        )


class UnknownData(UserError):
    """An array's element type does not exist in the language, or the object is not an array.

    NumPy arrays, torch tensors and DLPack objects of other libraries are accepted if they are in
    CPU memory and their dtype is float32, float16, bfloat16, an 8-bit float, bool, or a signed or
    unsigned integer of 8 to 64 bits.
    """

    code = "E0615"

    def __init__(self, name: str, got: str, accepted: Iterable[str] = (), why: str = "") -> None:
        shown = list(accepted)
        verdict = f"cannot be used: {why}" if why else "does not exist in the language"
        super().__init__(
            f"data of `{name}` is `{got}`, which {verdict}",
            helps=[f"use {ticked(shown)}"] if shown else [],
        )


class ArgumentMissing(UserError):
    """A program is run without data for one of its parameters.

    Every parameter of the entry function gets an array or a number, by name.
    """

    code = "E0616"

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"no argument for the parameter `{name}`", _param(param_loc, "has no argument")
        )


class ArgumentUnknown(UserError):
    """A program is run with an argument whose name is not one of its parameters.

    Its data would not be used. Remove the argument, or correct its name.
    """

    code = "E0617"

    def __init__(self, name: str, params: Sequence[str]) -> None:
        super().__init__(
            f"argument `{name}` has no parameter",
            notes=[f"the parameters are {ticked(params, 'and')}"],
            helps=did_you_mean(near(name, params)),
        )


class BadSpec(UserError):
    """A `TensorSpec` or `ScalarSpec` is incomplete or invalid.

    A tensor needs a name, positive dimensions and an element type; a scalar needs a name, a type
    and a value. The message says what is wrong with this spec.
    """

    code = "E0620"

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message, helps=optional(help))


class UnknownConfigField(UserError):
    """A run configuration has a field that no version of the harness knows.

    The fields of all versions are accepted in `RunConfig`, `compile_cfg` and `runtime_cfg`; those
    that control a board have no effect on a CPU. An unknown field is most likely a typo.
    """

    code = "E0621"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown field `{name}` in the run configuration",
            helps=did_you_mean(near(name, known)),
        )


class ComparatorFailed(UserError):
    """A comparison function given in `compare_fn` raised an exception or returned an invalid
    result.

    It is called as `compare(actual, expected, actual_outputs=, expected_outputs=, inputs=, rtol=,
    atol=)` and returns `(passed, message)`. Its key in `compare_fn` must be the name of an output.
    """

    code = "E0623"

    def __init__(self, name: str, why: str, traceback: str = "") -> None:
        super().__init__(
            f"the comparison of output `{name}` {why}", notes=optional(traceback.strip())
        )


class OutputMismatch(UserError):
    """An output of the program differs from the golden's by more than the tolerance.

    The program ran. The note shows how many elements differ, the largest difference with both
    values, and the first rows that differ. The row and column indices often show which tile, loop
    or tail is wrong.
    """

    code = "E0624"

    def __init__(self, name: str, report: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"output `{name}` does not match the golden",
            _param(loc, "this output"),
            notes=[report],
        )


class ReadOnlyOutput(UserError):
    """The array for an output cannot be written to.

    The program writes its results into the arrays it is given. Pass a copy of a read-only array.
    """

    code = "E0625"

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"the array for output `{name}` is read-only",
            _param(param_loc, "written by the program"),
            helps=["pass a writable copy: `array.copy()`"],
        )


class OverlappingOutput(UserError):
    """Elements of the array for an output share memory.

    Several elements of an expanded tensor are the same memory, so the program would overwrite its
    own results. Pass an array without shared elements, and expand it afterwards.
    """

    code = "E0628"

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"elements of the array for output `{name}` share memory",
            _param(param_loc, "written by the program"),
            helps=["pass a copy: `tensor.contiguous()`, `array.copy()`"],
        )


class BadDataFile(UserError):
    """A stored input or expected result cannot be read, or does not match its spec.

    `golden_data=` reads `.npz` and `.npy` files without pickled objects, and `.pt` tensors if torch
    is installed. Save the data again if the file is damaged.
    """

    code = "E0626"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"stored data of `{name}` cannot be used: {why}")


class BadRunCall(UserError):
    """The arguments of `run` match no supported form.

    Use either `run(program, specs, golden_fn=..., ...)` with a list of specs, or `run(program,
    *tensors, config=...)` with the tensors themselves.
    """

    code = "E0627"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"invalid call of `run`: {why}",
            helps=["write `run(program, specs, golden_fn=...)` or `run(program, *tensors)`"],
        )
