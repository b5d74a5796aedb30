"""Leave out rows of matrix products that no kernel reads.

The cube unit takes rows in sixteens, so programs pad eight query heads with eight rows of zeros,
and later read the first eight rows of the scores. A temporary of the control program whose first
rows alone are ever loaded needs no others: stores of them are left out, and the products that
compute them get fewer rows. Tasks, windows and errors stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilelet.analysis.aliases import Aliases, is_tensor
from tilelet.cpu.emit.scalars import constant_of
from tilelet.dataclasses import replace
from tilelet.ir.core import Arg, Function, FunctionKind, Op, Program, Value, walk
from tilelet.ir.rebuild import Builder, Rewriter, with_args
from tilelet.ir.spec import Trait
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import CallView
from tilelet.syntax.enums import AtomicType

ALL = 1 << 62
"""All rows of a tensor, however many it has."""

_STORES = {"assemble": ("target", "source", "offset"), "store": ("tensor", "tile", "offsets")}
_LOADS = {"slice": ("x", "offset", "shape"), "load": ("tensor", "offsets", "shapes")}


def without_unread_rows(program: Program) -> tuple[Program, dict[Value, int]]:
    """Return the program without the rows, and how many first rows of its temporaries are read.

    What is left out may leave more rows unread. Temporaries that are not in the dict may be read
    completely.
    """
    while True:
        limits, rows_of = _limits(program)
        functions = dict(program.functions)
        for name, rows in limits.items():
            functions[name] = _Cut(functions[name], rows, program.functions).cut()
        if all(functions[name] is program.functions[name] for name in limits):
            return program, rows_of
        program = replace(program, functions=functions)


# --- rows that are read ---------------------------------------------------------------------------


def _limits(program: Program) -> tuple[dict[str, dict[Value, int]], dict[Value, int]]:
    """Return, by kernel, the parameters of which only the first rows are read, and their number;
    and the same of the temporaries of the control program.
    """
    functions = program.functions
    reads = {name: _Reads(fn, functions) for name, fn in functions.items() if _is_kernel(fn)}
    limits: dict[str, dict[Value, int]] = {}
    rows_of: dict[Value, int] = {}
    for fn in functions.values():
        if _is_kernel(fn):
            continue
        rows_of |= _rows_of_temporaries(fn, functions, reads)
        for op in walk(fn.body):
            if op.name != "call" or CallView(op).callee not in reads:
                continue
            callee = functions[CallView(op).callee]
            known = limits.setdefault(callee.name, {})
            for param, operand in zip(callee.params, CallView(op).operands):
                rows = rows_of.get(operand, ALL) if isinstance(operand, Value) else ALL
                known[param] = max(known.get(param, 0), rows)
    found = {n: {p: r for p, r in known.items() if r < ALL} for n, known in limits.items()}
    return {name: known for name, known in found.items() if known}, rows_of


def _is_kernel(fn: Function) -> bool:
    return fn.kind is FunctionKind.InCore


def _rows_of_temporaries(
    fn: Function, functions: Mapping[str, Function], reads: Mapping[str, _Reads]
) -> dict[Value, int]:
    """Return the number of first rows read of temporaries that only kernels use, by name."""
    aliases = Aliases(fn.body, functions)
    created = {op.result for op in walk(fn.body) if op.name == "create_tensor"}
    rows: dict[Value, int] = {}
    names: dict[Value, Value] = {}
    for op in walk(fn.body):
        for at, v in _tensors_used(op):
            roots = aliases.roots(v)
            is_temporary = len(roots) == 1 and roots <= created and aliases.whole(v) in roots
            is_given = at is not None and CallView(op).callee in reads
            read = reads[CallView(op).callee].rows(at or 0) if is_given else ALL
            for root in roots:
                rows[root] = max(rows.get(root, 0), read if is_temporary else ALL)
            if is_temporary:
                names[v] = next(iter(roots))
    return {v: rows[root] for v, root in names.items() if rows[root] < ALL}


def _tensors_used(op: Op) -> Iterator[tuple[int | None, Value]]:
    """Yield the tensors that an op uses, with their positions among the operands of a call."""
    if Trait.SHAPE_ONLY in op.spec.traits:
        return
    operands: Sequence[Arg] = CallView(op).operands if op.name == "call" else ()
    for at, v in enumerate(operands):
        if is_tensor(v):
            yield at, v
    for name, arg in op.args.items():
        if op.name == "call" and name in ("operands", "deps", "no_dep"):
            continue
        for v in _values(arg):
            if is_tensor(v):
                yield None, v


def _values(arg: Arg) -> Iterator[Value]:
    if isinstance(arg, tuple):
        for a in arg:
            yield from _values(a)
    elif isinstance(arg, Value):
        yield arg


class _Reads:
    """The rows that a kernel reads of its parameters."""

    def __init__(self, kernel: Function, functions: Mapping[str, Function]) -> None:
        self._aliases = Aliases(kernel.body, functions)
        self._users = _users(kernel)
        self._rows: dict[Value, int] = {}
        for op in walk(kernel.body):
            if op.spec.structural:
                continue
            for _, v in _tensors_used(op):
                for root in self._aliases.roots(v):
                    rows = self._rows_read(op, v, root)
                    self._rows[root] = max(self._rows.get(root, 0), rows)
        self._params = kernel.params

    def rows(self, at: int) -> int:
        return self._rows.get(self._params[at], 0)

    def _rows_read(self, op: Op, v: Value, root: Value) -> int:
        if self._aliases.whole(v) is not root:
            return ALL
        if op.name in _STORES and op.args[_STORES[op.name][0]] is v:
            return ALL if op.args["atomic"] is AtomicType.Add else 0
        if op.name in _LOADS and isinstance(op.result.type, TileType):
            _, offset, shape = _LOADS[op.name]
            start, size = _first_constant(op.args[offset]), _first_constant(op.args[shape])
            if start is not None and size is not None:
                return start + min(size, self._rows_of_slices(op))
        return ALL

    def _rows_of_slices(self, load: Op) -> int:
        """Return the rows of a loaded tile that its users take, if all of these are slices."""
        if load.args.get("drop_dims") or load.args.get("transpose") or load.args.get("pad_value"):
            return ALL
        return max((_rows_taken(op) for op in self._users.get(load.result, ())), default=0)


def _users(kernel: Function) -> dict[Value, list[Op]]:
    users: dict[Value, list[Op]] = {}
    for op in walk(kernel.body):
        for v in op.operands:
            users.setdefault(v, []).append(op)
    return users


def _rows_taken(op: Op) -> int:
    """Return the number of first rows of `x` that a slice of a tile takes."""
    if op.name != "slice" or not _is_tile(op.args["x"]):
        return ALL
    start, size = _first_constant(op.args["offset"]), _first_constant(op.args["shape"])
    return ALL if start is None or size is None else start + size


def _first_constant(arg: Arg) -> int | None:
    """Return the first of several numbers, if it is a constant that is not negative."""
    number = constant_of(arg[0] if isinstance(arg, tuple) else arg)
    return number if isinstance(number, int) and number >= 0 else None


def _is_tile(arg: Arg) -> bool:
    return isinstance(arg, Value) and isinstance(arg.type, TileType)


# --- kernels with fewer rows ----------------------------------------------------------------------


class _Cut(Rewriter):
    """Rewrite a kernel of whose parameters only the first rows are read, given their number."""

    def __init__(
        self, kernel: Function, limits: Mapping[Value, int], functions: Mapping[str, Function]
    ) -> None:
        super().__init__()
        self._kernel = kernel
        self._limits = limits
        self._aliases = Aliases(kernel.body, functions)
        self._users = _users(kernel)
        self._has_changed = False

    def cut(self) -> Function:
        """Return the new kernel, or the same one if it computes no unread row."""
        new = self.function(self._kernel)
        return new if self._has_changed else self._kernel

    def rewrite(self, op: Op) -> Sequence[Op]:
        if self._rows_stored(op) == 0:
            self._has_changed = True
            self.mapping[op.result] = op.args[_STORES[op.name][0]]
            return ()
        if op.name == "matmul" and not op.args["a_trans"] and op.result in self._users:
            return self._product(op)
        return (self.descend(op),)

    def _rows_stored(self, op: Op) -> int | None:
        """Return how many leading rows of a stored tile are read; None if the store must stay."""
        if op.name not in _STORES:
            return None
        target, source, offset = (op.args[name] for name in _STORES[op.name])
        if not is_tensor(target) or not isinstance(source, Value) or not isinstance(offset, tuple):
            return None
        root = self._aliases.whole(target)
        starts = [constant_of(o) for o in offset]
        assert isinstance(source.type, TileType)
        assert isinstance(target.type, TensorType)
        extents, sizes = target.type.shape, source.type.shape
        if root is None or root not in self._limits or op.args["atomic"] is AtomicType.Add:
            return None
        if len(extents) != len(sizes):
            return None
        for start, size, extent in zip(starts, sizes, extents):
            if not isinstance(start, int) or not isinstance(extent, int):
                return None
            if start < 0 or start + size > extent:
                return None
        first = starts[0]
        assert isinstance(first, int)
        return min(max(self._limits[root] - first, 0), sizes[0])

    def _product(self, op: Op) -> Sequence[Op]:
        """Return a product with the rows that its users take."""
        lhs = op.args["lhs"]
        assert isinstance(lhs, Value)
        assert isinstance(lhs.type, TileType)
        shape = lhs.type.shape
        needed = 0
        for user in self._users[op.result]:
            stored = self._rows_stored(user)
            needed = max(needed, _rows_taken(user) if stored is None else stored)
        if len(shape) != 2 or not 0 < needed < shape[0]:
            return (op,)  # a product that nobody needs is left out with its store
        self._has_changed = True
        b = Builder(op.loc, in_scope=True)
        rows = b.emit("slice", lhs, (needed, shape[1]), (0, 0), result=lhs.name)
        args = {name: arg for name, arg in with_args(op, lhs=rows).args.items() if arg is not None}
        self.mapping[op.result] = b.emit("matmul", result=op.result.name, **args)
        return b.ops
