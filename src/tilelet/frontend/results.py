"""Output parameters for tensors that an entry returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from tilelet.frontend.emitting import default_args
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, Direction, Function, Op, Program, Value
from tilelet.ir.spec import REGISTRY
from tilelet.ir.types import TensorType


def with_outputs(program: Program, names: Sequence[str]) -> Program:
    """Add an output parameter for each new tensor that the entry returns.

    Programs of spring 2026 have no parameters for their results, but their callers pass buffers.
    The program is returned unchanged if it does not return that many tensors.
    """
    main = program.main
    new = [v for v, i in zip(main.returned, main.returns, strict=True) if i is None]
    found = [v for v in new if isinstance(v, Value) and _has_known_size(v)]
    if not names or len(found) != len(new) or len(new) != len(names):
        return program
    return program.with_functions(
        {**program.functions, main.name: _lift_results(main, found, names)}
    )


def _has_known_size(value: Value) -> bool:
    t = value.type
    return isinstance(t, TensorType) and all(isinstance(d, int) for d in t.shape)


def _lift_results(main: Function, found: Sequence[Value], names: Sequence[str]) -> Function:
    params = [Value(name, v.type, v.loc) for v, name in zip(found, names, strict=True)]
    ops = list(main.body.ops[:-1])
    end = main.body.terminator
    given: dict[Arg, Arg] = {}
    for value, param in zip(found, params, strict=True):
        assert isinstance(param.type, TensorType)
        offset: Arg = (0,) * len(param.type.shape)
        args = default_args(REGISTRY["assemble"], target=param, source=value, offset=offset)
        written = Value(param.name, param.type, end.loc)
        ops.append(Op(REGISTRY["assemble"], args, (written,), loc=end.loc))
        given[value] = written
    values = tuple(given.get(v, v) for v in main.returned)
    ops.append(Op(structure.RETURN, {**end.args, "values": values}, loc=end.loc))
    places = count(len(main.params))
    return replace(
        main,
        params=(*main.params, *params),
        directions=(*main.directions, *(Direction.Out for _ in params)),
        declared=(*main.declarations, *(Direction.Out for _ in params)),
        body=Block(main.body.params, tuple(ops)),
        returns=tuple(i if i is not None else next(places) for i in main.returns),
    )
