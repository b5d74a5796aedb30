"""Numbers in kernel text: checked against their types, and of bounded size."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.differential import agree, outcome

from tilelet.cpu.run.engine import CpuEngine
from tilelet.diag import UserError, UserErrors
from tilelet.diag.core import Diagnostic
from tilelet.diag.text import integer_text
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.verify import verify
from tilelet.language.text import parse
from tilelet.passes.pipeline import run_passes

HEADER = """
import tilelet.language as pl

@pl.program
class P:
    @pl.function
    def main(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        v: pl.Tensor[[16], pl.{dtype}],
        out: pl.Out[pl.Tensor[[16], pl.{dtype}]],
    ):
        n = pl.read(v, [0])
"""


def source(*lines: str, dtype: str = "INT64") -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"{HEADER.format(dtype=dtype)}{body}        return out\n"


def mistake(*lines: str, dtype: str = "INT64") -> Diagnostic:
    """Return the messages about these lines."""
    with pytest.raises((UserError, UserErrors)) as caught:
        parse(source(*lines, dtype=dtype))
    if isinstance(caught.value, UserErrors):
        return caught.value.diagnostics[0]
    return caught.value.diagnostic


@pytest.mark.parametrize(
    "expression",
    [
        *("n // {0}", "n % {0}", "n + {0}", "{0} - n", "{0} // n", "n * {0}", "n << {0}"),
        *("pl.min(n, {0})", "pl.max({0}, n)", "pl.add(n, {0})", "pl.const({0}, pl.INT64)"),
    ],
)
@pytest.mark.parametrize("number", ["2 ** 64", "2 ** 63", "10 ** 400", "(-(2 ** 63) - 1)"])
def test_an_integer_beyond_its_type_is_an_error(expression: str, number: str) -> None:
    assert mistake(f"pl.write(out, [1], {expression.format(number)})").code == "E0322"


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "==", "!="])
def test_comparisons_too(operator: str) -> None:
    lines = (f"if n {operator} 2 ** 64:", "    out = pl.write(out, [0], 1)")
    assert mistake(*lines).code == "E0322"


@pytest.mark.parametrize(
    ("dtype", "number", "fits"),
    [
        ("INT8", 127, True),
        ("INT8", 128, False),
        ("INT8", -128, True),
        ("INT8", -129, False),
        ("UINT8", 255, True),
        ("UINT8", -1, False),
        ("INT32", 2**31, False),
        ("INT64", 2**63 - 1, True),
        ("UINT64", 2**64 - 1, True),
        ("UINT64", -1, False),
    ],
)
def test_the_type_is_that_of_the_scalar_it_meets(dtype: str, number: int, fits: bool) -> None:
    lines = f"pl.write(out, [1], n - {number})", f"pl.write(out, [2], pl.max(n, {number}))"
    if not fits:
        found = mistake(*lines, dtype=dtype)
        assert found.code == "E0322"
        assert dtype in found.message
        return
    program = parse(source(*lines, dtype=dtype))
    numpy = program.main.params[1].type.dtype.numpy  # type: ignore[union-attr]
    arrays = {"x": np.ones((16, 32), np.float32), "out": np.zeros(16, numpy)}
    agree(run_passes(program), v=np.full(16, 5, numpy), **arrays)


@pytest.mark.parametrize(
    "lines",
    [
        ("m = 0", "if n > 3:", "    m = 2 ** 63", "else:", "    m = 1", "v = pl.read(v, [m])"),
        ("m = 2 ** 70", "for i in pl.range(3):", "    m = m + 1"),
        ("m = n", "for i in pl.range(3):", "    m = 2 ** 64", "pl.write(out, [0], m)"),
        ("for i in pl.range(0, 2 ** 63):", "    m = i"),
        ("for i in pl.range(-(2 ** 70), 0):", "    m = i"),
        ("pl.write(out, [2 ** 70], n)",),
        ("t = pl.create_tensor([2 ** 70], dtype=pl.FP32)",),
        ("with pl.at(level=pl.Level.CORE_GROUP):", "    y = pl.add(x, 10 ** 400)"),
        ("with pl.at(level=pl.Level.CORE_GROUP):", "    y = x[2 ** 70 : 2 ** 70 + 8, :]"),
        ("with pl.at(level=pl.Level.CORE_GROUP):", "    y = x * (-(10 ** 5000))"),
    ],
)
def test_wherever_a_number_becomes_part_of_the_program(lines: tuple[str, ...]) -> None:
    assert mistake(*lines).code == "E0322"


def test_a_cast_constant_is_what_the_cast_gives_at_run_time() -> None:
    lines = [
        f"pl.write(out, [{i}], pl.cast({number}, pl.INT64))"
        for i, number in enumerate(("pl.cast(300, pl.INT8)", "2.7", "-pl.const(-128, pl.INT8)"))
    ]
    out = np.zeros(16, np.int64)
    arguments = {"x": np.ones((16, 32), np.float32), "v": np.zeros(16, np.int64), "out": out}
    Interpreter().run(parse(source(*lines)), arguments)
    assert out[:3].tolist() == [127, 3, -128]


@pytest.mark.parametrize(
    "number",
    [
        *("i - (-9223372036854775807)", "(i - 9223372036854775807) * 2 - 1", "i << 63", "i << 64"),
        *("-(i - 9223372036854775807 - 2)", "(i - 8) // 2", "(i - 8) % 2", "~i"),
    ],
)
def test_a_known_index_counts_as_one_of_run_time_does(number: str) -> None:
    """The index of an unrolled loop is a constant, that of `pl.range` is not: equal arithmetic."""

    def written(loop: str) -> int:
        body = (f"for i in pl.{loop}(1, 2):", f"    m = {number}", "    pl.write(out, [i], m)")
        arguments = {name: np.zeros(16, np.int64) for name in ("v", "out")}
        Interpreter().run(parse(source(*body)), {"x": np.ones((16, 32), np.float32), **arguments})
        return int(arguments["out"][1])

    assert written("unroll") == written("range") != 0 or number == "i << 64"


@pytest.mark.parametrize(
    "expression", ["9 ** 9 ** 9", "1 << 10 ** 10", "2 ** 40000 * 2 ** 40000", "'a' * 10 ** 12"]
)
def test_what_would_never_be_computed_is_an_error(expression: str) -> None:
    assert mistake(f"m = {expression}").code == "E0115"


@pytest.mark.parametrize("expression", ["1 ** 10 ** 12", "0 << 3", "(-1) ** 10 ** 12", "2 ** 1000"])
def test_large_steps_to_a_small_number_are_not(expression: str) -> None:
    parse(source(f"m = ({expression}) % 7", "pl.write(out, [0], n + m)"))


@pytest.mark.parametrize("text", ["10 ** 5000", 'f"{10 ** 5000}"'])
def test_a_number_that_python_does_not_print(text: str) -> None:
    assert mistake(f"pl.static_print({text})").code == "E0115"
    assert mistake(f"pl.static_assert(False, {text})").code == "E0115"


@pytest.mark.parametrize("chunk", [2**63, 10**10, 2**20 + 1, 0, -(10**400)])
def test_chunks_have_a_bound(chunk: int) -> None:
    lines = (
        "with pl.auto_incore():",
        f"    for r in pl.parallel(0, 16, 1, chunk={chunk}):",
        "        y = pl.exp(pl.slice(x, [1, 32], [r, 0]))",
    )
    assert mistake(*lines).code == "E0408"


def test_copies_of_loop_bodies_have_a_bound() -> None:
    """Trip counts of nested loops multiply; those of consecutive loops add up."""
    inner = ("    for j in pl.unroll(1000):", "        m = i + j")
    assert mistake("for i in pl.unroll(1000):", *inner).code == "E0418"
    assert mistake("for i in pl.unroll(2 ** 62):", "    m = i").code == "E0418"
    parse(source("for i in pl.unroll(100):", "    for j in pl.unroll(100):", "        m = i + j"))


def test_loops_to_the_ends_of_the_index_type() -> None:
    """The trip count needs more than 63 bits, and the last step would overflow."""
    lines: list[str] = []
    for bounds in ("-(2 ** 63), 2 ** 63 - 1, 2 ** 62", "2 ** 63 - 1, -(2 ** 63), -(2 ** 62)"):
        lines += [f"for i in pl.range({bounds}):", "    pl.write(out, [1], pl.read(out, [1]) + 1)"]
    out = np.zeros(16, np.int64)
    agree(
        run_passes(parse(source(*lines))),
        x=np.ones((16, 32), np.float32),
        v=np.zeros(16, np.int64),
        out=out,
    )


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("q = pl.read(v, [n + 40])",), "E0503"),
        (("q = v[n + 40]",), "E0503"),
        (("for i in pl.range(n, n + 40):", "    q = pl.read(v, [i])"), "E0503"),
        (("with pl.at(level=pl.Level.CORE_GROUP):", "    q = pl.read(x, [n + 40, 0])"), "E0503"),
        (("a = pl.array.create(8, pl.INT32)", "q = a[n + 40]"), "E0503"),
        (("q = 5 // (n - n)",), "E0509"),
        (("q = 5 % (n - n)",), "E0509"),
    ],
)
def test_a_wrong_number_is_an_error_even_if_nobody_uses_it(
    lines: tuple[str, ...], code: str
) -> None:
    program = run_passes(parse(source("pl.write(out, [0], n)", *lines)))
    for engine in (Interpreter(), CpuEngine()):
        arguments = {
            "x": np.ones((16, 32), np.float32),
            "v": np.full(16, 5, np.int64),
            "out": np.zeros(16, np.int64),
        }
        _, error, _ = outcome(engine, program, arguments)
        assert code in error


def test_long_integers_in_messages() -> None:
    assert integer_text(-(2**64)) == "-18446744073709551616"
    assert integer_text(10**400) == "10^400 or so"
    assert integer_text(-(10**10000)) == "-10^10000 or so"


@pytest.mark.parametrize(
    ("count", "code"), [("1 << 70", "E0322"), ("1 << 63", "E0322"), ("0", "E0405")]
)
@pytest.mark.parametrize("launch", ["with pl.spmd({}):", "for i in pl.spmd({}):"])
def test_the_number_of_blocks_is_an_index(launch: str, count: str, code: str) -> None:
    lines = [launch.format(count), "    out[:] = pl.add(v, 1)"]
    assert mistake(*lines, dtype="INT32").code == code


def test_arguments_without_dependencies_are_tensors() -> None:
    """A quoted name would otherwise disable nothing, silently."""
    scope = 'with pl.at(level=pl.Level.CORE_GROUP, no_dep_args=["out"]):'
    found = mistake(scope, "    out[:] = pl.add(v, 1)", dtype="INT32")
    assert found.code == "E0405"
    assert "must be tensors" in found.message


@pytest.mark.parametrize("expression", ["pl.min(n, s - 6)", "n + (s + (2 ** 31 - 2))", "s - n"])
def test_a_constant_that_was_cast_keeps_its_type(expression: str) -> None:
    """A folded result is no literal, so it does not take the type of the other scalar."""
    lines = (
        "s = pl.cast(pl.min(pl.max(1, 0), 4), pl.INDEX)",
        f"m = {expression}",
        "if m > 2 ** 31:",
        "    pl.write(out, [0], 1)",
        "pl.write(out, [1], pl.cast(m, pl.INT32))",
    )
    program = run_passes(parse(source(*lines, dtype="INT32")))
    verify(program)
    arrays = {"x": np.ones((16, 32), np.float32), "out": np.zeros(16, np.int32)}
    found = agree(program, v=np.full(16, 5, np.int32), **arrays)
    m = {"pl": min(5, -5), "n ": 5 + 2**31 - 1, "s ": -4}[expression[:2]]
    expected = [int(m > 2**31), min(m, 2**31 - 1)]  # the cast saturates
    assert found["out"][:2].tolist() == expected
