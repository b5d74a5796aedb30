"""Data-dependent loops and branches of a kernel, and what decides them.

Most control flow of a kernel follows from the scalars of its task. The rest depends on elements of
tensors or tiles, on extents of tensors, or is a `while`: such an op is a *site*. The outcomes at
the sites of a task are recorded when the task runs; `decision` is the part of a kernel that
computes them without doing the kernel's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilelet.analysis.aliases import Aliases, accesses, has_effect
from tilelet.dataclasses import dataclass, replace
from tilelet.ir.core import Arg, Block, Direction, Function, Op, Value, values_in, walk
from tilelet.ir.spec import Trait
from tilelet.ir.types import ScalarType
from tilelet.ir.views import carried_names, carried_values, yielded_values

ControlTrace = tuple[tuple[int, int, tuple[int, ...]], ...]
"""What happened at the sites of one execution of a kernel: (site, times it was reached, values).

A value is a number of iterations, or 1 or 0 for a condition that was true or false. Of more than
`MAX_KEPT` values an even sample is kept.
"""

MAX_KEPT = 64


def sites(function: Function) -> dict[Op, int]:
    """Return the data-dependent ops of a kernel, each with a unique number."""
    unknown = _Unknown(function)
    return {op: i for i, op in enumerate(walk(function.body)) if unknown.decides(op)}


class _Unknown:
    """Scalars that do not follow from the scalar arguments of a task."""

    def __init__(self, function: Function) -> None:
        self.values: set[Value] = set()
        before = -1
        # Loops carry values backwards.
        while len(self.values) > before:
            before = len(self.values)
            self._block(function.body)

    def decides(self, op: Op) -> bool:
        if op.name == "while":
            return True
        if op.name == "for":
            return self._any(op.args["start"], op.args["stop"], op.args["step"])
        return op.name == "if" and self._any(op.args["cond"])

    def _any(self, *args: Arg) -> bool:
        return any(v in self.values for v in values_in(args))

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name in ("for", "while"):
                self._loop(op)
            elif op.name == "if":
                for result, *given in zip(op.results, *(yielded_values(b) for b in op.blocks)):
                    self._mark((result,), self._any(op.args["cond"], *given))
            elif not op.spec.structural:
                follows = op.spec.traits & (Trait.SCALAR | Trait.OF_BLOCK)
                scalars = [r for r in op.results if isinstance(r.type, ScalarType)]
                self._mark(scalars, not follows or self._any(*op.operands))
            for inner in op.blocks:
                self._block(inner)

    def _loop(self, op: Op) -> None:
        if op.name == "for":
            start = self._any(op.args["start"], op.args["step"])
            self._mark(op.blocks[0].params[:1], start)
        for first, following, (result, *same) in carried_values(op):
            self._mark(same, self._any(first, following))
            self._mark((result,), self.decides(op) or self._any(first, following))

    def _mark(self, values: Iterable[Value], unknown: bool) -> None:
        if unknown:
            self.values.update(v for v in values if isinstance(v.type, ScalarType))


@dataclass(frozen=True, eq=False)
class Decision:
    """The part of a kernel that decides the outcomes at its sites.

    function  takes the kernel's arguments and writes no memory
    sites     its own sites, numbered as in the kernel
    reads     positions of the tensors whose contents it needs
    """

    function: Function
    sites: Mapping[Op, int]
    reads: tuple[int, ...]


def decision(function: Function) -> Decision | None:
    """Return the deciding part, or None if it would write memory, so that the whole kernel must
    run.
    """
    return _Slice(function).result()


class _Slice:
    """The backward slice of a function from its sites."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.aliases = Aliases(function.body, {})
        self.kept: set[Op] = set()
        self.needed: set[Value] = set()
        self._outer: dict[Op, Op] = {}
        self._made_by: dict[Value, Op] = {}
        self._origin: dict[Value, tuple[Arg, ...]] = {}
        for op in walk(function.body):
            self._define(op)
        for op in sites(function):
            self._keep(op)

    def result(self) -> Decision | None:
        read: set[Value] = set()
        for op in self.kept:
            if not op.blocks and has_effect(op):
                return None
            for value, how in accesses(op, {}):
                if how is Direction.In:
                    read |= self.aliases.roots(value)
        written = {
            root
            for op in walk(self.function.body)
            for value, how in accesses(op, {})
            if how is not Direction.In
            for root in self.aliases.roots(value)
        }
        if read & written:
            return None
        new: dict[Op, Op] = {}
        body = self._block(self.function.body, (), (), new)
        function = replace(self.function, body=body)
        reads = tuple(i for i, p in enumerate(self.function.params) if p in read)
        return Decision(function, {new[op]: i for op, i in sites(self.function).items()}, reads)

    def _define(self, op: Op) -> None:
        for block in op.blocks:
            for inner in block.ops:
                self._outer[inner] = op
            for param in block.params:
                self._made_by[param] = op
        for result in op.results:
            self._made_by[result] = op
        if op.name in ("for", "while"):
            for first, following, same in carried_values(op):
                for name in same:
                    self._origin[name] = (first, following)
        elif op.name == "if":
            for result, *given in zip(op.results, *(yielded_values(b) for b in op.blocks)):
                self._origin[result] = tuple(given)

    def _keep(self, first: Op) -> None:
        pending = [first]
        while pending:
            op = pending.pop()
            if op in self.kept:
                continue
            self.kept.add(op)
            if op in self._outer:
                pending.append(self._outer[op])
            if op.name == "for":
                pending += self._need((op.args["start"], op.args["stop"], op.args["step"]))
            elif op.name == "while":
                pending += self._need(yielded_values(op.blocks[0]))
            elif op.name == "if":
                pending += self._need((op.args["cond"],))
            else:
                pending += self._need(op.operands)

    def _need(self, args: Iterable[Arg]) -> list[Op]:
        """Return the ops that define these values, including what loops carry to them."""
        found: list[Op] = []
        pending = list(values_in(args))
        while pending:
            value = pending.pop()
            if value in self.needed:
                continue
            self.needed.add(value)
            if value in self._made_by:
                found.append(self._made_by[value])
            pending += values_in(self._origin.get(value, ()))
        return found

    def _carried_positions(self, op: Op) -> list[int]:
        """Return the positions of the needed values that a kept loop carries."""
        return [i for i, same in enumerate(carried_names(op)) if self.needed.intersection(same)]

    def _block(
        self, block: Block, params: tuple[Value, ...], handed: tuple[Arg, ...], new: dict[Op, Op]
    ) -> Block:
        ops = [self._op(op, new) for op in block.ops[:-1] if op in self.kept]
        end = replace(block.terminator, args={**block.terminator.args, "values": handed})
        return Block(params, (*ops, end))

    def _op(self, op: Op, new: dict[Op, Op]) -> Op:
        made = op
        if op.name in ("for", "while"):
            init, index = op.args["init"], (1 if op.name == "for" else 0)
            assert isinstance(init, tuple)
            kept = self._carried_positions(op)

            def inner(block: Block) -> Block:
                params = [*block.params[:index], *[block.params[index + i] for i in kept]]
                handed = yielded_values(block)
                if block is op.blocks[-1]:
                    handed = tuple(handed[i] for i in kept)
                return self._block(block, tuple(params), handed, new)

            made = replace(
                op,
                args={**op.args, "init": tuple(init[i] for i in kept)},
                results=tuple(op.results[i] for i in kept),
                blocks=tuple(inner(block) for block in op.blocks),
            )
        elif op.name == "if":
            kept = [i for i, r in enumerate(op.results) if r in self.needed]
            blocks = [
                self._block(b, (), tuple(yielded_values(b)[i] for i in kept), new)
                for b in op.blocks
            ]
            results = tuple(op.results[i] for i in kept)
            made = replace(op, results=results, blocks=tuple(blocks))
        new[op] = made
        return made


def control_trace_of(values: Mapping[int, list[int]]) -> ControlTrace:
    """Convert the outcomes at each site into a hashable record."""
    return tuple((site, len(seen), _sample(seen)) for site, seen in sorted(values.items()))


def _sample(values: list[int]) -> tuple[int, ...]:
    if len(values) <= MAX_KEPT:
        return tuple(values)
    return tuple(values[i * len(values) // MAX_KEPT] for i in range(MAX_KEPT))
