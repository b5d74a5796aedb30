"""Plan a kernel: first regions, then forms, products and slots."""

from __future__ import annotations

from dataclasses import replace

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.plan.forms import find_forms
from tilelet.cpu.plan.model import KernelPlan
from tilelet.cpu.plan.products import batch_hint, group_products
from tilelet.cpu.plan.regions import find_regions
from tilelet.cpu.plan.slots import place_slots
from tilelet.cpu.plan.uses import Uses
from tilelet.ir.core import Function
from tilelet.ir.types import TensorType

MAX_STREAM_BYTES = 64 << 20  # scratch limit when one thread batches tasks into streams


def plan_kernel(kernel: Function, aliases: Aliases, *, windows_are_full: bool) -> KernelPlan:
    """Return the plan of a kernel. `windows_are_full`: every argument is fully valid."""
    uses = Uses(kernel)
    regions = find_regions(kernel, aliases, windows_are_full=windows_are_full)
    forms = find_forms(kernel, uses, regions)
    groups = group_products(kernel, uses, regions, forms)
    slots, scratch = place_slots(kernel, forms.slots, forms.steps, groups)
    tensors = [p for p in kernel.params if isinstance(p.type, TensorType)]
    numbers = {p: i for i, p in enumerate(tensors)}
    hint = batch_hint(groups, forms.steps, regions, lambda v: numbers.get(aliases.end(v) or v))
    if scratch * max(hint.streams, hint.same_a) > MAX_STREAM_BYTES:
        hint = replace(hint, streams=1, same_a=1)
    return KernelPlan(kernel, aliases, uses, regions, forms.steps, groups, slots, scratch, hint)
