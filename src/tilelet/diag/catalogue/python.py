"""Unsupported Python (E01xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, optional, plural, ticked


class PythonRange(UserError):
    """A kernel loops over Python's built-in `range`.

    A kernel is parsed, not run, and the loop kind carries meaning: `pl.range` is sequential,
    `pl.parallel` asserts independent iterations, and `pl.unroll` copies the body. All of them take
    the arguments of `range`.
    """

    code = "E0101"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r in range(0, 64, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "Python `range` in a kernel",
            [Label(loc, "does not say whether iterations are independent")],
            helps=["write `pl.range(...)` (sequential) or `pl.parallel(...)` (independent)"],
        )


class UnsupportedStatement(UserError):
    """A kernel contains a Python statement that the language does not have.

    Kernels accept assignments, `for` over a `pl` loop, `while`, `if`, `with` over a scope,
    `return`, `break`, `continue`, `pass` and calls. Do other compile-time work (building lists,
    checking options) in plain Python outside the kernel and use the result inside it.
    """

    code = "E0102"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            try:
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[:] = pl.exp(x)
            except ValueError:
                pass
            return out
        """

    def __init__(self, loc: Loc, what: str, help: str = "") -> None:
        super().__init__(
            f"{what} is not supported in a kernel",
            [Label(loc, "not a statement of the language")],
            helps=optional(help),
        )


class UnsupportedExpression(UserError):
    """A kernel contains a Python expression that the language does not have.

    Kernels accept names, numbers, arithmetic, single comparisons, `and`/`or`/`not`, calls,
    subscripts, lists and tuples. An expression made only of Python values from outside the kernel
    may use all of Python's operators: it is evaluated once, at compile time.
    """

    code = "E0103"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            parts = [pl.exp(x) for i in range(4)]
            return out
        """

    def __init__(self, loc: Loc, what: str, help: str = "") -> None:
        super().__init__(
            f"{what} is not supported in a kernel",
            [Label(loc, "not an expression of the language")],
            helps=optional(help),
        )


class ChainedComparison(UserError):
    """A kernel compares three or more values in one chain, as in `a < b < c`.

    The language has single comparisons only. Join two comparisons with `and`; both sides are always
    evaluated.
    """

    code = "E0104"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r in pl.range(0, 64, 16):
                if 0 < r < 48:
                    with pl.at(level=pl.Level.CORE_GROUP):
                        out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "comparisons cannot be chained",
            [Label(loc, "second comparison")],
            helps=["write `a < b and b < c`"],
        )


class KeywordToUserFunction(UserError):
    """A call to a function of a `@pl.program` passes an argument by keyword.

    Calls between functions of a program are positional: the task receives its arguments in
    parameter order. Keywords are for ops, scopes and jit functions.
    """

    code = "E0105"
    example = """
        @pl.program
        class Doubling:
            @pl.function(type=pl.FunctionType.InCore)
            def twice(
                self,
                x: pl.Tensor[[16, 128], pl.FP32],
                out: pl.Out[pl.Tensor[[16, 128], pl.FP32]],
            ):
                out = pl.assemble(out, pl.mul(x, 2.0), [0, 0])
                return out

            @pl.function
            def main(self, x: pl.Tensor[[16, 128], pl.FP32], out: pl.Tensor[[16, 128], pl.FP32]):
                out = self.twice(x, out=out)
                return out
        """

    def __init__(self, loc: Loc, function: str, keyword: str) -> None:
        super().__init__(
            f"keyword argument `{keyword}` in a call to `{function}`",
            [Label(loc, "arguments to functions of a program are positional")],
            helps=[f"pass `{keyword}` by position"],
        )


class NonBoolCondition(UserError):
    """The condition of `if` or `while` is not a BOOL scalar.

    A float is not a condition: write a comparison. (A nonzero integer counts as true; newer
    programs compare it explicitly.) A tensor has no single truth value: read one element with
    `pl.read`, or select elementwise with `pl.sel`.
    """

    code = "E0106"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r in pl.range(0, 64, 16):
                if pl.read(x, [r, 0]):
                    with pl.at(level=pl.Level.CORE_GROUP):
                        out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc, type_text: str) -> None:
        super().__init__(
            f"condition is `{type_text}`, not a BOOL scalar",
            [Label(loc, f"this is `{type_text}`")],
            helps=["compare it, for example `... != 0`"],
        )


def _keeps_none(file: str) -> str:
    """Return why Python has no source text for `file`."""
    return {
        "<stdin>": "Python does not keep source read at a prompt (before 3.13) or from a pipe",
        "<string>": "Python does not keep the source of an executed string",
    }.get(file, file)


class SourceUnavailable(UserError):
    """The source text of a kernel is not available.

    A kernel is parsed from its source text. Python keeps the text of files, notebook cells, the
    prompt of Python 3.13 and later, and a script redirected to standard input (`python < file`). It
    does not keep the text of older prompts, pipes and `exec` of a string: put the kernel in a file
    or a notebook cell, or pass its text to `pl.parse`.
    """

    code = "E0107"

    def __init__(self, function: str, why: str) -> None:
        super().__init__(
            f"no source text for `{function}`: {_keeps_none(why)}",
            helps=["define it in a file or a notebook cell, or pass its text to `pl.parse`"],
        )


class BadLoopIterator(UserError):
    """A `for` loop in a kernel iterates over something that is not a loop of the language.

    Loops run over `pl.range`, `pl.parallel`, `pl.unroll`, `pl.pipeline`, `pl.spmd` or `pl.while_`.
    To repeat a body for each item of a Python list, loop over its indices with `pl.unroll`.
    """

    code = "E0108"
    example = """
        SIZES = [16, 32, 64]

        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for n in SIZES:
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[0:n, :] = pl.exp(x[0:n, :])
            return out
        """

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"cannot loop over {what}",
            [Label(loc, "not a `pl` loop")],
            helps=["loop over `pl.range(...)`, `pl.parallel(...)` or `pl.unroll(...)`"],
        )


class BadLoopTarget(UserError):
    """The target variables of a `for` loop do not match the loop.

    A plain loop binds one name. With `init_values=` it binds the index and one name per carried
    value, as in `for i, (a, b) in pl.range(n, init_values=(a0, b0))`; `pl.while_` binds only the
    carried values.
    """

    code = "E0109"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r, c in pl.range(0, 64, 16):
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc, expected: str) -> None:
        super().__init__(
            "loop variables do not match the loop", [Label(loc, f"expected {expected}")]
        )


class BadAssignTarget(UserError):
    """The left side of an assignment is not a name, a tuple of names or a window of a tensor.

    Attributes cannot be assigned, and `a = b = ...` is written as two assignments. Writing through
    a window of a window is not supported either: use one subscript with the combined offset.
    """

    code = "E0110"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            x.scale = 2.0
            return out
        """

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"cannot assign to {what}",
            [Label(loc, "not a name or a window")],
        )


class NotCallable(UserError):
    """A kernel calls something that is neither an op nor a function of the language.

    A kernel can call `pl` ops, methods of the program (`self.kernel(...)`), and functions decorated
    with `@pl.function`, `@pl.inline`, `@pl.jit.incore` or `@pl.jit.inline`. A plain Python function
    runs at compile time, and only if all its arguments are Python values: decorate it with
    `@pl.jit.inline` if it takes kernel values.
    """

    code = "E0111"
    example = """
        def double(x):
            return pl.add(x, x)

        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = double(x)
            return out
        """

    def __init__(self, loc: Loc, name: str, type_name: str, instead: str = "") -> None:
        super().__init__(
            f"`{name}` cannot be called in a kernel",
            [Label(loc, f"this is a Python `{type_name}`")],
            helps=[instead or "decorate a helper that takes kernel values with `@pl.jit.inline`"],
        )


class MisplacedJump(UserError):
    """`break` or `continue` is outside a loop, or in a loop that cannot be left early.

    Only `pl.range` and `while` run their iterations in order. The iterations of a parallel,
    unrolled, pipelined or SPMD loop have no order: guard the rest of the body with `if`.
    """

    code = "E0112"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            for r in pl.parallel(0, 64, 16):
                if r == 32:
                    break
                with pl.at(level=pl.Level.CORE_GROUP):
                    out[r : r + 16, :] = pl.exp(x[r : r + 16, :])
            return out
        """

    def __init__(self, loc: Loc, keyword: str, loop_kind: str = "", loop_loc: Loc | None = None):
        where = f"in a `pl.{loop_kind}` loop" if loop_kind else "outside a loop"
        labels = [Label(loc, f"cannot `{keyword}` here")]
        if loop_loc is not None:
            labels.append(Label(loop_loc, "innermost loop"))
        super().__init__(
            f"`{keyword}` {where}",
            labels,
            helps=["use `pl.range`, or guard the rest of the body with `if`"] if loop_kind else [],
        )


class YieldMismatch(UserError):
    """`pl.yield_` does not match the values that its loop or branch carries.

    A loop with `init_values=` ends with one `pl.yield_` of as many values as it carries. If one arm
    of an `if` uses `pl.yield_`, both arms yield the same number of values. `pl.yield_` is not
    allowed anywhere else.
    """

    code = "E0113"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                for i, (a, b) in pl.range(4, init_values=(x, x)):
                    a1 = pl.yield_(pl.add(a, b))
                out[:] = a1
            return out
        """

    def __init__(self, loc: Loc, got: int, expected: int, block_loc: Loc | None = None) -> None:
        labels = [Label(loc, f"yields {plural(got, 'value')}")]
        if block_loc is not None:
            labels.append(Label(block_loc, f"carries {plural(expected, 'value')}"))
        super().__init__(
            f"`pl.yield_` of {plural(got, 'value')} where {expected} "
            f"{'is' if expected == 1 else 'are'} carried",
            labels,
        )


class StaticAssertFailed(UserError):
    """A `pl.static_assert` failed.

    The author of the kernel requires a condition on its compile-time values, and these values do
    not satisfy it. Call the builder with other sizes; the assertion's text may say which.
    """

    code = "E0114"
    example = """
        M = 24

        @pl.jit
        def kernel(x: pl.Tensor[[M, 128], pl.FP32], out: pl.Out[pl.Tensor[[M, 128], pl.FP32]]):
            pl.static_assert(M % 16 == 0, "rows come in blocks of 16")
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, message: str = "") -> None:
        super().__init__(
            f"static assertion failed{': ' if message else ''}{message}",
            [Label(loc, "false for these compile-time values")],
        )


class CompileTimeFailed(UserError):
    """An expression of Python values, evaluated at compile time, raised an exception.

    Python evaluates expressions that contain only captured Python values. The message is Python's
    own; the values come from the code around the kernel.
    """

    code = "E0115"
    example = """
        BLOCKS = 0

        @pl.jit
        def kernel(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
            rows = 64 // BLOCKS
            return out
        """

    def __init__(self, loc: Loc, error: BaseException) -> None:
        super().__init__(
            f"compile-time expression raised `{type(error).__name__}`",
            [Label(loc, str(error))],
        )


class InvalidSyntax(UserError, SyntaxError):
    """Text passed to `pl.parse`, or a script, is not valid Python.

    The language uses a subset of Python's syntax, so Python's parser reads it first and the message
    is its own.
    """

    code = "E0116"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32]:
            return x
        """

    def __init__(self, loc: Loc, message: str) -> None:
        super().__init__(f"invalid syntax: {message}", [Label(loc)])


class NotOneProgram(UserError, ValueError):
    """Text passed to `pl.parse` or `pl.loads` does not contain exactly one program.

    The text may contain imports of the language, constants and dynamic dimensions, followed by
    either one class (a program) or one decorated function.
    """

    code = "E0124"
    example = """
        kernel = pl.parse("limit = 2 * 8")
        """

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"program text with {what}",
            [Label(loc)],
            helps=["keep only imports, constants, and one class or one decorated function"],
        )


class BadDecorator(UserError):
    """A decorator of the language is used where it has no meaning.

    `@pl.program` decorates a class whose methods take `self` first and are decorated with
    `@pl.function`; `@pl.jit` and its variants decorate functions at module level or in a builder.
    """

    code = "E0117"
    example = """
        @pl.program
        def kernel(x: pl.Tensor[[16, 128], pl.FP32]):
            return x
        """

    def __init__(self, loc: Loc, decorator: str, why: str, help: str = "") -> None:
        super().__init__(
            f"`@{decorator}` cannot be used here: {why}", [Label(loc)], helps=optional(help)
        )


class UnpackCount(UserError):
    """A tuple assignment has more or fewer names than values.

    Ops and functions with several results return all of them, in order. Bind each to a name.
    """

    code = "E0118"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            rows, cols, depth = x.shape
            return out
        """

    def __init__(self, loc: Loc, names: int, value_loc: Loc, values: int | None) -> None:
        """`values`: number of values, or None for a value that is not a tuple."""
        if values is None:
            super().__init__(
                f"cannot unpack one value into {'a tuple of ' if names == 1 else ''}"
                f"{plural(names, 'name')}",
                [
                    Label(loc, plural(names, "name")),
                    Label(value_loc, ("a single value, not a tuple")),
                ],
                helps=["assign it to a single name, without a comma or parentheses"],
            )
            return
        super().__init__(
            f"cannot unpack {plural(values, 'value')} into {plural(names, 'name')}",
            [Label(loc, plural(names, "name")), Label(value_loc, plural(values, "value"))],
        )


class MisplacedReturn(UserError):
    """`return` is not the last statement of a function.

    A kernel has one exit: its last statement. `return` inside a loop, a branch or a scope is not
    supported; bind the result to a name and return it at the end.
    """

    code = "E0119"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.exp(x)
                return out
        """

    def __init__(self, loc: Loc, inside: str, inside_loc: Loc | None = None) -> None:
        labels = [Label(loc, "not the last statement of the function")]
        if inside_loc is not None:
            labels.append(Label(inside_loc, f"inside this {inside}"))
        super().__init__(
            f"`return` inside a {inside}", labels, helps=["return at the end of the function"]
        )


class OpOutsideKernel(UserError):
    """A `pl` op was called from plain Python, outside any kernel.

    Ops describe device work and have no result in Python. They are meaningful only in the source
    text of a function decorated with `@pl.jit`, `@pl.function` or one of their variants, which is
    parsed and compiled.
    """

    code = "E0120"
    example = """
        x = pl.full([16, 128], dtype=pl.FP32, value=0.0)
        """

    def __init__(self, op: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"`{op}` called outside a kernel",
            [Label(loc, "called by Python, not in a kernel")] if loc else [],
            helps=["move the call into a function decorated with `@pl.jit`"],
        )


class CondNotFirst(UserError):
    """A `pl.while_` loop does not start with `pl.cond`, or `pl.cond` is used elsewhere.

    The condition is checked before each iteration, so the body starts with exactly one `pl.cond`.
    """

    code = "E0121"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            for (n,) in pl.while_(init_values=(0,)):
                n1 = pl.yield_(n + 1)
            return out
        """

    def __init__(self, loc: Loc, loop_loc: Loc | None = None) -> None:
        labels = [Label(loc, "expected `pl.cond(...)` here" if loop_loc else "not in `pl.while_`")]
        if loop_loc is not None:
            labels.append(Label(loop_loc, "this loop"))
        super().__init__("`pl.cond` must be the first statement of a `pl.while_` loop", labels)


class UnknownAttribute(UserError):
    """A value has no attribute or method of this name.

    Tensors and tiles have `shape`, `dtype` and a few methods; `self` has the program's functions;
    enums have their members. Everything else is an op: `pl.exp(x)`, not `x.exp()`.
    """

    code = "E0122"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GRUOP):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(
        self, loc: Loc, owner: str, attribute: str, known: Sequence[str], instead: str = ""
    ) -> None:
        close = near(attribute, known)
        helps = [instead] if instead else did_you_mean(close)
        if not helps and known:
            helps = [f"it has {ticked(known[:8], 'and')}"]
        super().__init__(
            f"`{owner}` has no attribute `{attribute}`", [Label(loc, "unknown")], helps=helps
        )


class NestedTooDeeply(UserError):
    """An expression is nested more deeply than Python's stack allows.

    Lowering is recursive, so hundreds of nested calls, or one sum of a thousand terms, exceed the
    stack. Bind parts of the expression to names, or write a loop.
    """

    code = "E0123"

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "this statement is nested too deeply",
            [Label(loc, "exceeds Python's stack")],
            helps=["bind parts of it to names, or write a loop"],
        )
