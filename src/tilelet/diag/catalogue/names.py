"""Names, bindings and types of variables (E02xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import did_you_mean, optional, plural


class UndefinedName(UserError, code="E0201"):
    """A kernel reads a name that is not defined."""

    def __init__(self, loc: Loc, name: str, suggestions: Iterable[str] = ()) -> None:
        super().__init__(
            f"name `{name}` is not defined",
            [Label(loc, "not found in the kernel or around it")],
            helps=did_you_mean(suggestions),
        )


class MaybeUndefined(UserError, code="E0202"):
    """A kernel reads a name that is defined only on some paths to this line."""

    def __init__(self, use_loc: Loc, name: str, def_loc: Loc, missing_path: str) -> None:
        super().__init__(
            f"name `{name}` may be undefined here",
            [Label(use_loc, "used here"), Label(def_loc, "defined only here")],
            notes=[f"it has no value {missing_path}"],
            helps=[f"bind `{name}` on every path, for example before the branch or loop"],
        )


class TypeChangedInLoop(UserError, code="E0203"):
    """A loop-carried variable has a different type at the end of the body than before the loop."""

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


class BranchTypesDiffer(UserError, code="E0204"):
    """The arms of an `if` bind a name to values of different types, and it is used afterwards."""

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


class DeclaredTypeDiffers(UserError, code="E0205"):
    """A name is annotated with one type and bound to a value of another."""

    def __init__(self, loc: Loc, name: str, declared: str, declared_loc: Loc, found: str) -> None:
        super().__init__(
            f"`{name}` is declared with a different type than its value",
            [Label(loc, f"`{found}`"), Label(declared_loc, f"declared `{declared}`")],
            helps=["convert the value, or correct the annotation"],
        )


class UsedAfterAssemble(UserError, code="E0206"):
    """A tensor is read under its old name after something was assembled into it."""

    def __init__(self, use_loc: Loc, name: str, assemble_loc: Loc, new_name: str) -> None:
        super().__init__(
            f"`{name}` is used after it was assembled into",
            [
                Label(use_loc, "the old contents are gone"),
                Label(assemble_loc, f"overwritten here; the result is `{new_name}`"),
            ],
            helps=[f"use `{new_name}`, or write `{name} = pl.assemble({name}, ...)`"],
        )


class OutputRebound(UserError, code="E0207"):
    """An output parameter's name is rebound, which does not write the output."""

    def __init__(self, loc: Loc, name: str, param_loc: Loc) -> None:
        super().__init__(
            f"assigning to `{name}` does not write the output",
            [Label(loc, "only rebinds the name"), Label(param_loc, "the output parameter")],
            helps=[f"write `{name}[:] = ...` or `{name} = pl.assemble({name}, ..., [...])`"],
        )


class MissingAnnotation(UserError, code="E0208"):
    """A parameter of a kernel has no type annotation."""

    def __init__(self, loc: Loc, param: str) -> None:
        super().__init__(
            f"parameter `{param}` has no type annotation",
            [Label(loc, "needs a type")],
            helps=[f"for example `{param}: pl.Tensor[[16, 128], pl.FP32]`"],
        )


class BadAnnotation(UserError, code="E0209"):
    """The annotation of a parameter or result is not a type of the language."""

    def __init__(self, loc: Loc, param: str, why: str) -> None:
        super().__init__(
            f"annotation of `{param}` is not a type of the language", [Label(loc, why)]
        )


class UnsupportedCapture(UserError, code="E0210"):
    """A kernel uses an outside Python object that has no meaning in the language."""

    def __init__(self, loc: Loc, name: str, type_name: str) -> None:
        super().__init__(
            f"`{name}` is a Python `{type_name}`, which a kernel cannot use",
            [Label(loc, "captured from outside the kernel")],
            helps=["pass data as a parameter; extract numbers outside the kernel"],
        )


class InlineRecursion(UserError, code="E0211"):
    """An inline function calls itself, directly or through others."""

    def __init__(self, loc: Loc, chain: Sequence[str]) -> None:
        super().__init__(
            f"inline function `{chain[-1]}` calls itself",
            [Label(loc, "would be inlined into itself")],
            notes=[f"call chain: {' -> '.join(f'`{name}`' for name in chain)}"]
            if len(chain) > 2
            else [],
        )


class InlineReturnsNothing(UserError, code="E0212"):
    """An inline function has no `return`, so its call has no value."""

    def __init__(self, loc: Loc, function: str, def_loc: Loc) -> None:
        super().__init__(
            f"inline function `{function}` returns nothing",
            [Label(loc, "this call has no value"), Label(def_loc, "has no `return`")],
            helps=["end it with `return ...`"],
        )


class StrictRebinding(UserError, code="E0213"):
    """A name is bound twice in a function declared with `strict_ssa=True`."""

    def __init__(self, loc: Loc, name: str, first_loc: Loc) -> None:
        super().__init__(
            f"`{name}` is bound twice in a `strict_ssa` function",
            [Label(loc, "bound again"), Label(first_loc, "first bound here")],
        )


class OutputShadowed(UserError, code="E0214"):
    """A new tensor is given the name of an output parameter."""

    def __init__(self, loc: Loc, name: str, param_loc: Loc) -> None:
        super().__init__(
            f"a new tensor takes the name of the output `{name}`",
            [Label(loc, "hides the output"), Label(param_loc, "the output parameter")],
            helps=[f"remove this line to write into `{name}` itself, or use another name"],
        )


class DuplicateFunction(UserError, code="E0215"):
    """Two functions of one program have the same name."""

    def __init__(self, loc: Loc, name: str, first_loc: Loc) -> None:
        super().__init__(
            f"function `{name}` is defined twice",
            [Label(loc, "again here"), Label(first_loc, "first defined here")],
        )


class ScalarOutput(UserError, code="E0216"):
    """A scalar parameter is declared `pl.Out` or `pl.InOut`."""

    def __init__(self, loc: Loc, param: str) -> None:
        super().__init__(
            f"scalar parameter `{param}` cannot be an output",
            [Label(loc, "scalars are passed by value")],
            helps=["use a tensor of one element"],
        )


class NoEntry(UserError, code="E0217"):
    """A program has no function that can be its entry."""

    def __init__(self, loc: Loc, program: str) -> None:
        super().__init__(
            f"program `{program}` has no entry function",
            [Label(loc, "no function of this class can be the entry")],
            helps=["decorate its main method with `@pl.function`"],
        )


class SeveralEntries(UserError, TypeError, code="E0218"):
    """A program has more than one possible entry function."""

    def __init__(self, program: str, entries: Sequence[tuple[str, Loc]]) -> None:
        super().__init__(
            f"program `{program}` has {plural(len(entries), 'entry', 'entries')}",
            [Label(loc, f"`{name}` is an entry") for name, loc in entries],
            helps=[f'select one explicitly: `{program}["{entries[0][0]}"]`'],
        )


class ReturnMismatch(UserError, code="E0219"):
    """The value that a function returns does not match its `->` annotation."""

    def __init__(self, loc: Loc, function: str, got: str, declared: str, declared_loc: Loc) -> None:
        super().__init__(
            f"`{function}` returns `{got}`, declared `{declared}`",
            [Label(loc, f"this is `{got}`"), Label(declared_loc, f"declared `{declared}`")],
        )


class DynamicDimMisuse(UserError, code="E0220"):
    """A `pl.dynamic` symbol is used where it has no value."""

    def __init__(self, loc: Loc, name: str, why: str, help: str = "") -> None:
        super().__init__(
            f"dynamic dimension `{name}` cannot be used here",
            [Label(loc, why)],
            helps=optional(help),
        )


class ArgumentTypeMismatch(UserError, code="E0222"):
    """An argument of a kernel call does not have the type of its parameter."""

    def __init__(
        self, loc: Loc, function: str, param: str, got: str, expected: str, param_loc: Loc
    ) -> None:
        super().__init__(
            f"argument `{param}` of `{function}` is `{got}`, expected `{expected}`",
            [Label(loc, f"this is `{got}`"), Label(param_loc, f"parameter is `{expected}`")],
        )


class UnsupportedParameter(UserError, code="E0223"):
    """A kernel function has a parameter that cannot be passed by position."""

    def __init__(self, loc: Loc, param: str, help: str) -> None:
        super().__init__(
            f"parameter `{param}` is not a plain positional parameter",
            [Label(loc, "must be positional; a default must be a number")],
            helps=[help],
        )
