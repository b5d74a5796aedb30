"""Accesses of a program as sets of integer points, for all trip counts and sizes; isl decides.

Loop indices, entry parameters and extents of tensors are variables; what is no affine form of them
(`analysis/affine.py`) is a variable that nothing is known of, so that a set is never smaller than
the truth. What isl shows to be empty is empty for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelet.analysis.affine import Affine, affine_of
from tilelet.analysis.aliases import Aliases, accesses, is_tensor
from tilelet.diag.core import Loc
from tilelet.ir.core import Arg, Block, Direction, Function, FunctionKind, Op, Program, Value
from tilelet.ir.fold import number_of
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import CallView, ForView
from tilelet.ops.transfers import fitted

Form = Affine[Value]


def isl() -> Any | None:
    """The library; None if it is not installed."""
    try:
        import islpy
    except ImportError:
        return None
    return islpy


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop, or the blocks of an spmd task: its index runs from `start` to before `stop`.

    start, stop  None: not known; a `while` has neither
    """

    op: Op
    index: Value | None
    start: Form | None
    stop: Form | None
    step: int | None
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Access:
    """A window of a tensor that a statement of a kernel touches, in every execution.

    site     the call in the control program; `position` of the argument
    root     the buffer: a parameter, or what a `create_tensor` gives
    made_in  loops around that `create_tensor`: each iteration has its own
    loops    around the call, then around the statement
    offset   per axis of the root; None: somewhere
    extent   per axis
    """

    site: Op
    position: int
    root: Value
    made_in: tuple[Loop, ...]
    loops: tuple[Loop, ...]
    outer: int  # how many of the loops are around the call
    offset: tuple[Form | None, ...]
    extent: tuple[int, ...]
    writes: bool
    atomic: bool
    loc: Loc
    bounded: bool = True  # the window must lie inside: it is not clamped


@dataclass(eq=False)
class Accesses:
    """All accesses of a program; `gaps` says what could not be followed, and why."""

    program: Program
    found: list[Access] = field(default_factory=list[Access])
    gaps: list[tuple[Loc, str]] = field(default_factory=list[tuple[Loc, str]])
    order: dict[Op, int] = field(default_factory=dict[Op, int])

    @classmethod
    def of(cls, program: Program) -> Accesses:
        made = cls(program)
        entry = program.main
        for function in program.functions.values():
            if function is not entry and function.kind is not FunctionKind.InCore:
                made.gaps.append((function.loc, "a control function of its own"))
        made._control(entry.body, (), Aliases(entry.body, program.functions))
        return made

    def _control(self, block: Block, loops: tuple[Loop, ...], aliases: Aliases) -> None:
        for op in block.ops:
            if op.name == "call":
                if self.program.functions[CallView(op).callee].kind is FunctionKind.InCore:
                    self.order[op] = len(self.order)
                    self._call(op, loops, aliases)
                continue
            inner = (*loops, _loop(op, aliases)) if op.name in ("for", "while") else loops
            for nested in op.blocks:
                self._control(nested, inner, aliases)

    def _call(self, op: Op, loops: tuple[Loop, ...], aliases: Aliases) -> None:
        view = CallView(op)
        kernel = self.program.functions[view.callee]
        inside = Aliases(kernel.body, self.program.functions)
        scalars: dict[Value, Form | None] = {}
        for param, operand in zip(kernel.params, view.operands):
            if not is_tensor(param):
                scalars[param] = affine_of(operand, aliases.definition)
        roots = {
            param: self._root(operand, aliases, loops)
            for param, operand in zip(kernel.params, view.operands)
            if is_tensor(param) and isinstance(operand, Value)
        }
        count = op.args.get("count")
        blocks = loops
        if count is not None:
            stop = affine_of(count, aliases.definition)
            indices = [o.result for o in kernel.body.ops if o.name == "get_block_idx"]
            index = indices[0] if indices else None
            # All of them are the same number.
            scalars |= {other: Affine(0, ((index, 1),)) for other in indices[1:] if index}
            blocks = (*loops, Loop(op, index, Affine(0), stop, 1))
        walk = _Kernel(self, op, kernel, inside, scalars, roots, len(loops))
        walk.block(kernel.body, blocks)

    def _root(
        self, operand: Value, aliases: Aliases, loops: tuple[Loop, ...]
    ) -> tuple[Value, tuple[Form | None, ...], tuple[Loop, ...]] | None:
        """The buffer that an operand lies in, where it starts there, and who made the buffer."""
        end = aliases.end(operand)
        shift: Sequence[Form | None] | None = None
        while end is not None and end in aliases.definition:
            op = aliases.definition[end]
            if op.name != "slice" or op.args["drop_dims"]:
                break
            offset = op.args["offset"]
            parts = offset if isinstance(offset, tuple) else (offset,)
            forms = [affine_of(o, aliases.definition) for o in parts]
            shift = forms if shift is None else [_sum(a, b) for a, b in zip(shift, forms)]
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
        # Names are unique: a buffer made inside a loop is a new one in each iteration.
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
        scalars: Mapping[Value, Form | None],
        roots: Mapping[Value, Any],
        outer: int,
    ) -> None:
        self.into = into
        self.site = site
        self.kernel = kernel
        self.aliases = aliases
        self.scalars = scalars
        self.roots = roots
        self.outer = outer

    def block(self, block: Block, loops: tuple[Loop, ...]) -> None:
        for op in block.ops:
            for value, how in accesses(op, {}):
                self._touch(op, value, how, loops)
            inner = loops
            if op.name in ("for", "while"):
                inner = (*loops, _loop(op, self.aliases, self.form))
            for nested in op.blocks:
                self.block(nested, inner)

    def form(self, arg: Arg) -> Form | None:
        """A scalar of the kernel in terms of the control program's values and of loops."""
        found = affine_of(arg, self.aliases.definition)
        if found is None:
            return None
        total: Form = Affine(found.constant)
        for term, factor in found.terms:
            if term in self.scalars:
                given = self.scalars[term]
                if given is None:
                    return None
                total = total.plus(given.times(factor))
            else:
                total = total.plus(Affine(0, ((term, factor),)))
        return total

    def _touch(self, op: Op, value: Value, how: Direction, loops: tuple[Loop, ...]) -> None:
        whole = self.aliases.whole(value)
        params = [whole] if whole in self.kernel.params else list(self.aliases.roots(value))
        for param in params:
            place = self.roots.get(param)
            if param not in self.roots or place is None:
                continue
            root, start, made_in = place
            offset, extent, bounded = self._window(op, value, param is whole)
            rank = len(root.type.shape)
            if offset is None or len(offset) != rank:
                where: tuple[Form | None, ...] = (None,) * rank
                extent, bounded = (1,) * rank, False
            else:
                where = tuple(_sum(a, b) for a, b in zip(start, offset))
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
                        bounded,
                    )
                )

    def _window(
        self, op: Op, value: Value, is_whole: bool
    ) -> tuple[tuple[Form | None, ...] | None, tuple[int, ...], bool]:
        """Offset and extent of what an op touches; None: it may be anywhere."""
        args, type_ = op.args, value.type
        assert isinstance(type_, TensorType)
        if not is_whole:
            return None, (), False
        if op.spec.is_window_load and isinstance(op.result.type, TileType):
            names = ("offsets", "shapes") if "offsets" in args else ("offset", "shape")
            offset, shape = (_tuple(args[name]) for name in names)
            sizes = tuple(number_of(n) for n in shape)
            limit = args.get("valid_shape") or args.get("valid_shapes")
            clamped = bool(args.get("clamp")) or limit is not None
        elif op.spec.writes and Trait.ANY_MEMORY in op.spec.traits:
            offset = _tuple(args["offsets" if "offsets" in args else "offset"])
            source = args["tile" if "tile" in args else "source"]
            assert isinstance(source, Value)
            sizes = fitted(source.type.shape, len(type_.shape)) or ()  # type: ignore[union-attr]
            clamped = True  # how much of the tile is valid is not known
        elif "indices" in args:
            offset = _tuple(args["indices"])
            sizes, clamped = (1,) * len(offset), False
        else:
            return None, (), False
        if any(not isinstance(n, int) for n in sizes) or len(sizes) != len(offset):
            return None, (), False
        exact = tuple(int(n) for n in sizes if isinstance(n, int))
        return tuple(self.form(o) for o in offset), exact, not clamped


def _tuple(arg: Arg) -> tuple[Arg, ...]:
    return arg if isinstance(arg, tuple) else (arg,)


def _sum(a: Form | None, b: Form | None) -> Form | None:
    return None if a is None or b is None else a.plus(b)


def _contains(outer: Op, inner: Op) -> bool:
    return any(op is inner or _contains(op, inner) for b in outer.blocks for op in b.ops)


def _loop(op: Op, aliases: Aliases, form: Callable[[Arg], Form | None] | None = None) -> Loop:
    if op.name == "while":
        return Loop(op, None, None, None, None)
    view = ForView(op)
    form = form or (lambda arg: affine_of(arg, aliases.definition))
    start, stop, step = (form(b) for b in view.bounds)
    stride = step.constant if step is not None and not step.terms else None
    return Loop(op, view.index, start, stop, stride, op.args["kind"] == "parallel")


class Points:
    """Builds one set: variables of two executions (`a`, `b`), and constraints on them."""

    def __init__(self, params: Iterable[Value]) -> None:
        self._params = {p: f"p{i}" for i, p in enumerate(params)}
        self._vars: list[str] = []
        self._names: dict[tuple[str, object], str] = {}
        self.constraints: list[str] = []
        self.shown: dict[str, str] = {}

    def variable(self, side: str, key: object, shown: str = "") -> str:
        """The variable of one execution that stands for `key`."""
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
        for term, factor in form.terms:
            name = self._params.get(term) or self.variable(side, term, term.name)
            parts.append(f"{factor} * {name}")
        return " + ".join(parts)

    def iterate(self, access: Access, side: str, *, bounded: bool) -> list[str]:
        """The loops around an access run; without `bounded`, for any number of times."""
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
            self.constraints += [f"{name} = {start} + {step} * {count}", f"{count} >= 0"]
            if bounded and loop.stop is not None:
                stop = self.text(loop.stop, side)
                self.constraints.append(f"{name} {'<' if step > 0 else '>'} {stop}")
        return names

    def cover(self, access: Access, side: str, element: Sequence[str]) -> None:
        """`element` lies in the window."""
        for offset, extent, e in zip(access.offset, access.extent, element):
            if offset is not None:
                start = self.text(offset, side)
                self.constraints += [f"{start} <= {e}", f"{e} < {start} + {extent}"]

    def is_empty(self, library: Any) -> tuple[bool, dict[str, int]]:
        """Whether no point meets the constraints; else the smallest that does, by name."""
        params = ", ".join(self._params.values())
        text = f"[{params}] -> {{ [{', '.join(self._vars)}] : {' and '.join(self.constraints)} }}"
        found = library.Set(text)
        if found.is_empty():
            return True, {}
        point = found.sample_point()
        values = {
            name: int(point.get_coordinate_val(library.dim_type.set, i).to_python())
            for i, name in enumerate(self._vars)
        }
        return False, values


def loops_in_common(a: Access, b: Access) -> list[Loop]:
    """Loops around both calls, outermost first."""
    common: list[Loop] = []
    for x, y in zip(a.loops[: a.outer], b.loops[: b.outer]):
        if x.op is not y.op:
            break
        common.append(x)
    return common


def parameters(program: Program) -> list[Value]:
    """What is the same in the whole run: scalars of the entry, and extents of its tensors."""
    scalars = [p for p in program.main.params if not is_tensor(p)]
    extents = [op for op in program.main.body.ops if Trait.SHAPE_ONLY in op.spec.traits]
    return [*scalars, *(r for op in extents for r in op.results)]


def pairs(found: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Accesses to one buffer, one of them writing; each with itself, too."""
    by_root: dict[Value, list[Access]] = {}
    for access in found:
        by_root.setdefault(access.root, []).append(access)
    for mine in by_root.values():
        for i, a in enumerate(mine):
            for b in mine[i:]:
                if (a.writes or b.writes) and not (a.atomic and b.atomic):
                    yield a, b
