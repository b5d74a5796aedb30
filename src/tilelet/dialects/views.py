"""Rules about partially valid views of the control program that kernels load.

A kernel is compiled on its own. It knows the shape of a view, but its valid row and column counts
only if the kernel's own source uses them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.portability import ExtentNotSaid, LoadedWhole, RegionTwice
from tilelet.diag.core import Fix, Loc, UserError
from tilelet.dialects.data import Dialect
from tilelet.dialects.reading import CallSite, Reader
from tilelet.dialects.regions import ValueRegions
from tilelet.dialects.rules import without_callers
from tilelet.frontend.module import SourceOrigin
from tilelet.frontend.source import spelling
from tilelet.ir import structure
from tilelet.ir.core import Arg, Block, FunctionKind, Op, Program, Value, values_in, walk
from tilelet.ir.spec import Engine, spec_of
from tilelet.ir.types import TensorType
from tilelet.ir.views import CallView, ScopeView

_SLICE = "slice"
_VIEWS = (_SLICE, "reshape")


@dataclass(frozen=True)
class _View:
    """A partially valid view.

    stated    the slice that sets the region
    numbers   scalars that a kernel needs for it: named ones, or parameters
    is_own    whether it is that slice itself, not a view of it
    """

    stated: Op
    numbers: frozenset[Value]
    is_own: bool = True


@dataclass(frozen=True)
class _Kernel:
    """The ops of one kernel.

    given    the arguments for its parameters, if it is already a function
    results  whether the control program uses something that it returns
    """

    ops: Sequence[Op]
    given: Mapping[Value, Arg]
    results: bool

    def outer(self, value: Arg) -> Arg:
        return self.given.get(value, value) if isinstance(value, Value) else value

    @property
    def is_doubling(self) -> bool:
        """Whether it would get the extent of a view as an additional argument in both halves."""
        is_mixed = {Engine.CUBE, Engine.VEC} <= {op.spec.engine for op in self.ops}
        return is_mixed and not self.results

    def taken(self) -> set[Arg]:
        return {self.outer(value) for op in self.ops for value in op.operands}


def loads(
    program: Program, origin: SourceOrigin, reader: Reader, dialect: Dialect
) -> Iterator[UserError]:
    """Yield kernel loads of partially valid views that do not set the extent."""
    if not dialect.limits_ops:
        return
    views = _partial_views(program, reader.regions)
    if not views:
        return
    calls = {site.frame.loc(site.node): site for site in reader.sites if isinstance(site, CallSite)}
    for kernel in _kernels(program, origin):
        made = {result for op in kernel.ops for result in op.results}
        loaded = [
            (op, value, view)
            for op in kernel.ops
            for value in dict.fromkeys(op.operands)
            if (view := views.get(kernel.outer(value))) is not None  # type: ignore[arg-type]
            and value not in made
            and not _writes_to(op, value)
        ]
        found = [e for load in loaded for e in _load(*load, kernel, calls)]
        yield from found
        if kernel.is_doubling and not any(isinstance(e, ExtentNotSaid) for e in found):
            for _, value, view in loaded:
                fixes = _suggest_whole(view, calls) if _is_said(program, view) else []
                yield RegionTwice(without_callers(view.stated.loc), value.name, fixes)


def _load(
    op: Op, value: Value, view: _View, kernel: _Kernel, calls: Mapping[Loc, CallSite]
) -> Iterator[UserError]:
    site, stated = calls.get(op.loc), calls.get(view.stated.loc)
    is_window = op.name == _SLICE and (site is None or _calls_slice(site))
    texts = _texts(site, stated) if view.is_own else None
    place, there = without_callers(op.loc), without_callers(view.stated.loc)
    if is_window:
        is_known = not kernel.results or view.numbers <= kernel.taken()
        if kernel.is_doubling:
            is_known = op.args.get("valid_shape") is not None
        if not is_known:
            yield ExtentNotSaid(place, value.name, there, _suggest_extent(op, view, texts))
    elif op.name not in ("read", "dim"):
        yield LoadedWhole(place, value.name, there, _suggest_slice(value, texts))


def _calls_slice(site: CallSite) -> bool:
    spec = spec_of(site.callee)
    return spec is not None and spec.name == _SLICE


def _writes_to(op: Op, value: Value) -> bool:
    return any(op.args.get(name) is value for name in op.spec.writes)


def _kernels(program: Program, origin: SourceOrigin) -> Iterator[_Kernel]:
    """Yield scopes and the kernels that a pass made of them; functions have explicit types."""
    for function in program.functions.values():
        if function.kind is FunctionKind.InCore:
            continue
        ops = list(walk(function.body))
        used = {value for op in ops for value in op.operands}
        for op in ops:
            results = bool(used & {*op.results})
            if op.name == structure.SCOPE.name and ScopeView(op).in_core:
                yield _Kernel(list(walk(op.blocks[0])), {}, results)
            elif op.name == structure.CALL.name:
                call = CallView(op)
                callee = program.functions.get(call.callee)
                if callee is None or callee.kind is not FunctionKind.InCore:
                    continue
                if callee.name not in origin.methods:
                    given = dict(zip(callee.params, call.operands, strict=False))
                    yield _Kernel(list(walk(callee.body)), given, results)


def _partial_views(program: Program, regions: ValueRegions) -> dict[Value, _View]:
    found: dict[Value, _View] = {}
    for function in program.functions.values():
        for op in _outside(function.body):
            if op.name not in _VIEWS or not isinstance(op.results[0].type, TensorType):
                continue
            source = found.get(op.operands[0]) if op.operands else None
            numbers = source.numbers if source is not None else frozenset[Value]()
            valid, shape = op.args.get("valid_shape"), op.args.get("shape")
            if isinstance(valid, tuple) and valid != shape:
                own = {n for v in values_in(valid) for n in regions.variables(v)}
                found[op.results[0]] = _View(op, numbers | own)
            elif source is not None:
                found[op.results[0]] = _View(source.stated, numbers, is_own=False)
    return found


def _outside(block: Block) -> Iterator[Op]:
    """Yield the ops of the control program."""
    for op in block.ops:
        yield op
        if not (op.name == structure.SCOPE.name and ScopeView(op).in_core):
            for inner in op.blocks:
                yield from _outside(inner)


# --- suggested fixes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Texts:
    """The source of the load, and of the slice that sets the region, which share names."""

    load: CallSite
    shape: list[str]
    valid: list[str]


def _texts(load: CallSite | None, stated: CallSite | None) -> _Texts | None:
    if load is None or stated is None or load.frame is not stated.frame:
        return None
    shape, valid = _argument(stated, "shape", 1), _argument(stated, "valid_shape", 3)
    if not isinstance(shape, ast.List) or not isinstance(valid, ast.List):
        return None
    used = {n.id for e in valid.elts for n in ast.walk(e) if isinstance(n, ast.Name)}
    if _changes(used, load.frame.function.node, stated.node, load.node):
        return None
    text = load.frame.function.source.text
    shapes, valids = (
        [ast.get_source_segment(text, e) or "" for e in node.elts] for node in (shape, valid)
    )
    return _Texts(load, shapes, valids)


def _changes(names: set[str], function: ast.AST, start: ast.AST, end: ast.AST) -> bool:
    """Return whether a name may be assigned between two places of a function."""

    def contains(outer: ast.AST, node: ast.AST) -> bool:
        return any(inner is node for inner in ast.walk(outer))

    loops = [
        node
        for node in ast.walk(function)
        if isinstance(node, (ast.For, ast.While)) and contains(node, end)
    ]
    repeated = [node for node in loops if not contains(node, start)]
    return any(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in names
        and (
            start.lineno <= node.lineno < end.lineno  # type: ignore[attr-defined]
            or any(contains(loop, node) for loop in repeated)
        )
        for node in ast.walk(function)
    )


def _argument(site: CallSite, name: str, position: int) -> ast.expr | None:
    if len(site.node.args) > position:
        return site.node.args[position]
    return next((k.value for k in site.node.keywords if k.arg == name), None)


def _suggest_extent(op: Op, view: _View, texts: _Texts | None) -> list[Fix]:
    """Suggest `valid_shape=` for a window: the part of the view's valid region inside it."""
    if texts is None or op.args.get("valid_shape") is not None or op.args.get("drop_dims"):
        return []
    shape, offset = (_argument(texts.load, *at) for at in (("shape", 1), ("offset", 2)))
    if not isinstance(shape, ast.List) or not isinstance(offset, ast.List):
        return []
    text = texts.load.frame.function.source.text
    stated, rank = view.stated.args, len(texts.valid)
    if not len(shape.elts) == len(offset.elts) == rank:
        return []
    extents: list[str] = []
    for i in range(rank):
        size = ast.get_source_segment(text, shape.elts[i]) or ""
        start = ast.get_source_segment(text, offset.elts[i]) or ""
        whole, known = stated["shape"][i], stated["valid_shape"][i]  # type: ignore[index]
        if known == whole:
            extents.append(size)
        elif op.args["offset"][i] == 0 and op.args["shape"][i] == whole:  # type: ignore[index]
            extents.append(texts.valid[i])
        else:
            language = spelling(texts.load.node.func).partition(".")[0]
            rest = f"{language}.max({texts.valid[i]} - ({start}), 0)"
            extents.append(f"{language}.min({size}, {rest})")
    node = texts.load.node
    last = node.keywords[-1].value if node.keywords else node.args[-1]
    end = without_callers(texts.load.frame.loc(last))
    after = Loc(end.file, end.end_line, end.end_col, end.end_line, end.end_col)
    return [Fix(after, f", valid_shape=[{', '.join(extents)}]")]


def _suggest_slice(value: Value, texts: _Texts | None) -> list[Fix]:
    """Suggest a window of the whole view with an explicit extent."""
    if texts is None:
        return []
    node = texts.load.node
    names = [
        a
        for a in [*node.args, *(k.value for k in node.keywords)]
        if isinstance(a, ast.Name) and a.id == value.name
    ]
    if len(names) != 1:
        return []
    language = spelling(node.func).partition(".")[0]
    shape, valid = ", ".join(texts.shape), ", ".join(texts.valid)
    zeros = ", ".join("0" for _ in texts.shape)
    window = f"{language}.slice({value.name}, [{shape}], [{zeros}], valid_shape=[{valid}])"
    return [Fix(without_callers(texts.load.frame.loc(names[0])), window)]


def _is_said(program: Program, view: _View) -> bool:
    """Return whether every use of a view is a window with explicit extents."""
    value = view.stated.results[0]
    users = [op for f in program.functions.values() for op in walk(f.body) if value in op.operands]
    return all(op.name == _SLICE and op.args.get("valid_shape") is not None for op in users)


def _suggest_whole(view: _View, calls: Mapping[Loc, CallSite]) -> list[Fix]:
    """Suggest the slice without its valid region."""
    site = calls.get(view.stated.loc)
    if site is None or not view.is_own or not site.node.keywords:
        return []
    *before, last = [*site.node.args, *site.node.keywords]
    if not isinstance(last, ast.keyword) or last.arg != "valid_shape":
        return []
    start, end = (without_callers(site.frame.loc(node)) for node in (before[-1], last))
    span = Loc(start.file, start.end_line, start.end_col, end.end_line, end.end_col)
    return [Fix(span, "")]
