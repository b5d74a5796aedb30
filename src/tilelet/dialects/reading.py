"""Read a program's source as public parsers do: once, in order, with helpers spliced in.

`read` visits the statements of the entry, and of every helper at every call. It tracks two meanings
of each name: its actual one in the helper, and the one it gets from a parser that splices text
without renaming. There a helper's names are also the caller's: its locals and parameters stay
visible after the call, a local may overwrite the caller's variable, and outside names are looked up
in the callers first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tilelet import dtypes
from tilelet.dataclasses import dataclass
from tilelet.diag.core import Loc
from tilelet.dialects.regions import Region, ValueRegions
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.module import SourceOrigin
from tilelet.frontend.resolve import as_kernel_function
from tilelet.frontend.source import spelling
from tilelet.ir.core import FunctionKind, Op, Program, walk
from tilelet.ir.spec import OpSpec, spec_of
from tilelet.ir.types import ScalarType, TensorType, TileType, Type

_MISSING = object()
_NOWHERE = -1
_INDEX = ScalarType(dtypes.INDEX)


@dataclass(eq=False)
class CallFrame:
    """The source of one function at one call of it.

    names    names that the function itself binds
    closure  meanings of outside names in the spliced text, where the callers' names come first
    """

    function: KernelFunction
    captured: Mapping[str, object]
    closure: Mapping[str, object]
    names: set[str]
    caller: Loc | None = None

    def loc(self, node: ast.AST) -> Loc:
        return self.function.source.loc(node, self.caller)

    @property
    def renames(self) -> bool:
        """Return whether a later assignment creates another variable, as in `@pl.jit`."""
        marks = [
            d.func if isinstance(d, ast.Call) else d for d in self.function.node.decorator_list
        ]
        return any("jit" in spelling(mark).split(".") for mark in marks)

    def outside(self, node: ast.expr) -> object:
        """Return the object that a dotted outside name refers to, or None if it is the kernel's."""
        if isinstance(node, ast.Attribute):
            base = self.outside(node.value)
            return getattr(base, node.attr, None) if base is not None else None
        if isinstance(node, ast.Name) and node.id not in self.names:
            return self.captured.get(node.id)
        return None


class Given(NamedTuple):
    """The value of an expression, as far as it is known.

    value    set if a name already refers to it: a tensor that was written in place
    region   its valid region, if partial; part of its type
    """

    type: Type | None = None
    value: object | None = None
    region: Region | None = None


@dataclass(eq=False)
class NameMeaning:
    """What a name refers to in the spliced text: a variable, or the text of an argument.

    value    changes with every assignment, except of a tensor written in place, whose memory stays
             the same
    depth    block depth of its first assignment, which decides whether a later one creates another
             variable in `@pl.jit`
    """

    value: object
    type: Type | None
    place: Loc
    owner: CallFrame
    is_variable: bool = True
    region: Region | None = None
    depth: int = 0


@dataclass(frozen=True)
class Capture:
    """A name that refers to something else in the spliced text.

    kind   the effect: "read", "assigned" (with another type), "constant"
    """

    name: str
    kind: str
    here: Loc
    there: Loc | None
    owner: str
    other: str


@dataclass
class CallSite:
    """One call of the language, or of a helper."""

    frame: CallFrame
    node: ast.Call
    callee: object
    name: str
    ops: Sequence[Op]
    in_scope: bool
    helper: KernelFunction | None = None


@dataclass
class OperatorSite:
    """One operator on tiles, and the op it stands for."""

    frame: CallFrame
    node: ast.BinOp | ast.UnaryOp
    ops: Sequence[Op]


@dataclass
class StatementSite:
    """One statement; `old_type` and `new_type` are those of a name whose type it changes.

    parts        whether the old and the new value are partially valid
    is_renamed   whether it creates another variable of the same name
    """

    frame: CallFrame
    node: ast.stmt
    in_scope: bool
    in_loop: bool
    old_type: Type | None = None
    new_type: Type | None = None
    name: str = ""
    is_argument: bool = False
    parts: tuple[bool, bool] = (False, False)
    is_renamed: bool = False


Site = CallSite | OperatorSite | StatementSite | Capture | CallFrame


class Reader:
    """Visits one program and collects its sites in source order."""

    def __init__(self, program: Program, origin: SourceOrigin) -> None:
        self.program = program
        self.origin = origin
        self.sites: list[Site] = []
        self.regions = ValueRegions(program)
        self._ops: dict[Loc, list[Op]] = {}
        for function in program.functions.values():
            for op in walk(function.body):
                self._ops.setdefault(op.loc, []).append(op)
        self._scope: dict[str, NameMeaning] = {}
        self._own: dict[tuple[CallFrame, str], object] = {}
        # The parameter that gave a name its meaning, until it is assigned to.
        self._parameters: dict[str, tuple[NameMeaning, Loc, CallFrame]] = {}
        self._in_scope = False
        self._loops = 0
        self._depth = 0
        self._is_repeat = False

    def read(self) -> list[Site]:
        entry = self.origin.entry
        others = [f for f in self.origin.methods.values() if f.kind is not FunctionKind.Inline]
        for function in (entry, *(f for f in others if f is not entry)):
            self._function(function)
        return self.sites

    def _function(self, function: KernelFunction) -> None:
        captured = function.captured_names()
        frame = CallFrame(function, captured, captured, _own_names(function))
        self.sites.append(frame)
        self._scope = {}
        built = self.program.functions.get(function.name)
        types = {v.name: v.type for v in built.params} if built is not None else {}
        for p in function.parameters:
            self._define(frame, p.arg, types.get(p.arg), frame.loc(p), object())
        self._in_scope = function.kind is FunctionKind.InCore
        self._block(frame, function.node.body)

    # --- names -----------------------------------------------------------------------------------

    def _define(
        self, frame: CallFrame, name: str, type_: Type | None, place: Loc, value: object
    ) -> None:
        self._own[frame, name] = value
        self._scope[name] = NameMeaning(value, type_, place, frame, depth=self._depth)

    def _assign(self, site: StatementSite, name: str, given: Given, place: Loc) -> None:
        frame, type_, value = site.frame, given.type, given.value or object()
        known = self._scope.get(name)
        self._own[frame, name] = value
        made = NameMeaning(value, type_, place, frame, region=given.region, depth=self._depth)
        if known is None or not known.is_variable:
            site.is_argument = known is not None and known.owner is frame
            self._scope[name] = made
            return
        if frame.renames and known.depth == self._depth and known.owner is frame:
            site.is_renamed = True
            self._scope[name] = made
            return
        if _differ(known.type, type_) or (_is_shaped(type_) and known.region != given.region):
            if known.owner is frame:
                site.old_type, site.new_type, site.name = known.type, type_, name
                site.parts = (known.region is not None, given.region is not None)
            else:
                self._capture(name, "assigned", place, known, frame)
            self._scope[name] = made
            return
        known.value, known.owner, known.place = value, frame, place
        known.depth = self._depth if known.depth == _NOWHERE else known.depth
        known.type = known.type or type_

    def _read_name(self, frame: CallFrame, node: ast.Name) -> None:
        place = frame.loc(node)
        known = self._scope.get(node.id)
        if node.id in frame.names:
            own = self._own.get((frame, node.id), _MISSING)
            if known is not None and own is not _MISSING and known.value is not own:
                self._capture(node.id, "read", place, known, frame)
            return
        if node.id not in frame.captured:
            return
        if known is not None:
            self._capture(node.id, "constant", place, known, frame)
            return
        mine, seen = frame.captured[node.id], frame.closure.get(node.id, _MISSING)
        if seen is not mine and not _are_equal(seen, mine):
            self.sites.append(
                Capture(node.id, "constant", place, frame.caller, frame.function.name, "a caller")
            )

    def _capture(
        self, name: str, kind: str, here: Loc, known: NameMeaning, frame: CallFrame
    ) -> None:
        place, owner = known.place, known.owner
        bound = self._parameters.get(name)
        if bound is not None and bound[0] is known:
            _, place, owner = bound
        other = owner.function.name
        self.sites.append(Capture(name, kind, here, place, frame.function.name, other))

    # --- statements ------------------------------------------------------------------------------

    def _block(self, frame: CallFrame, stmts: Sequence[ast.stmt]) -> None:
        for s in stmts:
            self._statement(frame, s)

    def _statement(self, frame: CallFrame, s: ast.stmt) -> None:
        site = StatementSite(frame, s, self._in_scope, self._loops > 0)
        self.sites.append(site)
        match s:
            case ast.Assign(targets=[target]):
                self._targets(site, target, self._expression(frame, s.value))
            case ast.AugAssign(target=ast.Name(id=name)):
                self._read_name(frame, ast.copy_location(ast.Name(name, ast.Load()), s.target))
                given = self._expression(frame, s.value)
                self._assign(site, name, Given(given[0].type), frame.loc(s.target))
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._targets(site, target, self._expression(frame, value))
            case ast.For():
                self._expression(frame, s.iter)
                outer = self._in_scope
                self._in_scope = outer or _opens_scope(s.iter)  # `for i in pl.spmd(n):`
                self._loop(frame, s.body, s.target)
                self._in_scope = outer
            case ast.While():
                self._expression(frame, s.test)
                self._loop(frame, s.body)
            case ast.If():
                self._expression(frame, s.test)
                self._depth += 1
                before = set(self._scope)
                self._block(frame, s.body)
                self._keep(set(self._scope) - before if s.orelse else set())
                self._block(frame, s.orelse)
                self._depth -= 1
            case ast.With():
                self._with(frame, s)
            case _:
                for child in ast.iter_child_nodes(s):
                    if isinstance(child, ast.expr):
                        self._expression(frame, child)

    def _loop(
        self, frame: CallFrame, stmts: Sequence[ast.stmt], target: ast.expr | None = None
    ) -> None:
        """Visit the body twice, because its end affects the names at its beginning.

        Names that the loop itself counts with are exempt.
        """
        self._count_with(frame, target)
        self._loops += 1
        self._depth += 1
        assigns = [s for s in stmts if isinstance(s, (ast.Assign, ast.AnnAssign))]
        known = {n for n, m in self._scope.items() if m.depth == self._depth}
        self._keep(known & {name for s in assigns for name in _stored_names(s)})
        self._block(frame, stmts)
        outer, self._is_repeat = self._is_repeat, True
        if not outer:
            kept = len(self.sites)
            self._count_with(frame, target)
            self._block(frame, stmts)
            new = [s for s in self.sites[kept:] if isinstance(s, Capture) and s.kind == "read"]
            self.sites[kept:] = new
        self._is_repeat = outer
        self._loops -= 1
        self._depth -= 1

    def _keep(self, names: set[str]) -> None:
        """Restore names bound in earlier loops or branches, whose variables this one assigns to."""
        for name in names:
            self._scope[name].depth = _NOWHERE

    def _count_with(self, frame: CallFrame, target: ast.expr | None) -> None:
        if target is not None:
            for name in _names(target):
                self._define(frame, name, _INDEX, frame.loc(target), object())

    def _with(self, frame: CallFrame, s: ast.With) -> None:
        opens = False
        for item in s.items:
            self._expression(frame, item.context_expr)
            opens = opens or _opens_scope(item.context_expr)
            if item.optional_vars is not None:
                for name in _names(item.optional_vars):
                    self._define(frame, name, None, frame.loc(item.optional_vars), object())
        outer, self._in_scope = self._in_scope, self._in_scope or opens
        self._depth += 1
        self._block(frame, s.body)
        self._depth -= 1
        self._in_scope = outer

    def _targets(self, site: StatementSite, target: ast.expr, given: Sequence[Given]) -> None:
        if isinstance(target, ast.Subscript):
            self._expression(site.frame, target)
            return
        nodes = target.elts if isinstance(target, ast.Tuple) else [target]
        known = list(given) if len(given) == len(nodes) else [Given()] * len(nodes)
        for node, one in zip(nodes, known, strict=True):
            if isinstance(node, ast.Name):
                self._assign(site, node.id, one, site.frame.loc(node))

    # --- expressions -----------------------------------------------------------------------------

    def _expression(self, frame: CallFrame, node: ast.expr) -> list[Given]:
        """Read all names in an expression; return its values, one per element of a tuple."""
        match node:
            case ast.Call():
                return self._call(frame, node)
            case ast.Name():
                self._read_name(frame, node)
                known = self._scope.get(node.id)
                if known is None:
                    return [Given()]
                own = self._own.get((frame, node.id))
                is_tensor = isinstance(known.type, TensorType)
                return [Given(known.type, own if is_tensor else None, known.region)]
            case ast.Tuple():
                return [g for e in node.elts for g in self._expression(frame, e)[:1]]
            case ast.Attribute():
                self._expression(frame, node.value)
                return [Given()]
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(frame, child)
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            self.sites.append(OperatorSite(frame, node, self._ops.get(frame.loc(node), ())))
        return self._types_at(frame, node)

    def _types_at(self, frame: CallFrame, node: ast.AST) -> list[Given]:
        ops = self._ops.get(frame.loc(node), ())
        results = [op for op in ops if op.results]
        if not results:
            return [Given()]
        return [Given(v.type, None, self.regions.of(v)) for v in results[-1].results]

    def _call(self, frame: CallFrame, node: ast.Call) -> list[Given]:
        callee = frame.outside(node.func)
        helper = as_kernel_function(callee)
        if helper is not None and helper.kind is not FunctionKind.Inline:
            helper = None
        given = [self._expression(frame, a) for a in node.args]
        for keyword in node.keywords:
            self._expression(frame, keyword.value)
        if isinstance(node.func, ast.Name):
            self._read_name(frame, node.func)
        name = spelling(node.func)
        ops = self._ops.get(frame.loc(node), ())
        site = CallSite(frame, node, callee, name, ops, self._in_scope, helper)
        self.sites.append(site)
        if helper is None or len(node.args) != len(helper.parameters):
            return self._op_result(frame, node, spec_of(callee), given)
        return self._splice(frame, node, helper, [g[0].type if g else None for g in given])

    def _op_result(
        self,
        frame: CallFrame,
        node: ast.Call,
        spec: OpSpec | None,
        given: Sequence[Sequence[Given]],
    ) -> list[Given]:
        """Return the result of an op; one that writes in place returns its target."""
        made = self._types_at(frame, node)
        if spec is None or not spec.writes:
            return made
        written = [*spec.signature.parameters].index(spec.writes[0])
        at = given[written][0] if written < len(given) and given[written] else Given()
        if isinstance(at.type, TensorType):
            return [Given(at.type, at.value)]
        is_tensor = len(made) == 1 and isinstance(made[0].type, TensorType)
        return [Given(made[0].type, at.value)] if is_tensor else made

    def _splice(
        self, frame: CallFrame, node: ast.Call, helper: KernelFunction, types: Sequence[Type | None]
    ) -> list[Given]:
        """Splice a helper's text in place of its call, sharing one set of names."""
        captured = helper.captured_names()
        closure = {**captured, **frame.closure}
        inner = CallFrame(helper, captured, closure, _own_names(helper), frame.loc(node))
        self.sites.append(inner)
        is_hygienic = helper.node.decorator_list and _is_jit(helper)
        before = dict(self._scope) if is_hygienic else None
        if is_hygienic:
            self._scope = {}
            inner.closure = captured
        meant = [
            self._scope.get(a.id) if isinstance(a, ast.Name) and before is None else None
            for a in node.args
        ]
        for p, known, type_ in zip(helper.parameters, meant, types, strict=True):
            if known is None:
                is_own = before is not None  # its parameter is a variable, too
                known = NameMeaning(
                    object(), type_, inner.loc(p), inner, is_variable=is_own, depth=self._depth
                )
            self._own[inner, p.arg] = known.value
            self._scope[p.arg] = known
            self._parameters[p.arg] = known, inner.loc(p), inner
        stmts = helper.node.body
        self._block(inner, stmts[:-1] if isinstance(stmts[-1], ast.Return) else stmts)
        last = stmts[-1]
        given: list[Given] = []
        if isinstance(last, ast.Return):
            self.sites.append(StatementSite(inner, last, self._in_scope, self._loops > 0))
            if last.value is not None:
                given = self._expression(inner, last.value)
        if before is not None:
            self._scope = before
        return given


def _is_jit(helper: KernelFunction) -> bool:
    """Return whether the compiler treats a helper as a separate function with its own names."""
    marks = [d.func if isinstance(d, ast.Call) else d for d in helper.node.decorator_list]
    return any("jit.inline" in spelling(mark) for mark in marks)


def _opens_scope(node: ast.expr) -> bool:
    name = spelling(node.func) if isinstance(node, ast.Call) else ""
    return name.rpartition(".")[2] in ("at", "incore", "auto_incore", "spmd")


def _own_names(function: KernelFunction) -> set[str]:
    names = {p.arg for p in function.parameters} | set(_stored_names(function.node))
    return names | ({"self"} if function.is_method else set[str]())


def _names(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _stored_names(node: ast.stmt) -> Iterator[str]:
    for at in ast.walk(node):
        if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store):
            yield at.id


def _is_shaped(type_: Type | None) -> bool:
    return isinstance(type_, (TensorType, TileType))


def _differ(a: Type | None, b: Type | None) -> bool:
    """Return whether a variable of one type cannot hold a value of the other.

    Memory spaces are ignored: a tensor in a scope is a tile in Tilelet, but not elsewhere.
    """
    if a is None or b is None:
        return False
    shaped = (TensorType, TileType)
    if isinstance(a, shaped) and isinstance(b, shaped):
        return a.shape != b.shape or a.dtype is not b.dtype
    return isinstance(a, shaped) != isinstance(b, shaped)


def _are_equal(a: object, b: object) -> bool:
    if isinstance(a, (int, float, str)) and isinstance(b, (int, float, str)):
        return type(a) is type(b) and a == b
    return False
