"""Functions beside the entry: inline helpers and hand-written kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.generated.core import (
    Choices,
    Expr,
    GmT,
    Run,
    ScalarT,
    Step,
    TileT,
    run_steps,
    tensor_text,
)
from tests.generated.oracle import Tile
from tests.generated.statements import Helper, Statements
from tests.generated.views import Views


@dataclass(frozen=True)
class KernelFunction:
    """A hand-written in-core function: a call of it is one task."""

    name: str
    params: tuple[tuple[str, GmT | ScalarT], ...]
    steps: tuple[Step, ...]
    returns: str  # the name it returns: a parameter, or a new value
    result: GmT
    lines: tuple[str, ...]

    def call(self, run: Run, arguments: list[Any]) -> Any:
        run.task()
        inner = run.inner(dict(zip((n for n, _ in self.params), arguments)))
        run_steps(self.steps, inner)
        found = inner.env[self.returns]
        return found.data.copy() if isinstance(found, Tile) else found


def make_helper(choices: Choices, style: str, number: int) -> tuple[Helper, list[str]]:
    """An inline function of one or two tiles."""
    writer = Statements(choices, style)
    fixed = TileT(
        (choices.pick((4, 8, 3)), choices.pick((8, 4, 5))), choices.pick(("FP32", "INT32"))
    )
    params = tuple(f"t{i + 1}" for i in range(choices.number(1, 2)))
    writer.env = dict.fromkeys(params, fixed)
    writer._count = len(params)
    for _ in range(choices.number(0, 2)):
        choices.pick((writer.bind, writer.rebind))()
    result = writer.tile(fixed.shape, fixed.dtype, 2, full=True)
    result = writer.computed(result)
    name = f"helper{number}"
    decorator = "@pl.jit.inline" if style == "jit" else "@pl.inline"
    lines = [decorator, f"def {name}({', '.join(params)}):", *writer.lines]
    lines.append(f"    return {result.text}")
    return Helper(name, params, tuple(writer.steps), result, fixed), ["", "", *lines]


def make_kernel(choices: Choices, style: str, number: int) -> KernelFunction:
    """An in-core function with tensors, perhaps a scalar, and an output or a result."""
    writer = Views(choices, style)
    writer.depth = 2 if style == "program" else 1
    params: list[tuple[str, GmT | ScalarT]] = []
    for i in range(choices.number(1, 2)):
        shape = (choices.pick((4, 8, 3)), choices.pick((8, 5)))
        params.append((f"in{i}", GmT(shape, choices.pick(("FP32", "FP32", "INT32")))))
    if choices.chance(40):
        params.append(("n0", ScalarT("INDEX", 0, 3)))
    result = GmT((choices.pick((4, 8, 2)), choices.pick((8, 3))), choices.pick(("FP32", "INT32")))
    writer.env = dict(params)
    writer.body(choices.number(1, 3), 1)
    shape = (result.shape[0], result.shape[1])
    value = writer.tile(shape, result.dtype, 2, full=True)
    value = writer.computed(value)
    in_place = choices.chance(50)
    returns = "out" if in_place else "result"
    if in_place:
        params.append(("out", result))
        writer.env["out"] = GmT(result.shape, result.dtype, writable=True)
        zero = Expr("0", lambda _: 0, ScalarT(""))
        writer.store_window("out", value, [zero, zero])
    else:
        writer.assign("result", value, TileT(shape, result.dtype))
    writer.line(f"return {returns}")
    name = f"kernel{number}"
    shown = [f"{n}: {_parameter_text(n, t)}" for n, t in params]
    if style == "program":
        head = ["    @pl.function(type=pl.FunctionType.InCore)"]
        listed = ", ".join(["self", *shown] if in_place else shown)  # `self` may be left out
        head.append(f"    def {name}({listed}) -> {tensor_text(shape, result.dtype)}:")
        lines = ["", *head, *writer.lines]
    else:
        lines = ["", "", "@pl.jit.incore", f"def {name}({', '.join(shown)}):", *writer.lines]
    return KernelFunction(name, tuple(params), tuple(writer.steps), returns, result, tuple(lines))


def _parameter_text(name: str, t: GmT | ScalarT) -> str:
    if isinstance(t, ScalarT):
        return f"pl.Scalar[pl.{t.dtype}]"
    plain = tensor_text(t.shape, t.dtype)
    return f"pl.Out[{plain}]" if name == "out" else plain
