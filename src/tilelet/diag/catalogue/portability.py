"""Dialects of public PyPTO releases (E12xx)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelet.diag.core import Caution, Fix, Label, Loc, UserError


class NotInDialect(UserError, code="E1201"):
    """The program uses a name or a parameter that a release of PyPTO does not have."""

    def __init__(
        self, loc: Loc, what: str, dialect: str, why: str, instead: str, fixes: Iterable[Fix] = ()
    ) -> None:
        super().__init__(
            f"{what} is not in the language of {dialect}",
            labels=[Label(loc, why or "not available there")],
            helps=[f"write {instead}"] if instead else [],
            fixes=fixes,
        )


class NameCaptured(UserError, code="E1202"):
    """A helper's name means something else once the helper is spliced into its caller."""

    def __init__(
        self, loc: Loc, name: str, what: str, there: Loc | None, other: str, why: str
    ) -> None:
        labels = [Label(loc, what)]
        if there is not None:
            labels.append(Label(there, other))
        super().__init__(
            f"`{name}` is captured where the helper is spliced in",
            labels=labels,
            notes=[why],
            helps=["rename one of them, or write the helper as one expression"],
        )


class OutputNotDeclared(UserError, code="E1203"):
    """A parameter that the program writes is declared as a plain tensor."""

    def __init__(self, loc: Loc, name: str, direction: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{name}` is written but not declared as an output",
            labels=[Label(loc, f"a plain tensor; only `pl.{direction}[...]` is copied back")],
            helps=[f"wrap its type in `pl.{direction}[...]`"],
            fixes=fixes,
        )


class TupleFromHelper(UserError, code="E1204"):
    """A helper returns several values, which this dialect cannot unpack."""

    def __init__(self, loc: Loc, name: str, returned: Loc) -> None:
        super().__init__(
            f"`{name}` returns several values",
            labels=[Label(loc, "unpacked here"), Label(returned, "returned here")],
            helps=["write its body here, or split it into helpers that return one value each"],
        )


class OpUnderOtherName(UserError, code="E1205"):
    """An op is called by a name that the script assigned to it."""

    def __init__(self, loc: Loc, name: str, op: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{name}` is `{op}` under another name",
            labels=[Label(loc, "not an op to a public parser")],
            helps=[f"write `{op}`"],
            fixes=fixes,
        )


class HintNotLiteral(UserError, code="E1206"):
    """A `name_hint=` is not a string literal."""

    def __init__(self, loc: Loc, value: object, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            "`name_hint=` is not a string literal",
            labels=[
                Label(
                    loc, (f'its value is "{value}" here') if isinstance(value, str) else "computed"
                )
            ],
            helps=["write the string literal"],
            fixes=fixes,
        )


class ParameterAssigned(UserError, code="E1207"):
    """A helper assigns to its parameter in a loop, and the argument is an expression."""

    def __init__(self, loc: Loc, name: str, helper: str) -> None:
        super().__init__(
            f"`{name}`, a parameter of `{helper}`, is assigned to in a loop",
            labels=[Label(loc, "does not keep its value across iterations")],
            helps=[f"copy `{name}` to a local variable before the loop"],
        )


class FormNotTaken(UserError, code="E1208"):
    """An op is called in a form that a release of PyPTO does not support."""

    def __init__(
        self, loc: Loc, op: str, dialect: str, reason: str, instead: str, fixes: Iterable[Fix] = ()
    ) -> None:
        super().__init__(
            f"{dialect} does not support this form of `{op}`",
            labels=[Label(loc, reason)],
            helps=[instead if instead[0] != "`" else f"write {instead}"],
            fixes=fixes,
        )


class HelperNotTyped(UserError, code="E1210"):
    """A `@pl.jit.inline` function has a parameter without shape and dtype, or is called with a
    slice.
    """

    def __init__(self, loc: Loc, what: str, there: Loc) -> None:
        super().__init__(
            f"the type of {what} cannot be inferred",
            labels=[Label(loc, "its type must be known"), Label(there, "declared here")],
            helps=["use `@pl.inline`, whose parameters need no types"],
        )


class RegionRebound(UserError, code="E1211"):
    """`pl.set_validshape` changes the valid region of a name, or is used in the control program."""

    def __init__(self, loc: Loc, why: str, instead: str) -> None:
        super().__init__(
            "`pl.set_validshape` cannot be used here",
            labels=[Label(loc, why)],
            helps=[instead],
        )


class NameChangesType(UserError, code="E1217"):
    """A name is rebound to a value of another shape, dtype or valid region."""

    def __init__(self, loc: Loc, name: str, old: str, new: str) -> None:
        super().__init__(
            f"`{name}` was {old} and becomes {new}",
            labels=[Label(loc, "different type")],
            helps=["use another name"],
        )


class TextNotTaken(UserError, code="E1218"):
    """Public parsers do not support this Python statement or expression."""

    def __init__(self, loc: Loc, what: str, instead: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"public parsers do not support {what}",
            labels=[Label(loc, "here")],
            helps=[instead],
            fixes=fixes,
        )


class RegionLost(Caution, code="W1216"):
    """A reduction in a mixed kernel relies on the valid region of a cube result."""

    def __init__(self, loc: Loc, op: str, region: Loc, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{op}` relies on a valid region in a mixed kernel",
            labels=[Label(loc, "includes the padding"), Label(region, "this valid region")],
            helps=["fill the padding before it: `pl.fillpad(x, pad_value=...)`"],
            fixes=fixes,
        )


class ExtentLost(UserError, code="E1219"):
    """Only the cube half of a mixed kernel has a valid extent that the kernel computes."""

    def __init__(self, loc: Loc, op: str, region: Loc) -> None:
        super().__init__(
            f"the vector unit does not know the valid extent of the operand of `{op}`",
            labels=[
                Label(loc, "here"),
                Label(region, "the extent, known only in the cube half"),
            ],
            helps=[
                "set it after a vector op: `pl.tensor.set_validshape(pl.mul(x, s), rows, extent)`"
            ],
        )


class ExtentNotSaid(UserError, code="E1220"):
    """A kernel takes a window of a partially valid view without giving its valid extent."""

    def __init__(self, loc: Loc, view: str, stated: Loc, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"the kernel does not know the valid extent of `{view}`",
            labels=[Label(loc, "a window of it"), Label(stated, "partially valid")],
            helps=["give it at the window: `valid_shape=[...]`"],
            fixes=fixes,
        )


class LoadedWhole(Caution, code="W1221"):
    """An op of a kernel uses a partially valid view directly and loads all of it."""

    def __init__(self, loc: Loc, view: str, stated: Loc, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"`{view}` is loaded whole but is only partially valid",
            labels=[Label(loc, "includes the padding"), Label(stated, "its valid region")],
            helps=[f"take a window with its extent: `pl.slice({view}, ..., valid_shape=[...])`"],
            fixes=fixes,
        )


class RegionTwice(UserError, code="E1222"):
    """A mixed kernel that only writes to views uses another view that is partially valid."""

    def __init__(self, loc: Loc, view: str, fixes: Iterable[Fix] = ()) -> None:
        super().__init__(
            f"the extent of `{view}` reaches a mixed kernel twice",
            labels=[Label(loc, "partially valid")],
            helps=["omit `valid_shape=` here; the windows in the kernel give the extent"],
            fixes=fixes,
        )


class AxisNotSplit(UserError, code="E1223"):
    """A kernel whose rows are split between two vector units moves a tile of more than two axes."""

    def __init__(self, loc: Loc, what: str, tensor: str) -> None:
        super().__init__(
            f"the halves of a tile are {what} `{tensor}` along the wrong axis",
            labels=[Label(loc, "more than two axes, in a kernel with `pl.split`")],
            helps=["make a two-dimensional view before the scope, and use that"],
        )


class RegionDropped(Caution, code="W1224"):
    """A result is partially valid here, but is stored whole there."""

    def __init__(self, loc: Loc, op: str, is_second: bool) -> None:
        super().__init__(
            f"the valid region is lost at `{op}`",
            labels=[Label(loc, "public releases store the whole result")],
            helps=[
                "make the partially valid operand the first one"
                if is_second
                else "store the parts one by one, or set the region again: `pl.set_validshape`"
            ],
        )


class CannotExport(UserError, code="E1250"):
    """The program contains something that `tilelet export` cannot write out."""

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"{what} cannot be written into a script",
            labels=[Label(loc, "here")] if loc.line else [],
        )


class SeveralToExport(UserError, code="E1252"):
    """A script runs several programs, but an exported script contains one."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            "the script runs several programs",
            helps=[f"choose one: `--program {names[0]}`; there are {', '.join(names)}"],
        )


class NothingToExport(UserError, code="E1253"):
    """The script runs no program with specs, so there are no inputs to write down."""

    def __init__(self, script: str) -> None:
        super().__init__(
            f"`{script}` runs no program with specs",
            helps=["call `run_jit(kernel, specs, golden_fn=golden)` in it"],
        )


class UnknownDialect(UserError, code="E1251"):
    """Tilelet does not know this dialect."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"there is no dialect `{name}`", helps=[f"one of {', '.join(f'`{k}`' for k in known)}"]
        )
