"""Format the plan of a kernel as text, for `--keep-plan` and for messages about plans."""

from __future__ import annotations

from collections.abc import Iterator

from tilelet.cpu.emit.text import place_text
from tilelet.cpu.plan.model import Form, Inline, KernelPlan, Move, PlanStep, ProductGroup
from tilelet.ir.core import Block, Op


def plan_text(plan: KernelPlan) -> str:
    """Return every op with its memory, followed by the slots."""
    lines = [f"kernel {plan.kernel.name}: {plan.scratch} bytes of scratch memory"]
    lines += _block(plan, plan.kernel.body, 1)
    for number, s in enumerate(plan.slots):
        lines.append(
            f"  %{number} {s.hint}: {s.elements} x {s.dtype.name} at {s.offset}, "
            f"in use {s.first}..{s.last}"
        )
    return "\n".join(lines) + "\n"


def _block(plan: KernelPlan, block: Block, depth: int) -> Iterator[str]:
    indent = "  " * depth
    starts = {nest.ops[0]: nest for nest in plan.nests}
    for op in block.ops[:-1]:
        if op in starts:
            nest = starts[op]
            yield f"{indent}for each of {nest.rows} rows: {len(nest.ops)} ops"
        yield f"{indent}{_step(op, plan.steps.get(op, PlanStep()))}{_place(op)}"
        group = plan.group_of(op)
        if group is not None:
            yield f"{indent}  deferred, in %{group.slot}"
        for number, inner in enumerate(op.blocks):
            yield f"{indent}  block {number}"
            yield from _block(plan, inner, depth + 2)
            for at, slot in _moves(plan.steps[op], op, inner):
                yield f"{indent}    write {op.results[at].name} to %{slot}"
        groups = plan.run_after(op)
        if groups:
            yield f"{indent}{_run(groups)}"


def _moves(step: PlanStep, op: Op, block: Block) -> tuple[Move, ...]:
    """Return what is written at the end of a block; a loop's condition writes nothing."""
    if op.name == "if":
        return step.moves[0 if block is op.blocks[0] else 1]
    return step.moves[0] if block is op.blocks[-1] else ()


def _step(op: Op, step: PlanStep) -> str:
    names = ", ".join(r.name for r in op.results)
    text = f"{names} = {op.name}" if names else op.name
    if step.result is not None:
        text += f": {form_text(step.result)}"
    for title, pairs in (("copies", step.copies), ("stores", step.stored)):
        if pairs:
            text += f"; {title} " + ", ".join(f"{v.name} to %{slot}" for v, slot in pairs)
    if step.slots:
        text += "; takes " + ", ".join(f"%{slot}" for slot in step.slots)
    return text


def form_text(form: Form) -> str:
    if isinstance(form, Inline):
        return f"inline({', '.join(form_text(f) for f in form.operands)})"
    if form.window is not None:
        return f"window of {form.window.name}"
    return f"%{form.slot}"


def _run(groups: tuple[ProductGroup, ...]) -> str:
    products = ", ".join(f"%{g.slot} ({len(g.ops)} ops)" for g in groups)
    return f"run {products}" + ("; the kernel may be left here" if groups[0].handover else "")


def _place(op: Op) -> str:
    return f"  // {place_text(op.loc)}" if op.loc.line else ""
