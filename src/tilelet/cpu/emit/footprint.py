"""Footprint functions: the part of each argument that a task can touch, computed at submission.

Scopes take whole tensors and slice them inside, so argument windows alone would serialize tasks
that touch different parts. If the offsets of all windows that a kernel takes of a parameter follow
from its scalars and loop bounds, a small C function returns their bounding box by interval
arithmetic. Otherwise the footprint is the whole argument.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelet import dtypes
from tilelet.analysis.aliases import Aliases, accesses
from tilelet.analysis.scalars import Domain, apply, stays_in_type
from tilelet.cpu.emit.scalars import constant_of
from tilelet.cpu.emit.text import identifier, int_text
from tilelet.dataclasses import dataclass
from tilelet.ir.core import Arg, Function, Op, Value, walk
from tilelet.ir.types import ScalarType, TensorType, TileType
from tilelet.ir.views import ForView
from tilelet.ops.transfers import fit_rank


class _Unknown(Exception):  # noqa: N818  (not an error)
    """A value that is unknown until the kernel runs."""


@dataclass(frozen=True)
class Interval:
    """C texts of the minimum and maximum; `number` if the value is a constant."""

    low: str
    high: str
    number: int | None = None


Box = list[tuple[Interval, int]]  # offset and size on every axis
Touch = tuple[Op, Value]


def footprint_lines(kernel: Function, functions: Mapping[str, Function]) -> tuple[str, list[str]]:
    """Return name and text of a kernel's footprint function; "NULL" and no text if it has no
    information.
    """
    finder = _Finder(kernel, functions)
    found = {p: finder.boxes(p) for p in kernel.params if isinstance(p.type, TensorType)}
    if not any(found.values()):
        return "NULL", []
    name = f"footprint_{identifier(kernel.name)}"
    lines = [
        f"static void {name}(const tl_word *x, int64_t block, tl_win *f) {{",
        "    (void)x, (void)block;",
    ]
    for at, boxes in enumerate(found.values()):
        if not boxes:
            continue
        for axis in range(len(boxes[0])):
            lows = [b[axis][0].low for b in boxes]
            highs = [f"tl_sum({b[axis][0].high}, {b[axis][1]})" for b in boxes]
            low, high = _fold("tl_least", lows), _fold("tl_greatest", highs)
            lines.append(f"    tl_narrow_axis(&f[{at}], {axis}, {low}, {high});")
    return name, [*lines, "}", ""]


def _fold(function: str, texts: list[str]) -> str:
    result, *rest = dict.fromkeys(texts)
    for text in rest:
        result = f"{function}({result}, {text})"
    return result


class _Finder:
    def __init__(self, kernel: Function, functions: Mapping[str, Function]) -> None:
        self._kernel = kernel
        self._aliases = Aliases(kernel.body, functions)
        self._loop_of = {
            ForView(op).index: ForView(op) for op in walk(kernel.body) if op.name == "for"
        }
        numbers = [p for p in kernel.params if not isinstance(p.type, TensorType)]
        self._position = {p: i for i, p in enumerate(numbers)}
        self._touched = self._find_touched(functions)

    def _find_touched(self, functions: Mapping[str, Function]) -> dict[Value, list[Touch]]:
        """Map each buffer to the ops that touch it, in order, with the name that each op uses for
        it.
        """
        found: dict[Value, list[Touch]] = {}
        for op in walk(self._kernel.body):
            if op.name == "tensor.dim":
                continue
            names = [v for v, _ in accesses(op, functions)]
            if op.spec.view:
                names += [v for v in op.operands if isinstance(v.type, TensorType)]
            for v in names:
                for root in self._aliases.roots(v):
                    found.setdefault(root, []).append((op, v))
        return found

    def boxes(self, param: Value) -> list[Box]:
        """Return all windows that the kernel takes of `param`; none if they cannot be known."""
        touched = self._touched.get(param, [])
        try:
            return [self._window(op, v, param) for op, v in touched]
        except _Unknown:
            return []

    def _window(self, op: Op, v: Value, param: Value) -> Box:
        """Return the part of `param` that `op` touches under the name `v`."""
        assert isinstance(v.type, TensorType)
        if self._aliases.whole(v) is not param:
            raise _Unknown
        if op.name == "slice" and isinstance(op.result.type, TileType):
            return self._box(op.args["offset"], op.args["shape"])
        if op.name == "load":
            return self._box(op.args["offsets"], op.args["shapes"])
        if op.name in ("assemble", "store") and v is op.args[op.spec.writes[0]]:
            source = op.args["source" if op.name == "assemble" else "tile"]
            assert isinstance(source, Value)
            assert isinstance(source.type, (TensorType, TileType))
            offset = op.args["offset" if op.name == "assemble" else "offsets"]
            return self._box(offset, fit_rank(source.type.shape, len(v.type.shape)) or ())
        if op.name in ("read", "write"):
            indices = op.args["indices"]
            return self._box(indices, (1,) * len(v.type.shape))
        raise _Unknown

    def _box(self, offset: Arg, shape: Arg) -> Box:
        starts = offset if isinstance(offset, tuple) else (offset,)
        sizes = shape if isinstance(shape, tuple) else (shape,)
        box: Box = []
        for start, size in zip(starts, sizes):
            if not isinstance(size, int):
                raise _Unknown
            box.append((self._interval(start), size))
        return box

    def _interval(self, arg: Arg) -> Interval:
        number = constant_of(arg)
        if isinstance(number, int):
            return _TEXTS.constant(number)
        if not isinstance(arg, Value) or not isinstance(arg.type, ScalarType):
            raise _Unknown
        if (
            arg in self._position
            and arg.type.dtype.is_integer
            and arg.type.dtype is not dtypes.UINT64
        ):
            text = f"x[{self._position[arg]}].i"
            return Interval(text, text)
        if arg in self._loop_of:
            return self._of_index(self._loop_of[arg])
        op = self._aliases.definition.get(arg)
        if op is not None and op.name == "get_block_idx":
            return Interval("block", "block")
        if op is None or not stays_in_type(op):
            raise _Unknown
        found = apply(_TEXTS, op, self._interval)
        if found is None:
            raise _Unknown
        return found

    def _of_index(self, loop: ForView) -> Interval:
        start, stop, step = loop.bounds
        by = constant_of(step)
        if not isinstance(by, int) or by == 0:
            raise _Unknown
        first, last = self._interval(start), self._interval(stop)
        if by > 0:
            return Interval(first.low, f"tl_greatest({first.low}, tl_sum({last.high}, -1))")
        return Interval(f"tl_least({first.high}, tl_sum({last.low}, 1))", first.high)


class _Texts(Domain[Interval]):
    """Emit bounds as C expressions that saturate instead of wrapping."""

    def constant(self, number: int) -> Interval:
        return Interval(int_text(number), int_text(number), number)

    def number(self, a: Interval) -> int | None:
        return a.number

    def add(self, a: Interval, b: Interval) -> Interval:
        return Interval(f"tl_sum({a.low}, {b.low})", f"tl_sum({a.high}, {b.high})")

    def subtract(self, a: Interval, b: Interval) -> Interval:
        return Interval(f"tl_sum({a.low}, -({b.high}))", f"tl_sum({a.high}, -({b.low}))")

    def scale(self, a: Interval, factor: int) -> Interval:
        ends = (a.low, a.high) if factor >= 0 else (a.high, a.low)
        low, high = (f"tl_times({end}, {int_text(factor)})" for end in ends)
        return Interval(low, high)

    def least(self, a: Interval, b: Interval) -> Interval:
        return Interval(f"tl_least({a.low}, {b.low})", f"tl_least({a.high}, {b.high})")

    def greatest(self, a: Interval, b: Interval) -> Interval:
        return Interval(f"tl_greatest({a.low}, {b.low})", f"tl_greatest({a.high}, {b.high})")


_TEXTS = _Texts()
