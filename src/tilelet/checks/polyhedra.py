"""The accesses of a program as integer sets for all trip counts and sizes, decided by isl.

Loop indices, entry parameters and tensor extents are variables. Anything that has no form in them
(`forms.py`) becomes an unconstrained variable, so that sets are over-approximated: a set that isl
finds empty is empty for all sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from tilelet.analysis.affine import Affine
from tilelet.analysis.aliases import Aliases, accesses, is_tensor
from tilelet.checks.forms import Condition, Form, Forms, Meaning, Term
from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc
from tilelet.ir.core import Arg, Block, Direction, Function, FunctionKind, Op, Program, Value
from tilelet.ir.fold import number_of
from tilelet.ir.spec import Trait
from tilelet.ir.types import SymDim, TensorType
from tilelet.ir.views import CallView, ForView
from tilelet.ops.transfers import fit_rank

Extents = tuple[int | SymDim, ...]


def isl() -> ModuleType | None:
    """Return the isl library, or None if it is not installed."""
    try:
        import islpy
    except ImportError:
        return None
    return islpy


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop, or the blocks of an spmd task; its index runs from `start` to before `stop`.

    start, stop  None if unknown; a `while` has neither
    """

    op: Op
    index: Value | None
    start: Form | None
    stop: Form | None
    step: int | None
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Access:
    """A window of a tensor that a statement of a kernel accesses, in every execution.

    site     the call in the control program; `position` is that of the argument
    root     the buffer: a parameter or the result of a `create_tensor`
    made_in  loops around that `create_tensor`: each iteration creates a separate buffer
    loops    loops around the call, then around the statement
    offset   per axis of the root; None if unknown
    extent   per axis, with `limit` where less is valid
    guards   conditions under which it is executed
    """

    site: Op
    position: int
    root: Value
    made_in: tuple[Loop, ...]
    loops: tuple[Loop, ...]
    outer: int  # number of the loops that are around the call
    offset: tuple[Form | None, ...]
    extent: tuple[int, ...]
    writes: bool
    atomic: bool
    loc: Loc
    limit: tuple[Form | None, ...]
    guards: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Bounded:
    """A window that must lie inside a tensor; in a kernel, inside an argument of the call.

    needed  upper end on each axis; None if it is clamped
    """

    tensor: Value
    extents: Extents
    offset: tuple[Form | None, ...]
    needed: tuple[Form | None, ...]
    loops: tuple[Loop, ...]
    guards: tuple[Condition, ...]
    loc: Loc


@dataclass(eq=False)
class Accesses:
    """All accesses of a program; `gaps` lists what could not be analyzed, and why.

    bounded   windows of kernels and of the control program
    meanings  definitions of the terms in their forms
    within    loops of the control program around each of its values
    """

    program: Program
    found: list[Access] = field(default_factory=list[Access])
    bounded: dict[Bounded, None] = field(default_factory=dict[Bounded, None])
    meanings: dict[Value, Meaning] = field(default_factory=dict[Value, Meaning])
    within: dict[Term, tuple[Loop, ...]] = field(default_factory=dict[Term, tuple[Loop, ...]])
    gaps: list[tuple[Loc, str]] = field(default_factory=list[tuple[Loc, str]])
    order: dict[Op, int] = field(default_factory=dict[Op, int])

    @classmethod
    def of(cls, program: Program) -> Accesses:
        made = cls(program)
        entry = program.main
        for function in program.functions.values():
            if function is not entry and function.kind is not FunctionKind.InCore:
                made.gaps.append((function.loc, "a separate control function"))
        aliases = Aliases(entry.body, program.functions)
        made._control(entry.body, (), (), aliases, Forms(aliases.definition, made.meanings))
        return made

    def _control(
        self,
        block: Block,
        loops: tuple[Loop, ...],
        guards: tuple[Condition, ...],
        aliases: Aliases,
        forms: Forms,
    ) -> None:
        self.within |= dict.fromkeys(block.params, loops)
        for op in block.ops:
            self.within |= dict.fromkeys(op.results, loops)
            if op.name == "call":
                if self.program.functions[CallView(op).callee].kind is FunctionKind.InCore:
                    self.order[op] = len(self.order)
                    self._call(op, loops, guards, aliases, forms)
                continue
            self._control_window(op, loops, guards, forms)
            inner = (*loops, _loop(op, forms)) if op.name in ("for", "while") else loops
            for nested, when in _branches(op, guards, forms):
                self._control(nested, inner, when, aliases, forms)

    def _control_window(
        self, op: Op, loops: tuple[Loop, ...], guards: tuple[Condition, ...], forms: Forms
    ) -> None:
        """Record a view, or an element that the control program reads or writes."""
        for name, arg in op.args.items():
            if name not in ("x", "tensor", "target") or not is_tensor(arg):
                continue
            assert isinstance(arg.type, TensorType)
            window = _window_of(op, arg.type, forms, is_whole=True)
            if window is not None:
                extents = arg.type.shape
                self.bound(arg, extents, window, loops, guards, op.loc)

    def bound(
        self,
        tensor: Value,
        extents: Extents,
        window: AccessWindow,
        loops: tuple[Loop, ...],
        guards: tuple[Condition, ...],
        loc: Loc,
    ) -> None:
        made = Bounded(tensor, extents, window.offset, window.needed, loops, guards, loc)
        self.bounded[made] = None

    def _call(
        self,
        op: Op,
        loops: tuple[Loop, ...],
        guards: tuple[Condition, ...],
        aliases: Aliases,
        forms: Forms,
    ) -> None:
        view = CallView(op)
        kernel = self.program.functions[view.callee]
        inside = Aliases(kernel.body, self.program.functions)
        scalars: dict[Value, Form | None] = {}
        shapes: dict[Value, Extents] = {}
        roots: dict[Value, object] = {}
        for param, operand in zip(kernel.params, view.operands):
            if not is_tensor(param):
                scalars[param] = forms.of(operand)
            elif is_tensor(operand):
                assert isinstance(operand.type, TensorType)
                shapes[param] = operand.type.shape
                roots[param] = self._root(operand, aliases, loops, forms)
        count = op.args.get("count")
        blocks = loops
        if count is not None:
            stop = forms.of(count)
            indices = [o.result for o in kernel.body.ops if o.name == "get_block_idx"]
            index = indices[0] if indices else None
            # All of them are the same index.
            scalars |= {other: Affine(0, ((index, 1),)) for other in indices[1:] if index}
            blocks = (*loops, Loop(op, index, Affine(0), stop, 1))
        inner = Forms(inside.definition, self.meanings, scalars, shapes)
        _Kernel(self, op, kernel, inside, inner, roots, len(loops)).block(
            kernel.body, blocks, guards
        )

    def _root(
        self, operand: Value, aliases: Aliases, loops: tuple[Loop, ...], forms: Forms
    ) -> tuple[Value, tuple[Form | None, ...], tuple[Loop, ...]] | None:
        """Return the buffer of an operand, the offset in it, and the loops around its creation."""
        end = aliases.end(operand)
        shift: Sequence[Form | None] | None = None
        while end is not None and end in aliases.definition:
            op = aliases.definition[end]
            if op.name != "slice" or op.args["drop_dims"]:
                break
            offset = op.args["offset"]
            parts = offset if isinstance(offset, tuple) else (offset,)
            starts = [forms.of(o) for o in parts]
            shift = starts if shift is None else [_sum(a, b) for a, b in zip(shift, starts)]
            source = op.args["x"]
            end = aliases.end(source) if isinstance(source, Value) else None
        if end is None or not isinstance(end.type, TensorType):
            roots = aliases.roots(operand)
            if len(roots) != 1:
                self.gaps.append((operand.loc, f"`{operand.name}` may be one of several tensors"))
                return None
            (end,) = roots
            assert isinstance(end.type, TensorType)
            shift = [None] * len(end.type.shape)
        elif end in aliases.definition and aliases.definition[end].spec.view:
            (end,) = list(aliases.roots(operand))[:1]
            assert isinstance(end.type, TensorType)
            shift = [None] * len(end.type.shape)
        start = tuple(shift) if shift is not None else (Affine(0),) * len(end.type.shape)
        made = aliases.definition.get(end)
        # Values are unique, but a buffer created inside a loop is a new one in each iteration.
        made_in = tuple(x for x in loops if made is not None and _contains(x.op, made))
        return end, start, made_in


class _Kernel:
    """The accesses of one call."""

    def __init__(
        self,
        into: Accesses,
        site: Op,
        kernel: Function,
        aliases: Aliases,
        forms: Forms,
        roots: Mapping[Value, Any],
        outer: int,
    ) -> None:
        self.into = into
        self.site = site
        self.kernel = kernel
        self.aliases = aliases
        self.forms = forms
        self.roots = roots
        self.outer = outer

    def block(self, block: Block, loops: tuple[Loop, ...], guards: tuple[Condition, ...]) -> None:
        for op in block.ops:
            for value, how in accesses(op, {}):
                self._touch(op, value, how, loops, guards)
            inner = (*loops, _loop(op, self.forms)) if op.name in ("for", "while") else loops
            for nested, when in _branches(op, guards, self.forms):
                self.block(nested, inner, when)

    def _touch(
        self,
        op: Op,
        value: Value,
        how: Direction,
        loops: tuple[Loop, ...],
        guards: tuple[Condition, ...],
    ) -> None:
        whole = self.aliases.whole(value)
        params = [whole] if whole in self.kernel.params else list(self.aliases.roots(value))
        for param in params:
            if param not in self.roots:
                continue
            assert isinstance(value.type, TensorType)
            operand = CallView(self.site).operands[self.kernel.params.index(param)]
            assert is_tensor(operand)
            assert isinstance(operand.type, TensorType)
            window = _window_of(op, value.type, self.forms, is_whole=param is whole)
            nowhere = (None,) * len(operand.type.shape)
            bounds = window or AccessWindow(nowhere, (1,) * len(nowhere), nowhere, (Affine(0),))
            self.into.bound(operand, operand.type.shape, bounds, loops, guards, op.loc)
            place = self.roots[param]
            if place is None:
                continue
            root, start, made_in = place
            rank = len(root.type.shape)
            if window is None or len(window.offset) != rank:
                where, extent, limit = (None,) * rank, (1,) * rank, (None,) * rank
            else:
                where = tuple(_sum(a, b) for a, b in zip(start, window.offset))
                extent, limit = window.extent, window.limit
            for writes in {False, True} if how is Direction.InOut else {how is Direction.Out}:
                self.into.found.append(
                    Access(
                        self.site,
                        self.kernel.params.index(param),
                        root,
                        made_in,
                        loops,
                        self.outer,
                        where,
                        extent,
                        writes,
                        how is Direction.InOut,
                        op.loc,
                        limit,
                        guards,
                    )
                )


@dataclass(frozen=True)
class AccessWindow:
    """Where an op accesses a tensor: the tile's extents, with `limit` where less is valid."""

    offset: tuple[Form | None, ...]
    extent: tuple[int, ...]
    limit: tuple[Form | None, ...]
    needed: tuple[Form | None, ...]


def _window_of(op: Op, type_: TensorType, forms: Forms, is_whole: bool) -> AccessWindow | None:
    """Return the window of an op, or None if it may be anywhere or accesses nothing."""
    args = op.args
    if not is_whole:
        return None
    limits: tuple[Arg, ...] = ()
    clamps = False
    if op.spec.is_window_load:
        names = ("offsets", "shapes") if "offsets" in args else ("offset", "shape")
        offset, shape = (_tuple(args[name]) for name in names)
        sizes = tuple(number_of(n) for n in shape)
        given = args.get("valid_shape") or args.get("valid_shapes")
        limits = _tuple(given) if given is not None else ()
        clamps = bool(args.get("clamp"))
    elif op.spec.writes and Trait.ANY_MEMORY in op.spec.traits:
        offset = _tuple(args["offsets" if "offsets" in args else "offset"])
        source = args["tile" if "tile" in args else "source"]
        assert isinstance(source, Value)
        # The valid extent is unknown: at most the whole tile is stored.
        sizes = fit_rank(source.type.shape, len(type_.shape)) or ()  # type: ignore[union-attr]
    elif "indices" in args:
        offset = _tuple(args["indices"])
        sizes = (1,) * len(offset)
    else:
        return None
    exact = tuple(int(n) for n in sizes if isinstance(n, int))
    if not len(exact) == len(sizes) == len(offset) == len(type_.shape):
        return None
    limit = tuple(forms.of(n) for n in limits) or (None,) * len(exact)
    needed = tuple(None if clamps else form or Affine(size) for form, size in zip(limit, exact))
    return AccessWindow(tuple(forms.of(o) for o in offset), exact, limit, needed)


def _tuple(arg: Arg) -> tuple[Arg, ...]:
    return arg if isinstance(arg, tuple) else (arg,)


def _sum(a: Form | None, b: Form | None) -> Form | None:
    return None if a is None or b is None else a.plus(b)


def _contains(outer: Op, inner: Op) -> bool:
    return any(op is inner or _contains(op, inner) for b in outer.blocks for op in b.ops)


def _loop(op: Op, forms: Forms) -> Loop:
    if op.name == "while":
        return Loop(op, None, None, None, None)
    view = ForView(op)
    start, stop, step = (forms.of(b) for b in view.bounds)
    stride = step.constant if step is not None and not step.terms else None
    return Loop(op, view.index, start, stop, stride, op.args["kind"] == "parallel")


def _branches(
    op: Op, guards: tuple[Condition, ...], forms: Forms
) -> Iterator[tuple[Block, tuple[Condition, ...]]]:
    """Yield the blocks of an op, with the conditions under which each is executed."""
    for i, block in enumerate(op.blocks):
        when = forms.condition(op.args["cond"], i == 0) if op.name == "if" else None
        yield block, (*guards, when) if when is not None else guards


class Points:
    """Builds one set: variables of two executions (`a`, `b`), and constraints on them."""

    def __init__(self, params: Iterable[Term], meanings: Mapping[Value, Meaning]) -> None:
        self._params = {p: f"p{i}" for i, p in enumerate(params)}
        self._meanings = meanings
        self._vars: list[str] = list(self._params.values())
        self._names: dict[tuple[str, object], str] = {}
        self._counts: list[str] = []
        self.constraints = [f"{v} >= 0" for p, v in self._params.items() if isinstance(p, SymDim)]
        self.shown: dict[str, str] = {v: p.name for p, v in self._params.items()}

    def variable(self, side: str, key: object, shown: str = "") -> str:
        """Return the variable that represents `key` in one execution."""
        name = self._names.get((side, key))
        if name is None:
            name = self._names[side, key] = f"{side}{len(self._vars)}"
            self._vars.append(name)
            self.shown[name] = shown
        return name

    def text(self, form: Form | None, side: str) -> str:
        if form is None:
            return self.variable(side, object(), "")
        parts = [str(form.constant)]
        parts += [f"{factor} * {self._term(term, side)}" for term, factor in form.terms]
        return " + ".join(parts)

    def _term(self, term: Term, side: str) -> str:
        name = self._params.get(term) or self._names.get((side, term))
        if name is not None:
            return name
        meaning = self._meanings.get(term) if isinstance(term, Value) else None
        name = self.variable(side, term, "" if meaning else term.name)
        if meaning is not None:
            self.constraints.append(
                meaning.constraint(
                    name,
                    lambda: self.variable(side, object()),
                    lambda form: self.text(form, side),
                )
            )
        return name

    def iterate(self, access: Access | Bounded, side: str, *, bounded: bool) -> list[str]:
        """Add the loops around an access; without `bounded`, with any number of iterations."""
        names: list[str] = []
        for loop in access.loops:
            key: object = loop.index if loop.index is not None else loop.op
            shown = loop.index.name if loop.index is not None else "block"
            name = self.variable(side, key, shown)
            names.append(name)
            if loop.start is None or loop.step is None:
                continue
            start, step = self.text(loop.start, side), loop.step
            count = self.variable(side, (key, "count"))
            self._counts.append(count)
            self.constraints += [f"{name} = {start} + {step} * {count}", f"{count} >= 0"]
            if bounded and loop.stop is not None:
                stop = self.text(loop.stop, side)
                self.constraints.append(f"{name} {'<' if step > 0 else '>'} {stop}")
        self.constraints += [guard(lambda form: self.text(form, side)) for guard in access.guards]
        return names

    def cover(self, access: Access, side: str, element: Sequence[str]) -> None:
        """Constrain `element` to lie in the window."""
        sides = zip(access.offset, access.extent, access.limit, element)
        for offset, extent, limit, e in sides:
            if offset is None:
                continue
            start = self.text(offset, side)
            self.constraints += [f"{start} <= {e}", f"{e} < {start} + {extent}"]
            if limit is not None:
                self.constraints.append(f"{e} < {start} + {self.text(limit, side)}")

    def share(self, within: Mapping[Term, Sequence[Loop]], same: Sequence[Loop]) -> None:
        """Equate the scalars that the control program computes in the same iteration."""
        loops = {loop.op for loop in same}
        for side, key in list(self._names):
            other = self._names.get(("b", key))
            around = within.get(key) if isinstance(key, Value) else None
            if side == "a" and other and around is not None and {x.op for x in around} <= loops:
                self.constraints.append(f"{self._names[side, key]} = {other}")

    def is_empty(self, library: Any) -> tuple[bool, dict[str, int]]:
        """Return whether the set is empty, and otherwise one of its earliest points."""
        text = f"{{ [{', '.join(self._vars)}] : {' and '.join(self.constraints)} }}"
        found = library.Set(text)
        if found.is_empty():
            return True, {}
        point = self._earliest(found, library).sample_point()
        values = {
            name: int(point.get_coordinate_val(library.dim_type.set, i).to_python())
            for i, name in enumerate(self._vars)
        }
        return False, values

    def _earliest(self, found: Any, library: Any) -> Any:
        """Return the points of a set with the fewest preceding iterations."""
        if not self._counts:
            return found
        total = " + ".join(self._counts)
        made = library.Aff(f"{{ [{', '.join(self._vars)}] -> [{total}] }}")
        least = found.min_val(made)
        if not least.is_int():
            return found
        line = f"{{ [{', '.join(self._vars)}] : {total} = {least.to_python()} }}"
        return found.intersect(library.Set(line))


def loops_in_common(a: Access, b: Access) -> list[Loop]:
    """Return the loops around both calls, outermost first."""
    common: list[Loop] = []
    for x, y in zip(a.loops[: a.outer], b.loops[: b.outer]):
        if x.op is not y.op:
            break
        common.append(x)
    return common


def parameters(program: Program) -> list[Term]:
    """Return the constants of a run: scalars of the entry, and extents of its tensors."""
    found: dict[Term, None] = {}
    for param in program.main.params:
        if isinstance(param.type, TensorType):
            found |= dict.fromkeys(n for n in param.type.shape if isinstance(n, SymDim))
        else:
            found[param] = None
    return list(found)


def pairs(found: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Yield pairs of accesses to one buffer, at least one a write, including each with itself."""
    by_root: dict[Value, list[Access]] = {}
    for access in found:
        by_root.setdefault(access.root, []).append(access)
    for mine in by_root.values():
        for i, a in enumerate(mine):
            for b in mine[i:]:
                if (a.writes or b.writes) and not (a.atomic and b.atomic):
                    yield a, b
