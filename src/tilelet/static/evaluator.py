"""Evaluate Python expressions and simple functions without executing the file they stand in.

Values are numbers, text, containers, records, functions of the file, and objects of the language.
Attributes and callables are limited to lists below, results to a size, and work is counted by
`analysis.patience`, so hostile text can neither reach the machine nor occupy it.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import math
import operator
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn, cast

from tilelet.analysis import patience
from tilelet.dataclasses import dataclass, field
from tilelet.diag.core import Loc
from tilelet.dtypes import DType
from tilelet.frontend.compile_time import Python
from tilelet.frontend.emitting import fold
from tilelet.frontend.expressions import BINARY, COMPARE, MAX_TUPLE_ITEMS, UNARY, tree_size
from tilelet.frontend.functions import KernelFunction
from tilelet.frontend.jit import JitFunction
from tilelet.frontend.source import defaults_in
from tilelet.ir.types import SymDim
from tilelet.language import distributed

MAX_ITEMS = MAX_TUPLE_ITEMS
"""Largest container, range or text that evaluation may create."""
MAX_DEPTH = 40
"""Nesting of calls; Python's own limit would be reached at a depth that differs by version."""


class NotEvaluatedError(Exception):
    """An expression that is not evaluated, because that could execute code or take too long."""


class _Returned(Exception):  # noqa: N818 - control flow
    def __init__(self, value: object) -> None:
        self.value = value


@dataclass(frozen=True)
class Unknown:
    """A name whose value is not known without executing Python; `why` and `loc` say which."""

    name: str
    why: str
    loc: Loc


@dataclass(frozen=True)
class PlainInstance:
    """An instance of a plain class with fields, such as a dataclass of sizes."""

    kind: RecordClass
    fields: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RecordClass:
    """A class that only has fields and methods made of simple statements."""

    name: str
    defaults: Mapping[str, Any]
    field_names: tuple[str, ...]
    properties: Mapping[str, TextFunction]
    methods: Mapping[str, TextFunction]


@dataclass(eq=False)
class TextFunction:
    """A function of the file that was not decorated, given as text."""

    node: ast.FunctionDef
    scope: Scope

    @property
    def name(self) -> str:
        return self.node.name


@dataclass
class Scope:
    """Names with their values; those of an enclosing scope are visible."""

    file: str
    names: dict[str, Any] = field(default_factory=dict[str, Any])
    outer: Scope | None = None
    define: Callable[[Scope, ast.stmt], bool] = lambda _, __: False

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        try:
            return HOST.builtin(name)
        except AttributeError:
            raise NotEvaluatedError(f"`{name}` is not defined") from None

    def chain(self) -> ChainMap[str, Any]:
        """Return all names, inner ones over outer ones, with the values they have when read."""
        outer = self.outer.chain().maps if self.outer else []
        return ChainMap(self.names, *outer)


def _items(value: object) -> list[Any]:
    """Return the items of an iterable value, counted."""
    if isinstance(value, Mapping):
        value = list(cast("Mapping[Any, Any]", value))
    if not isinstance(value, (list, tuple, set, frozenset, range, str, zip, enumerate)):
        raise NotEvaluatedError(f"a `{type(value).__name__}` is not looped over")
    found = list(cast("Iterable[Any]", value))
    for _ in range(1 + len(found) // 16):
        patience.step()
    return found


def check_size(value: object) -> Any:
    """Return a container; refuse it if it has too many items, nested ones included."""
    if tree_size(value) > MAX_ITEMS:
        refuse("it has too many items")
    return value


def _range(*args: int) -> range:
    made = range(*args)
    if len(made) > MAX_ITEMS:
        raise NotEvaluatedError(f"a range of {len(made)} items is too long")
    return made


def _limit_arguments(function: Callable[..., object]) -> Callable[..., Any]:
    """Let a function take only numbers of ordinary size and containers that are counted."""

    def call(*args: object, **named: object) -> Any:
        for value in (*args, *named.values()):
            if isinstance(value, int) and value.bit_length() > 4096:
                raise NotEvaluatedError("the number is too large")
            if not isinstance(value, (int, float)) and value is not None:
                _items(value)
        return check_size(function(*args, **named))

    return call


def _sum(values: object, start: Any = 0) -> Any:
    items = _items(values)
    if not all(isinstance(v, (int, float)) for v in (start, *items)):
        raise NotEvaluatedError("only numbers are added up")
    return sum(items, start)


def _str(value: object = "") -> str:
    return str(_check_plain(value))


def _power(a: object, b: object) -> Any:
    return fold("pow", a, b)


_SIMPLE = (abs, all, any, bool, divmod, enumerate, float, frozenset, int, len, list, max, min,
           round, set, sorted, str, sum, tuple, zip)  # fmt: skip
_BUILTINS: dict[str, object] = {
    **{f.__name__: _limit_arguments(f) for f in _SIMPLE},
    "range": range, "sum": sum, "pow": _power, "True": True, "False": False, "None": None,
    "int": int, "float": float, "bool": bool, "str": str, "len": len, "tuple": tuple, "list": list,
}  # fmt: skip
"""The builtins that text may name. Types stand for themselves: annotations name them, too."""

_MATH = ("ceil", "cos", "exp", "exp2", "floor", "fabs", "fmod", "gcd", "isqrt", "isfinite", "lcm",
         "log", "log10", "log1p", "log2", "pow", "sin", "sqrt", "tan", "tanh", "trunc")  # fmt: skip
_CALLABLE: dict[int, Callable[..., object]] = {
    **{id(f): _limit_arguments(f) for f in _SIMPLE},
    **{id(getattr(math, n)): _limit_arguments(getattr(math, n)) for n in _MATH if hasattr(math, n)},
    **{id(f): f for f in _BUILTINS.values() if callable(f) and not isinstance(f, type)},
    id(len): _limit_arguments(len),
    id(range): _range,
    id(sum): _sum,
    id(str): _str,
}
"""What is run for a callable that text may call, by its identity."""

_METHODS: dict[type, tuple[str, ...]] = {
    str: ("count", "endswith", "index", "lower", "split", "startswith", "strip", "upper"),
    tuple: ("count", "index"),
    list: ("count", "index"),
    dict: ("get", "items", "keys", "values"),
    int: ("bit_length",),
    float: ("is_integer",),
}
_DATA_MODULES = ("tilelet.syntax.", "tilelet.language.optimizations")
"""Modules of the language whose functions and classes only make plain data."""
_DATA = (enum.Enum, DType, SymDim)
"""Objects of the language whose attributes are plain data."""


def _is_language(value: object) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith("tilelet.language")


def _is_of_language(value: object) -> bool:
    """Return whether an attribute of a `pl` module is a name of the language."""
    if isinstance(value, ModuleType):
        return _is_language(value)
    home = getattr(value, "__module__", None) or type(value).__module__
    return home.startswith(("tilelet.", "typing")) or isinstance(value, (int, str, *_DATA))


class Guarded(Python):
    """Evaluates compile-time Python of text that is not executed."""

    def builtin(self, name: str) -> Any:
        if name not in _BUILTINS:
            raise AttributeError(name)
        return _BUILTINS[name]

    def attribute(self, base: object, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if _is_language(base):
            found = getattr(base, name)
            if _is_of_language(found):
                return found
            raise AttributeError(name)
        if base is math and (name in _MATH or name in ("pi", "e", "inf", "nan", "tau")):
            return getattr(math, name)
        if isinstance(base, PlainInstance):
            return self._field(base, name)
        if isinstance(base, type) and base.__module__.startswith("tilelet."):
            return getattr(base, name)
        if isinstance(base, _DATA) or type(base).__module__.startswith("tilelet.syntax"):
            found = getattr(cast("Any", base), name)
            if not callable(found):
                return found
        if name in _METHODS.get(type(base), ()):
            return getattr(base, name)
        if isinstance(base, (KernelFunction, JitFunction)) and name == "name":
            return base.name
        raise AttributeError(name)

    def _field(self, base: PlainInstance, name: str) -> object:
        if name in base.fields:
            return base.fields[name]
        if name in base.kind.properties:
            return self.run(base.kind.properties[name], [base], {})
        if name in base.kind.methods:
            return _Method(base, base.kind.methods[name])
        raise AttributeError(name)

    def call(
        self, callee: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Any:
        patience.step()
        found: object = callee
        if isinstance(found, TextFunction):
            return self.run(found, args, kwargs)
        if isinstance(found, _Method):
            return self.run(found.function, [found.record, *args], kwargs)
        if isinstance(found, RecordClass):
            return _instance(found, args, kwargs)
        if id(callee) in _CALLABLE:
            return _CALLABLE[id(callee)](*args, **kwargs)
        owner: object = getattr(callee, "__self__", None)
        named = getattr(callee, "__name__", "")
        if owner is not None and named in _METHODS.get(owner.__class__, ()):
            return callee(*args, **kwargs)
        if str(getattr(callee, "__module__", "")).startswith(_DATA_MODULES):
            return callee(*args, **kwargs)
        raise NotEvaluatedError(f"`{named or type(callee).__name__}(...)` is not called")

    def expression(self, node: ast.expr, file: str, names: Mapping[str, object]) -> Any:
        return evaluate(node, Scope(file, dict(names)))

    def run(
        self, function: TextFunction, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Any:
        """Run a function made of simple statements."""
        spec = function.node.args
        if spec.vararg or spec.kwarg or len(args) > len(spec.posonlyargs) + len(spec.args):
            refuse(f"`{function.name}` is not called")
        params = [*spec.posonlyargs, *spec.args]
        inner = Scope(function.scope.file, {}, function.scope, function.scope.define)
        for p, d in defaults_in(spec):
            inner.names[p.arg] = evaluate(d, function.scope)
        inner.names.update(zip([p.arg for p in params], args))
        inner.names.update(kwargs)
        if any(p.arg not in inner.names for p in (*params, *spec.kwonlyargs)):
            refuse(f"`{function.name}` lacks an argument")
        with _deeper():
            try:
                for s in function.node.body:
                    execute(s, inner)
            except _Returned as returned:
                return returned.value
        return None


_depth = 0


@contextlib.contextmanager
def _deeper() -> Generator[None]:
    global _depth  # noqa: PLW0603 - one evaluation at a time
    if _depth >= MAX_DEPTH:
        refuse("calls are nested too deeply")
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


@dataclass(frozen=True)
class _Method:
    record: PlainInstance
    function: TextFunction


HOST = Guarded()


def refuse(why: str) -> NoReturn:
    raise NotEvaluatedError(why)


def _instance(
    kind: RecordClass, args: Sequence[object], kwargs: Mapping[str, object]
) -> PlainInstance:
    given = {**kind.defaults, **dict(zip(kind.field_names, args)), **kwargs}
    if set(given) != set(kind.field_names) or len(args) > len(kind.field_names):
        refuse(f"`{kind.name}(...)` does not give exactly its fields")
    return PlainInstance(kind, given)


def replace_fields(record: object, /, **changes: object) -> PlainInstance:
    """`dataclasses.replace` for records."""
    if not isinstance(record, PlainInstance):
        refuse("`replace` changes records only")
    return _instance(record.kind, (), {**record.fields, **changes})


_CALLABLE[id(replace_fields)] = replace_fields


# --- expressions ---------------------------------------------------------------------------------


def evaluate(node: ast.expr, scope: Scope) -> Any:
    """Return the value of an expression; `NotEvaluatedError` if it is outside the safe subset."""
    patience.step()
    rule = _RULES.get(type(node))
    if rule is None:
        refuse(f"`{type(node).__name__}` is not evaluated")
    try:
        return rule(node, scope)
    except (NotEvaluatedError, patience.OutOfSteps):
        raise
    except RecursionError:
        raise NotEvaluatedError("it is nested too deeply") from None
    except Exception as problem:
        raise NotEvaluatedError(f"{type(problem).__name__}: {problem}") from None


def _name(node: ast.Name, scope: Scope) -> object:
    found = scope.find(node.id)
    if isinstance(found, Unknown):
        refuse(f"`{node.id}` is not known: {found.why}")
    return found


def _attribute(node: ast.Attribute, scope: Scope) -> object:
    base = evaluate(node.value, scope)
    try:
        return HOST.attribute(base, node.attr)
    except AttributeError:
        refuse(f"attribute `{node.attr}` of a `{type(base).__name__}` is not read")


def _call(node: ast.Call, scope: Scope) -> object:
    args: list[object] = []
    for a in node.args:
        args += (
            _items(evaluate(a.value, scope)) if isinstance(a, ast.Starred) else [evaluate(a, scope)]
        )
    if any(k.arg is None for k in node.keywords):
        refuse("`**` is not evaluated")
    kwargs = {str(k.arg): evaluate(k.value, scope) for k in node.keywords}
    return HOST.call(evaluate(node.func, scope), args, kwargs)


def _sequence(node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> object:
    found: list[object] = []
    for e in node.elts:
        found += (
            _items(evaluate(e.value, scope)) if isinstance(e, ast.Starred) else [evaluate(e, scope)]
        )
    return check_size({ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)](found))


def _dict(node: ast.Dict, scope: Scope) -> object:
    if any(k is None for k in node.keys):
        refuse("`**` is not evaluated")
    keys = [k for k in node.keys if k is not None]
    return check_size({evaluate(k, scope): evaluate(v, scope) for k, v in zip(keys, node.values)})


def _subscript(node: ast.Subscript, scope: Scope) -> object:
    base = evaluate(node.value, scope)
    index = evaluate(node.slice, scope)
    is_container = isinstance(base, (list, tuple, dict, str, range))
    of_language = isinstance(base, type) and base.__module__.startswith("tilelet.syntax")
    if not is_container and not of_language and base not in (list, tuple, dict, set):
        refuse(f"a `{type(base).__name__}` is not subscripted")
    return cast("Any", base)[index]


def _slice(node: ast.Slice, scope: Scope) -> object:
    parts = (node.lower, node.upper, node.step)
    return slice(*(None if p is None else evaluate(p, scope) for p in parts))


def _compare(node: ast.Compare, scope: Scope) -> bool:
    left = evaluate(node.left, scope)
    for op, right_node in zip(node.ops, node.comparators):
        right = evaluate(right_node, scope)
        match op:
            case ast.Is() | ast.IsNot():
                holds = (left is right) == isinstance(op, ast.Is)
            case ast.In() | ast.NotIn():
                inside: object = right if isinstance(right, str) else _items(right)
                holds = operator.contains(inside, left) == isinstance(op, ast.In)
            case _:
                holds = bool(fold(COMPARE[type(op)], left, right))
        if not holds:
            return False
        left = right
    return True


def _boolean(node: ast.BoolOp, scope: Scope) -> object:
    value: Any = None
    for part in node.values:
        value = evaluate(part, scope)
        if bool(value) == isinstance(node.op, ast.Or):
            return value
    return value


def _comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> object:
    found = [evaluate(node.elt, inner) for inner in _each(node.generators, scope)]
    return check_size(set(found) if isinstance(node, ast.SetComp) else found)


def _dict_comprehension(node: ast.DictComp, scope: Scope) -> object:
    inner = _each(node.generators, scope)
    return check_size({evaluate(node.key, at): evaluate(node.value, at) for at in inner})


def _each(generators: Sequence[ast.comprehension], scope: Scope) -> Iterator[Scope]:
    if not generators:
        yield scope
        return
    first, *rest = generators
    for item in _items(evaluate(first.iter, scope)):
        inner = Scope(scope.file, {}, scope, scope.define)
        assign(first.target, item, inner)
        if all(evaluate(c, inner) for c in first.ifs):
            yield from _each(rest, inner)


def _text(node: ast.JoinedStr, scope: Scope) -> str:
    parts: list[str] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            if part.format_spec is not None:
                refuse("a format is not evaluated")
            parts.append(str(_check_plain(evaluate(part.value, scope))))
        else:
            parts.append(str(evaluate(part, scope)))
    return "".join(parts)


def _check_plain(value: object) -> Any:
    if not isinstance(value, (str, int, float, DType)):
        refuse("only text and numbers are formatted")
    return value


_RULES: dict[type[ast.AST], Callable[[Any, Scope], Any]] = {
    ast.Constant: lambda node, _: node.value,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.BinOp: lambda n, s: fold(BINARY[type(n.op)], evaluate(n.left, s), evaluate(n.right, s)),
    ast.UnaryOp: lambda n, s: fold(UNARY[type(n.op)], evaluate(n.operand, s)),
    ast.IfExp: lambda n, s: evaluate(n.body if evaluate(n.test, s) else n.orelse, s),
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _dict_comprehension,
    ast.JoinedStr: _text,
}


# --- statements ----------------------------------------------------------------------------------


def assign(target: ast.expr, value: object, scope: Scope) -> None:
    """Bind a name, or the names of a tuple."""
    if isinstance(target, ast.Name):
        scope.names[target.id] = value
        return
    if isinstance(target, ast.Attribute):
        module = evaluate(target.value, scope)
        if isinstance(module, PlainInstance) and isinstance(module.fields, dict):
            module.fields[target.attr] = value
            return
    if not isinstance(target, (ast.Tuple, ast.List)):
        refuse("only names are assigned")
    values = _items(value)
    if len(values) != len(target.elts):
        refuse("it unpacks another number of values")
    for part, item in zip(target.elts, values):
        assign(part, item, scope)


def execute(s: ast.stmt, scope: Scope) -> None:
    """Run one simple statement; `NotEvaluatedError` for any other."""
    patience.step()
    match s:
        case ast.Assign():
            value = evaluate(s.value, scope)
            for target in s.targets:
                assign(target, value, scope)
        case ast.AnnAssign():
            if s.value is not None:
                assign(s.target, evaluate(s.value, scope), scope)
        case ast.AugAssign(target=ast.Name(id=name)):
            value = fold(BINARY[type(s.op)], scope.find(name), evaluate(s.value, scope))
            scope.names[name] = value
        case ast.If():
            _execute_all(s.body if evaluate(s.test, scope) else s.orelse, scope)
        case ast.For(orelse=[]):
            for item in _items(evaluate(s.iter, scope)):
                assign(s.target, item, scope)
                _execute_all(s.body, scope)
        case ast.While(orelse=[]):
            while evaluate(s.test, scope):
                _execute_all(s.body, scope)
        case ast.Return():
            raise _Returned(None if s.value is None else evaluate(s.value, scope))
        case ast.Pass() | ast.Assert() | ast.Expr(value=ast.Constant()):
            pass
        case _:
            if not scope.define(scope, s):
                refuse(f"`{type(s).__name__}` is not executed")


def _execute_all(statements: Sequence[ast.stmt], scope: Scope) -> None:
    for s in statements:
        execute(s, scope)


def namespace(name: str, values: dict[str, Any]) -> PlainInstance:
    """Return a module as a value whose attributes are its names."""
    return PlainInstance(RecordClass(name, {}, (), {}, {}), values)


def plain_modules(file: str) -> dict[str, Any]:
    """Return what library modules contain in a run without arguments and environment."""
    return {
        "math": math,
        "dataclasses": namespace("dataclasses", {"replace": replace_fields}),
        "sys": namespace("sys", {"argv": [file]}),
        "os": namespace("os", {"environ": {}}),
    }


def language_modules() -> dict[str, ModuleType]:
    """Return the modules of the language by the names under which files import them."""
    from tilelet import language

    found: dict[str, ModuleType] = {}
    for root in ("tilelet", "pypto"):
        found[f"{root}.language"] = language
        found[f"{root}.language.distributed"] = distributed
    return found
