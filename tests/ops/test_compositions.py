"""New ops defined in this file: compositions of others, and one with its own definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelet.language as pl
from tilelet.cpu.run.engine import CpuEngine
from tilelet.device import load_machine
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.view import VectorWork
from tilelet.device.memory.plan import plan_memory
from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.diag.core import UserErrors
from tilelet.interp.interpreter import Interpreter
from tilelet.ir.core import Program, walk
from tilelet.ir.spec import REGISTRY, Cost, Engine, Plane, Trait, composition, op
from tilelet.ops import infer, valid
from tilelet.ops.annotations import Number, Shaped
from tilelet.ops.manual import ops_markdown
from tilelet.passes.pipeline import run_passes


@composition(section="elementwise")
def clip(x: Shaped, low: Number, high: Number) -> Shaped:
    """`x`, but at least `low` and at most `high`.

    x: a tile; low, high: numbers, which take the tile's dtype
    result: x's shape and dtype

    Example: `y = pl.clip(x, -1.0, 1.0)`
    """
    return pl.minimums(pl.maximums(x, low), high)


@composition(section="elementwise")
def excess(x: Shaped, limit: Number) -> Shaped:
    """How far `x` lies outside `-limit` to `limit`, and its square: a composition of one.

    x: a tile; limit: a number
    result: x's shape and dtype

    Example: `y = pl.excess(x, 1.0)`
    """
    beyond = pl.sub(x, clip(x, -1.0, limit))
    return pl.add(beyond, pl.mul(beyond, beyond))


def _cube(x: np.ndarray) -> np.ndarray:
    return x * x * x


@op(
    infer=infer.infer_unary(),
    reference=_cube,
    engine=Engine.VEC,
    plane=Plane.SCOPE,
    traits=Trait.POINTWISE | Trait.ARITHMETIC,
    cost=Cost.MUL,
    valid=valid.kept("x"),
    section="elementwise",
)
def cube(x: Shaped) -> Shaped:  # pyright: ignore[reportReturnType]
    """`x * x * x`, rounded after each step.

    x: floats or integers
    result: x's shape and dtype

    Example: `y = pl.cube(x)`
    """


# Other tests look at every op of the language, which these are not.
OWN = {name: REGISTRY.pop(name) for name in ("clip", "excess", "cube")}


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    REGISTRY.update(OWN)
    yield
    for name in OWN:
        del REGISTRY[name]


def program() -> Program:
    @pl.program
    class Bounded:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 64], pl.FP32],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                out = pl.assemble(out, excess(x, 0.5), [0, 0])
            return out

    return Bounded


def expected(x: np.ndarray) -> np.ndarray:
    beyond = x - np.minimum(np.maximum(x, np.float32(-1)), np.float32(0.5))
    return beyond + beyond * beyond


@pytest.mark.parametrize("engine", [CpuEngine(), Interpreter()])
def test_both_engines_run_it(engine: Any) -> None:
    x = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float32) * 2
    out = np.zeros_like(x)
    engine.run(run_passes(program()), {"x": x, "out": out})
    np.testing.assert_array_equal(out, expected(x))


def test_its_ops_stand_in_its_place_and_point_to_the_call() -> None:
    built = program()
    ops = [op for op in walk(built.main.body) if not op.spec.structural]
    names = [op.name for op in ops]
    assert names == ["slice", "maximums", "minimums", "sub", "mul", "add", "assemble"]
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line, *_) = [i for i, it in enumerate(text, 1) if "excess(x, 0.5)" in it]
    assert {op.loc.line for op in ops} == {line}
    assert "excess" not in built.as_python(), "the text is legal without the composition"
    assert pl.parse(built.as_python()).as_python() == built.as_python()


def test_the_model_charges_what_it_is_made_of() -> None:
    machine = load_machine("a2a3")
    (kernel,) = run_passes(program()).kernels
    view = lower_kernel(kernel, machine)
    costs = [s.work.cost for s in view.walk() if isinstance(s.work, VectorWork)]
    assert costs == [Cost.ADDS, Cost.ADDS, Cost.ADD, Cost.MUL, Cost.ADD]
    (vec,) = plan_memory(view, machine).spaces
    assert vec.used == 2 * 16 * 64 * 4, "its ops write over operands as others do"


@pytest.mark.parametrize("engine", [CpuEngine(), Interpreter()])
def test_an_op_with_a_reference_alone_runs_everywhere(engine: Any) -> None:
    @pl.program
    class Cubes:
        @pl.function(type=pl.FunctionType.Opaque)
        def main(
            self,
            x: pl.Tensor[[16, 64], pl.FP32],
            out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
        ):
            with pl.at(level=pl.Level.CORE_GROUP):
                part = pl.slice(x, [16, 64], [0, 0], valid_shape=[16, 40])
                out = pl.assemble(out, pl.add(cube(part), 1.0), [0, 0])
            return out

    x = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    out = np.zeros_like(x)
    compiled = run_passes(Cubes)
    engine.run(compiled, {"x": x, "out": out})
    np.testing.assert_array_equal(out[:, :40], _cube(x[:, :40]) + np.float32(1))
    assert not out[:, 40:].any()
    view = lower_kernel(compiled.kernels[0], load_machine("a2a3"))
    costs = [s.work.cost for s in view.walk() if isinstance(s.work, VectorWork)]
    assert costs == [Cost.MUL, Cost.ADD]


def test_the_manual_describes_it() -> None:
    page = ops_markdown()
    assert "### pl.clip\n\n```python\npl.clip(x, low, high)\n```" in page
    assert "[clip](#plclip)" in page


def test_outside_a_kernel_it_is_an_op_like_others() -> None:
    with pytest.raises(OpOutsideKernel, match=r"pl\.clip"):
        clip(None, 0.0, 1.0)  # type: ignore[arg-type]


def test_a_mistake_says_that_the_op_is_one_of_several() -> None:
    with pytest.raises(UserErrors) as caught:

        @pl.program
        class Wrong:
            @pl.function(type=pl.FunctionType.Opaque)
            def main(self, x: pl.Tensor[[16, 64], pl.FP32], m: pl.Tensor[[16, 64], pl.FP32]):
                with pl.at(level=pl.Level.CORE_GROUP):
                    m = pl.assemble(m, clip(x, m, 1.0), [0, 0])
                return m

    (mistake,) = caught.value.diagnostics
    assert "pl.maximums" in mistake.message
    assert mistake.notes[-1] == "`pl.clip` is made of several ops; this is one of them"


def test_compositions_of_the_language_have_no_second_definition() -> None:
    composed = {name for name, spec in REGISTRY.items() if spec.expands}
    assert composed >= {"row_expand_expdif", "addc", "maxs", "tile.sum", "ci", "fillpad_inplace"}
    for name in composed:
        assert REGISTRY[name].reference is None
        assert REGISTRY[name].valid is None
