"""Every op of the registry has C, runs in Python, or is listed here with the reason it does not."""

from __future__ import annotations

import tilelet.ops  # noqa: F401
from tilelet.cpu import control, kernel, program  # noqa: F401
from tilelet.cpu.ops_host import HOST_OPS
from tilelet.ir.spec import REGISTRY, Plane

# Ends of blocks, which their owners write; calls inside kernels, which are inlined before; and
# breakpoints, with which a program is interpreted.
NOT_IN_KERNELS = {"yield", "return", "call", "scope", "breakpoint"}
# In the control program an assemble has become a window or a task.
NOT_IN_CONTROL = {"yield", "return", "breakpoint", "assemble"}
ONLY_CONTROL = {"array.create", "array.get", "array.set"}


def test_every_op_of_a_kernel_is_covered() -> None:
    ops = {n for n, s in REGISTRY.items() if s.plane is not Plane.CONTROL}
    assert ops - set(kernel.EMITTERS) == NOT_IN_KERNELS | ONLY_CONTROL


def test_every_op_of_the_control_program_is_covered() -> None:
    ops = {n for n, s in REGISTRY.items() if s.plane is not Plane.SCOPE}
    assert ops - set(control.EMITTERS) == NOT_IN_CONTROL


def test_nothing_is_covered_that_does_not_exist() -> None:
    assert set(kernel.EMITTERS) | set(control.EMITTERS) | set(HOST_OPS) <= set(REGISTRY)
