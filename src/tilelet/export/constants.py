"""Global names of a kernel in a script: named constants and literals."""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Sequence
from typing import cast

import numpy as np

from tilelet.dataclasses import dataclass, field
from tilelet.dtypes import DType
from tilelet.ir.core import Const
from tilelet.ir.spec import spec_of
from tilelet.ir.types import SymDim
from tilelet.syntax import markers

LANGUAGE = "pl"


def is_language(value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__.startswith("tilelet.")


def literal(value: object) -> str | None:
    """Return a compile-time value as script-independent text, or None."""
    if isinstance(value, np.generic):
        value = cast("object", value.item())
    if isinstance(value, enum.Enum):
        return f"{LANGUAGE}.{type(value).__name__}.{value.name}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, DType):
        return f"{LANGUAGE}.{value.name.upper()}"
    if isinstance(value, Const):
        return f"{LANGUAGE}.const({value.value!r}, {literal(value.dtype)})"
    if isinstance(value, (list, tuple)):
        items = [literal(item) for item in cast("Sequence[object]", value)]
        if any(item is None for item in items):
            return None
        text = ", ".join(cast("list[str]", items))
        return f"[{text}]" if isinstance(value, list) else f"({text}{',' * (len(items) == 1)})"
    spec = spec_of(value)
    if spec is not None:
        return f"{LANGUAGE}.{spec.name}"
    name = getattr(value, "__name__", "")
    if name in markers.__all__ and getattr(markers, name) is value:
        return f"{LANGUAGE}.{name}"
    return None


@dataclass
class Constants:
    """Named constants above the kernels, and names that are otherwise taken.

    A name has one meaning in the script: a second constant of that name gets the function's name as
    a prefix.
    """

    taken: set[str] = field(default_factory=set[str])
    values: dict[str, object] = field(default_factory=dict[str, object])

    def text(self, name: str, value: object, owner: str) -> str | None:
        """Return the text for `name`, which is `value` in the function `owner`."""
        if isinstance(value, np.generic):
            value = cast("object", value.item())
        if isinstance(value, SymDim) or (
            isinstance(value, (int, float)) and not isinstance(value, bool)
        ):
            return self._named(name, value, owner)
        return literal(value)

    def _named(self, name: str, value: object, owner: str) -> str:
        plain = name if name.isupper() else name.upper()
        candidates = [plain, f"{owner.upper()}_{plain}"]
        number = 2
        while True:
            for candidate in candidates:
                known = self.values.get(candidate)
                if candidate in self.values and _are_same(known, value):
                    return candidate
                if candidate not in self.values and candidate not in self.taken:
                    self.values[candidate] = value
                    return candidate
            candidates = [f"{plain}_{number}"]
            number += 1

    def lines(self) -> list[str]:
        """Return the definitions of the constants."""
        return [f"{name} = {_definition(value)}" for name, value in self.values.items()]


def _are_same(a: object, b: object) -> bool:
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        return a is b
    return type(a) is type(b) and repr(a) == repr(b)


def _definition(value: object) -> str:
    return f'{LANGUAGE}.dynamic("{value.name}")' if isinstance(value, SymDim) else repr(value)
