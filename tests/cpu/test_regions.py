"""`plan/regions.py`: which extents are constants, decided before C is printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.interp.build import Build, tensor

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.emit.kernel import BY_REFERENCE, EMITTERS
from tilelet.cpu.emit.ops_host import emit_host
from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.plan import regions
from tilelet.cpu.plan.regions import TileRegions, find_regions
from tilelet.dtypes import INT32
from tilelet.ir.core import FunctionKind, Value
from tilelet.passes.pipeline import run_passes

ROWS, COLUMNS = 8, 16
Body = Callable[[Build, Value, Value], Value]


def planned(body: Body, *, windows_are_full: bool = True) -> tuple[TileRegions, dict[str, object]]:
    """Return the regions, by name, of a kernel that stores what `body` computes from x and n."""
    b = Build()
    x, out = (b.param(n, tensor([ROWS, COLUMNS])) for n in ("x", "out"))
    sizes = b.param("sizes", tensor([1], INT32))

    def scope(s: Build) -> list[Value]:
        n = s.op("read", x=sizes, indices=[0])
        return [s.put(out, body(s, x, n), [0, 0])]

    b.scope(scope)
    functions = run_passes(b.program()).functions
    (kernel,) = (f for f in functions.values() if f.kind is FunctionKind.InCore)
    aliases = Aliases(kernel.body, functions)
    found = find_regions(kernel, aliases, windows_are_full=windows_are_full)
    return found, {v.name: region for v, region in found.of.items()}


def cut(s: Build, x: Value, rows: object, name: str = "") -> Value:
    return s.op(
        "slice", x=x, shape=[ROWS, COLUMNS], offset=[0, 0], valid_shape=[rows, 5], result=name
    )


def test_a_load_is_whole_unless_it_is_cut() -> None:
    _, whole = planned(lambda s, x, _: s.op("exp", x=s.whole(x), result="e"))
    assert whole["e"] == (ROWS, COLUMNS)
    _, partial = planned(lambda s, x, _: s.op("exp", x=cut(s, x, 3), result="e"))
    assert partial["e"] == (None, None)
    _, unknown = planned(
        lambda s, x, _: s.op("exp", x=s.whole(x), result="e"), windows_are_full=False
    )
    assert unknown["e"] == (None, None)


@pytest.mark.parametrize("columns", [1 << 31, 1 << 40])
def test_extents_beyond_32_bits(columns: int) -> None:
    """A tile too large for any memory is rejected at run time, not by an internal error."""
    b = Build()
    x = b.param("x", tensor([4, columns]))

    def scope(s: Build) -> list[Value]:
        loaded = s.op("slice", x=x, shape=[4, columns], offset=[0, 0])
        part = s.op("slice", x=s.op("neg", x=loaded), shape=[2, columns], offset=[0, 0])
        return [s.put(x, part, [0, 0])]

    b.scope(scope)
    assert f"{columns}" in "".join(emit_program(run_passes(b.program())).units)


def test_what_a_loop_does_not_change_stays_constant() -> None:
    def body(s: Build, x: Value, n: Value) -> Value:
        (acc,) = s.for_(n, lambda t, _, acc: [t.op("add", lhs=acc, rhs=t.whole(x))], [s.whole(x)])
        return acc

    found, _ = planned(body)
    assert not found.variable
    assert set(found.of.values()) == {(ROWS, COLUMNS)}


def test_what_a_loop_changes_is_variable_and_so_is_what_depends_on_it() -> None:
    """The inner loop's value is constant until the outer one's turns out not to be."""

    def body(s: Build, x: Value, n: Value) -> Value:
        def outer(t: Build, _: Value, acc: Value) -> list[Value]:
            (inner,) = t.for_(n, lambda u, _, v: [u.op("exp", x=v)], [acc])
            return [t.op("set_validshape", x=inner, rows=3, cols=5)]

        (acc,) = s.for_(n, outer, [s.whole(x)])
        return acc

    found, _ = planned(body)
    # The inner loop starts with variables; it does not change them.
    ((op, at),) = found.variable
    assert (op.name, at) == ("for", 0)
    assert (3, 5) in found.of.values()
    assert (None, None) in found.of.values()


@pytest.mark.parametrize(("rows", "expected"), [(3, (3, 5)), (4, (None, None))])
def test_branches_that_agree(rows: int, expected: tuple[int | None, ...]) -> None:
    def body(s: Build, x: Value, n: Value) -> Value:
        def branch(rows: int) -> Callable[[Build], list[Value]]:
            return lambda t: [t.op("set_validshape", x=t.whole(x), rows=rows, cols=5)]

        (joined,) = s.if_(s.op("scalar.gt", lhs=n, rhs=0), branch(3), branch(rows))
        return s.op("exp", x=joined, result="e")

    found, names = planned(body)
    assert names["e"] == expected
    assert bool(found.variable) == (None in expected)


def test_every_op_with_c_of_its_own_has_a_rule() -> None:
    """Without a rule, an op would have variables where its C has constants."""
    assert emit_program  # its module declares the rules of all ops
    own = {name for name, emit in EMITTERS.items() if emit is not emit_host} - {BY_REFERENCE}
    without = own - set(regions._RULES) - set(regions._FLOW)
    makes_no_tile = ("scalar.", "array.", "get_", "system.", "tensor.dim", "read", "store")
    assert not {name for name in without if not name.startswith(makes_no_tile)}
