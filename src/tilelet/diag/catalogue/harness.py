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

    The golden computes the expected results on the host, before or after the kernel runs; without
    it nothing can be compared. The note shows Python's traceback.
    """

    code = "E0601"

    def __init__(self, traceback: str, loc: Loc | None = None) -> None:
        last = traceback.strip().rsplit("\n", 1)[-1]
        super().__init__(
            "the golden function raised an exception", _param(loc, last), notes=[traceback.strip()]
        )


class GoldenWrongShape(UserError):
    """The golden gives a result of another shape than the output it is compared with.

    A golden writes into the tensors it is given: `tensors["out"][:] = ...`. Comparing other shapes
    would silently broadcast.
    """

    code = "E0602"

    def __init__(self, name: str, got: Sequence[int], expected: Sequence[int]) -> None:
        super().__init__(
            f"golden result `{name}` has shape `{shape_text(got)}`, "
            f"the output `{shape_text(expected)}`",
            helps=[f'write in place: `tensors["{name}"][:] = ...`'],
        )


class GoldenWroteNothing(UserError):
    """The golden function returned without writing any output.

    It receives a dictionary of tensors and writes the expected values into the outputs in place. A
    frequent slip is `tensors["out"] = ...` on a copy, or `out = ...`, which only rebinds a name.
    """

    code = "E0603"
    example = """
        def golden(tensors):
            out = torch.exp(tensors["x"])
        """

    def __init__(self, outputs: Sequence[str], loc: Loc | None = None) -> None:
        super().__init__(
            f"the golden function wrote none of the outputs {ticked(outputs, 'and')}",
            _param(loc, "the golden function"),
            helps=[f'write in place: `tensors["{outputs[0]}"][:] = ...`' if outputs else ""],
        )


class SpecMismatch(UserError):
    """A `TensorSpec` or `ScalarSpec` does not describe the parameter of its place.

    Specs stand in the order of the entry's parameters and repeat their names, shapes and dtypes.
    Both sides are shown; change the one that is wrong.
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
            f"spec `{name}` has {what} `{spec}`, the parameter `{param}`",
            _param(param_loc, f"{what} `{param}`"),
            helps=[f"give the spec {what} `{param}`, or change the parameter"],
        )


class MissingSpec(UserError):
    """A parameter of the entry function has no spec.

    Every parameter needs its data: a `TensorSpec` for a tensor, a `ScalarSpec` for a scalar, in the
    order of the parameters.
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
    """A spec names something that is not a parameter of the entry function.

    Its data would be used nowhere. Remove it, or correct the name.
    """

    code = "E0606"

    def __init__(self, name: str, params: Sequence[str]) -> None:
        super().__init__(
            f"spec `{name}` has no parameter",
            notes=[f"the parameters are {ticked(params, 'and')}"],
            helps=did_you_mean(near(name, params)),
        )


class TooBig(UserError):
    """A tensor, or all of them together, needs more memory than this machine has free.

    Sizes are added up before anything is allocated, so the machine does not start to swap. Run with
    smaller dimensions, for example a shorter sequence.
    """

    code = "E0607"

    def __init__(
        self,
        name: str,
        size: int,
        available: int,
        loc: Loc | None = None,
        help: str = "run with smaller dimensions",
    ) -> None:
        is_refused = size <= available
        super().__init__(
            f"`{name}` needs {size_text(size)}, {size_text(available)} are free",
            _param(loc, size_text(size)),
            notes=["the system does not give them: see `ulimit -v`"] if is_refused else [],
            helps=[help],
        )


class GoldenUnknownName(UserError):
    """The golden function gives a result under a name that is not an output.

    It would be compared with nothing. Use the name of a spec with `is_output=True`, or of a
    parameter declared `pl.Out`.
    """

    code = "E0608"

    def __init__(self, name: str, outputs: Sequence[str]) -> None:
        super().__init__(
            f"golden result `{name}` is not an output",
            notes=[f"the outputs are {ticked(outputs, 'and')}"],
            helps=did_you_mean(near(name, outputs)),
        )


class ArgumentCount(UserError, TypeError):
    """A kernel is called with more or fewer arguments than it has parameters.

    Tensors and scalars are passed in the order of the parameters; options of the run go in
    `config=`.
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
    """A kernel is called with an array that does not fit its parameter.

    Shapes and dtypes must be those of the annotation; nothing is converted, because a converted
    copy would not receive the results. Convert the array before the call.
    """

    code = "E0610"

    def __init__(
        self, name: str, what: str, got: object, expected: object, param_loc: Loc | None = None
    ) -> None:
        super().__init__(
            f"argument `{name}` has {what} `{got}`, the parameter `{expected}`",
            _param(param_loc, f"{what} `{expected}`"),
        )


class InitValueFailed(UserError):
    """The `init_value` of a spec could not be made into the tensor's data.

    It is a number, an array of the spec's shape (or of one that joins or splits its axes), or a
    callable that returns one; the callable raised, or returned something else.
    """

    code = "E0611"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"`init_value` of spec `{name}` gives no data: {why}")


class GoldenDataMissing(UserError):
    """Stored inputs or expected results are asked for but are not in the directory.

    `golden_data=` replays what an earlier run saved under `data/in` and `data/out`. Run once with
    saving on, or give the right directory.
    """

    code = "E0612"

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(
            f"no stored data for `{name}` in `{directory}`",
            helps=["save data with a run first, or leave `golden_data=` out"],
        )


class BadConfig(UserError):
    """A field of a run configuration, or an environment variable, has a value that makes no sense.

    The message says what is expected.
    """

    code = "E0613"

    def __init__(
        self, field: str, got: object, expected: str, where: str = "run configuration"
    ) -> None:
        super().__init__(f"`{field}={got}` in the {where}, expected {expected}")


class DynamicDimConflict(UserError):
    """One dynamic dimension gets two different extents from the arguments.

    A `pl.dynamic` symbol stands for one number in the whole call. Two symbols are needed if the
    extents may differ.
    """

    code = "E0614"

    def __init__(self, symbol: str, first: str, first_value: int, second: str, value: int) -> None:
        super().__init__(
            f"dynamic dimension `{symbol}` is {first_value} in `{first}` but {value} in `{second}`",
            helps=["pass arrays that agree, or use two `pl.dynamic` symbols"],
        )


class UnknownData(UserError):
    """An array's element type has no counterpart in the language, or the object is not an array.

    Accepted are NumPy arrays, torch tensors, and objects of other libraries that speak DLPack, all
    in the memory of the CPU, of float32, float16, bfloat16, 8-bit floats, bool and the signed and
    unsigned integers of 8 to 64 bits.
    """

    code = "E0615"

    def __init__(self, name: str, got: str, accepted: Iterable[str] = (), why: str = "") -> None:
        shown = list(accepted)
        verdict = f"cannot be used: {why}" if why else "the language does not have"
        super().__init__(
            f"data of `{name}` is `{got}`, which {verdict}",
            helps=[f"use {ticked(shown)}"] if shown else [],
        )


class ArgumentMissing(UserError):
    """A program is run without data for one of its parameters.

    Every parameter of the entry function gets an array or a number, by its name.
    """

    code = "E0616"

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"no argument for the parameter `{name}`", _param(param_loc, "has no argument")
        )


class ArgumentUnknown(UserError):
    """A program is run with an argument that none of its parameters has the name of.

    Its data would be used nowhere. Remove it, or correct the name.
    """

    code = "E0617"

    def __init__(self, name: str, params: Sequence[str]) -> None:
        super().__init__(
            f"argument `{name}` has no parameter",
            notes=[f"the parameters are {ticked(params, 'and')}"],
            helps=did_you_mean(near(name, params)),
        )


class BadSpec(UserError):
    """A `TensorSpec` or `ScalarSpec` is not complete or makes no sense by itself.

    A tensor needs a name, positive dimensions and an element type; a scalar a name, a type and a
    number. The message says what is wrong with this one.
    """

    code = "E0620"

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message, helps=optional(help))


class UnknownConfigField(UserError):
    """A run configuration has a field that no version of the harness knows.

    Fields of all versions are accepted, in `RunConfig`, `compile_cfg` and `runtime_cfg` alike;
    those that steer a board have no effect on a CPU. An unknown one is most likely a slip.
    """

    code = "E0621"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"unknown field `{name}` in the run configuration",
            helps=did_you_mean(near(name, known)),
        )


class UnsupportedConfig(UserError):
    """A field of a run configuration asks for something that Tilelet does not support.

    It is refused rather than ignored, so that a result is never silently wrong.
    """

    code = "E0622"

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"`{name}` in the run configuration: {what} are not supported")


class ComparatorFailed(UserError):
    """A comparison function given in `compare_fn` could not judge its output.

    It is called as `compare(actual, expected, actual_outputs=, expected_outputs=, inputs=, rtol=,
    atol=)` and returns `(passed, message)`. Its name in `compare_fn` must be that of an output.
    """

    code = "E0623"

    def __init__(self, name: str, why: str, traceback: str = "") -> None:
        super().__init__(
            f"the comparison of output `{name}` {why}", notes=optional(traceback.strip())
        )


class OutputMismatch(UserError):
    """An output of the program differs from the golden's by more than the tolerance.

    The program ran. The note shows how many elements differ, the worst of them with both values,
    and the first rows with a difference. Rows and columns often tell which tile, loop or tail is
    wrong.
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

    The program writes its results into the arrays it is given. Pass a copy of the read-only one.
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

    An expanded tensor has one element in many places: what the program writes to one of them is
    overwritten by the next. Pass an array of its own memory, and expand or copy afterwards.
    """

    code = "E0628"

    def __init__(self, name: str, param_loc: Loc | None = None) -> None:
        super().__init__(
            f"elements of the array for output `{name}` share memory",
            _param(param_loc, "written by the program"),
            helps=["pass a copy: `tensor.contiguous()`, `array.copy()`"],
        )


class BadDataFile(UserError):
    """A stored input or expected result cannot be read, or is not what the spec says.

    `golden_data=` reads `.npz` and `.npy` files without objects in them, and `.pt` tensors if torch
    is installed. Save the data again if the file is damaged.
    """

    code = "E0626"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"stored data of `{name}` cannot be used: {why}")


class BadRunCall(UserError):
    """`run` was called in a way that no version of the harness has.

    Either `run(program, specs, golden_fn=..., ...)` with a list of specs, or
    `run(program, *tensors, config=...)` with the tensors themselves.
    """

    code = "E0627"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this call of `run` makes no sense: {why}",
            helps=["write `run(program, specs, golden_fn=...)` or `run(program, *tensors)`"],
        )
