"""Unsupported Python (E01xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import did_you_mean, near, optional, plural, quoted_names


class PythonRange(UserError, code="E0101"):
    """A kernel loops over Python's built-in `range`."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "Python `range` in a kernel",
            [Label(loc, "does not say whether iterations are independent")],
            helps=["write `pl.range(...)` (sequential) or `pl.parallel(...)` (independent)"],
        )


class UnsupportedStatement(UserError, code="E0102"):
    """A kernel contains a Python statement that the language does not have."""

    def __init__(self, loc: Loc, what: str, help: str = "") -> None:
        super().__init__(
            f"{what} is not supported in a kernel",
            [Label(loc, "not a statement of the language")],
            helps=optional(help),
        )


class UnsupportedExpression(UserError, code="E0103"):
    """A kernel contains a Python expression that the language does not have."""

    def __init__(self, loc: Loc, what: str, help: str = "") -> None:
        super().__init__(
            f"{what} is not supported in a kernel",
            [Label(loc, "not an expression of the language")],
            helps=optional(help),
        )


class ChainedComparison(UserError, code="E0104"):
    """A kernel compares three or more values in one chain, as in `a < b < c`."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "comparisons cannot be chained",
            [Label(loc, "second comparison")],
            helps=["write `a < b and b < c`"],
        )


class KeywordToUserFunction(UserError, code="E0105"):
    """A call to a function of a `@pl.program` passes an argument by keyword."""

    def __init__(self, loc: Loc, function: str, keyword: str) -> None:
        super().__init__(
            f"keyword argument `{keyword}` in a call to `{function}`",
            [Label(loc, "arguments to functions of a program are positional")],
            helps=[f"pass `{keyword}` by position"],
        )


class NonBoolCondition(UserError, code="E0106"):
    """The condition of `if` or `while` is not a BOOL scalar."""

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


class SourceUnavailable(UserError, code="E0107"):
    """The source text of a kernel is not available."""

    def __init__(self, function: str, why: str) -> None:
        super().__init__(
            f"no source text for `{function}`: {_keeps_none(why)}",
            helps=["define it in a file or a notebook cell, or pass its text to `pl.parse`"],
        )


class BadLoopIterator(UserError, code="E0108"):
    """A `for` loop in a kernel iterates over something that is not a loop of the language."""

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"cannot loop over {what}",
            [Label(loc, "not a `pl` loop")],
            helps=["loop over `pl.range(...)`, `pl.parallel(...)` or `pl.unroll(...)`"],
        )


class BadLoopTarget(UserError, code="E0109"):
    """The target variables of a `for` loop do not match the loop."""

    def __init__(self, loc: Loc, expected: str) -> None:
        super().__init__(
            "loop variables do not match the loop", [Label(loc, f"expected {expected}")]
        )


class BadAssignTarget(UserError, code="E0110"):
    """The left side of an assignment is not a name, a tuple of names or a window of a tensor."""

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"cannot assign to {what}",
            [Label(loc, "not a name or a window")],
        )


class NotCallable(UserError, code="E0111"):
    """A kernel calls something that is neither an op nor a function of the language."""

    def __init__(self, loc: Loc, name: str, type_name: str, instead: str = "") -> None:
        super().__init__(
            f"`{name}` cannot be called in a kernel",
            [Label(loc, f"this is a Python `{type_name}`")],
            helps=[instead or "decorate a helper that takes kernel values with `@pl.jit.inline`"],
        )


class MisplacedJump(UserError, code="E0112"):
    """`break` or `continue` is outside a loop, or in a loop that cannot be left early."""

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


class YieldMismatch(UserError, code="E0113"):
    """`pl.yield_` does not match the values that its loop or branch carries."""

    def __init__(self, loc: Loc, got: int, expected: int, block_loc: Loc | None = None) -> None:
        labels = [Label(loc, f"yields {plural(got, 'value')}")]
        if block_loc is not None:
            labels.append(Label(block_loc, f"carries {plural(expected, 'value')}"))
        super().__init__(
            f"`pl.yield_` of {plural(got, 'value')} where {expected} "
            f"{'is' if expected == 1 else 'are'} carried",
            labels,
        )


class StaticAssertFailed(UserError, code="E0114"):
    """A `pl.static_assert` failed."""

    def __init__(self, loc: Loc, message: str = "") -> None:
        super().__init__(
            f"static assertion failed{': ' if message else ''}{message}",
            [Label(loc, "false for these compile-time values")],
        )


class CompileTimeFailed(UserError, code="E0115"):
    """An expression of Python values, evaluated at compile time, raised an exception."""

    def __init__(self, loc: Loc, error: BaseException) -> None:
        super().__init__(
            f"compile-time expression raised `{type(error).__name__}`",
            [Label(loc, str(error))],
        )


class InvalidSyntax(UserError, SyntaxError, code="E0116"):
    """Text passed to `pl.parse`, or a script, is not valid Python."""

    def __init__(self, loc: Loc, message: str) -> None:
        about = message.removeprefix("invalid syntax").lstrip(". ")
        super().__init__(f"invalid syntax: {about}" if about else "invalid syntax", [Label(loc)])


class NotOneProgram(UserError, ValueError, code="E0124"):
    """Text passed to `pl.parse` or `pl.loads` does not contain exactly one program."""

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"program text with {what}",
            [Label(loc)],
            helps=["keep only imports, constants, and one class or one decorated function"],
        )


class BadDecorator(UserError, code="E0117"):
    """A decorator of the language is used where it has no meaning."""

    def __init__(self, loc: Loc, decorator: str, why: str, help: str = "") -> None:
        super().__init__(
            f"`@{decorator}` cannot be used here: {why}", [Label(loc)], helps=optional(help)
        )


class UnpackCount(UserError, code="E0118"):
    """A tuple assignment has more or fewer names than values."""

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


class MisplacedReturn(UserError, code="E0119"):
    """`return` is not the last statement of a function."""

    def __init__(self, loc: Loc, inside: str, inside_loc: Loc | None = None) -> None:
        labels = [Label(loc, "not the last statement of the function")]
        if inside_loc is not None:
            labels.append(Label(inside_loc, f"inside this {inside}"))
        super().__init__(
            f"`return` inside a {inside}", labels, helps=["return at the end of the function"]
        )


class OpOutsideKernel(UserError, code="E0120"):
    """A `pl` op was called from plain Python, outside any kernel."""

    def __init__(self, op: str, loc: Loc | None = None) -> None:
        super().__init__(
            f"`{op}` called outside a kernel",
            [Label(loc, "called by Python, not in a kernel")] if loc else [],
            helps=["move the call into a function decorated with `@pl.jit`"],
        )


class CondNotFirst(UserError, code="E0121"):
    """A `pl.while_` loop does not start with `pl.cond`, or `pl.cond` is used elsewhere."""

    def __init__(self, loc: Loc, loop_loc: Loc | None = None) -> None:
        labels = [Label(loc, "expected `pl.cond(...)` here" if loop_loc else "not in `pl.while_`")]
        if loop_loc is not None:
            labels.append(Label(loop_loc, "this loop"))
        super().__init__("`pl.cond` must be the first statement of a `pl.while_` loop", labels)


class UnknownAttribute(UserError, code="E0122"):
    """A value has no attribute or method of this name."""

    def __init__(
        self, loc: Loc, owner: str, attribute: str, known: Sequence[str], instead: str = ""
    ) -> None:
        close = near(attribute, known)
        helps = [instead] if instead else did_you_mean(close)
        if not helps and known:
            helps = [f"it has {quoted_names(known[:8], 'and')}"]
        super().__init__(
            f"`{owner}` has no attribute `{attribute}`", [Label(loc, "unknown")], helps=helps
        )


class NestedTooDeeply(UserError, code="E0123"):
    """An expression is nested more deeply than Python's stack allows."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "this statement is nested too deeply",
            [Label(loc, "exceeds Python's stack")],
            helps=["bind parts of it to names, or write a loop"],
        )
