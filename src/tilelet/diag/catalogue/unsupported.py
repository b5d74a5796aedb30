"""Parts of the language that Tilelet knows but does not support (E08xx)."""

from __future__ import annotations

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import optional, quoted_names


class UnsupportedConstruct(UserError, code="E0801"):
    """The program uses a part of the language that Tilelet does not support."""

    def __init__(self, loc: Loc, what: str, instead: str = "") -> None:
        super().__init__(
            f"{what} is not supported",
            [Label(loc, "known, but not supported")],
            helps=optional(instead),
        )


class ExternalKernel(UserError, code="E0803"):
    """A kernel written outside the language has no reference, or no such results."""

    def __init__(
        self, loc: Loc, name: str, why: str = "is not supported", instead: str = ""
    ) -> None:
        super().__init__(
            f"external kernel `{name}` {why}",
            [Label(loc, "its code is outside the language")],
            helps=[instead or "declare it with `@pl.jit.extern`, and assign a reference to it"],
        )


class MxFormat(UserError, code="E0804"):
    """The program uses a layout of block-scaled (MX) data that Tilelet does not support."""

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"block-scaled layout `{name}` is not supported",
            [Label(loc)],
            helps=["use the scale layout `pl.MX_A_ZZ` or `pl.MX_B_NN`"],
        )


class PipeOutsideGroup(UserError, code="E0805"):
    """An explicit transfer between cores is used outside a group of cores."""

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"`{op}` outside a group of cores",
            [Label(loc, "there is no other core to transfer to")],
            helps=[
                "call an AIC and an AIV function from a function of type `Group`",
                "or use both kinds of op in one scope; the compiler inserts the transfer",
            ],
        )


class PipeMismatch(UserError, code="E0811"):
    """Two cores of a group disagree about the transfers between them."""

    def __init__(self, loc: Loc, problem: str, other: Loc | None = None) -> None:
        super().__init__(
            "two cores disagree on a transfer",
            [Label(loc, problem), *([Label(other, "the other core")] if other else [])],
        )


class UnsupportedDType(UserError, code="E0806"):
    """The program uses an element type that Tilelet does not support."""

    def __init__(self, loc: Loc, dtype: str) -> None:
        instead = "no machine computes with it; convert it to HF8, FP16 or BF16 on the host"
        super().__init__(f"element type `{dtype}` is not supported", [Label(loc)], helps=[instead])


class UnsupportedLevel(UserError, code="E0807"):
    """A scope is placed at a level above a core group."""

    def __init__(self, loc: Loc, level: str) -> None:
        super().__init__(
            f"scope level `{level}` is not supported",
            [Label(loc)],
            helps=["use `pl.Level.CORE_GROUP`"],
        )


class UnsupportedFunctionType(UserError, code="E0808"):
    """A function is declared with a type that only the compiler generates, or that is not
    supported.
    """

    def __init__(self, loc: Loc, function_type: str) -> None:
        supported = ("Opaque", "Orchestration", "InCore", "Inline", "AIC", "AIV", "Group")
        super().__init__(
            f"function type `{function_type}` is not supported",
            [Label(loc)],
            helps=[f"use {quoted_names(supported)}"],
        )


class UnsupportedOp(UserError, code="E0809"):
    """The program calls an op of the language that Tilelet does not have yet."""

    def __init__(self, loc: Loc, op: str, instead: str = "") -> None:
        super().__init__(
            f"op `{op}` is not supported",
            [Label(loc, "an op of the language, but not implemented")],
            helps=optional(instead),
        )


class UnsupportedKeyword(UserError, code="E0810"):
    """A call uses an option of an op, scope or loop that Tilelet does not support."""

    def __init__(self, loc: Loc, op: str, keyword: str, why: str = "") -> None:
        super().__init__(
            f"`{keyword}=` of `{op}` is not supported", [Label(loc)], notes=optional(why)
        )
