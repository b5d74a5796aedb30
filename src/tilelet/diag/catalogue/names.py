"""Names, bindings and types of variables (E02xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import did_you_mean, optional, plural


class UndefinedName(UserError):
    """A kernel reads a name that is not defined.

    A name is looked up among the kernel's variables, then among the Python names visible where the
    kernel was decorated. A Python name assigned later is not found.
    """

    code = "E0201"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                scaled = pl.mul(x, 2.0)
                out[:] = pl.exp(scald)
            return out
        """

    def __init__(self, loc: Loc, name: str, suggestions: Iterable[str] = ()) -> None:
        super().__init__(
            f"name `{name}` is not defined",
            [Label(loc, "not found in the kernel or around it")],
            helps=did_you_mean(suggestions),
        )


class MaybeUndefined(UserError):
    """A kernel reads a name that is defined only on some paths to this line.

    A name bound in one arm of an `if`, or in a loop that may not run, has no value on the other
    path. Bind it before the `if` or the loop, or in both arms.
    """

    code = "E0202"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.range(0, 64, 16):
                    tile = x[r : r + 16, :]
                    if r > 0:
                        scaled = pl.mul(tile, 2.0)
                    out[r : r + 16, :] = scaled
            return out
        """

    def __init__(self, use_loc: Loc, name: str, def_loc: Loc, missing_path: str) -> None:
        super().__init__(
            f"name `{name}` may be undefined here",
            [Label(use_loc, "used here"), Label(def_loc, "defined only here")],
            notes=[f"it has no value {missing_path}"],
            helps=[f"bind `{name}` on every path, for example before the branch or loop"],
        )


class TypeChangedInLoop(UserError):
    """A loop-carried variable has a different type at the end of the body than before the loop.

    All iterations run the same code, so a carried variable has one shape and one dtype. Cast or
    reshape it back at the end of the body, or give the new value another name.
    """

    code = "E0203"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.BF16]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                acc = pl.mul(x, 0.0)
                for i in pl.range(4):
                    acc = pl.cast(pl.add(acc, x), pl.BF16)
                out[:] = acc
            return out
        """

    def __init__(
        self, loc: Loc, name: str, before_type: str, before_loc: Loc, after_type: str
    ) -> None:
        super().__init__(
            f"`{name}` changes its type in a loop",
            [
                Label(loc, f"`{after_type}` at the end of the body"),
                Label(before_loc, f"`{before_type}` before the loop"),
            ],
            helps=["keep shape and dtype through the loop, or use another name for the new value"],
        )


class BranchTypesDiffer(UserError):
    """The two arms of an `if` bind a name to values of different types, and it is used afterwards.

    After the `if` the name must have one shape and one dtype, regardless of which arm ran. Make the
    arms agree, or use two names.
    """

    code = "E0204"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for r in pl.range(0, 64, 16):
                    if r > 0:
                        tile = x[0:16, :]
                    else:
                        tile = x[0:16, 0:64]
                    out[r : r + 16, 0:64] = tile[:, 0:64]
            return out
        """

    def __init__(
        self, loc: Loc, name: str, then_type: str, then_loc: Loc, else_type: str, else_loc: Loc
    ) -> None:
        super().__init__(
            f"`{name}` has different types after the two arms of an `if`",
            [
                Label(loc, "used here"),
                Label(then_loc, f"`{then_type}` if the condition is true"),
                Label(else_loc, f"`{else_type}` otherwise"),
            ],
            helps=["make both arms produce the same shape and dtype"],
        )


class DeclaredTypeDiffers(UserError):
    """A name is annotated with one type and bound to a value of another.

    The annotation is checked and converts nothing: cast or reshape the value, or correct the
    annotation. Outside loops, a name without an annotation may be rebound to any type.
    """

    code = "E0205"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
                with pl.incore():
                    y: pl.Tensor[[16, 128], pl.BF16] = pl.exp(x)
                    out = pl.assemble(out, y, [0, 0])
                return out
        """

    def __init__(self, loc: Loc, name: str, declared: str, declared_loc: Loc, found: str) -> None:
        super().__init__(
            f"`{name}` is declared with a different type than its value",
            [Label(loc, f"`{found}`"), Label(declared_loc, f"declared `{declared}`")],
            helps=["convert the value, or correct the annotation"],
        )


class UsedAfterAssemble(UserError):
    """A tensor is read under its old name after something was assembled into it.

    `pl.assemble` writes in place and returns the updated tensor under a new name; the old contents
    no longer exist. Rebind the same name, `t = pl.assemble(t, ...)`, or read the new name.
    """

    code = "E0206"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            buf = pl.create_tensor([16, 128], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                filled = pl.assemble(buf, pl.exp(x), [0, 0])
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.neg(buf)
            return out
        """

    def __init__(self, use_loc: Loc, name: str, assemble_loc: Loc, new_name: str) -> None:
        super().__init__(
            f"`{name}` is used after it was assembled into",
            [
                Label(use_loc, "the old contents are gone"),
                Label(assemble_loc, f"overwritten here; the result is `{new_name}`"),
            ],
            helps=[f"use `{new_name}`, or write `{name} = pl.assemble({name}, ...)`"],
        )


class OutputRebound(UserError):
    """An output parameter's name is rebound, which does not write the output.

    `out = pl.add(a, b)` makes `out` another name for the sum; the caller's tensor is unchanged. To
    write it, assign to a window of it or assemble into it.
    """

    code = "E0207"
    example = """
        @pl.jit
        def kernel(a: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.add(a, a)
            return out
        """

    def __init__(self, loc: Loc, name: str, param_loc: Loc) -> None:
        super().__init__(
            f"assigning to `{name}` does not write the output",
            [Label(loc, "only rebinds the name"), Label(param_loc, "the output parameter")],
            helps=[f"write `{name}[:] = ...` or `{name} = pl.assemble({name}, ..., [...])`"],
        )


class MissingAnnotation(UserError):
    """A parameter of a kernel has no type annotation.

    Shapes and dtypes are part of the program: annotate tensors with `pl.Tensor[[rows, cols],
    pl.FP32]` and scalars with `pl.Scalar[pl.INT32]`. In a `@pl.jit` function, plain `pl.Tensor`
    takes shape and dtype from the argument; parameters of inline helpers need no annotation.
    """

    code = "E0208"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x, out: pl.Tensor[[16, 128], pl.FP32]):
                with pl.incore():
                    out = pl.assemble(out, pl.exp(x), [0, 0])
                return out
        """

    def __init__(self, loc: Loc, param: str) -> None:
        super().__init__(
            f"parameter `{param}` has no type annotation",
            [Label(loc, "needs a type")],
            helps=[f"for example `{param}: pl.Tensor[[16, 128], pl.FP32]`"],
        )


class BadAnnotation(UserError):
    """The annotation of a parameter or result is not a type of the language.

    Types are `pl.Tensor[shape, dtype]`, `pl.Tile[shape, dtype]`, `pl.Scalar[dtype]`, these wrapped
    in `pl.Out[...]` or `pl.InOut[...]`, and `tuple[...]` of them for several results. A shape is a
    list of ints, captured ints or `pl.dynamic` symbols.
    """

    code = "E0209"
    example = """
        @pl.jit
        def kernel(x: list[float], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            return out
        """

    def __init__(self, loc: Loc, param: str, why: str) -> None:
        super().__init__(
            f"annotation of `{param}` is not a type of the language", [Label(loc, why)]
        )


class UnsupportedCapture(UserError):
    """A kernel uses an outside Python object that has no meaning in the language.

    A kernel may capture ints, floats, bools, strings, lists and tuples of these, dtypes, enums and
    decorated functions. Pass arrays as tensor parameters, and convert other objects to numbers
    outside the kernel.
    """

    code = "E0210"
    example = """
        OPTIONS = {"scale": 2.0}

        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.mul(x, OPTIONS)
            return out
        """

    def __init__(self, loc: Loc, name: str, type_name: str) -> None:
        super().__init__(
            f"`{name}` is a Python `{type_name}`, which a kernel cannot use",
            [Label(loc, "captured from outside the kernel")],
            helps=["pass data as a parameter; extract numbers outside the kernel"],
        )


class InlineRecursion(UserError):
    """An inline function calls itself, directly or through others.

    Inlining copies the body to the call site, so recursion would never end. Use a loop.
    """

    code = "E0211"
    example = """
        @pl.jit.inline
        def power(x, n):
            return pl.mul(x, power(x, n))

        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = power(x, 3)
            return out
        """

    def __init__(self, loc: Loc, chain: Sequence[str]) -> None:
        super().__init__(
            f"inline function `{chain[-1]}` calls itself",
            [Label(loc, "would be inlined into itself")],
            notes=[f"call chain: {' -> '.join(f'`{name}`' for name in chain)}"]
            if len(chain) > 2
            else [],
        )


class InlineReturnsNothing(UserError):
    """An inline function has no `return`, so its call has no value.

    The body of an inline function replaces its call, so it must return the value of the call. A
    function that only writes into tensors returns the written tensor.
    """

    code = "E0212"
    example = """
        @pl.jit.inline
        def double(x):
            y = pl.add(x, x)

        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = double(x)
            return out
        """

    def __init__(self, loc: Loc, function: str, def_loc: Loc) -> None:
        super().__init__(
            f"inline function `{function}` returns nothing",
            [Label(loc, "this call has no value"), Label(def_loc, "has no `return`")],
            helps=["end it with `return ...`"],
        )


class StrictRebinding(UserError):
    """A name is bound twice in a function declared with `strict_ssa=True`.

    In such a function each name has one definition. Use a new name, or remove `strict_ssa=True`.
    """

    code = "E0213"
    example = """
        @pl.program
        class Program:
            @pl.function(strict_ssa=True)
            def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
                with pl.incore():
                    y = pl.exp(x)
                    y = pl.neg(y)
                    done = pl.assemble(out, y, [0, 0])
                return done
        """

    def __init__(self, loc: Loc, name: str, first_loc: Loc) -> None:
        super().__init__(
            f"`{name}` is bound twice in a `strict_ssa` function",
            [Label(loc, "bound again"), Label(first_loc, "first bound here")],
        )


class OutputShadowed(UserError):
    """A new tensor is given the name of an output parameter.

    After `out = pl.create_tensor(...)` the name refers to the new tensor, and nothing written to it
    reaches the caller. Give the scratch tensor its own name.
    """

    code = "E0214"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            out = pl.create_tensor([16, 128], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, name: str, param_loc: Loc) -> None:
        super().__init__(
            f"a new tensor takes the name of the output `{name}`",
            [Label(loc, "hides the output"), Label(param_loc, "the output parameter")],
            helps=[f"remove this line to write into `{name}` itself, or use another name"],
        )


class DuplicateFunction(UserError):
    """Two functions of one program have the same name.

    Function names identify kernels in reports and files in the build directory. Rename one.
    """

    code = "E0215"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return x

            @pl.function
            def main(self, x: pl.Tensor[[16, 64], pl.FP32]):
                return x
        """

    def __init__(self, loc: Loc, name: str, first_loc: Loc) -> None:
        super().__init__(
            f"function `{name}` is defined twice",
            [Label(loc, "again here"), Label(first_loc, "first defined here")],
        )


class ScalarOutput(UserError):
    """A scalar parameter is declared `pl.Out` or `pl.InOut`.

    Scalars are passed by value, so nothing written to one reaches the caller. Return the scalar in
    a tensor of one element.
    """

    code = "E0216"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], n: pl.InOut[pl.Scalar[pl.INT32]]):
            return x
        """

    def __init__(self, loc: Loc, param: str) -> None:
        super().__init__(
            f"scalar parameter `{param}` cannot be an output",
            [Label(loc, "scalars are passed by value")],
            helps=["use a tensor of one element"],
        )


class NoEntry(UserError):
    """A program has no function that can be its entry.

    The entry is the only Orchestration function, or the only Opaque function that no other function
    calls; a single InCore function is run as one task. Decorate a method with `@pl.function`.
    """

    code = "E0217"
    example = """
        @pl.program
        class Program:
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return x
        """

    def __init__(self, loc: Loc, program: str) -> None:
        super().__init__(
            f"program `{program}` has no entry function",
            [Label(loc, "no function of this class can be the entry")],
            helps=["decorate its main method with `@pl.function`"],
        )


class SeveralEntries(UserError):
    """A program has more than one possible entry function.

    A class may have several Orchestration functions; the caller selects one: `compiled =
    ir.compile(Program)` and then `compiled["first"](x)` or `compiled.first(x)`, or
    `run(Program["first"], specs)`. `run(Program, specs)` finds the entry by the names of the specs
    if only one entry has these parameters. A class that has only kernels needs a control program.
    """

    code = "E0218"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def first(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return x

            @pl.function(type=pl.FunctionType.InCore)
            def second(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return x
        """

    def __init__(self, program: str, entries: Sequence[tuple[str, Loc]]) -> None:
        super().__init__(
            f"program `{program}` has {plural(len(entries), 'entry', 'entries')}",
            [Label(loc, f"`{name}` is an entry") for name, loc in entries],
            helps=[f'select one: `{program}["{entries[0][0]}"]`'],
        )


class ReturnMismatch(UserError):
    """The value that a function returns does not match its `->` annotation.

    The annotation is checked and converts nothing: the number of results, shapes and dtypes must
    match.
    """

    code = "E0219"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]) -> pl.Tensor[[16, 64], pl.FP32]:
                return x
        """

    def __init__(self, loc: Loc, function: str, got: str, declared: str, declared_loc: Loc) -> None:
        super().__init__(
            f"`{function}` returns `{got}`, declared `{declared}`",
            [Label(loc, f"this is `{got}`"), Label(declared_loc, f"declared `{declared}`")],
        )


class DynamicDimMisuse(UserError):
    """A `pl.dynamic` symbol is used where it has no value.

    A symbol names a dimension in annotations. In the body, read the dimension with
    `pl.tensor.dim(x, axis)` or `x.shape`; a symbol that no parameter uses cannot be read.
    """

    code = "E0220"
    example = """
        M = pl.dynamic("M")

        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            for r in pl.range(0, M, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, name: str, why: str, help: str = "") -> None:
        super().__init__(
            f"dynamic dimension `{name}` cannot be used here",
            [Label(loc, why)],
            helps=optional(help),
        )


class ArgumentTypeMismatch(UserError):
    """An argument of a kernel call does not have the type of its parameter.

    Shapes and dtypes of arguments and parameters must match exactly; a dynamic dimension of a
    parameter accepts any extent. Calls do not cast or broadcast.
    """

    code = "E0222"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def body(self, x: pl.Tensor[[16, 64], pl.FP32]):
                return pl.exp(x)

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
                y = self.body(x)
                return y
        """

    def __init__(
        self, loc: Loc, function: str, param: str, got: str, expected: str, param_loc: Loc
    ) -> None:
        super().__init__(
            f"argument `{param}` of `{function}` is `{got}`, expected `{expected}`",
            [Label(loc, f"this is `{got}`"), Label(param_loc, f"parameter is `{expected}`")],
        )


class UnsupportedParameter(UserError):
    """A kernel function has a parameter that cannot be passed by position.

    All arguments are passed by position, and each is a tensor or scalar of the task. `*args`,
    `**kwargs` and keyword-only parameters are not supported; capture constants from the code around
    the function. Inline functions may have keyword-only parameters; inline and `@pl.jit` functions
    may have numeric defaults.
    """

    code = "E0223"
    example = """
        @pl.jit
        def kernel(
            x: pl.Tensor[[16, 128], pl.FP32],
            out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
            scale="2.0",
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.mul(x, float(scale))
            return out
        """

    def __init__(self, loc: Loc, param: str, help: str) -> None:
        super().__init__(
            f"parameter `{param}` is not a plain positional parameter",
            [Label(loc, "must be positional; a default must be a number")],
            helps=[help],
        )
