"""Constructs that a dialect rejects are reported at their places; accepted ones are not."""

from __future__ import annotations

import linecache
import types

import pytest
from tests.models.programs import SMALL, sizes_of

import tilelet.language as pl
from tilelet.diag.catalogue import classes, describe
from tilelet.diag.core import Diagnostic, UserError
from tilelet.dialects import DIALECTS, check
from tilelet.ir.core import Program
from tilelet.models.qwen3.walkthrough.text import APRIL as APRIL_VARIANTS
from tilelet.models.registry import models
from tilelet.passes.pipeline import run_passes

APRIL, AUGUST = DIALECTS["2026-04"], DIALECTS["2026-08"]


def program_of(text: str, name: str = "<dialect>") -> Program:
    """Return the last program that a text defines."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = types.ModuleType("kernels")
    module.__dict__["pl"] = pl
    exec(compile(text, name, "exec"), module.__dict__)
    found = [v for v in vars(module).values() if isinstance(v, Program) or hasattr(v, "specialize")]
    return found[-1] if isinstance(found[-1], Program) else found[-1].specialize()


def codes(found: list[Diagnostic]) -> list[str]:
    return [d.code for d in found]


EXAMPLES = [
    cls
    for cls in classes().values()
    if cls.__module__.endswith(".portability") and describe(cls).example
]


@pytest.mark.parametrize("cls", EXAMPLES, ids=[cls.code for cls in EXAMPLES])
def test_the_example_of_each_finding_has_it(cls: type[UserError]) -> None:
    program = program_of(describe(cls).example)
    for stage in (program, run_passes(program)):
        assert cls.code in codes(check(stage, AUGUST))


CLEAN = """
@pl.inline
def doubled(rows):
    return pl.add(rows, rows)


@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    for r in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="twice"):
            tile = doubled(x[r : r + 16, :])
            out[r : r + 16, :] = doubled(tile)
    return out
"""


def test_a_portable_program_has_no_finding() -> None:
    assert check(program_of(CLEAN), AUGUST) == []


def test_an_april_program_fits_april() -> None:
    program = program_of("""
@pl.program
class Program:
    @pl.function
    def copy(self, x: pl.Tensor[[64, 64], pl.FP32], out: pl.Tensor[[64, 64], pl.FP32]):
        with pl.auto_incore():
            for i in pl.parallel(0, 4, chunk=2):
                out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
        return out
""")
    assert check(program, APRIL) == []
    assert sorted(codes(check(program, AUGUST))) == ["E1201", "E1201", "E1203"]


def test_findings_of_a_helper_are_told_once() -> None:
    text = CLEAN.replace("pl.add(rows, rows)", "pl.add(pl.cast(rows, pl.FP32), rows)")
    (found,) = check(program_of(text), AUGUST)
    assert found.code == "E1208"
    assert found.loc is not None
    assert (found.loc.line, found.loc.caller) == (4, None)


CAPTURED = """
SIZE = 16

def make():
    SIZE = 8

    @pl.inline
    def window(x, row):
        return pl.slice(x, [SIZE, 64], [row, 0])

    return window

window = make()

@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:8, :] = pl.exp(window(x, 0))
    return out
"""


def test_a_constant_that_a_caller_shadows_is_captured() -> None:
    assert codes(check(program_of(CAPTURED), AUGUST)) == ["E1202"]
    same = CAPTURED.replace("SIZE = 16", "SIZE = 8")
    assert check(program_of(same), AUGUST) == []


IN_A_LOOP = """
@pl.inline
def scaled(tile):
    factor = pl.add(tile, 1.0)
    return pl.mul(tile, factor)


@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        factor = pl.exp(x[0:16, :])
        for r in pl.range(0, 64, 16):
            out[r : r + 16, :] = factor
            last = scaled(x[r : r + 16, :])
            out[r : r + 16, :] = last
    return out
"""


def test_a_name_that_changes_at_the_end_of_a_loop_is_captured_at_its_beginning() -> None:
    found = check(program_of(IN_A_LOOP), AUGUST)
    assert codes(found) == ["E1202"]
    lines = [label.loc.line for label in found[0].labels]
    assert lines == [13, 4]


def test_another_type_for_the_name_of_a_caller_is_refused_there() -> None:
    text = """
@pl.inline
def row_total(tile):
    part = pl.row_sum(tile)
    return pl.row_expand_div(tile, part)


@pl.jit
def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        part = pl.exp(x)
        out[:, :] = row_total(part)
    return out
"""
    (found,) = check(program_of(text), AUGUST)
    assert found.code == "E1202"
    assert [label.loc.line for label in found.labels] == [4, 11]


def test_a_parsed_dump_has_no_text_to_judge() -> None:
    program = program_of(CLEAN)
    assert check(pl.parse(program.as_python()), AUGUST) == []


def test_names_of_the_dialects_are_those_of_the_language() -> None:
    assert [AUGUST.has(name) for name in ("at", "tile.load", "incore")] == [True, True, False]
    assert [APRIL.has(name) for name in ("incore", "reinterpret_view")] == [True, False]
    assert AUGUST.parameters("spmd") is not None


MIXED = """
@pl.jit
def kernel(
    q: pl.Tensor[[16, 64], pl.BF16],
    k: pl.Tensor[[64, 64], pl.BF16],
    n: pl.Scalar[pl.INDEX],
    out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        keys = pl.slice(k, [64, 64], [0, 0], valid_shape=[VALID])
        scores = pl.matmul(q, keys, b_trans=True, out_dtype=pl.FP32)
        out[:, :] = pl.row_expand_sub(scores, pl.row_max(scores))
    return out
"""


def test_only_a_region_that_the_reduction_runs_along_matters() -> None:
    (found,) = check(program_of(MIXED.replace("VALID", "n, 64")), AUGUST)
    assert found.code == "W1216"
    (fix,) = found.fixes
    assert fix.text.startswith("pl.fillpad(pl.matmul(q, keys")
    assert check(program_of(MIXED.replace("VALID", "64, n")), AUGUST) == []


def test_the_column_from_a_reduction_comes_second() -> None:
    text = """
@pl.jit
def kernel(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        ones = pl.reshape(pl.full([1, 16], dtype=pl.FP32, value=1.0), [16, 1])
        total = pl.exp(pl.row_sum(x))
        out[:, :] = pl.row_expand_mul(x, pl.mul(FIRST, SECOND))
    return out
"""
    wrong = program_of(text.replace("FIRST", "total").replace("SECOND", "ones"))
    (found,) = check(wrong, AUGUST)
    assert [fix.text for fix in found.fixes] == ["pl.mul(ones, total)"]
    right = program_of(text.replace("FIRST", "ones").replace("SECOND", "total"))
    assert check(right, AUGUST) == []


def test_the_walkthrough_says_which_programs_are_of_april() -> None:
    """Their scopes and loops have names that the language of August lacks."""
    april = {
        variant
        for model in models().values()
        for variant in model.variants
        if "E1201" in codes(check(model.build(variant), AUGUST))
    }
    assert april == set(APRIL_VARIANTS)


MODERN = [
    (name, variant)
    for name, model in models().items()
    for variant in model.variants
    if variant not in APRIL_VARIANTS
]


@pytest.mark.parametrize(("name", "variant"), MODERN, ids=[f"{n}:{v}" for n, v in MODERN])
def test_modern_programs_fit_august(name: str, variant: str) -> None:
    model = models()[name]
    for sizes in ({}, sizes_of(f"{name}:{variant}", SMALL)):
        assert codes(check(model.build(variant, **sizes), AUGUST)) == []


def test_a_name_does_not_become_valid_in_part() -> None:
    text = """
@pl.program
class Kernel:
    @pl.function
    def main(self, n: pl.Tensor[[1], pl.INT32], x: pl.Tensor[[64, 64], pl.FP32],
             out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
        last = pl.read(n, [0])
        with pl.at(level=pl.Level.CORE_GROUP):
            tile = pl.slice(x, [16, 64], [0, 0])
            out = pl.assemble(out, tile, [0, 0])
            tile = pl.slice(x, [16, 64], [16, 0], valid_shape=[VALID, 64])
            out = pl.assemble(out, tile, [16, 0])
        return out
"""
    (found,) = check(program_of(text.replace("VALID", "last")), AUGUST)
    assert found.code == "E1217"
    assert "partially valid" in found.message
    assert check(program_of(text.replace("VALID", "16")), AUGUST) == []
    both = text.replace("[0, 0])\n            out", "[0, 0], valid_shape=[4, 64])\n            out")
    (found,) = check(program_of(both.replace("VALID", "last")), AUGUST)
    assert found.message.endswith("partially valid and becomes one with another valid region")


def test_in_a_jit_function_a_further_assignment_makes_another_variable() -> None:
    text = """
@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        for r in pl.range(0, 64, 16):
            row = pl.exp(x[r : r + 16, :])
            row = pl.row_sum(row)
            out[r : r + 16, :] = pl.row_expand_div(x[r : r + 16, :], row)
    return out
"""
    assert check(program_of(text), AUGUST) == []


def test_a_loop_over_blocks_is_a_scope() -> None:
    text = """
@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    for b in pl.spmd(4):
        tile = pl.exp(x[b * 16 : b * 16 + 16, :])
        known = pl.set_validshape(tile, 8, 64)
        out = pl.assemble(out, known, [b * 16, 0])
    return out
"""
    assert check(program_of(text), AUGUST) == []


def test_a_ramp_starts_at_a_number_of_its_dtype() -> None:
    text = """
@pl.jit
def kernel(out: pl.Out[pl.Tensor[[4, 64], pl.INT32]]):
    for i in pl.range(4):
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.arange(START, [1, 64]), [i, 0])
    return out
"""
    assert codes(check(program_of(text.replace("START", "i * 64")), AUGUST)) == ["E1208"]
    cast = program_of(text.replace("START", "pl.cast(i * 64, pl.INT32)"))
    assert check(cast, AUGUST) == []


IN_PLACE = """
@pl.inline
def halves(x, low, high):
    with pl.at(level=pl.Level.CORE_GROUP):
        low = pl.assemble(low, pl.mul(x, 0.5), [0, 0])
        high = pl.assemble(high, pl.mul(x, 1.5), [0, 0])
    return low


@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], low: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
           high: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    low = halves(x, low, high)
    return low, high
"""


def test_a_tensor_that_a_helper_writes_in_place_is_the_same_for_its_caller() -> None:
    assert check(program_of(IN_PLACE), AUGUST) == []
    renamed = IN_PLACE.replace(
        "high = pl.assemble(high", "high = pl.add(x, x)\n        low = pl.assemble(low"
    )
    assert codes(check(program_of(renamed), AUGUST)) == ["E1202"]


OF_APRIL = [
    (name, variant)
    for name, model in models().items()
    for variant in model.variants
    if variant in APRIL_VARIANTS
]


@pytest.mark.parametrize(("name", "variant"), OF_APRIL, ids=[f"{n}:{v}" for n, v in OF_APRIL])
def test_programs_of_april_fit_april(name: str, variant: str) -> None:
    model = models()[name]
    for sizes in ({}, sizes_of(f"{name}:{variant}", SMALL)):
        assert codes(check(model.build(variant, **sizes), APRIL)) == []


WALK = """
@pl.jit
def kernel(
    q: pl.Tensor[[16, 64], pl.BF16],
    k: pl.Tensor[[256, 64], pl.BF16],
    n: pl.Scalar[pl.INDEX],
    out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        for s0 in pl.range(0, n, 64):
            keys = pl.min(64, n - s0)
            rows = pl.slice(k, [64, 64], [s0, 0], valid_shape=[EXTENT, 64])
            scores = pl.matmul(q, rows, b_trans=True, out_dtype=pl.FP32)
            out[:, :] = RESULT
    return out
"""


@pytest.mark.parametrize(
    ("extent", "result", "expected"),
    [
        ("keys", "pl.fillpad(scores, pad_value=pl.PadValue.min)", ["E1219"]),
        ("keys", "pl.fillpad(pl.mul(scores, 0.5), pad_value=pl.PadValue.min)", ["E1219"]),
        # A statement about the product itself belongs to the cube's half, too.
        ("keys", "pl.fillpad(pl.set_validshape(scores, 16, keys))", ["E1219"]),
        ("keys", "pl.fillpad(pl.set_validshape(pl.mul(scores, 0.5), 16, keys))", []),
        ("keys", "pl.exp(scores)", []),
        # An outer number that varies is passed to both halves; a constant one is not.
        ("n", "pl.fillpad(scores, pad_value=pl.PadValue.min)", []),
        ("48", "pl.fillpad(scores, pad_value=pl.PadValue.min)", []),
    ],
)
def test_both_halves_of_a_mixed_kernel_know_a_computed_extent(
    extent: str, result: str, expected: list[str]
) -> None:
    text = WALK.replace("EXTENT", extent).replace("RESULT", result)
    assert codes(check(program_of(text), AUGUST)) == expected


@pytest.mark.parametrize(
    ("extent", "expected"),
    [("n", ["E1208"]), ("pl.cast(n, pl.INDEX)", []), ("n - 1", []), ("pl.min(64, n)", [])],
)
def test_an_extent_read_from_a_tensor_is_made_an_index(extent: str, expected: list[str]) -> None:
    text = """
@pl.jit
def kernel(x: pl.Tensor[[16, 64], pl.FP32], lens: pl.Tensor[[1], pl.INT32],
           out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    n = pl.read(lens, [0])
    with pl.at(level=pl.Level.CORE_GROUP):
        known = pl.set_validshape(pl.mul(x, 0.5), 16, EXTENT)
        out[:, :] = pl.fillpad(known, pad_value=pl.PadValue.min)
    return out
"""
    assert codes(check(program_of(text.replace("EXTENT", extent)), AUGUST)) == expected


def test_a_function_of_its_own_assigns_to_its_parameters() -> None:
    text = """
@pl.jit.inline
def squares(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Tensor[[64, 64], pl.FP32]):
    for r in pl.range(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.mul(x[r : r + 16, :], x[r : r + 16, :]), [r, 0])
    return out


@pl.jit
def kernel(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    out = squares(x, out)
    return out
"""
    assert check(program_of(text), AUGUST) == []
