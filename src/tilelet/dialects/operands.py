"""Rules about the operands of ops: the limits declared on the ops, and valid regions."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping

from tilelet.dataclasses import dataclass, replace
from tilelet.diag.catalogue.portability import ExtentLost, FormNotTaken, RegionLost, TextNotTaken
from tilelet.diag.core import Fix, Loc, UserError
from tilelet.dialects.data import Dialect
from tilelet.dialects.reading import CallSite, OperatorSite, Site
from tilelet.dialects.rules import without_callers
from tilelet.frontend.source import spelling
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, FunctionKind, Op, Program, Value, values_in, walk
from tilelet.ir.spec import REGISTRY, Engine, OpSpec, Trait, spec_of
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView

_SHAPED = (TensorType, TileType)


class Producers:
    """The op that defines each value; for a loop-carried value, that of its initial value."""

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
        """Return the op that decides the layout of a column; elementwise ops follow the first
        operand.
        """
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
    """Yield forms of ops, called or written as operators, that the dialect does not support."""
    if not isinstance(site, (CallSite, OperatorSite)) or not dialect.limits_ops:
        return
    if isinstance(site, CallSite):
        spec = spec_of(site.callee)
        shown = called = spelling(site.node.func)
    else:
        spec = next((REGISTRY[o.name] for o in site.ops if REGISTRY[o.name].limits), None)
        shown, called = ast.unparse(site.node), f"pl.{spec.name if spec else ''}"
    op = next((o for o in site.ops if spec is not None and o.name == spec.name and o.results), None)
    for limit in spec.limits if spec is not None and op is not None else ():
        assert spec is not None
        assert op is not None
        if not limit.applies(op.args, op.results[0].type, producers.root):
            continue
        texts = _argument_texts(site, spec)
        rewritten = limit.rewrite(called, texts) if texts is not None else None
        loc = without_callers(site.frame.loc(site.node))
        fixes = [Fix(loc, rewritten)] if rewritten else []
        yield FormNotTaken(loc, shown, dialect.name, limit.reason, limit.instead, fixes)
        return
    if isinstance(site, OperatorSite) and not dialect.operators:
        yield from _operator(site)


def _operator(site: OperatorSite) -> Iterator[UserError]:
    """Check an operator that is not scalar arithmetic."""
    made = [op for op in site.ops if op.results and isinstance(op.results[0].type, _SHAPED)]
    if not made:
        return
    text, node = site.frame.function.source.text, site.node
    operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    written = ", ".join(ast.get_source_segment(text, o) or "" for o in operands)
    # A store into a window of higher rank reshapes the result.
    meant = next((op for op in reversed(made) if op.name != "reshape"), made[-1])
    call, loc = f"pl.{meant.name}({written})", without_callers(site.frame.loc(node))
    fixes = [Fix(loc, call)] if len(made) == 1 else []
    yield TextNotTaken(loc, "an operator of tensors", f"write `{call}`", fixes)


def _argument_texts(site: CallSite | OperatorSite, spec: OpSpec) -> dict[str, str] | None:
    """Return the source text of the arguments, by parameter."""
    text = site.frame.function.source.text
    names = [p.name for p in spec.signature.parameters.values()]
    if isinstance(site, OperatorSite):
        assert isinstance(site.node, ast.BinOp)
        operands = (site.node.left, site.node.right)
        return {
            n: ast.get_source_segment(text, o) or "" for n, o in zip(names, operands, strict=False)
        }
    if len(site.node.args) > len(names) or any(k.arg is None for k in site.node.keywords):
        return None
    found: dict[str, str] = {}
    for name, node in zip(names, site.node.args, strict=False):
        found[name] = ast.get_source_segment(text, node) or ""
    for keyword in site.node.keywords:
        found[str(keyword.arg)] = ast.get_source_segment(text, keyword.value) or ""
    return found


def regions(program: Program, dialect: Dialect) -> Iterator[UserError]:
    """Yield reductions in mixed kernels of partially valid values without filled padding."""
    if not dialect.limits_ops:
        return
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore:
            yield from _in_kernel(function.body)
        for op in walk(function.body):
            if op.name == structure.SCOPE.name:
                yield from _in_kernel(op.blocks[0])


@dataclass(frozen=True)
class _Region:
    """The valid region of a value that may be partial.

    axes      0 for rows, 1 for columns
    place     the load that sets it
    extents   the non-constant valid row and column counts
    product   the product that it passed through, if any
    """

    axes: frozenset[int]
    place: Loc
    extents: frozenset[Value]
    product: Loc | None = None


def _in_kernel(block: Block) -> Iterator[UserError]:
    ops = list(walk(block))
    engines = {spec.engine for op in ops if (spec := REGISTRY.get(op.name)) is not None}
    if not {Engine.CUBE, Engine.VEC} <= engines:
        return
    known: dict[Value, _Region] = {}
    computed = {result for op in ops for result in op.results}
    repeated = _said_on_vectors(ops)
    for op in ops:
        spec = REGISTRY.get(op.name)
        if spec is None or spec.structural:
            continue
        if "fillpad" in spec.name:
            filled = [known[v] for v in values_in(op.args.values()) if v in known]
            for region in filled:
                if region.product is not None and (region.extents & computed) - repeated:
                    yield ExtentLost(
                        without_callers(op.loc), f"pl.{spec.name}", without_callers(region.place)
                    )
            continue
        region = _loaded_region(op) or _combine_regions(op, spec, known)
        if region is None or not region.axes:
            continue
        if spec.reduces is not None:
            if 2 + spec.reduces in region.axes:
                yield RegionLost(
                    without_callers(op.loc),
                    f"pl.{spec.name}",
                    without_callers(region.place),
                    _fill(spec, region),
                )
        else:
            known.update(dict.fromkeys(op.results, region))


def _loaded_region(op: Op) -> _Region | None:
    """Return the region that a load sets."""
    valid, shape = op.args.get("valid_shape"), op.args.get("shape") or op.args.get("shapes")
    if not isinstance(valid, tuple) or not isinstance(shape, tuple):
        return None
    rank = len(shape)
    axes = {i - rank + 2 for i, (v, s) in enumerate(zip(valid, shape, strict=False)) if v != s}
    return _Region(frozenset(axes & {0, 1}), op.loc, frozenset(values_in(valid)))


def _said_on_vectors(ops: list[Op]) -> set[Value]:
    """Return the extents that are set again on results of the vector unit."""
    made_by_vectors: set[Value] = set()
    said: set[Value] = set()
    for op in ops:
        spec = REGISTRY.get(op.name)
        operands = set(values_in(op.args.values()))
        if spec is not None and spec.engine is Engine.VEC:
            made_by_vectors.update(op.results)
        elif spec is not None and "set_validshape" in spec.name and operands & made_by_vectors:
            said |= operands
            made_by_vectors.update(op.results)
    return said


def _combine_regions(op: Op, spec: OpSpec, known: Mapping[Value, _Region]) -> _Region | None:
    """Return the region of a result, from those of the operands."""
    if Trait.GEMM in spec.traits:
        names = ("acc", "lhs", "rhs")
        acc, left, right = (known.get(op.args.get(name)) for name in names)  # type: ignore[arg-type]
        column = 0 if op.args.get("b_trans") else 1
        axes = set(acc.axes) if acc is not None else set[int]()
        axes |= {0} if left is not None and 0 in left.axes else set[int]()
        axes |= {1} if right is not None and column in right.axes else set[int]()
        source = next((r for r in (right, left, acc) if r is not None), None)
        if source is None:
            return None
        return _Region(frozenset(axes), source.place, source.extents, op.loc)
    regions = [known[v] for v in values_in(op.args.values()) if v in known]
    passes_on = Trait.KEEPS_VALID in spec.traits or spec.reduces is not None
    passes_on |= "set_validshape" in spec.name
    if not regions or not passes_on:
        return None
    axes = frozenset(axis for region in regions for axis in region.axes)
    return replace(regions[0], axes=axes)


def _fill(spec: OpSpec, region: _Region) -> list[Fix]:
    """Fill the padding of a product with the neutral element of a maximum.

    Its exponential is zero, so that sums ignore it as well.
    """
    at = region.product
    if at is None or not spec.name.endswith("_max"):
        return []
    lines = [linecache.getline(at.file, n).encode() for n in range(at.line, at.end_line + 1)]
    if not all(lines):
        return []
    lines[-1] = lines[-1][: at.end_col]
    lines[0] = lines[0][at.col :]
    text = b"".join(lines).decode()
    language = text.partition(".")[0]
    filled = f"{language}.fillpad({text}, pad_value={language}.PadValue.min)"
    return [Fix(without_callers(at), filled)]
