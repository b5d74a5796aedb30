"""Plan a kernel: first regions, then forms, products and slots."""

from __future__ import annotations

from dataclasses import replace

from tilelet.analysis.aliases import Aliases
from tilelet.cpu.plan.forms import find_forms
from tilelet.cpu.plan.model import KernelPlan
from tilelet.cpu.plan.nests import find_nests, is_possible
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
    arranged, nests = find_nests(kernel, uses, regions)
    forms = find_forms(arranged, uses, regions, nests)
    groups = group_products(arranged, uses, regions, forms)
    inside = {op for nest in nests for op in nest.ops}
    if any(g.run_after in inside for g in groups) or not all(
        is_possible(nest, forms.steps) for nest in nests
    ):
        arranged, nests = kernel, ()
        forms = find_forms(kernel, uses, regions, nests)
        groups = group_products(kernel, uses, regions, forms)
    slots, scratch = place_slots(arranged, forms.slots, forms.steps, groups, nests)
    tensors = [p for p in kernel.params if isinstance(p.type, TensorType)]
    numbers = {p: i for i, p in enumerate(tensors)}
    hint = batch_hint(groups, forms.steps, regions, lambda v: numbers.get(aliases.end(v) or v))
    if scratch * max(hint.streams, hint.same_a) > MAX_STREAM_BYTES:
        hint = replace(hint, streams=1, same_a=1)
    return KernelPlan(
        arranged, aliases, uses, regions, forms.steps, groups, nests, slots, scratch, hint
    )
