"""Every rule of the IR, broken once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.interp.build import FP32, index, kernel, tensor
from tests.passes.build import Source

from tilelet import dtypes
from tilelet.diag.core import Loc
from tilelet.diag.internal import InternalError
from tilelet.ir import structure
from tilelet.ir.core import Block, Direction, Op, Program, Value
from tilelet.ir.types import BOOL, Mem, ScalarType, TileType
from tilelet.ir.verify import verify


def sample() -> Program:
    """A loop around a scope, a branch, and a hand-written kernel."""
    k = kernel()
    p, q = k.param("p", tensor([4, 16])), k.param("q", tensor([4, 16]))
    fn = k.function("work", k.put(q, k.op("exp", x=k.whole(p)), [0, 0]))

    b = Source()
    n, x = b.param("n", index()), b.param("x", tensor([4, 16]))

    def body(c: Source, i: Value, o: Value):
        (y,) = c.scope(lambda s: [s.op("neg", x=s.whole(o), result="y")])
        (z,) = c.call(fn, [y, o])
        return c.if_(c.scalar("lt", i, n), lambda _: [z], lambda _: [o])

    (done,) = b.loop([4], body, [x])
    return b.opaque(done, kernels=[fn])


def test_the_sample_is_right():
    verify(sample())


def changed(program: Program, change: Callable[[Op], Op], name: str, function: str = "main"):
    """`program` with the first op called `name` replaced."""
    done: list[Op] = []

    def visit(block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if op.name == name and not done:
                done.append(op)
                op = change(op)
            ops.append(replace(op, blocks=tuple(visit(b) for b in op.blocks)))
        return Block(block.params, tuple(ops))

    fn = program.functions[function]
    new = replace(fn, body=visit(fn.body))
    assert done
    return program.with_functions({**program.functions, function: new})


def rejected(program: Program, problem: str) -> InternalError:
    with pytest.raises(InternalError, match=problem) as caught:
        verify(program)
    return caught.value


def args(**changes) -> Callable[[Op], Op]:
    return lambda op: replace(op, args={**op.args, **changes})


def typed(*types) -> Callable[[Op], Op]:
    return lambda op: replace(op, results=tuple(Value("r", t) for t in types))


def body_of(change: Callable[[Sequence[Op]], Sequence[Op]]) -> Callable[[Op], Op]:
    def on(op: Op) -> Op:
        block = op.blocks[0]
        new = Block(block.params, tuple(change(block.ops)))
        return replace(op, blocks=(new, *op.blocks[1:]))

    return on


def test_use_before_definition():
    stranger = Value("stranger", tensor([4, 16]))
    error = rejected(changed(sample(), args(x=stranger), "slice", "work"), "not defined")
    assert error.function == "work"
    assert "slice(%stranger)" in error.op
    assert "report it" in str(error)


def test_a_value_of_an_inner_block_is_not_visible_outside():
    program = sample()
    loop = program.main.body.ops[0]
    inner = loop.blocks[0].ops[0].results[0]
    rejected(changed(program, args(values=(inner,)), "return"), "not defined")


def test_two_definitions():
    twice = body_of(lambda ops: (ops[0], *ops))
    rejected(changed(sample(), twice, "for"), "defined twice")


def test_one_value_in_two_functions():
    program = sample()
    other = replace(program.functions["work"], name="other")
    functions = {**program.functions, "other": other}
    rejected(program.with_functions(functions), "defined twice")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda ops: ops[:-1], "expected `yield`"),
        (lambda ops: (ops[-1], *ops), "`yield` ends a block"),
        (lambda _: (), "without a terminator"),
        (
            lambda ops: (*ops[:-1], Op(structure.RETURN, {"values": ()})),
            "expected `yield`",
        ),
    ],
)
def test_terminators(change, problem: str):
    rejected(changed(sample(), body_of(change), "for"), problem)


def test_types_of_ops():
    rejected(changed(sample(), typed(tensor([4, 16])), "slice", "work"), "result 0 has type")
    rejected(changed(sample(), typed(), "slice", "work"), "result 0 has type `None`")
    narrow = args(offset=(0, 0, 0))
    rejected(changed(sample(), narrow, "slice", "work"), "inference rejects")


def test_a_placed_tile_agrees_with_one_that_is_not():
    program = sample()
    ops = program.functions["work"].body.ops
    assert isinstance(ops[0].result.type, TileType)
    ops[0].result.type = replace(ops[0].result.type, space=Mem.Vec)  # pyright: ignore[reportAttributeAccessIssue]
    verify(program)
    ops[1].result.type = replace(ops[0].result.type, space=Mem.Left)  # pyright: ignore[reportAttributeAccessIssue]
    rejected(program, "result 0 has type")


def test_loops():
    rejected(changed(sample(), args(stop=4.0), "for"), "loop bound")
    rejected(changed(sample(), args(init=()), "for"), "initial value 0")
    rejected(changed(sample(), typed(tensor([4, 8])), "for"), "initial value 0")
    nothing = body_of(lambda ops: (*ops[:-1], replace(ops[-1], args={"values": ()})))
    rejected(changed(sample(), nothing, "for"), "yielded value 0")
    without = lambda op: replace(op, blocks=(Block(op.blocks[0].params[:1], op.blocks[0].ops),))  # noqa: E731
    rejected(changed(sample(), without, "for"), "block parameter 1")


def test_branches():
    rejected(changed(sample(), args(cond=1), "if"), "condition 0")
    rejected(changed(sample(), typed(), "if"), "joined value 0")
    rejected(changed(sample(), lambda op: replace(op, blocks=op.blocks[:1]), "if"), "1 blocks")


def test_a_while_needs_a_truth_value():
    b = Source()
    n = b.param("n", index())
    (done,) = b.while_(
        lambda c, i: [c.scalar("lt", i, 5)], lambda c, i: [c.scalar("add", i, 1)], [n]
    )
    program = b.opaque(done)
    verify(program)
    wrong = body_of(lambda ops: (replace(ops[-1], args={"values": (n,)}),))
    rejected(changed(program, wrong, "while"), "condition 0")


def test_scopes():
    rejected(changed(sample(), typed(tensor([4, 8])), "scope"), "yielded value 0")
    tile = typed(TileType((4, 16), FP32))
    rejected(changed(sample(), tile, "scope"), "yielded value 0")
    rejected(changed(sample(), args(task_id=True), "scope"), "not a task id")
    rejected(changed(sample(), args(kind="spmd"), "scope"), "one block parameter")


def test_nested_scopes():
    b = Source()
    x = b.param("x", tensor([4, 16]))
    (done,) = b.scope(lambda s: s.scope(lambda t: [t.put(x, t.whole(x), [0, 0])]))
    rejected(b.program(done), "a scope inside an in-core scope")


def test_planes():
    b = Source()
    x = b.param("x", tensor([4, 16]))
    tile = Value("tile", TileType((4, 16), FP32))
    b.add(structure.UNDEF, {}, [tile])
    b.op("exp", x=tile)
    rejected(b.program(x), "outside every scope")

    b = Source()
    x = b.param("x", tensor([4, 16]))
    b.scope(lambda s: [s.op("system.task_dummy"), x][1:])
    rejected(b.program(x), "control program inside a scope")


def test_calls():
    rejected(changed(sample(), args(callee="nobody"), "call"), "no function `nobody`")
    rejected(changed(sample(), args(operands=()), "call"), "operand 0")
    rejected(changed(sample(), typed(), "call"), "returned value 0")

    k = kernel()
    x = k.param("x", tensor([4, 16]))
    k.call(sample().functions["work"], [x, x])
    fn = k.function("outer", x)
    program = sample()
    functions = {**program.functions, "outer": fn}
    rejected(program.with_functions(functions), "a call inside")


def test_python_numbers_stand_for_any_scalar_that_holds_them():
    k = kernel()
    k.param("n", ScalarType(dtypes.INT32))
    k.param("f", ScalarType(dtypes.FP16))
    k.param("b", BOOL)
    fn = k.function("work")

    def program(*operands) -> Program:
        b = Source()
        x = b.param("x", tensor([4, 16]))
        b.call(fn, operands)
        return b.program(x, kernels=[fn])

    verify(program(1, 2, True))
    verify(program(1, 2.5, False))
    rejected(program(1.5, 2, True), "operand 0")
    rejected(program(1, 2, 1), "operand 2")


def test_functions():
    program = sample()
    rejected(replace(program, entry="nobody"), "no function `nobody`")
    work = program.functions["work"]
    rejected(program.with_functions({**program.functions, "other": work}), "filed under")
    short = replace(work, directions=(Direction.In,))
    rejected(program.with_functions({**program.functions, "work": short}), "1 directions")


def test_the_place_is_named():
    loc = Loc("kernel.py", 7, 4)
    program = changed(sample(), lambda op: replace(op, results=(), loc=loc), "slice", "work")
    assert "kernel.py:7:5" in str(rejected(program, "result 0"))
