"""Check a program's source against a dialect."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tilelet.diag.core import Caution, Diagnostic, Loc, UserError
from tilelet.dialects import operands, rules, tiles, views
from tilelet.dialects.data import Dialect
from tilelet.dialects.reading import Reader
from tilelet.frontend.module import SourceOrigin
from tilelet.ir.core import Program


def check(
    program: Program, dialect: Dialect, compared: Collection[str] | None = None
) -> list[Diagnostic]:
    """Return all findings in source order, one per location.

    `compared` are the parameters whose values are used after a run; None means all. `program` is
    the frontend's output; passes are not needed, but harmless. A program without source, such as a
    parsed dump, has no findings.
    """
    origin = program.origin
    if not isinstance(origin, SourceOrigin):
        return []
    reader = Reader(program, origin)
    sites = reader.read()
    found: list[UserError] = list(rules.signature(program, origin, dialect, compared))
    producers = operands.Producers(program)
    for site in sites:
        found += rules.at_site(site, dialect)
        found += operands.at_site(site, producers, dialect)
    found += operands.regions(program, dialect)
    found += views.loads(program, origin, reader, dialect)
    found += tiles.kernels(program, reader.regions, dialect)
    return _deduplicate(found)


def _deduplicate(found: list[UserError]) -> list[Diagnostic]:
    """Keep one finding per mistake and location, however often a helper is called."""
    kept: dict[tuple[str, Loc | None, str], Diagnostic] = {}
    for error in found:
        d = error.diagnostic
        place = d.loc and dataclasses.replace(d.loc, caller=None)
        kept.setdefault((d.code, place, d.message), d)
    cautions = [d for d in kept.values() if d.severity == Caution.severity]
    return [d for d in kept.values() if d.severity != Caution.severity] + cautions
