"""Plans of the kernels of a program, for tests."""

from __future__ import annotations

from tilelet.cpu.emit.program import emit_program
from tilelet.cpu.plan.model import KernelPlan
from tilelet.ir.core import Program


def plans_of(program: Program) -> list[KernelPlan]:
    """Return the plans of a program after all passes."""
    return emit_program(program).plans


def hands_over(program: Program) -> bool:
    """Whether a kernel returns for its products and is entered again."""
    return any(g.handover for plan in plans_of(program) for g in plan.groups)
