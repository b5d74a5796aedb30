"""Parts of the language that Tilelet knows but does not support (E08xx)."""

from __future__ import annotations

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import optional, ticked


class UnsupportedConstruct(UserError):
    """The program uses a part of the language that Tilelet does not support.

    It is rejected rather than ignored, so that a result is never silently wrong. The help names an
    alternative if there is one.
    """

    code = "E0801"
    example = """
        @pl.program
        class Program:
            @pl.function
            def main(
                self, x: pl.Tensor[[16, 128], pl.FP32], y: pl.Tensor[[16, 128], pl.FP32]
            ) -> pl.Tensor[[16, 128], pl.FP32]:
                now = x
                then = y
                with pl.incore():
                    for _ in pl.range(3):
                        now, then = then, now
                with pl.incore():
                    now = pl.assemble(now, pl.exp(now), [0, 0])
                return now
        """

    def __init__(self, loc: Loc, what: str, instead: str = "") -> None:
        super().__init__(
            f"{what} is not supported",
            [Label(loc, "known, but not supported")],
            helps=optional(instead),
        )


class ExternalKernel(UserError):
    """The program calls a kernel written outside the language.

    External kernels are device code that this machine can neither run nor check. Write the kernel
    in the language, or pass its result as an input.
    """

    code = "E0803"
    example = """
        @pl.jit.extern
        def fast_exp(x: pl.Tensor[[16, 128], pl.FP32]): ...
        """

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"external kernel `{name}` is not supported",
            [Label(loc, "its code is outside the language")],
            helps=["write it in the language, or pass its result as an input"],
        )


class MxFormat(UserError):
    """The program uses a layout of block-scaled (MX) data that Tilelet does not support.

    The supported scale layouts are MX_A_ZZ (left operand) and MX_B_NN (right operand).
    """

    code = "E0804"
    example = """
        @pl.jit
        def kernel(
            scale: pl.Tensor[[64, 4], pl.FP8E8M0, pl.MX_A_ND],
            out: pl.Out[pl.Tensor[[64, 4], pl.FP32]],
        ):
            return out
        """

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"block-scaled layout `{name}` is not supported",
            [Label(loc)],
            helps=["use the scale layout `pl.MX_A_ZZ` or `pl.MX_B_NN`"],
        )


class PipeOutsideGroup(UserError):
    """An explicit transfer between cores is used outside a group of cores.

    `tpush` and `tpop` belong in an AIC and an AIV function that are called by a function of type
    Group. A scope needs neither: use cube and vector ops together, and the compiler inserts the
    transfer.
    """

    code = "E0805"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def body(self, x: pl.Tensor[[16, 128], pl.FP32]):
                tile = pl.load(x, [0, 0], [16, 128])
                pl.tpush_to_aic(tile, split=0)
                return x
        """

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"`{op}` outside a group of cores",
            [Label(loc, "there is no other core to transfer to")],
            helps=[
                "call an AIC and an AIV function from a function of type `Group`",
                "or use both kinds of op in one scope; the compiler inserts the transfer",
            ],
        )


class PipeMismatch(UserError):
    """Two cores of a group disagree about the transfers between them.

    Each pop takes the next tile that the other core pushed. Both cores must follow the same control
    flow: loops around transfers have the same bounds (or constant ones), branches have the same
    condition, and a popped tile has the shape and dtype of the pushed one.
    """

    code = "E0811"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.AIC)
            def cube(self, y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
                got: pl.Tile[[16, 16], pl.FP32, pl.Mem.Mat] = pl.tpop_from_aiv(split=0)
                return pl.store(pl.matmul(got, got), [0, 0], y)

            @pl.function(type=pl.FunctionType.AIV)
            def vector(self, x: pl.Tensor[[16, 16], pl.FP32]):
                tile = pl.load(x, [0, 0], [16, 16])

            @pl.function(type=pl.FunctionType.Group)
            def both(
                self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
            ):
                self.vector(x)
                return self.cube(y)

            @pl.function(type=pl.FunctionType.Orchestration)
            def main(
                self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]
            ):
                return self.both(x, y)
        """

    def __init__(self, loc: Loc, problem: str, other: Loc | None = None) -> None:
        super().__init__(
            "two cores disagree on a transfer",
            [Label(loc, problem), *([Label(other, "the other core")] if other else [])],
        )


class UnsupportedDType(UserError):
    """The program uses an element type that Tilelet does not support.

    FP32, FP16, BF16, FP8E4M3FN, FP8E5M2, FP8E8M0, FP4, BOOL and the signed and unsigned integers of
    8 to 64 bits are supported.
    """

    code = "E0806"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.HF8], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            return out
        """

    def __init__(self, loc: Loc, dtype: str) -> None:
        super().__init__(f"element type `{dtype}` is not supported", [Label(loc)])


class UnsupportedLevel(UserError):
    """A scope is placed at a level above a core group.

    Kernels are scopes of `pl.Level.CORE_GROUP`. A scope of `pl.Level.CHIP` stands in a host
    function only, and is dispatched to a rank.
    """

    code = "E0807"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.HOST):
                out[:] = pl.exp(x)
            return out
        """

    def __init__(self, loc: Loc, level: str) -> None:
        super().__init__(
            f"scope level `{level}` is not supported",
            [Label(loc)],
            helps=["use `pl.Level.CORE_GROUP`"],
        )


class UnsupportedFunctionType(UserError):
    """A function is declared with a type that only the compiler generates, or that is not
    supported.

    SPMD wrappers are derived from `pl.spmd`. Write Opaque, Orchestration, InCore or Inline
    functions, or AIC, AIV and Group functions for cores that exchange tiles.
    """

    code = "E0808"
    example = """
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.Spmd)
            def main(self, x: pl.Tensor[[16, 128], pl.FP32]):
                return x
        """

    def __init__(self, loc: Loc, function_type: str) -> None:
        supported = ("Opaque", "Orchestration", "InCore", "Inline", "AIC", "AIV", "Group")
        super().__init__(
            f"function type `{function_type}` is not supported",
            [Label(loc)],
            helps=[f"use {ticked(supported)}"],
        )


class UnsupportedOp(UserError):
    """The program calls an op of the language that Tilelet does not have yet.

    The name is correct, but Tilelet does not implement it. docs/ops.md lists the supported ops; the
    help names an alternative if there is one.
    """

    code = "E0809"
    example = """
        @pl.jit
        def kernel(x: pl.Tensor[[16, 128], pl.FP32], out: pl.Out[pl.Tensor[[16, 128], pl.FP32]]):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.tile.view(x, [16, 128])
            return out
        """

    def __init__(self, loc: Loc, op: str, instead: str = "") -> None:
        super().__init__(
            f"op `{op}` is not supported",
            [Label(loc, "an op of the language, but not implemented")],
            helps=optional(instead),
        )


class UnsupportedKeyword(UserError):
    """A call uses an option of an op, scope or loop that Tilelet does not support.

    The option would change what the program does, so it is not ignored.
    """

    code = "E0810"
    example = """
        @pl.jit
        def kernel(
            a: pl.Tensor[[16, 128], pl.BF16],
            b: pl.Tensor[[128, 64], pl.BF16],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out[:] = pl.matmul(a, b, out_dtype=pl.FP32, c_matrix_nz=True)
            return out
        """

    def __init__(self, loc: Loc, op: str, keyword: str, why: str = "") -> None:
        super().__init__(
            f"`{keyword}=` of `{op}` is not supported", [Label(loc)], notes=optional(why)
        )
