"""Views valid in part, and names whose type is their region: as PyPTO's compiler of August 2026
was seen to take or refuse the same texts.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.dialects.test_dialects import AUGUST, codes, program_of

import tilelet.language as pl
from tilelet.dialects import check
from tilelet.export.rewrite import apply_fixes
from tilelet.passes.pipeline import run_passes
from tilelet.runtime.config import RunConfig
from tilelet.runtime.programs.compiler import compile_program

TILES = """
@pl.jit
def kernel(
    x: pl.Tensor[[64, 64], pl.FP32],
    y: pl.Tensor[[64, 64], pl.BF16],
    lens: pl.Tensor[[1], pl.INT32],
    out: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
):
    n = pl.read(lens, [0])
    for t0 in pl.range(0, n, 16):
        known = pl.min(16, n - t0)
        VIEWS
        with pl.at(level=pl.Level.CORE_GROUP):
            BODY
    return out
"""
ROWS = "rows = pl.slice(x, [16, 64], [t0, 0], valid_shape=[known, 64])"
HALVES = "rows = pl.slice(y, [16, 64], [t0, 0], valid_shape=[known, 64])"
BLOCK = "block = pl.slice(out, [16, 64], [t0, 0])"
STORE = "out = pl.assemble(out, t, [t0, 0])"


def text_of(views: list[str], body: list[str]) -> str:
    text = TILES.replace("VIEWS", "\n        ".join(views))
    return text.replace("BODY", "\n            ".join(body))


def found_in(text: str) -> list[str]:
    """Return the codes of findings, which do not depend on passes."""
    program = program_of(text)
    found = codes(check(program, AUGUST))
    assert codes(check(run_passes(program), AUGUST)) == found
    return found


WINDOW = "t = pl.exp(pl.slice(rows, [16, 64], [0, 0]))"
SAID = "t = pl.exp(pl.slice(rows, [16, 64], [0, 0], valid_shape=[known, 64]))"
WEIGHT = "pl.slice(y, [64, 64], [0, 0])"


def product(rows: str) -> str:
    return f"t = pl.exp(pl.matmul({rows}, {WEIGHT}, out_dtype=pl.FP32))"


@pytest.mark.parametrize(
    ("views", "body", "expected"),
    [
        ([ROWS], [WINDOW, STORE], ["E1220"]),
        ([ROWS], ["t = pl.exp(rows[0:16, :])", STORE], ["E1220"]),
        ([ROWS], [SAID, STORE], []),
        # An extent of its own is not enough: the valid extent of the view counts, too.
        (
            [ROWS],
            ["t = pl.exp(pl.slice(rows, [16, 64], [0, 0], valid_shape=[16, 32]))", STORE],
            ["E1220"],
        ),
        # The kernel has a number that every statement may use.
        (
            [ROWS],
            [WINDOW, STORE, "last = pl.slice(x, [1, 64], [known, 0])", "out[0:1, :] = last"],
            [],
        ),
        (["rows = pl.slice(x, [16, 64], [t0, 0])"], [WINDOW, STORE], []),
        (["rows = pl.slice(x, [16, 64], [t0, 0], valid_shape=[8, 64])"], [WINDOW, STORE], []),
        (["rows = pl.slice(x, [16, 64], [t0, 0], valid_shape=[t0, 64])"], [WINDOW, STORE], []),
        (
            ["rows = pl.slice(x, [16, 64], [t0, 0], valid_shape=[pl.min(16, n - t0), 64])"],
            [WINDOW, STORE],
            ["E1220"],
        ),
        (
            ["rows = pl.slice(x, [16, 64], [t0, 0], valid_shape=[16, known])"],
            ["t = pl.exp(pl.slice(rows, [16, 32], [0, 32]))", STORE],
            ["E1220"],
        ),
        ([ROWS, "left = pl.slice(rows, [16, 32], [0, 0])"], ["t = pl.exp(left)", STORE], ["W1221"]),
        ([ROWS], ["t = pl.exp(rows)", STORE], ["W1221"]),
        ([ROWS], ["t = pl.add(rows, pl.slice(x, [16, 64], [0, 0]))", STORE], ["W1221"]),
        ([HALVES], [product("rows"), STORE], ["W1221"]),
        ([ROWS], ["one = pl.read(rows, [0, 0])", "t = pl.add(x[0:16, :], one)", STORE], []),
        # Kernels that return nothing: the numbers go with the views, unless kernels are mixed.
        ([ROWS, BLOCK], [WINDOW, "block = pl.assemble(block, t, [0, 0])"], []),
        (
            [HALVES, BLOCK],
            [product("pl.slice(rows, [16, 64], [0, 0], valid_shape=[known, 64])"),
             "block = pl.assemble(block, t, [0, 0])"],
            ["E1222"],
        ),
        (
            [HALVES, BLOCK],
            [product("pl.slice(rows, [16, 64], [0, 0])"), "block = pl.assemble(block, t, [0, 0])"],
            ["E1220"],
        ),
    ],
)  # fmt: skip
def test_kernels_say_how_much_of_a_view_is_valid(
    views: list[str], body: list[str], expected: list[str]
) -> None:
    assert found_in(text_of(views, body)) == expected


def fixed(text: str) -> str:
    """Return the text after all fixes, applied repeatedly."""
    for _ in range(4):
        groups = [d.fixes for d in check(program_of(text), AUGUST) if d.fixes]
        if not groups:
            break
        text = apply_fixes(text, groups)
    return text


def results(text: str) -> bytes:
    arrays = {
        "x": np.random.default_rng(3).normal(0, 1, (64, 64)).astype(np.float32),
        "y": np.ones((64, 64), ml_dtypes.bfloat16),
        "lens": np.array([43], np.int32),
        "out": np.zeros((64, 64), np.float32),
    }
    compile_program(program_of(text)).run_tasks(arrays, RunConfig(engine="interp"))
    return arrays["out"].tobytes()


@pytest.mark.parametrize(
    ("views", "body", "expected"),
    [
        ([ROWS], [WINDOW, STORE], SAID),
        ([ROWS], ["t = pl.exp(rows)", STORE], SAID),
        (
            ["rows = pl.slice(x, [16, 64], [t0, 0], valid_shape=[known, 64])"],
            ["t = pl.exp(pl.slice(rows, [8, 64], [8, 0]))", "out = pl.assemble(out, t, [t0, 0])"],
            "valid_shape=[pl.min(8, pl.max(known - (8), 0)), 64]",
        ),
        (
            [HALVES, BLOCK],
            [product("pl.slice(rows, [16, 64], [0, 0])"), "block = pl.assemble(block, t, [0, 0])"],
            "rows = pl.slice(y, [16, 64], [t0, 0])\n",
        ),
    ],
)
def test_what_is_to_be_said_is_known(views: list[str], body: list[str], expected: str) -> None:
    text = text_of(views, body)
    mended = fixed(text)
    assert expected in mended
    assert found_in(mended) == []
    assert results(mended) == results(text)


def test_a_number_that_changes_before_the_window_is_not_said_there() -> None:
    views = [ROWS, "known = pl.min(4, n)"]
    (found,) = check(program_of(text_of(views, [WINDOW, STORE])), AUGUST)
    assert (found.code, found.fixes) == ("E1220", ())


PART = "p = pl.slice(x, [16, 64], [t0, 0], valid_shape=[known, 64])"
WHOLE = "w = pl.slice(x, [16, 64], [0, 0])"


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("p", "pl.add(t, p)", []),
        ("pl.exp(p)", "pl.add(t, p)", []),
        ("p", "pl.add(t, w)", ["E1217"]),
        ("p", "pl.exp(w)", ["E1217"]),
        ("w", "pl.add(t, p)", ["W1224"]),
        ("w", "pl.exp(p)", ["E1217"]),
        ("w", "pl.fillpad(p)", []),
        ("pl.exp(p)", "pl.exp(x[0:16, :])", ["E1217"]),
    ],
)
def test_the_region_of_what_a_loop_carries_stays_the_same(
    first: str, then: str, expected: list[str]
) -> None:
    body = [PART, WHOLE, f"t = {first}", "for k in pl.range(3):", f"    t = {then}", STORE]
    assert found_in(text_of([], body)) == expected


SCOPE = """with pl.at(level=pl.Level.CORE_GROUP):
    t = pl.exp(x[0:ROWS, :])
    out[0:ROWS, :] = t
"""


def block(head: str, rows: int) -> str:
    inner = SCOPE.replace("ROWS", str(rows))
    return f"{head}\n" + "".join(f"    {line}\n" for line in inner.splitlines()) if head else inner


def program_text(blocks: list[tuple[str, int]], jit: bool) -> str:
    lines = "".join(block(head, rows) for head, rows in blocks).splitlines()
    params = "x: pl.Tensor[[64, 64], pl.FP32], n: pl.Scalar[pl.INDEX], "
    params += "out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]"
    if jit:
        head, indent = f"@pl.jit\ndef kernel({params}):", "    "
    else:
        head = f"@pl.program\nclass Kernel:\n    @pl.function\n    def main(self, {params}):"
        indent = "        "
    return "\n".join([head, *(indent + line for line in lines), f"{indent}return out", ""])


LOOP = "for i in pl.range(2):"


@pytest.mark.parametrize(
    ("blocks", "renamed"),
    [
        ([("", 16), ("", 32)], True),
        ([(LOOP, 16), (LOOP, 32)], True),
        ([("if n > 3:", 16), ("if n > 5:", 32)], True),
        ([("if n > 3:", 16), ("else:", 32)], False),
        ([(LOOP, 16), ("", 32)], False),
        ([("", 16), (LOOP, 32)], False),
    ],
)
def test_where_a_name_may_get_another_type(blocks: list[tuple[str, int]], renamed: bool) -> None:
    assert codes(check(program_of(program_text(blocks, jit=False)), AUGUST)) == ["E1217"]
    expected = [] if renamed else ["E1217"]
    assert codes(check(program_of(program_text(blocks, jit=True)), AUGUST)) == expected


@pytest.mark.parametrize(
    ("extent", "columns", "expected"),
    [("known", 64, []), ("other", 64, ["E1217"]), ("known", 32, ["E1217"])],
)
def test_a_view_of_a_second_loop_has_the_type_of_the_first(
    extent: str, columns: int, expected: list[str]
) -> None:
    text = text_of([ROWS], [SAID, STORE]).replace(
        "    return out",
        f"""    for t1 in pl.range(0, n, 16):
        {extent} = pl.min(16, n - t1)
        rows = pl.slice(x, [16, {columns}], [t1, 0], valid_shape=[{extent}, {columns}])
        with pl.at(level=pl.Level.CORE_GROUP):
            u = pl.slice(rows, [16, {columns}], [0, 0], valid_shape=[{extent}, {columns}])
            out = pl.assemble(out, pl.exp(u), [t1, 0])
    return out""",
    )
    assert codes(check(program_of(text), AUGUST)) == expected


def test_the_counter_of_a_loop_is_no_tensor_afterwards() -> None:
    text = text_of([], ["t = pl.exp(x[0:16, :])", STORE]).replace(
        "    return out",
        """    t0 = pl.create_tensor([16, 64], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP):
        t0 = pl.assemble(t0, pl.exp(x[0:16, :]), [0, 0])
    return out""",
    )
    assert codes(check(program_of(text), AUGUST)) == ["E1217"]


PART_HALVES = [
    "lo = pl.slice(x, [16, 32], [t0, 0], valid_shape=[known, 32])",
    "hi = pl.slice(x, [16, 32], [t0, 32], valid_shape=[known, 32])",
]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("pl.add(p, w)", []),
        ("pl.add(w, p)", ["W1224"]),
        ("pl.row_expand_mul(p, pl.row_sum(w))", []),
        ("pl.row_expand_mul(w, pl.row_sum(p))", ["W1224"]),
        ("pl.exp(pl.add(w, p))", ["W1224"]),
        # The first operand of the last op states it again.
        ("pl.add(p, pl.add(w, p))", []),
        ("pl.set_validshape(pl.add(w, p), known, 64)", []),
        ("pl.set_validshape(pl.add(w, p), 16, 64)", []),
        ("pl.fillpad(p)", []),
        ("pl.col_expand_mul(p, pl.slice(x, [1, 64], [0, 0]))", []),
        ("pl.concat(pl.exp(lo), pl.exp(hi))", ["W1224"]),
        ("pl.concat(x[0:16, 0:32], x[0:16, 32:64])", []),
    ],
)
def test_the_region_of_a_result_is_that_of_the_first_operand(
    made: str, expected: list[str]
) -> None:
    assert found_in(text_of([], [PART, WHOLE, *PART_HALVES, f"t = {made}", STORE])) == expected


SPLIT = """
@pl.jit
def kernel(
    y: pl.Tensor[[64, 64], pl.BF16],
    cube: pl.Tensor[[4, 16, 64], pl.FP32],
    out: pl.Out[pl.Tensor[[4, 16, 64], pl.FP32]],
):
    for i in pl.range(4):
        rows = pl.reshape(pl.slice(out, [1, 16, 64], [i, 0, 0]), [16, 64])
        with pl.at(level=pl.Level.CORE_GROUPOPTIONS):
            a = pl.slice(y, [16, 64], [i * 16, 0])
            t = pl.matmul(a, pl.slice(y, [64, 64], [0, 0]), out_dtype=pl.FP32)
            BODY
    return out
"""
UP_DOWN = ", optimizations=[pl.split(pl.SplitMode.UP_DOWN)]"


@pytest.mark.parametrize(
    ("options", "body", "expected"),
    [
        (UP_DOWN, "out = pl.assemble(out, pl.exp(t), [i, 0, 0])", ["E1223"]),
        ("", "out = pl.assemble(out, pl.exp(t), [i, 0, 0])", []),
        (UP_DOWN, "rows = pl.assemble(rows, pl.exp(t), [0, 0])", []),
        # Properties that only the cube has are not split.
        (UP_DOWN, "out = pl.assemble(out, t, [i, 0, 0])", []),
        (
            UP_DOWN,
            """c = pl.reshape(pl.slice(cube, [1, 16, 64], [i, 0, 0]), [16, 64])
            rows = pl.assemble(rows, pl.add(t, c), [0, 0])""",
            ["E1223"],
        ),
    ],
)
def test_halves_of_tiles_go_to_tensors_of_two_axes(
    options: str, body: str, expected: list[str]
) -> None:
    assert found_in(SPLIT.replace("OPTIONS", options).replace("BODY", body)) == expected


@pytest.mark.parametrize(
    ("made", "code", "instead"),
    [
        ("w + v", "E1218", "pl.add(w, v)"),
        ("pl.exp(w) * 2.0", "E1218", "pl.mul(pl.exp(w), 2.0)"),
        ("pl.exp(-w)", "E1218", "pl.exp(pl.neg(w))"),
        ("(w - v) / w", "E1218", "pl.div(pl.sub(w, v), w)"),
        ("2.0 * w", "E1208", "pl.mul(w, 2.0)"),
        ("1.0 - w", "E1208", "pl.add(pl.neg(w), 1.0)"),
        ("1.0 / w", "E1208", "pl.recip(w)"),
        ("pl.maximum(0.0, w)", "E1208", "pl.maximum(w, 0.0)"),
        ("pl.mul(w, 2.0)", "", "pl.mul(w, 2.0)"),
    ],
)
def test_tensors_are_operands_of_ops_and_come_first(made: str, code: str, instead: str) -> None:
    others = [WHOLE, "v = pl.slice(x, [16, 64], [16, 0])"]
    text = text_of([], [*others, f"t = {made}", STORE])
    assert set(codes(check(program_of(text), AUGUST))) == ({code} if code else set())
    mended = fixed(text)
    assert f"t = {instead}\n" in mended
    assert check(program_of(mended), AUGUST) == []
    assert results(mended) == results(text)


def test_the_help_for_an_operator_names_its_op() -> None:
    """A store into a window of higher rank reshapes the operator's result."""

    @pl.jit
    def kernel(
        a: pl.Tensor[[16, 64], pl.FP32],
        b: pl.Tensor[[2, 16, 64], pl.FP32],
        out: pl.Out[pl.Tensor[[2, 16, 64], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[1, :, :] = a + b[0, :, :]
        return out

    found = check(kernel.specialize(), AUGUST)
    (operator,) = [d for d in found if d.code == "E1218"]
    assert "write `pl.add(a, b[0, :, :])`" in operator.helps
