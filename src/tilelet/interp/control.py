"""Control flow: loops, branches, and values that no path defines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilelet.diag.catalogue.scopes import ZeroStep
from tilelet.dtypes import TASK_ID
from tilelet.interp.lowering import Frame, Lowering, Step, lowers
from tilelet.ir.core import Op
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import ForView
from tilelet.tasks.stream import NO_TASK


@lowers("for")
def lower_for(low: Lowering, op: Op) -> Step:
    return for_step(low, op)


def for_step(low: Lowering, op: Op, each: Callable[[range], Iterable[int]] = iter) -> Step:
    """Lower a counted loop; `each` selects the iterations to run."""
    view = ForView(op)
    start, stop, stride = (low.slot(b) for b in view.bounds)
    init = low.get(view.init)
    index = low.define((view.index,)).start
    carried = low.define(view.carried)
    body = low.block(view.body)
    steps, result = body.steps, body.result
    results = low.define(op.results)
    loc = op.loc

    def plain(frame: Frame) -> None:
        if not frame[stride]:
            raise ZeroStep(loc)
        for i in each(range(frame[start], frame[stop], frame[stride])):
            frame[index] = i
            for step in steps:
                step(frame)

    def carrying(frame: Frame) -> None:
        if not frame[stride]:
            raise ZeroStep(loc)
        values = init(frame)
        for i in each(range(frame[start], frame[stop], frame[stride])):
            frame[index] = i
            frame[carried] = values
            for step in steps:
                step(frame)
            values = result(frame)
        frame[results] = values

    step = carrying if view.init else plain
    site, state = low.state.sites.get(op), low.state
    if site is None:
        return step

    def noted(frame: Frame) -> None:
        step(frame)
        state.note(site, len(range(frame[start], frame[stop], frame[stride])))

    return noted


@lowers("while")
def lower_while(low: Lowering, op: Op) -> Step:
    return while_step(low, op, bool)


def while_step(low: Lowering, op: Op, holds: Callable[[object], bool]) -> Step:
    """Lower a `while` loop; `holds` evaluates its condition."""
    cond_block, body_block = op.blocks
    init = low.get(op.args["init"])
    cond_params = low.define(cond_block.params)
    cond = low.block(cond_block)
    params = low.define(body_block.params)
    body = low.block(body_block)
    results = low.define(op.results)
    site, state = low.state.sites.get(op), low.state

    def step(frame: Frame) -> None:
        values = init(frame)
        count = 0
        while True:
            frame[cond_params] = values
            if not holds(cond.run(frame)[0]):
                break
            frame[params] = values
            values = body.run(frame)
            count += 1
        frame[results] = values
        if site is not None:
            state.note(site, count)

    return step


@lowers("if")
def lower_if(low: Lowering, op: Op) -> Step:
    cond = low.slot(op.args["cond"])
    then, orelse = (low.block(b) for b in op.blocks)
    results = low.define(op.results)
    site, state = low.state.sites.get(op), low.state

    def step(frame: Frame) -> None:
        frame[results] = (then if frame[cond] else orelse).run(frame)
        if site is not None:
            state.note(site, 1 if frame[cond] else 0)

    return step


@lowers("undef")
def lower_undef(low: Lowering, op: Op) -> Step:
    result = low.result(op)
    type_, name, state, loc = op.result.type, op.result.name, low.state, op.loc
    if isinstance(type_, TileType):
        constant: object = state.poison_tile(type_.shape, type_.dtype)
    elif isinstance(type_, ScalarType):
        constant = NO_TASK if type_.dtype is TASK_ID else type_.dtype.numpy.type(0).item()
    elif isinstance(type_, TensorType):
        # An unknown dimension occurs only in a tensor that is never accessed.
        shape = tuple([d if isinstance(d, int) else 1 for d in type_.shape])

        def fresh(frame: Frame) -> None:
            frame[result] = state.fresh(name, shape, type_.dtype, loc)

        return fresh
    else:
        constant = (NO_TASK if type_.dtype is TASK_ID else 0,) * type_.length

    def step(frame: Frame) -> None:
        frame[result] = constant

    return step
