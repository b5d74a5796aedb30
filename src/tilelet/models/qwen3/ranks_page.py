"""The figures of docs/ranks.md: Qwen3 layers on several ranks of modelled machines.

Run it:   python -m tilelet.models.qwen3.ranks_page docs/ranks.md

Sizes are the published ones. Only what decides control flow and messages is executed: the router,
and the kernels that communicate; other kernels are modelled, not run. All ranks start at once,
since the difference between their starts counts once per call, not per layer.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelet.dataclasses import dataclass
from tilelet.device.machine.description import Machine, load_machine
from tilelet.diag.text import size_text
from tilelet.ir.core import Op, Program
from tilelet.ir.spec import Engine
from tilelet.ir.types import TensorType, TileType
from tilelet.ir.views import ForView
from tilelet.models.qwen3 import expert_parallel, tensor_parallel
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.page_figures import write_figures
from tilelet.models.qwen3.published import Kind
from tilelet.models.qwen3.reference import Array
from tilelet.ranks.host import plan_of
from tilelet.ranks.native import NativeKernels
from tilelet.ranks.regions import Regions, with_inner
from tilelet.ranks.timing import RanksTimeline, model_ranks
from tilelet.runtime import compile_program
from tilelet.runtime.progress import progress
from tilelet.tasks.arguments import bind_arguments
from tilelet.tasks.window import TileValue

if TYPE_CHECKING:
    from tilelet.interp.lowering import Frame, Lowering, Step

MACHINES = ("a2a3", "a5")
RANKS = (2, 4, 8)

BATCH, CONTEXT, PROMPT, TOKENS = 16, 4096, 128, 16
_DENSE, _SPARSE = "32B", "30B-A3B"
# Kernels whose results decide what is sent to which rank.
_ROUTING = (
    "post_norm",
    "router",
    "dispatch",
    "count_rows",
    "pack_counts",
    "unpack_counts",
    "sort_received",
    "result_rows",
)


class ControlOnly(NativeKernels):
    """Leaves out what decides nothing: kernels, and products of those that communicate."""

    def __init__(self, program: Program, executed: Sequence[str]) -> None:
        super().__init__(program)
        self._executed = tuple(executed)

    def run(self, name: str, values: Sequence[object], blocks: int | None) -> bool:
        return not name.startswith(self._executed)

    def regions(self, name: str, *, watched: bool) -> Regions:
        if name.startswith(self._executed):
            return super().regions(name, watched=watched)
        return BlankRegions(self.program.functions[name], watched=watched)


class BlankRegions(Regions):
    """Regions whose products, and loops of products, are zero instead of computed."""

    def code(self, low: Lowering, ops: Sequence[Op]) -> Step:
        steps = [_blank_step(low, op) or low.op(op) for op in ops]

        def run(frame: Frame) -> None:
            for step in steps:
                step(frame)

        return run


def _blank_step(low: Lowering, op: Op) -> Step | None:
    """Return a step that sets the results of an op to zero tiles; None to run the op.

    A loop leaves the tensors that it carries as they are.
    """
    carried = ForView(op).init if op.name == "for" else [None for _ in op.results]
    multiplies = any(o.spec.engine is Engine.CUBE for o in with_inner(op))
    if not multiplies or (op.blocks and op.name != "for"):
        return None
    makers: list[Callable[[Frame], object]] = []
    for result, init in zip(op.results, carried, strict=True):
        made = result.type
        if isinstance(made, TileType):
            zeros = TileValue(np.zeros(made.shape, made.dtype.numpy))
            makers.append(functools.partial(_constant, zeros))
        elif isinstance(made, TensorType) and init is not None:
            makers.append(low.get(init))
        else:
            return None
    results = low.define(op.results)

    def step(frame: Frame) -> None:
        frame[results] = [make(frame) for make in makers]

    return step


def _constant(value: object, _frame: Frame) -> object:
    return value


@dataclass(frozen=True)
class LayerFigure:
    """One layer, or the experts of one, on some ranks in one version."""

    name: str
    ranks: int
    variant: str
    build: Callable[[], tuple[Any, dict[str, Array]]]
    executed: tuple[str, ...] = ()

    def timelines(self, machines: Sequence[Machine]) -> list[RanksTimeline]:
        host, tensors = self.build()
        program = compile_program(host).program
        with progress(f"modelling {self.name}, {self.ranks} ranks, {self.variant}"):
            plan = plan_of(program, bind_arguments(program, tensors, execute=True), self.ranks)
            native = ControlOnly(program, self.executed)
            return model_ranks(self.name, program, plan, machines, native)


def _layer(kind: Kind, ranks: int, variant: str) -> tuple[object, dict[str, Array]]:
    config = Qwen3Config.preset(_DENSE)
    context = CONTEXT if kind == "decode" else PROMPT
    whole = tensor_parallel.layer_shape(config, kind, ranks, batch=BATCH, context=context)
    s = tensor_parallel.rank_shape(whole, ranks)
    start = context - 1 if kind == "decode" else 0
    given = {
        "seq_lens": np.full(s.batch, context, np.int32),
        "starts": np.full(s.batch, start, np.int32),
        "block_table": np.arange(s.pages, dtype=np.int32).reshape(s.batch, -1),
    }
    host = tensor_parallel.VARIANTS[variant](s, kind, ranks)
    return host, _with_zeros(host, given)


def _experts(ranks: int, variant: str) -> tuple[object, dict[str, Array]]:
    x = expert_parallel.exchange_shape(Qwen3Config.preset(_SPARSE), TOKENS, ranks)
    rng = np.random.default_rng(0)
    hidden, experts = x.config.hidden_size, x.config.num_experts
    router = rng.standard_normal((hidden, experts), np.float32).astype(x.s.dtype.numpy)
    given = {
        "residual": rng.standard_normal((ranks, TOKENS, hidden), np.float32),
        "count": np.full((ranks, 1), TOKENS, np.int32),
        "post_norm": np.ones((1, hidden), np.float32),
        "w_router": router,
    }
    host = expert_parallel.VARIANTS[variant](x)
    return host, _with_zeros(host, given)


def _with_zeros(host: Any, given: dict[str, Array]) -> dict[str, Array]:
    """Add zeros for the other parameters: pages that are never touched take no memory."""
    found: dict[str, Array] = {}
    for param in host.specialize().main.params:
        zeros = np.zeros(param.type.shape, param.type.dtype.numpy)
        found[param.name] = given.get(param.name, zeros)
    return found


def figures() -> Iterator[LayerFigure]:
    kinds: tuple[tuple[str, Kind], ...] = (
        (f"{_DENSE} decode, {BATCH} sequences at {CONTEXT}", "decode"),
        (f"{_DENSE} prefill, {PROMPT} tokens", "prefill"),
    )
    for name, kind in kinds:
        for ranks in RANKS:
            for variant in tensor_parallel.VARIANTS:
                yield LayerFigure(
                    name, ranks, variant, lambda k=kind, r=ranks, v=variant: _layer(k, r, v)
                )
    for ranks in RANKS:
        for variant in expert_parallel.VARIANTS:
            name = f"{_SPARSE} experts, {TOKENS} tokens per rank"
            yield LayerFigure(
                name, ranks, variant, lambda r=ranks, v=variant: _experts(r, v), _ROUTING
            )


def bound_of(timeline: RanksTimeline, machine: Machine) -> tuple[str, float]:
    """Return what bounds the time from below, and by how much: one rank's tasks, or its links."""
    assert machine.links is not None
    chip = max(timeline.chip_us.values())
    links = 0.0
    for rank in range(timeline.world):
        sent = [m for m in timeline.messages if m.source == rank]
        links = max(links, sum(m.nbytes for m in sent) / (machine.links.rank_gbs * 1e3))
        for target in range(timeline.world):
            nbytes = sum(m.nbytes for m in sent if m.target == target)
            links = max(links, nbytes / (machine.links.link_gbs * 1e3))
    return ("tasks", chip) if chip >= links else ("links", links)


def started_together(name: str) -> Machine:
    machine = load_machine(name)
    assert machine.links is not None
    links = dataclasses.replace(machine.links, start_skew_us=0.0)
    return dataclasses.replace(machine, links=links)


def figures_markdown(chosen: Sequence[LayerFigure]) -> str:
    """Return one row per layer, ranks and version."""
    machines = [started_together(name) for name in MACHINES]
    heads = [f"{name} us | bound" for name in MACHINES]
    lines = [
        f"| layer | ranks | version | tasks per rank | sent per rank | {' | '.join(heads)} |",
        f"|---|---:|---|---:|---:|{'---:|---|' * len(machines)}",
    ]
    for figure in chosen:
        found = figure.timelines(machines)
        sent = sum(m.nbytes for m in found[0].messages) / figure.ranks
        tasks = sum(found[0].tasks.values()) / figure.ranks
        cells: list[str] = []
        for timeline, machine in zip(found, machines):
            name, least = bound_of(timeline, machine)
            cells.append(f"{timeline.total_us:,.0f} | {name} {least:,.0f}")
        lines.append(
            f"| {figure.name} | {figure.ranks} | {figure.variant} | {tasks:,.0f} "
            f"| {size_text(round(sent))} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    write_figures(Path(sys.argv[1]), figures_markdown(list(figures())))
