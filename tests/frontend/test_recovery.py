"""One mistake gives one message, at its own place."""

import pytest

import tilelet.language as pl
from tilelet.diag import UserError, UserErrors
from tilelet.diag.core import Diagnostic
from tilelet.language.text import parse

HEADER = """
import tilelet.language as pl

@pl.program
class P:
    @pl.function
    def main(self, x: pl.Tensor[[16, 32], pl.FP32], out: pl.Tensor[[16, 32], pl.FP32]):
        with pl.at(level=pl.Level.CORE_GROUP):
"""


def mistakes(*lines: str) -> list[Diagnostic]:
    """Return the messages about these lines in a scope."""
    body = "".join(f"            {line}\n" for line in lines)
    with pytest.raises((UserError, UserErrors)) as caught:
        parse(f"{HEADER}{body}        return out\n")
    if isinstance(caught.value, UserErrors):
        return list(caught.value.diagnostics)
    return [caught.value.diagnostic]


def codes(*lines: str) -> list[str]:
    return [d.code for d in mistakes(*lines)]


def test_names_bound_by_a_wrong_statement_are_not_reported_again() -> None:
    assert codes(
        "a = pl.slice(x, [16, 32], [8, 0])",
        "b = x[8:24, :]",
        "c = pl.read(x, [16, 0])",
        "d = pl.mul(pl.add(a, b), c)",
        "out = pl.assemble(out, d, [0, 0])",
    ) == ["E0501", "E0501", "E0503"]


def test_a_used_up_tensor_is_called_by_its_new_name() -> None:
    (found,) = mistakes(
        "new = pl.assemble(out, pl.exp(x), [0, 0])",
        "y = pl.exp(out)",
    )
    assert found.code == "E0206"
    assert any("`new`" in text for text in found.helps)


@pytest.mark.parametrize("header", ["for i in pl.range(4):", "while pl.read(x, [0, 0]) > 0.0:"])
@pytest.mark.parametrize("body", ["pass", "break"])
def test_else_of_a_loop_is_not_dropped(header: str, body: str) -> None:
    lines = [header, f"    {body}", "else:", "    out = pl.assemble(out, pl.exp(x), [0, 0])"]
    assert codes(*lines) == ["E0102"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("for i in pl.cluster_of(2):", "E0301"),
        ("for i in pl.rang(2):", "E0301"),
        ("with pl.inncore():", "E0301"),
    ],
)
def test_unknown_headers_are_reported_in_the_kernel(header: str, code: str) -> None:
    (found,) = mistakes(header, "    out = pl.assemble(out, pl.exp(x), [0, 0])")
    assert found.code == code
    assert found.labels[0].loc.file.startswith("<pl.parse")


def test_unsupported_op_is_reported_once() -> None:
    assert codes("pl.tpush_to_aiv(x, split=0)") == ["E0805"]


@pl.jit.inline
def endless(t):
    return endless(pl.exp(t))


def test_a_wrong_helper_is_reported_once() -> None:
    @pl.jit
    def kernel(x: pl.Tensor[[16, 32], pl.FP32], out: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = endless(x)
        return out

    with pytest.raises(UserErrors) as caught:
        kernel.specialize()
    assert [d.code for d in caught.value.diagnostics] == ["E0211"]


def test_signatures_in_messages_are_as_users_write_them() -> None:
    (found,) = mistakes("y = pl.add(x)")
    assert "signature: `pl.add(lhs, rhs)`" in found.notes


def test_a_wrong_kernel_is_not_a_mistake_of_its_caller() -> None:
    with pytest.raises(UserErrors) as caught:
        parse("""
import tilelet.language as pl

@pl.program
class P:
    @pl.function(type=pl.FunctionType.InCore)
    def double(self, x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        return pl.store(pl.addd(x, x), [0, 0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        y = self.double(x, y)
        return y
""")
    assert [d.code for d in caught.value.diagnostics] == ["E0301"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = self.helper(x)", "`P` has no attribute `helper`"),
        ("y = x.exp()", "`pl.Tensor[[16, 32], pl.FP32]` has no attribute `exp`"),
        ("y = pl.Level.CORE", "`Level` has no attribute `CORE`"),
    ],
)
def test_what_has_no_attribute(line: str, message: str) -> None:
    (found,) = mistakes(line)
    assert found.code == "E0122"
    assert found.message == message


def test_an_endless_sum_is_the_texts_fault() -> None:
    terms = " + ".join(["x"] * 700)
    found = mistakes(f"y = {terms}")
    assert [d.code for d in found] == ["E0123"]


def test_a_returned_parameter_must_have_been_written() -> None:
    # Nothing declares `out` as an output, but it is returned, and its data would be lost.
    (found,) = mistakes("out = pl.exp(x)")
    assert found.code == "E0207"


def test_a_layout_is_not_dropped_without_a_word() -> None:
    program = parse("""
import tilelet.language as pl

@pl.program
class P:
    @pl.function
    def main(self, x: pl.Tensor[[16, 32], pl.FP32, pl.DN], out: pl.Tensor[[16, 32], pl.FP32]):
        with pl.at(level=pl.Level.CORE_GROUP):
            out = pl.assemble(out, pl.exp(x), [0, 0])
        return out
""")
    (caution,) = program.cautions
    assert caution.code == "W0102"
    assert caution.message == "layout `pl.DN` of `x` has no effect in Tilelet"


@pytest.mark.parametrize(
    ("line", "message", "help_text"),
    [
        ("y = pl.row_summ(x)", "no op `pl.row_summ`", "did you mean `pl.row_sum`?"),
        ("y = pl.tile.expp(x)", "no op `pl.tile.expp`", "did you mean `pl.tile.exp`?"),
    ],
)
def test_unknown_ops_are_spelled_as_in_the_text(line: str, message: str, help_text: str) -> None:
    (found,) = mistakes(line)
    assert found.message == message
    assert found.helps == (help_text,)


@pytest.mark.parametrize("line", ["yield 3", "y = [(yield 3)]", "y = {1: (yield)}"])
def test_yield_is_no_expression_of_the_language(line: str) -> None:
    """Python refuses to compile the text alone: a SyntaxError from inside its compiler."""
    found = mistakes(line)
    assert [d.code for d in found] == ["E0103"]


def test_a_tensor_of_another_shape_does_not_join_a_tile() -> None:
    """A tensor of the same shape is loaded where the paths meet."""
    carried = [
        "t = pl.exp(x[0:8, :])",
        "for i, (c,) in pl.range(2, init_values=(t,)):",
        "    t = pl.yield_({})",
        "out[0:8, :] = t",
    ]
    assert codes(*[line.format("x") for line in carried]) == ["E0203"]
    joined = [
        "if pl.read(x, [0, 0]) > 0.0:",
        "    t = pl.exp(x[0:8, :])",
        "else:",
        "    t = x",
        "out[0:8, :] = t",
    ]
    assert codes(*joined) == ["E0204"]
    loaded = "".join(f"            {line}\n" for line in carried)
    parse(HEADER + loaded.replace("0:8", "0:16").format("x") + "        return out\n")
