"""Every op is complete: manual, inference, engine, and a place in `pl`."""

from __future__ import annotations

import inspect
import re

import pytest

import tilelet.language as pl
from tilelet.diag.catalogue.python import OpOutsideKernel
from tilelet.ir.spec import REGISTRY, Engine, Plane, Trait, spec_of

FUNCTIONS = [s for s in REGISTRY.values() if not s.structural and Trait.SCALAR not in s.traits]
# What `breakpoint()`, `pl.dump(...)` and `pl.max(tile, axis)` become.
HIDDEN = {"breakpoint", "dump", "tile.max", "tile.min", "tile.sum"}


def resolve(name: str) -> object:
    found: object = pl
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda s: s.name)
def test_manual_is_complete(spec):
    summary, *rest = spec.doc.split("\n\n")
    assert summary.strip().endswith((".", ":"))
    assert rest, "a manual has more than a summary"
    assert re.search(r"^Example: `.*`$", spec.doc, re.MULTILINE)
    for param in spec.signature.parameters:
        assert re.search(rf"\b{param}\b", spec.doc), f"`{param}` is not described"
    assert spec.engine in Engine
    assert spec.plane in Plane
    assert spec.era in ("SEED", "APR", "HEAD")


@pytest.mark.parametrize(
    "spec", [s for s in FUNCTIONS if s.name not in HIDDEN], ids=lambda s: s.name
)
def test_pl_offers_every_op(spec):
    function = resolve(spec.name)
    assert spec_of(function) is spec
    for p in inspect.signature(function).parameters.values():
        assert p.annotation is not p.empty, f"`{p.name}` has no annotation"
    with pytest.raises(OpOutsideKernel, match=re.escape(f"`pl.{spec.name}`")):
        function()


@pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda s: s.name)
def test_compute_ops_have_reference_and_valid_rule(spec):
    memory = {"load", "store", "create_tile", "get_block_idx", "get_block_num", "get_subblock_idx"}
    if spec.expands is not None:
        assert spec.reference is None
        assert spec.valid is None
    elif spec.plane is Plane.SCOPE and spec.name not in memory and "system" not in spec.name:
        assert spec.reference is not None
        assert spec.valid is not None or spec.writes


@pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda s: s.name)
def test_named_parameters_exist(spec):
    names = [*(spec.on_chip or ()), *spec.writes, *filter(None, [spec.view, spec.replaces])]
    assert set(names) <= set(spec.signature.parameters)


def test_namespaces_share_the_ops():
    assert pl.tensor.add is pl.add
    assert pl.tile.add is pl.add
    assert pl.tensor.create is pl.create_tensor
    assert pl.tile.create is pl.create_tile
    assert pl.tensor.read is pl.read
    assert pl.tile.MaskPattern is pl.MaskPattern
    assert pl.tile.get_block_idx is pl.get_block_idx
