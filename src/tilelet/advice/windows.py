"""Windows of tensors in the text of a script: `pl.slice`, `pl.assemble` and subscripts."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from tilelet.advice.source import Source, names_read, number_of
from tilelet.dataclasses import dataclass

_SAMPLES = 3


@dataclass(frozen=True)
class SourceWindow:
    """A window of a tensor, in source text.

    node    the expression that names it
    offset  offset per axis, as text
    shape   extents, as text; None if unknown
    """

    tensor: str
    node: ast.expr
    offset: tuple[str, ...]
    shape: tuple[str, ...] | None

    def is_at(self, other: SourceWindow) -> bool:
        """Whether both texts denote the same window."""
        same = self.tensor == other.tensor and self.offset == other.offset
        return same and (None in (self.shape, other.shape) or self.shape == other.shape)

    @property
    def names(self) -> set[str]:
        """Names that the offset depends on."""
        return {
            n.id
            for text in self.offset
            for n in ast.walk(ast.parse(text, mode="eval"))
            if isinstance(n, ast.Name)
        }

    @property
    def shape_text(self) -> str | None:
        return None if self.shape is None else f"[{', '.join(self.shape)}]"


def load_of(source: Source, node: ast.AST) -> SourceWindow | None:
    """Return the window that an expression loads, or None."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return _subscript(source, node)
    if source.call_of(node) != "slice" or not isinstance(node, ast.Call):
        return None
    if len(node.args) != 3 or node.keywords or not isinstance(node.args[0], ast.Name):
        return None
    shape, offset = texts_of(node.args[1]), texts_of(node.args[2])
    if shape is None or offset is None or node.args[0].id not in source.tensors:
        return None
    return SourceWindow(node.args[0].id, node, offset, shape)


def store_of(source: Source, node: ast.stmt) -> tuple[SourceWindow, ast.expr] | None:
    """Return the window and value of a store: `t = pl.assemble(t, v, [r, c])` or `t[...] = v`."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        found = _subscript(source, node.targets[0])
        return None if found is None else (found, node.value)
    call = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
    if source.call_of(call) != "assemble" or not isinstance(call, ast.Call) or len(call.args) != 3:
        return None
    tensor, value, offset = call.args[0], call.args[1], texts_of(call.args[2])
    if not isinstance(tensor, ast.Name) or offset is None or call.keywords:
        return None
    return SourceWindow(tensor.id, call, offset, None), value


def loads_in(source: Source, node: ast.AST) -> Iterator[SourceWindow]:
    for inner in ast.walk(node):
        found = load_of(source, inner)
        if found is not None:
            yield found


def stores_in(source: Source, node: ast.AST) -> Iterator[tuple[SourceWindow, ast.expr, ast.stmt]]:
    for inner in ast.walk(node):
        found = store_of(source, inner) if isinstance(inner, ast.stmt) else None
        if found is not None and isinstance(inner, ast.stmt):
            yield *found, inner


def texts_of(node: ast.expr) -> tuple[str, ...] | None:
    """Return extents or offsets of a list literal as text."""
    if not isinstance(node, (ast.List, ast.Tuple)):
        return None
    return tuple(ast.unparse(n) for n in node.elts)


def _subscript(source: Source, node: ast.Subscript) -> SourceWindow | None:
    """Return the window `t[r : r + 16, :]`; None for single indices, which change the rank."""
    if not isinstance(node.value, ast.Name) or node.value.id not in source.tensors:
        return None
    axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    dims = source.dims.get(node.value.id, ())
    offset: list[str] = []
    shape: list[str | None] = []
    for axis, part in enumerate(axes):
        if not isinstance(part, ast.Slice) or part.step is not None:
            return None
        offset.append(ast.unparse(part.lower) if part.lower else "0")
        whole = dims[axis] if axis < len(dims) else None
        shape.append(_extent(source, part, whole))
    missing = range(len(axes), len(dims))
    offset += ["0" for _ in missing]
    shape += [dims[axis] for axis in missing]
    known = [s for s in shape if s is not None]
    whole_shape = tuple(known) if len(known) == len(shape) else None
    return SourceWindow(node.value.id, node, tuple(offset), whole_shape)


def _extent(source: Source, part: ast.Slice, whole: str | None) -> str | None:
    """Return the length of the slice `a : b`."""
    lower, upper = part.lower, part.upper
    if upper is None:
        return whole if lower is None or ast.unparse(lower) == "0" else None
    if lower is None or ast.unparse(lower) == "0":
        return ast.unparse(upper)
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
        for one, other in ((upper.left, upper.right), (upper.right, upper.left)):
            if ast.dump(one) == ast.dump(lower):
                return ast.unparse(other)
    return _difference(source, lower, upper)


def _difference(source: Source, lower: ast.expr, upper: ast.expr) -> str | None:
    """Simplify `(k + 1) * T - k * T` if the difference is a constant."""
    draw = random.Random(0)  # noqa: S311 - any numbers will do
    found: set[int] = set()
    free = (names_read(lower) | names_read(upper)) - set(source.numbers)
    for _ in range(_SAMPLES):
        values = {**source.numbers, **{name: draw.randrange(1, 1 << 20) for name in sorted(free)}}
        ends = number_of(lower, values), number_of(upper, values)
        if ends[0] is None or ends[1] is None:
            return None
        found.add(ends[1] - ends[0])
    return str(found.pop()) if len(found) == 1 else None
