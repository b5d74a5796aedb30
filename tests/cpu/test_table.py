"""Every op of the registry has C, runs in Python, or is listed here with a reason."""

from __future__ import annotations

import tilelet.ops  # noqa: F401
from tilelet.cpu.emit import control, kernel, program  # noqa: F401
from tilelet.cpu.emit.kernel import BY_REFERENCE
from tilelet.ir.spec import REGISTRY, Plane

# Terminators, which their owners write; calls inside kernels, which are inlined earlier; and
# breakpoints, which make a program run on the interpreter.
NOT_IN_KERNELS = {"yield", "return", "call", "scope", "breakpoint"}
# Rare ops that move elements by data or pack bits; the host applies their references.
BY_HOST = {
    "gather", "gather_mask", "gatherb", "mgather", "mscatter", "scatter", "scatter_mask",
    "scatter_update", "sort32", "mrgsort", "col_argmax", "col_argmin",
    "part_add", "part_mul", "part_max", "part_min", "paged_gather", "random", "tile.tri",
    "tile.cmp", "tile.cmps", "tile.sel", "tile.sels",
    "load_scale", "matmul_mx", "matmul_mx_acc", "matmul_mx_bias", "quant_mx", "tquant",
}  # fmt: skip
# In the control program an assemble has become a window or a task.
NOT_IN_CONTROL = {"yield", "return", "breakpoint", "assemble"}


def test_every_op_of_a_kernel_is_covered() -> None:
    ops = {n for n, s in REGISTRY.items() if s.plane is not Plane.CONTROL and not s.expands}
    assert ops - set(kernel.EMITTERS) == NOT_IN_KERNELS | BY_HOST
    assert all(REGISTRY[n].reference for n in BY_HOST)


def test_every_op_of_the_control_program_is_covered() -> None:
    ops = {n for n, s in REGISTRY.items() if s.plane is not Plane.SCOPE and not s.expands}
    assert ops - set(control.EMITTERS) == NOT_IN_CONTROL


def test_nothing_is_covered_that_does_not_exist() -> None:
    emitted = {n for n, s in REGISTRY.items() if not s.expands}
    assert set(kernel.EMITTERS) | set(control.EMITTERS) <= emitted | {BY_REFERENCE}
