"""Record the arrays that a golden computes: its locals and temporaries.

The golden's source is compiled again with a recorder around every expression that may be an array,
and so are the user's functions that it calls. Its results do not change.

A kernel that reduces by blocks has running values, which the golden does not compute: maxima, sums
and outputs of the blocks so far. The golden is therefore called again with its sums, maxima and
products restricted to a part of the reduced axis (`partial_arrays`): its arrays are then the
kernel's after that part, since they depend on each other as before.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import inspect
import itertools
import linecache
import math
import site
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.dtypes import Array

MAX_ELEMENTS = 48 << 20
_MAX_PER_LINE = 512
"""Limit on arrays recorded per expression, because a golden's loop may run long."""

_MAX_NUMBERS = 8

_MAX_PARTS = 40
"""Limit on calls of a golden with restricted reductions."""

_SEEN, _NAMED, _CALLEE = "__tilelet_seen__", "__tilelet_named__", "__tilelet_callee__"
_NUMBER, _PRODUCT = "__tilelet_number__", "__tilelet_product__"
_INNER = "__tilelet_golden__"
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_FOLDS = frozenset({"sum", "max", "amax", "min", "amin", "mean", "prod", "logsumexp"})
_PRODUCTS = frozenset({"matmul", "dot", "mm", "bmm"})


@dataclass(frozen=True)
class Part:
    """A part of the axes of one length, to which reductions are restricted."""

    length: int
    start: int
    stop: int

    def cut(self, array: Any, axes: Iterable[int]) -> Any:
        """Return the part of an array, or the array if no axis has the length."""
        shape = array.shape
        mine = [axis % len(shape) for axis in axes if shape[axis] == self.length]
        if not mine:
            return array
        index = [slice(None)] * len(shape)
        index[mine[-1]] = slice(self.start, self.stop)
        return array[tuple(index)]


@dataclass(eq=False)
class Intermediate:
    """An array that the golden computed, in double precision.

    name  the variable, else the text of the expression
    part  the part of a reduced axis that it was computed from, if not all
    """

    name: str
    file: str
    line: int
    array: Array
    part: Part | None = None

    @property
    def where(self) -> str:
        part = self.part
        over = f", over {part.start}:{part.stop} of {part.length}" if part else ""
        return f"`{self.name}` (golden line {self.line}{over})"


class GoldenTrace:
    """Records arrays and fractional numbers that a golden computes in its first call.

    Call `golden` in its place. `note` says why nothing was recorded, if so.
    """

    def __init__(self, golden: Callable[..., object]) -> None:
        self.found: list[Intermediate] = []
        self.numbers: dict[float, None] = {}
        self.note = ""
        self._digests: dict[bytes, int] = {}
        self._by_id: dict[int, int] = {}
        self._counts: dict[tuple[str, int, str, Part | None], int] = {}
        self._elements = 0
        self._instrumented: dict[types.CodeType, Callable[..., Any]] = {}
        self._calls = 0
        self._lengths: dict[int, None] = {}
        self._part: Part | None = None
        self._traced = self._callee(_function_of(golden), is_golden=True)
        self._plain = golden
        if self._traced is golden or self._traced is _function_of(golden):
            kind = type(golden).__name__
            self.note = (
                f"the golden is a `{kind}` whose Python source is not available: only its outputs "
                "were compared"
            )

    @property
    def golden(self) -> Callable[..., Any]:
        """The golden, with its first call recorded."""

        @functools.wraps(self._plain)
        def call(*args: object, **named: object) -> Any:
            self._calls += 1
            chosen = self._traced if self._calls == 1 and not self.note else self._plain
            return chosen(*args, **named)

        return call

    def partial_arrays(
        self, call: Callable[[Callable[..., Any]], object], blocks: Iterable[int]
    ) -> list[Intermediate]:
        """Return the arrays of the golden over parts of reduced axes: prefixes and single blocks.

        `call` calls a golden on its inputs.
        """
        if self.note:
            return []
        before = len(self.found)
        for part in itertools.islice(self._parts(blocks), _MAX_PARTS):
            self._part = part
            with contextlib.suppress(Exception), np.errstate(all="ignore"):
                call(self._traced)
        self._part = None
        return self.found[before:]

    def _parts(self, blocks: Iterable[int]) -> Iterator[Part]:
        """Yield parts of each reduced length, those of large blocks first."""
        for block in sorted(set(blocks), reverse=True):
            for length in self._lengths:
                if 1 < block < length <= _MAX_PARTS * block:
                    stops = range(block, length + block, block)
                    yield from (Part(length, 0, stop) for stop in stops if stop < length)
                    yield from (Part(length, stop - block, min(stop, length)) for stop in stops[1:])

    # Functions called by the instrumented source

    def _seen(self, value: object, text: str, file: str, line: int) -> Any:
        try:
            self._note(value, text, file, line)
        except (TypeError, ValueError, RuntimeError, MemoryError):
            return value
        return value

    def _number(self, value: Any, whole: bool) -> Any:
        is_number = isinstance(value, float) and math.isfinite(value)
        is_number |= whole and type(value) is int
        if is_number and value not in (0, 1, -1) and len(self.numbers) < _MAX_NUMBERS:
            self.numbers[float(value)] = None
        return value

    def _note(self, value: Any, text: str, file: str, line: int) -> None:
        self._number(value, whole=False)
        module = str(getattr(cast("object", value).__class__, "__module__", ""))
        if module.partition(".")[0] not in ("numpy", "torch"):
            return
        key = (file, line, text, self._part)
        count = self._counts.get(key, 0)
        if count >= _MAX_PER_LINE or self._elements > MAX_ELEMENTS:
            return
        self._counts[key] = count + 1
        for part, suffix in _as_doubles(value):
            digest = hashlib.blake2b(part.tobytes(), digest_size=16).digest() + bytes(
                str(part.shape), "ascii"
            )
            if digest in self._digests:
                self._by_id[id(value)] = self._digests[digest]
                continue
            self._elements += part.size
            self._digests[digest] = self._by_id[id(value)] = len(self.found)
            self.found.append(Intermediate(text + suffix, file, line, part, self._part))

    def _named(self, name: str, value: object, file: str, line: int) -> None:
        """Record an assignment: the array is known by this name from now on."""
        before = len(self.found)
        self._seen(value, name, file, line)
        at = self._by_id.get(id(value))
        if len(self.found) == before and at is not None and self.found[at].line == line:
            self.found[at].name = name

    def _callee(self, function: object, is_golden: bool = False) -> Any:
        """Return a user function instrumented, anything else unchanged."""
        if isinstance(function, types.MethodType):
            inner = self._callee(function.__func__, is_golden)
            return types.MethodType(inner, function.__self__)
        name = getattr(function, "__name__", "")
        if not is_golden and _is_of_arrays(function):
            if name in _FOLDS:
                return functools.partial(self._reduce, self._fold, function)
            if name in _PRODUCTS and not isinstance(function, types.BuiltinMethodType):
                return functools.partial(self._reduce, self._product, function)
            if name == "einsum":
                return functools.partial(self._reduce, self._einsum, function)
        if not isinstance(function, types.FunctionType):
            return function
        code = function.__code__
        if code not in self._instrumented:
            usable = is_golden or _is_users(code.co_filename)
            self._instrumented[code] = (self._compiled(function) if usable else None) or function
        found = self._instrumented[code]
        if found is function or function.__closure__ is None:
            return found
        return self._compiled(function) or function  # each closure has its own cells

    # Reductions

    def _reduce(
        self, restricted: Callable[..., Any], function: Any, *args: Any, **named: Any
    ) -> Any:
        """Call a function on parts of its operands; on all of them if they are not arrays."""
        try:
            call = restricted(function, *args, **named)
        except (AttributeError, IndexError, TypeError):
            call = functools.partial(function, *args, **named)
        return call()

    def _fold(self, function: Any, *args: Any, **named: Any) -> Callable[[], Any]:
        """Reduce a part of an array: of the first argument, or of the object of a method."""
        mine = getattr(function, "__self__", None)
        array = mine if hasattr(mine, "shape") else args[0]
        rest = args if array is mine else args[1:]
        axis = named.get("axis", named.get("dim", rest[0] if rest else None))
        if axis is None:
            return functools.partial(function, *args, **named)
        axes = cast("tuple[int, ...]", axis if isinstance(axis, tuple) else (axis,))
        cut = self._cut(array, axes)
        if array is not mine:
            return functools.partial(function, cut, *rest, **named)
        if function.__name__ == "mean":  # blocks are summed and divided in the end
            self._seen(cut.sum(*rest, **named), "sum of the mean", "", 0)
        return functools.partial(getattr(cut, function.__name__), *rest, **named)

    def _product(self, function: Any, lhs: Any, rhs: Any, **named: Any) -> Callable[[], Any]:
        inner = max(-2, -rhs.ndim)
        if lhs.shape[-1] == rhs.shape[inner]:
            lhs, rhs = self._cut(lhs, (-1,)), self._cut(rhs, (inner,))
        return functools.partial(function, lhs, rhs, **named)

    def _einsum(self, function: Any, subscripts: Any, *operands: Any, **named: Any) -> Any:
        if isinstance(subscripts, str) and "->" in subscripts and "." not in subscripts:
            inputs, _, kept = subscripts.replace(" ", "").partition("->")
            summed = [
                [i for i, letter in enumerate(letters) if letter not in kept]
                for letters in inputs.split(",")
            ]
            operands = tuple(self._cut(a, axes) for a, axes in zip(operands, summed))
        return functools.partial(function, subscripts, *operands, **named)

    def _cut(self, array: Any, axes: Iterable[int]) -> Any:
        """Return the part of an array that is reduced; note the lengths of its reduced axes."""
        if self._part is None:
            self._lengths.update(dict.fromkeys([int(array.shape[axis]) for axis in axes]))
            return array
        return self._part.cut(array, axes)

    # Compiling

    def _compiled(self, function: types.FunctionType) -> types.FunctionType | None:
        try:
            return self._recompiled(function)
        except (OSError, SyntaxError, ValueError, RecursionError, TypeError):
            return None

    def _recompiled(self, function: types.FunctionType) -> types.FunctionType | None:
        code = function.__code__
        lines = linecache.getlines(code.co_filename) or inspect.getsource(function).splitlines(True)
        tree = ast.parse("".join(lines))
        node = _definition(tree, code)
        if node is None:
            return None
        free = list(code.co_freevars)
        cells = dict(zip(free, function.__closure__ or ()))
        mine: dict[str, object] = {_SEEN: self._seen, _NAMED: self._named, _CALLEE: self._callee}
        product = functools.partial(self._reduce, self._product, _matmul)
        mine |= {_NUMBER: self._number, _PRODUCT: product}
        instrumented = _Notes(code.co_filename).visit(node)
        text = _factory([*free, *mine], instrumented)
        module = compile(text, code.co_filename, "exec", dont_inherit=True)
        inner = _find_code(module, _INNER if isinstance(node, ast.FunctionDef) else code.co_name)
        if inner is None:
            return None
        inner = inner.replace(co_name=code.co_name)
        cells |= {name: types.CellType(value) for name, value in mine.items()}
        closure = tuple(cells[name] for name in inner.co_freevars)
        made = types.FunctionType(
            inner, function.__globals__, function.__name__, function.__defaults__, closure
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return made


def _function_of(golden: Callable[..., object]) -> Any:
    """Return the Python function behind a golden: without decorators, or an object's `__call__`."""
    found = inspect.unwrap(golden)
    if isinstance(found, types.FunctionType | types.MethodType):
        return found
    call = getattr(found, "__call__", None)  # noqa: B004 - the method itself is wanted
    return call if isinstance(call, types.MethodType) else found


def _matmul(lhs: Any, rhs: Any) -> Any:
    return lhs @ rhs


def _is_of_arrays(function: object) -> bool:
    """Return whether a function, or the object of a method, belongs to NumPy or torch."""
    owner = getattr(function, "__self__", None)
    is_method = owner is not None and not isinstance(owner, types.ModuleType)
    kind: object = owner.__class__ if is_method else function
    module = str(getattr(kind, "__module__", None) or getattr(owner, "__name__", ""))
    return module.partition(".")[0] in ("numpy", "torch")


@functools.cache
def _foreign_folders() -> tuple[Path, ...]:
    folders = [sysconfig.get_paths()[k] for k in ("stdlib", "purelib", "platlib")]
    return tuple(Path(f).resolve() for f in (*folders, *site.getsitepackages()))


def _is_users(file: str) -> bool:
    path = Path(file)
    if file.startswith("<"):
        return bool(linecache.getlines(file))
    if not _PACKAGES.isdisjoint(path.parts):  # also those of another prefix, found by PYTHONPATH
        return False
    return not any(path.resolve().is_relative_to(folder) for folder in _foreign_folders())


def _definition(tree: ast.Module, code: types.CodeType) -> ast.AST | None:
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if first == code.co_firstlineno:
                found.append(node)
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            found += [node] if node.lineno == code.co_firstlineno else []
    return found[0] if len(found) == 1 else None


def _factory(names: list[str], node: ast.AST) -> ast.Module:
    """Build a module with a function whose parameters are the free names of the inner one.

    The inner function is renamed: a call of itself by its global name must not become a free name.
    """
    arguments = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    body: list[ast.stmt]
    if isinstance(node, ast.FunctionDef):
        node.decorator_list, node.name = [], _INNER
        body = [node]
    else:
        body = [ast.Expr(cast("ast.expr", node))]
    outer = ast.parse("def __tilelet_factory__(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args, outer.body = arguments, body
    return ast.fix_missing_locations(ast.Module([outer], []))


def _find_code(code: types.CodeType, name: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            found = _find_code(constant, name)
            if found is not None:
                return found
    return None


def _as_doubles(value: Any) -> list[tuple[Array, str]]:
    """Convert an array or tensor to double; a complex one becomes two."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.resolve_conj().numpy() if value.is_complex() else value.double().numpy()
    array = np.asarray(value)
    if array.size < 2 or array.dtype.kind in "iubOSUM":
        return []
    if array.dtype.kind == "c":
        parts = (np.real(array), ".real"), (np.imag(array), ".imag")
        return [(np.array(part, np.float64, order="C"), suffix) for part, suffix in parts]
    return [(np.array(array, np.float64, order="C"), "")]


def _call(at: Any, function: str, *args: Any) -> ast.Call:
    """Return a call at the place of a node; arguments are expressions or constants."""
    given = [a if isinstance(a, ast.expr) else ast.Constant(a) for a in args]
    return ast.copy_location(ast.Call(ast.Name(function, ast.Load()), given, []), at)


class _Notes(ast.NodeTransformer):
    """Wraps every expression that may be an array in a recorder, and records assignments."""

    def __init__(self, file: str) -> None:
        self._file = file

    def _noted(self, node: ast.expr, text: str) -> ast.expr:
        shown = text if len(text) <= 60 else text[:57] + "..."
        return _call(node, _SEEN, node, shown, self._file, node.lineno)

    def _expression(self, node: Any) -> ast.expr:
        text = ast.unparse(node)
        return self._noted(cast("ast.expr", self.generic_visit(node)), text)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        text = ast.unparse(node)
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            return self._noted(_call(node, _PRODUCT, node.left, node.right), text)
        whole = isinstance(node.op, ast.Mult | ast.Div)
        node.left, node.right = (self._operand(n, whole) for n in (node.left, node.right))
        return self._noted(node, text)

    def _operand(self, node: ast.expr, whole: bool) -> ast.expr:
        """Visit an operand; names and literals are recorded only as numbers.

        `whole` includes integers, for operands of multiplications and divisions.
        """
        if not isinstance(node, ast.Name | ast.Constant):
            return node
        return _call(node, _NUMBER, node, whole)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self._expression(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.attr not in ("T", "mT", "real", "imag", "H"):
            return cast("ast.expr", self.generic_visit(node))
        return self._expression(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if not isinstance(node.ctx, ast.Load):
            return cast("ast.expr", self.generic_visit(node))
        return self._expression(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        text = ast.unparse(node)
        self.generic_visit(node)
        is_super = isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "vars")
        if not is_super:
            node.func = _call(node.func, _CALLEE, node.func)
            node.args = [self._operand(n, whole=False) for n in node.args]
            for keyword in node.keywords:
                keyword.value = self._operand(keyword.value, whole=False)
        return self._noted(node, text)

    def _assigned(self, node: Any, targets: list[ast.expr]) -> Any:
        names = [n for t in targets for n in _names_of(t)]
        self.generic_visit(node)
        notes = [
            ast.copy_location(
                ast.Expr(_call(node, _NAMED, name, value, self._file, node.lineno)), node
            )
            for name in names
            for value in (ast.Name(name, ast.Load()),)
        ]
        return [node, *notes]

    def visit_Assign(self, node: ast.Assign) -> Any:
        return self._assigned(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        return self._assigned(node, [node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is None:
            return node
        return self._assigned(node, [node.target])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        # Defaults and annotations are not part of the computation.
        node.body = [part for statement in node.body for part in _as_list(self.visit(statement))]
        return node


def _as_list(found: Any) -> list[ast.stmt]:
    return cast("list[ast.stmt]", found) if isinstance(found, list) else [found]


def _names_of(target: ast.expr) -> list[str]:
    """Return the variables that an assignment changes: `x`, the `x` of `x[0] = ...`, tuples."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple | ast.List):
        return [n for element in target.elts for n in _names_of(element)]
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        return [target.value.id]
    return []
