"""Scopes, loops and tasks (E04xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import quoted_names

_SCOPE = "`with pl.at(level=pl.Level.CORE_GROUP):`"
_AUTO_SCOPE = "`with pl.at(level=pl.Level.CORE_GROUP, optimizations=[pl.auto_chunk]):`"


class ComputeOutsideScope(UserError, code="E0401"):
    """A compute op is at the orchestration level, outside every scope."""

    def __init__(self, loc: Loc, op: str) -> None:
        super().__init__(
            f"compute op `{op}` outside a scope",
            [Label(loc, "there is no core to run it on here")],
            helps=[f"wrap it in a scope: {_SCOPE}"],
        )


class NestedScope(UserError, code="E0402"):
    """A scope is nested in another scope."""

    def __init__(self, loc: Loc, outer_loc: Loc) -> None:
        super().__init__(
            "scopes cannot be nested",
            [Label(loc, "inner scope"), Label(outer_loc, "outer scope")],
            helps=["remove one of the two"],
        )


class ChunkOutsideAutoScope(UserError, code="E0403"):
    """A loop has `chunk=` but is not inside an automatic scope."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "`chunk=` outside an automatic scope",
            [Label(loc, "no automatic scope splits this loop")],
            helps=[f"put the loop in {_AUTO_SCOPE}"],
        )


class ScalarLeavesScope(UserError, code="E0404"):
    """A scalar computed inside a scope is used outside it."""

    def __init__(self, use_loc: Loc, name: str, def_loc: Loc) -> None:
        super().__init__(
            f"scalar `{name}` is computed in a scope and used outside it",
            [Label(use_loc, "used here"), Label(def_loc, "exists only inside its scope")],
            helps=["compute it outside the scope, or pass it through a tensor"],
        )


class BadScopeArgument(UserError, code="E0405"):
    """An argument of a scope or loop has the wrong kind of value."""

    def __init__(self, loc: Loc, scope: str, keyword: str, got: str, expected: str) -> None:
        super().__init__(
            f"argument `{keyword}` of `{scope}` must be {expected}",
            [Label(loc, f"this is {got}")],
        )


class SeveralContextManagers(UserError, code="E0406"):
    """One `with` statement opens more than one scope."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "one `with` opens more than one scope",
            [Label(loc, "second context manager")],
            helps=["nest two `with` statements"],
        )


class NotAScope(UserError, code="E0407"):
    """A `with` statement opens something that is not a scope of the language."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "`with` needs a scope of the language",
            [Label(loc, "not a scope")],
            helps=[f"for example {_SCOPE}"],
        )


class BadChunk(UserError, code="E0408"):
    """A chunk size is not a positive constant, is too large, or its policy is unknown."""

    def __init__(self, loc: Loc, got: str, most: int) -> None:
        super().__init__(
            f"chunk is {got}, expected a constant from 1 to {most}",
            [Label(loc, "cannot split the loop")],
        )


class NonConstantUnroll(UserError, code="E0409"):
    """The bounds of `pl.unroll` are not compile-time constants."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "the bounds of `pl.unroll` are not constants",
            [Label(loc, "known only at run time")],
            helps=["use `pl.range`"],
        )


class TooManyCopies(UserError, code="E0418"):
    """`pl.unroll` would make more copies of a loop body than the compiler accepts."""

    def __init__(self, loc: Loc, trips: int, copies: int, most: int) -> None:
        inside = f", {copies:,} counting the enclosing loops" if copies > trips else ""
        super().__init__(
            f"`pl.unroll` makes {trips:,} copies of its body{inside}; the limit is {most:,}",
            [Label(loc, "too many iterations")],
            helps=["use `pl.range`"],
        )


class OnlyInScope(UserError, code="E0410"):
    """Something that runs on a core is used at the orchestration level."""

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"{what} is allowed only inside a scope",
            [Label(loc, "this is the orchestration level")],
            helps=[f"wrap it in a scope: {_SCOPE}"],
        )


class OutsideLanes(UserError, code="E0419"):
    """`pl.aiv_shard` or `pl.aic_gather` is used outside a `pl.split_aiv` loop."""

    def __init__(self, loc: Loc, what: str) -> None:
        super().__init__(
            f"`{what}` is allowed only inside a `pl.split_aiv` loop",
            [Label(loc, "no vector lane is selected here")],
            helps=["write it in `for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):`"],
        )


class BarrierInKernel(UserError, code="E0420"):
    """A barrier in a hand-written kernel separates accesses of different blocks to one tensor."""

    def __init__(self, loc: Loc, name: str, declared: Loc) -> None:
        super().__init__(
            f"a barrier inside a kernel cannot order accesses of its blocks to `{name}`",
            [
                Label(loc, "blocks run one after the other"),
                Label(declared, ("used before and after the barrier")),
            ],
            helps=["write the body as `for block in pl.spmd(n):`"],
        )


class OnlyAtOrchestration(UserError, code="E0411"):
    """Something that submits or controls tasks is used inside a scope."""

    def __init__(self, loc: Loc, what: str, scope_loc: Loc | None = None) -> None:
        labels = [Label(loc, "inside a task")]
        if scope_loc is not None:
            labels.append(Label(scope_loc, "the scope"))
        super().__init__(f"{what} is not allowed inside a scope", labels)


class BadDependency(UserError, code="E0412"):
    """An entry of `deps=` is not a task id."""

    def __init__(self, loc: Loc, got: str) -> None:
        super().__init__(
            "`deps=` takes task ids",
            [Label(loc, f"this is {got}")],
            helps=["name the task to wait for (`with pl.at(...) as tid:`) and pass `deps=[tid]`"],
        )


class BadPredicate(UserError, code="E0413"):
    """The `predicate=` of a task is not a single comparison of a tensor element with an int."""

    def __init__(self, loc: Loc, why: str) -> None:
        super().__init__(
            "`predicate=` must compare one tensor element with an int literal", [Label(loc, why)]
        )


class ZeroStep(UserError, code="E0414"):
    """A loop has a step of zero."""

    def __init__(self, loc: Loc) -> None:
        super().__init__("loop step is zero", [Label(loc, "would never end")])


class TileLeavesSpmd(UserError, code="E0415"):
    """A tile computed by the blocks of an `spmd` scope is used after the scope."""

    def __init__(self, loc: Loc, spmd_loc: Loc) -> None:
        super().__init__(
            "a tile cannot leave an `spmd` scope",
            [Label(loc, "each block has its own copy"), Label(spmd_loc, "runs several blocks")],
            helps=["let each block write its part of a tensor"],
        )


class LevelWithRole(UserError, code="E0416"):
    """A `CORE_GROUP` scope has a `role=`."""

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "`role=` has no meaning for a CORE_GROUP scope",
            [Label(loc)],
            helps=["remove `role=`"],
        )


class LoopKeyword(UserError, code="E0417"):
    """A loop has an option that its kind does not support, or two that exclude each other."""

    def __init__(self, loc: Loc, loop: str, keyword: str, allowed: Sequence[str], why: str = ""):
        super().__init__(
            f"`{loop}` does not accept `{keyword}=`",
            [Label(loc, why)],
            helps=[f"`{loop}` accepts {quoted_names(allowed, 'and')}"] if allowed else [],
        )
