"""Rules about the operands of ops: the limits that stand on the ops, and valid regions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilelet.diag.catalogue.portability import FormNotTaken, RegionLost
from tilelet.diag.core import Fix, Loc, UserError
from tilelet.dialects.data import Dialect
from tilelet.dialects.reading import CallSite, Site
from tilelet.dialects.rules import plain
from tilelet.frontend.source import spelling
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, FunctionKind, Op, Program, Value, values_in, walk
from tilelet.ir.spec import REGISTRY, Engine, OpSpec, Trait, spec_of
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView


class Producers:
    """The op that made each value; of what a loop carries, the one that made its first value."""

    def __init__(self, program: Program) -> None:
        self._made: dict[Value, Op] = {}
        self._first: dict[Value, Arg] = {}
        for function in program.functions.values():
            for op in walk(function.body):
                self._made.update(dict.fromkeys(op.results, op))
                if op.name == structure.FOR.name:
                    loop = ForView(op)
                    self._first.update(zip(loop.carried, loop.init, strict=True))

    def root(self, value: Arg) -> str:
        """The op that decides the layout of a column: of elementwise ops the first operand's."""
        while isinstance(value, Value):
            if value in self._first:
                value = self._first[value]
                continue
            op = self._made.get(value)
            spec = REGISTRY.get(op.name) if op is not None else None
            if op is None or spec is None:
                return ""
            operands = [a for a in op.args.values() if isinstance(a, Value)]
            passes = Trait.ELEMENTWISE in spec.traits or Trait.TILE_VIEW in spec.traits
            if not (passes or spec.name == "reshape") or not operands:
                return spec.name
            value = operands[0]
        return ""


def at_site(site: Site, producers: Producers, dialect: Dialect) -> Iterator[UserError]:
    """Forms of ops that the dialect does not take."""
    if not isinstance(site, CallSite) or not dialect.limits_ops:
        return
    spec = spec_of(site.callee)
    op = next((o for o in site.ops if spec is not None and o.name == spec.name and o.results), None)
    if spec is None or op is None:
        return
    for limit in spec.limits:
        if not limit.applies(op.args, op.results[0].type, producers.root):
            continue
        spelled = spelling(site.node.func)
        texts = _argument_texts(site, spec)
        rewritten = limit.rewrite(spelled, texts) if texts is not None else None
        loc = plain(site.frame.loc(site.node))
        fixes = [Fix(loc, rewritten)] if rewritten else []
        yield FormNotTaken(loc, spelled, dialect.name, limit.reason, limit.instead, fixes)
        return


def _argument_texts(site: CallSite, spec: OpSpec) -> dict[str, str] | None:
    """The arguments as they are written, by parameter."""
    names = [p.name for p in spec.signature.parameters.values()]
    if len(site.node.args) > len(names) or any(k.arg is None for k in site.node.keywords):
        return None
    text = site.frame.function.source.text
    found: dict[str, str] = {}
    for name, node in zip(names, site.node.args, strict=False):
        found[name] = ast.get_source_segment(text, node) or ""
    for keyword in site.node.keywords:
        found[str(keyword.arg)] = ast.get_source_segment(text, keyword.value) or ""
    return found


def regions(program: Program, dialect: Dialect) -> Iterator[UserError]:
    """Reductions in mixed kernels of what has a valid region and was not filled."""
    if not dialect.limits_ops:
        return
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore:
            yield from _in_kernel(function.body)
        for op in walk(function.body):
            if op.name == structure.SCOPE.name:
                yield from _in_kernel(op.blocks[0])


def _in_kernel(block: Block) -> Iterator[UserError]:
    ops = list(walk(block))
    engines = {spec.engine for op in ops if (spec := REGISTRY.get(op.name)) is not None}
    if not {Engine.CUBE, Engine.VEC} <= engines:
        return
    partial: dict[Value, Loc] = {}
    for op in ops:
        spec = REGISTRY.get(op.name)
        if spec is None or spec.structural:
            continue
        given = op.args.get("valid_shape")
        regions_ = [partial[v] for v in values_in(op.args.values()) if v in partial]
        if given is not None and spec.engine is not Engine.CUBE:
            regions_ = [op.loc]
        if not regions_ or (spec.valid is None and given is None):
            continue
        if spec.reduces is not None:
            yield RegionLost(plain(op.loc), f"pl.{spec.name}", plain(regions_[0]))
        elif "fillpad" not in spec.name:
            shaped = [r for r in op.results if isinstance(r.type, (TensorType, TileType))]
            partial.update(dict.fromkeys(shaped, regions_[0]))
