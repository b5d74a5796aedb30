"""Results of every Qwen3 program at full size, compared with goldens in double."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.bench.report import Goal
from tilelet.bench.runner import Bench
from tilelet.bench.sizes import HIDDEN_8192, PREFILL, SMALL, SMALL_PREFILL
from tilelet.bench.timing import Form, run_once
from tilelet.cpu.run import engine
from tilelet.dtypes import Array
from tilelet.models import registry
from tilelet.models.qwen3.script import ShippedModel
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.inputs import initial_array
from tilelet.runtime.programs.compiler import compile_program
from tilelet.runtime.validation.golden import compute_golden
from tilelet.runtime.validation.judge import Judge, Judgement

NO_MISMATCH = Goal("mismatched", 0.0, is_upper=True)


def goldens(bench: Bench) -> None:
    """The golden that all variants of a program share."""
    for name, model in registry.models().items():
        with bench.guard(name):
            _check_model(bench, model)


def _check_model(bench: Bench, model: ShippedModel) -> None:
    bench.say(f"goldens: inputs and golden of {model.name}")
    if model.name == "prefill":
        sizes = SMALL_PREFILL if bench.is_quick else PREFILL
    else:
        sizes = SMALL if bench.is_quick else HIDDEN_8192
    shapes = [model.shape_for(variant, **sizes) for variant in model.variants]
    shape = shapes[0]
    specs = model.specs(shape)
    arguments = {spec.name: initial_array(spec) for spec in specs}
    if "seq_lens" in arguments:
        tiles = sorted({t for s in shapes for t in (s.seq_tile, s.walk_tile)})
        _end_at_edges(arguments["seq_lens"], shape.max_seq, tiles)
    outputs = [spec.name for spec in specs if spec.is_output]
    fresh = [spec.name for spec in specs if spec.init_value is None]
    expected = compute_golden(model.golden(shape), arguments, {}, outputs, fresh=fresh)
    for variant in model.variants:
        label = f"{model.name} {variant}, hidden {shape.hidden}"
        with bench.guard(label):
            bench.say(f"goldens: {label}")
            _check_variant(bench, label, model, variant, sizes, arguments, expected)


def _end_at_edges(lengths: Array, longest: int, tiles: Sequence[int]) -> None:
    """Put first the contexts that end on and beside the edges of any variant's tile."""
    beside = [tile + step for tile in tiles for step in (1, 0, -1)]
    for i, edge in enumerate([longest, *beside, 1, longest - 1][: lengths.size]):
        lengths[i] = min(edge, longest)


def _check_variant(
    bench: Bench,
    label: str,
    model: ShippedModel,
    variant: str,
    sizes: dict[str, int],
    arguments: dict[str, Array],
    expected: dict[str, Array],
) -> None:
    compiled = compile_program(model.build(variant, **sizes))
    written = [p.name for p in compiled.parameters if p.is_written]
    given = {name: a.copy() if name in written else a for name, a in arguments.items()}
    engine.compile_native(compiled.program)  # compiling is not part of the time
    seconds = run_once(Form("", lambda: compiled.run_tasks(given, RunConfig(engine="cpu")))).clock
    judge = Judge(model.tolerance, model.tolerance, {})
    found = judge.judge_all(given, expected, arguments)
    row = bench.add(label, ", ".join(map(_count, found)), goals=[NO_MISMATCH])
    row.figures["seconds"] = seconds
    row.figures["mismatched"] = sum(j.mismatched for j in found)
    row.failed = not all(j.ok for j in found)


def _count(found: Judgement) -> str:
    return f"{found.name} {found.total - found.mismatched}/{found.total}"
