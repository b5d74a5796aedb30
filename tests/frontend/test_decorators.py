"""What decorators accept: names around a function, options, kinds of parameters."""

import numpy as np
import pytest
from tests import everywhere
from tests.kernels import run

import tilelet.language as pl
from tilelet.diag import UserError, UserErrors

ROWS = 16
X = np.arange(ROWS * 32, dtype=np.float32).reshape(ROWS, 32)


def code_of(build) -> str:
    with pytest.raises(UserError) as caught:
        build()
    return caught.value.diagnostic.code


def build_jit(rows: int, columns: int, amount: float):
    @pl.jit
    def kernel(
        x: pl.Tensor[[rows, columns], pl.FP32], out: pl.Out[pl.Tensor[[rows, columns], pl.FP32]]
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:] = pl.add(x, amount)
        return out

    return kernel


def test_jit_in_a_builder_sees_names_that_only_annotations_use() -> None:
    result = run(build_jit(ROWS, 32, 1.0), x=X, out=np.zeros_like(X))
    np.testing.assert_array_equal(result["out"], X + 1)


def plain(x: pl.Tensor[[ROWS, 32], pl.FP32], out: pl.Out[pl.Tensor[[ROWS, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        out[0:ROWS, :] = x
    return out


def test_a_module_level_function_keeps_its_modules_names() -> None:
    ROWS = 4  # noqa: F841
    result = run(pl.jit(plain), x=X, out=np.zeros_like(X))
    np.testing.assert_array_equal(result["out"], X)


def test_jit_takes_arguments_by_name() -> None:
    kernel, out = build_jit(ROWS, 32, 1.0), np.zeros_like(X)
    kernel(out=out, x=X)
    np.testing.assert_array_equal(out, X + 1)
    assert kernel.lower(X, out=out).name == "kernel"
    assert code_of(lambda: kernel(X, ouput=out)) == "E0302"
    assert code_of(lambda: kernel(X, out, x=X)) == "E0305"


@pl.jit.inline
def scaled(x: pl.Tensor, factor: float = 0.5, less: int = -1):
    return pl.add(pl.mul(x, factor), less)


@pl.jit
def with_defaults(
    x: pl.Tensor[[ROWS, 32], pl.FP32],
    out: pl.Out[pl.Tensor[[ROWS, 32], pl.FP32]],
    rows: pl.Scalar[pl.INDEX] = 8,
    factor: float = 2.0,
    bias=-3,
):
    with pl.at(level=pl.Level.CORE_GROUP):
        part = pl.slice(x, [ROWS, 32], [0, 0], valid_shape=[rows, 32])
        out = pl.assemble(out, pl.add(pl.mul(scaled(part), factor), bias), [0, 0])
    return out


def expected(rows: int = 8, factor: float = 2.0, bias: float = -3) -> np.ndarray:
    whole = np.zeros_like(X)
    whole[:rows] = (X[:rows] * 0.5 - 1) * factor + bias
    return whole


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {}), ((4,), {}), ((), {"factor": 4.0}), ((16, 1.0), {"bias": 7}), ((2,), {"bias": 0})],
)
def test_numbers_of_a_jit_function_have_defaults(args, named) -> None:
    out = np.zeros_like(X)
    with_defaults(X, out, *args, **named)
    given = {**dict(zip(("rows", "factor"), args)), **named}
    np.testing.assert_array_equal(out, expected(**given))


def test_defaults_are_known_without_a_call() -> None:
    assert [p.name for p in with_defaults.specialize().main.params] == ["x", "out", "rows"]
    assert [p.name for p in with_defaults.lower(X, np.zeros_like(X)).main.params][-1] == "rows"


@pytest.mark.parametrize(
    "decorate",
    [pl.jit, pl.jit.incore, pl.jit.inline, pl.jit.opaque, pl.function, pl.inline],
    ids=["jit", "jit.incore", "jit.inline", "jit.opaque", "function", "inline"],
)
def test_decorators_of_functions_refuse_a_class(decorate) -> None:
    with pytest.raises(UserError) as caught:
        decorate(type("NotAFunction", (), {}))
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == "E0117"
    assert diagnostic.labels[0].loc.file == __file__


@pytest.mark.parametrize("decorate", [pl.jit, pl.jit.inline, pl.function, pl.inline])
def test_only_plain_functions_have_a_text(decorate) -> None:
    async def waits(x):
        return x

    for target in (waits, lambda x: x):
        assert code_of(lambda target=target: decorate(target)) == "E0117"


@pytest.mark.parametrize("decorate", [pl.jit, pl.jit.incore, pl.function])
def test_unknown_options_are_not_ignored(decorate) -> None:
    with pytest.raises(UserError, match="it has no option `fast`") as caught:
        decorate(fast=True)
    assert caught.value.diagnostic.labels[0].loc.file == __file__


def test_only_plain_parameters() -> None:
    @pl.jit
    def starred(x: pl.Tensor, *rest):
        return x

    @pl.jit
    def double_starred(x: pl.Tensor, **rest):
        return x

    @pl.jit
    def keyword_only(x: pl.Tensor, *, scale):
        return x

    @pl.jit
    def with_default(x: pl.Tensor, scale="2.0"):
        return x

    for kernel in (starred, double_starred, keyword_only, with_default):
        assert code_of(lambda kernel=kernel: kernel(X)) == "E0223"


@pytest.mark.parametrize("attribute", ["auto_tile", "auto_fuse", "other"])
def test_a_function_without_a_schedule_writes_the_outputs_it_assigns(attribute: str) -> None:
    text = f"""
import tilelet.language as pl

@pl.program
class Program:
    @pl.function(attrs={{"{attribute}": True}})
    def main(
        self,
        x: pl.Tensor[[16, 32], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
        sums: pl.Out[pl.Tensor[[16, 1], pl.FP32]],
    ):
        top = pl.row_max(x)
        out = pl.sub(x, top)
        sums = pl.row_sum(out)
        return out, sums
"""
    if attribute == "other":
        with pytest.raises(UserErrors, match="E0207"):
            pl.parse(text)
        return
    zeros = {"out": np.zeros_like(X), "sums": np.zeros((ROWS, 1), np.float32)}
    given = everywhere.run(pl.parse(text), x=X, **zeros)
    wanted = X - X.max(1, keepdims=True)
    np.testing.assert_array_equal(given["out"], wanted)
    np.testing.assert_array_equal(given["sums"], wanted.sum(1, keepdims=True))


def test_decorated_text_has_the_same_attributes() -> None:
    @pl.program
    class Program:
        @pl.function(attrs={"auto_tile": True})
        def main(
            self, x: pl.Tensor[[16, 32], pl.FP32], out: pl.Out[pl.Tensor[[16, 32], pl.FP32]]
        ) -> pl.Tensor[[16, 32], pl.FP32]:
            out = pl.mul(x, 2.0)
            return out

    given = everywhere.run(Program, x=X, out=np.zeros_like(X))
    np.testing.assert_array_equal(given["out"], X * 2)
