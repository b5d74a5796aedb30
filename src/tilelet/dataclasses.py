"""`dataclasses` of the standard library, with a decorator that costs less at start-up.

The standard decorator writes up to six methods of a class as text and compiles each. A run of a
small program defines 160 such classes, which was a third of its start-up. This one compiles
`__init__` alone; the other methods are the same for all classes. Behavior is the standard one, for
the parameters that exist here, except that a class that inherits from a frozen one is frozen too.
Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import (
    MISSING,
    Field,
    FrozenInstanceError,
    asdict,
    astuple,
    field,
    fields,
    is_dataclass,
    replace,
)
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = [
    "MISSING",
    "Field",
    "asdict",
    "astuple",
    "dataclass",
    "field",
    "fields",
    "is_dataclass",
    "replace",
]

# File of compiled constructors: tracebacks leave out files of the package.
_CONSTRUCTORS = f"{__file__} (constructor)"

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Add the methods of a record to a class, as `dataclasses.dataclass` does."""
        if cls is None:
            return lambda cls: _add_methods(cls, **options)
        return _add_methods(cls, **options)


def _add_methods(
    cls: type,
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> type:
    written = dict(vars(cls))  # what the class defines itself is kept
    bare: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, kw_only=kw_only, slots=slots
    )
    cls = bare(cls)
    all_fields = fields(cls)
    methods: dict[str, object] = {}
    if init:
        methods["__init__"] = _init(cls, all_fields, frozen=frozen)
    if repr:
        methods["__repr__"] = _repr([f.name for f in all_fields if f.repr])
    if eq:
        methods["__eq__"] = _eq(_values([f.name for f in all_fields if f.compare]))
        hashed = [f.name for f in all_fields if (f.compare if f.hash is None else f.hash)]
        methods["__hash__"] = _hash(_values(hashed)) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
        if slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
    # Python sets `__hash__` to None in a class that defines `__eq__`: treat it as not written.
    if "__eq__" in written and written.get("__hash__", ...) is None:
        del written["__hash__"]
    for name, method in methods.items():
        if name == "__init__" or name not in written:
            setattr(cls, name, method)
    return cls


def _init(cls: type, all_fields: tuple[Field[Any], ...], *, frozen: bool) -> Callable[..., None]:
    """Return the constructor: fields in order, those that are keyword-only last."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for f in all_fields:
        value, default = f.name, f"_default_{f.name}"
        is_made = f.default_factory is not MISSING
        has_default = is_made or f.default is not MISSING
        names[default] = f.default_factory if is_made else f.default
        if f.init:
            parameter = f"{f.name}={'_missing' if is_made else default}" if has_default else f.name
            (keywords if f.kw_only else parameters).append(parameter)
            if is_made:
                value = f"{default}() if {f.name} is _missing else {f.name}"
        elif has_default:
            value = f"{default}()" if is_made else default
        else:
            continue  # `__post_init__` sets it
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if keywords:
        keywords.insert(0, "*")
    signature = ", ".join(["self", *parameters, *keywords])
    text = f"def __init__({signature}):\n " + "\n ".join(body or ["pass"])
    exec(compile(text, _CONSTRUCTORS, "exec"), names)  # noqa: S102
    made = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _values(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """Return a function that returns the named fields of a record."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _eq(values: Callable[[object], tuple[object, ...]]) -> Callable[[object, object], object]:
    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _hash(values: Callable[[object], tuple[object, ...]]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _repr(names: list[str]) -> Callable[[object], str]:
    @reprlib.recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _refuse_assignment(_self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, f.name) for f in fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for f, value in zip(fields(self), state):
        object.__setattr__(self, f.name, value)
