"""Support of each public name and parameter of the language; docs/compatibility.md.

`dialects/2026-08.json` lists the names of the language as of August 2026 and of their parameters,
those after `|` by keyword only. Everything else is derived from the code.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilelet import language
from tilelet.dataclasses import dataclass
from tilelet.diag.catalogue.ops import UnknownKeyword, UnknownOp
from tilelet.diag.catalogue.python import BadDecorator
from tilelet.diag.catalogue.scopes import LevelWithRole
from tilelet.diag.catalogue.unsupported import ExternalKernel
from tilelet.diag.core import UNKNOWN, UserError
from tilelet.dialects.data import AUGUST
from tilelet.ir.spec import spec_of
from tilelet.ops import spellings
from tilelet.syntax import unsupported

SUPPORTED, NO_EFFECT, REFUSED = "supported", "without effect", "refused"

_SCHEDULING = "it only changes how a device schedules"
_RECORDS = "a record that only a board makes; `pl.dump` prints values"
_HINT = "a hint to a device's compiler"
_PIPES = "pipes between cores are queues here, with room for all"
_SETUP = "c2v_consumer_buf v2c_consumer_buf dir_mask slot_size slot_num local_slot_num id span"
_DESCRIBES = "it describes what the program makes; data is row-major here"
_PLACE = "a place in the source, which is known here"

_WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "at": {
        "dumps": _RECORDS,
        "allow_early_resolve": _SCHEDULING,
        "windowize": _SCHEDULING,
    },
    "spmd": {"sync_start": _SCHEDULING, "allow_early_resolve": _SCHEDULING},
    "submit": {"dumps": _RECORDS, "allow_early_resolve": _SCHEDULING},
    "spmd_submit": {
        "dumps": _RECORDS,
        "allow_early_resolve": _SCHEDULING,
        "sync_start": _SCHEDULING,
    },
    **{
        f"{namespace}{name}": dict.fromkeys(parameters.split(), _PIPES)
        for namespace in ("", "system.", "tile.")
        for name, parameters in {
            "tpush_to_aiv": "split lane_stride span",
            "tpush_to_aic": "split span",
            "tpop_from_aic": "split lane_stride span",
            "tpop_from_aiv": "split span",
            "tfree_to_aic": "tile span split id",
            "tfree_to_aiv": "tile span split id",
            "aic_initialize_pipe": _SETUP,
            "aiv_initialize_pipe": _SETUP,
            "reserve_buffer": "name size base span",
            "import_peer_buffer": "name peer_func span",
            "syncall": "core_type mode gm_workspace used_cores span",
            "aiv_shard": "span",
            "aic_gather": "span",
        }.items()
    },
    "dump_tag": {"tensor": _RECORDS},
    "tensor.dump_tag": {"tensor": _RECORDS},
    "func_attr": {"attrs": _HINT},
    "parse": {"source_map": _PLACE},
    "TensorView": dict.fromkeys(["stride", "layout", "valid_shape", "pad"], _DESCRIBES),
    "TileView": dict.fromkeys(
        ["stride", "start_offset", "blayout", "slayout", "fractal", "pad", "compact"], _DESCRIBES
    ),
    "jit.inline": {"auto_scope": _SCHEDULING},
    "jit.host": {"auto_scope": _SCHEDULING},
    "split": {"slot_num": _HINT},
    "optimizations.split": {"slot_num": _HINT},
    "optimizations.cross_core_slot": {"slot_num": _HINT},
    "cross_core_slot": {"slot_num": _HINT},
    "function": {"attrs": _HINT, "auto_scope": _SCHEDULING},
    "create_tensor": {"layout": spellings.LAYOUT, "manual_dep": _SCHEDULING},
    "tensor.create": {"layout": spellings.LAYOUT, "manual_dep": _SCHEDULING},
}
_REFUSED = {
    ("at", "role"): LevelWithRole,
    ("function", "level"): BadDecorator,
    ("function", "role"): BadDecorator,
    ("function", "external_source"): ExternalKernel,
}


@dataclass(frozen=True)
class Support:
    """Support of a name or parameter. `why`: the reason, or the code of the error."""

    name: str
    parameter: str | None
    state: str
    why: str = ""


def names() -> dict[str, str]:
    """Return the public names of the language with their parameter names."""
    return dict(AUGUST.names)


def findings() -> Iterator[Support]:
    """Yield the support of every name and of its parameters."""
    for name, parameters in names().items():
        value, refusal = look_up(name)
        if refusal is not None:
            yield Support(name, None, REFUSED, refusal)
            continue
        yield Support(name, None, SUPPORTED)
        for parameter in parameters.replace("|", "").split():
            yield _parameter(name, value, parameter.lstrip("*"))


def look_up(name: str) -> tuple[Any, str | None]:
    """Return the value of `pl.NAME`, or the code of its error."""
    value: Any = language
    try:
        for part in name.split("."):
            value = getattr(value, part)
    except UserError as error:
        return None, error.diagnostic.code
    except AttributeError:
        try:
            unsupported.check(name, UNKNOWN)
        except UserError as error:
            return None, error.diagnostic.code
        return None, UnknownOp.code
    return value, None


def _parameter(name: str, value: Any, parameter: str) -> Support:
    spec = spec_of(value)
    why = _WITHOUT_EFFECT.get(name, {}).get(parameter)
    if why is None and spec is not None:
        why = spellings.without_effect(spec).get(parameter) or _scratch(parameter)
    if why is not None:
        return Support(name, parameter, NO_EFFECT, why)
    refusal = _REFUSED.get((name, parameter))
    if refusal is not None:
        return Support(name, parameter, REFUSED, refusal.code)
    known = inspect.signature(value).parameters if spec is None else spec.signature.parameters
    meant = parameter if spec is None else spellings.parameter_of_keyword(spec, parameter)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in known.values())
    takes_any = takes_any or spec is not None  # `*args` of the language are named parameters here
    if meant in known or (takes_any and parameter in ("args", "kwargs")):
        return Support(name, parameter, SUPPORTED)
    return Support(name, parameter, REFUSED, UnknownKeyword.code)


def _scratch(parameter: str) -> str | None:
    return spellings.SCRATCH if parameter in ("tmp", "tmp_tile") else None


def compatibility_markdown() -> str:
    """Return the contents of docs/compatibility.md: `compatibility.md`, filled in."""
    found = list(findings())
    names = [f for f in found if f.parameter is None]
    taken = [f for f in found if f.parameter is not None]
    supported = [f"`pl.{f.name}`" for f in names if f.state == SUPPORTED]
    refused, ignored = (
        [f"| `pl.{f.name}` | `{f.parameter}` | {f.why} |" for f in taken if f.state == state]
        for state in (REFUSED, NO_EFFECT)
    )
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        names=len(names),
        supported=len(supported),
        parameters=len(taken),
        taken=sum(f.state == SUPPORTED for f in taken),
        ignored=len(ignored),
        refused=len(refused),
        refused_names="\n".join(
            f"| `pl.{f.name}` | {f.why} |" for f in names if f.state == REFUSED
        ),
        refused_parameters="\n".join(refused),
        ignored_parameters="\n".join(ignored),
        supported_names=", ".join(supported),
    )
