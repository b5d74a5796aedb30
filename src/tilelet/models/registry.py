"""The programs that ship with Tilelet, by name: `qwen3/scope3`, or `qwen3/scope3:tuned`."""

from __future__ import annotations

import difflib
import importlib
from functools import cache
from types import MappingProxyType

from tilelet.models.qwen3.script import ShippedModel

# Each of these modules has a `MODEL`, whose name follows that of the package.
_MODULES = (
    "tilelet.models.qwen3.scope1",
    "tilelet.models.qwen3.scope2",
    "tilelet.models.qwen3.scope3",
    "tilelet.models.qwen3.decode",
    "tilelet.models.qwen3.prefill",
)


class UnknownModelError(LookupError):
    """No program, or no variant of it, has that name.

    what   "program" or "variant"
    name   the requested name
    known  all existing names
    """

    def __init__(self, what: str, name: str, known: list[str]) -> None:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(known)}"
        super().__init__(f"no {what} `{name}`: {hint}")
        self.what = what
        self.name = name
        self.known = known


@cache
def models() -> MappingProxyType[str, ShippedModel]:
    """Return all programs by name, in listing order."""
    found: dict[str, ShippedModel] = {}
    for module in _MODULES:
        family = module.split(".")[-2]
        model: ShippedModel = importlib.import_module(module).MODEL
        found[f"{family}/{model.name}"] = model
    return MappingProxyType(found)


def find(name: str, variant: str | None = None) -> tuple[ShippedModel, str]:
    """Return the program called `name`, and the variant: the default one if None is given."""
    if name not in models():
        raise UnknownModelError("program", name, list(models()))
    model = models()[name]
    if variant is None:
        return model, model.default
    if variant not in model.variants:
        raise UnknownModelError("variant", variant, list(model.variants))
    return model, variant


def resolve(name: str) -> tuple[ShippedModel, str]:
    """Resolve `qwen3/scope3:baseline`; without the variant, the default one."""
    program, colon, variant = name.partition(":")
    return find(program, variant if colon else None)
