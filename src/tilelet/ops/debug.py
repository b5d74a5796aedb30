"""`breakpoint()` in a kernel."""

from __future__ import annotations

from tilelet.ir.types import Type
from tilelet.ops.registry import Call, OpSpec, Plane, register


def _no_results(_: Call) -> tuple[Type, ...]:
    return ()


BREAKPOINT = register(
    OpSpec(
        "breakpoint",
        _no_results,
        plane=Plane.BOTH,
        doc="""Look at the values of a kernel while it runs.

        Arguments (set by the frontend): `values`, the values visible at the statement, and
        `names`, what the source calls them.
        """,
        group="debug",
    )
)
