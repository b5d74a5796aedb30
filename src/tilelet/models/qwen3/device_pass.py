"""Passes of a whole model on a modelled machine: a decode step, and a prompt.

One layer is modelled and multiplied by the number of layers; embedding and output head count once.
Nothing is computed, so no weights are needed: a configuration is enough. Tiles have at least 16
rows, the granularity of the cube.

The experts of a token depend on data: they are drawn uniformly, which is what training aims at, and
the resulting group sizes replace what the control program would read.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tilelet.device.machine.description import load_machine
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun, Recorded
from tilelet.dtypes import Array, DType
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.lowering import Frame, Lowering, Step
from tilelet.interp.movement import as_tuple, read_element
from tilelet.interp.replay import find_control_traces
from tilelet.ir.core import Op, Program, Value
from tilelet.ir.types import TensorType
from tilelet.models.qwen3.architecture import Kind, LayerKind, architecture_of
from tilelet.models.qwen3.config import Qwen3Config, Qwen3MoeConfig
from tilelet.models.qwen3.ends import EndShape, build_embedding, build_head
from tilelet.models.qwen3.published import LayerShape, fitting_divisor
from tilelet.runtime import compile_program
from tilelet.runtime.progress import progress

_PAGE = 128
_CUBE_ROWS = 16
_PROMPT_ROWS = 64
# Columns of a matrix per task: few tasks minimize the orchestrator's cost, but a step of a small
# model needs one for most cores.
_FEWEST_COLUMNS, _MAX_COLUMNS, _STEP_TASKS = 64, 256, 16
_HEAD_COLUMNS, _HEAD_ROWS = 512, 32


@dataclass(frozen=True)
class PassPart:
    """A program of a pass, how often it runs, and the drawn experts, if any."""

    name: str
    times: int
    profile: Profile
    is_drawn: bool = False

    @property
    def us(self) -> float:
        return self.times * self.profile.total_us

    @property
    def tasks(self) -> int:
        return self.times * self.profile.tasks

    @property
    def hbm_bytes(self) -> int:
        return self.times * (self.profile.hbm_read + self.profile.hbm_written)


@dataclass(frozen=True)
class DevicePass:
    """All programs of a pass over `tokens` tokens."""

    kind: Kind
    machine: str
    tokens: int
    parts: tuple[PassPart, ...]

    @property
    def us(self) -> float:
        return sum(part.us for part in self.parts)

    @property
    def us_per_token(self) -> float:
        return self.us / self.tokens

    @property
    def tasks(self) -> int:
        return sum(part.tasks for part in self.parts)

    @property
    def hbm_bytes(self) -> int:
        return sum(part.hbm_bytes for part in self.parts)


@dataclass(frozen=True)
class PassShape:
    """A step of `batch` sequences with `context` positions each afterwards, or a prompt of
    `context` tokens for each of them.
    """

    config: Qwen3Config
    kind: Kind
    batch: int
    context: int
    dtype: DType

    @property
    def tokens(self) -> int:
        """Return the number of tokens that go through the layers."""
        return self.batch * (1 if self.kind == "decode" else self.context)

    def _columns(self) -> int:
        hidden, wanted = self.config.hidden_size, _MAX_COLUMNS
        if self.kind == "decode":
            wanted = min(wanted, max(_FEWEST_COLUMNS, hidden // _STEP_TASKS))
        return fitting_divisor(math.gcd(hidden, self.config.intermediate_size), wanted)

    def layer(self) -> LayerShape:
        is_prompt = self.kind == "prefill"
        return LayerShape(
            self.config,
            self.batch,
            math.ceil(self.context / _PAGE) * _PAGE,
            dtype=self.dtype,
            page=_PAGE,
            tokens=self.context if is_prompt else 0,
            blocked=True,
            out_chunk=self._columns(),
            row_tile=_PROMPT_ROWS if is_prompt else _CUBE_ROWS,
            seq_tile=_PAGE,
        )


def device_pass(shape: PassShape, machine: str) -> DevicePass:
    """Model the pass on a machine, given by name or file."""
    c, layer = shape.config, shape.layer()
    rows = _CUBE_ROWS * math.ceil(shape.batch / _CUBE_ROWS)
    start = 0 if shape.kind == "prefill" else shape.context - 1
    table = np.arange(layer.pages, dtype=np.int32).reshape(layer.batch, layer.table_width)
    given = {
        "seq_lens": np.full(layer.batch, shape.context, np.int32),
        "starts": np.full(layer.batch, start, np.int32),
        "block_table": table,
    }
    lookups = _CUBE_ROWS * math.ceil(shape.tokens / _CUBE_ROWS)
    tokens = {"tokens": np.zeros(lookups, np.int32)}
    # A block of the vocabulary is as wide as the vector unit's memory allows for its logits.
    columns = min(_HEAD_COLUMNS if rows <= _HEAD_ROWS else _MAX_COLUMNS, c.vocab_size)
    embedding = EndShape(c, lookups, shape.dtype)
    head = EndShape(c, rows, shape.dtype, columns=columns)
    counts: Counter[LayerKind] = Counter()
    for run in architecture_of(c).runs:
        counts[run.kind] += run.count
    layers: list[PassPart] = []
    for kind, count in counts.items():
        groups = drawn_groups(c, shape.tokens) if isinstance(c, Qwen3MoeConfig) else None
        profile = _profile(kind.build(shape.kind, layer), given, machine, groups)
        layers.append(PassPart(f"{kind.name} layer", count, profile, kind.is_sparse))
    parts = (
        PassPart("embedding", 1, _profile(build_embedding(embedding), tokens, machine)),
        *layers,
        PassPart("output head", 1, _profile(build_head(head), {}, machine)),
    )
    return DevicePass(shape.kind, machine, shape.tokens, parts)


def drawn_groups(config: Qwen3MoeConfig, tokens: int) -> Array:
    """Return row count and first row of every expert, as written by `dispatch` of moe.py."""
    rng = np.random.default_rng(0)
    experts, each = config.num_experts, config.num_experts_per_tok
    drawn = [rng.permutation(experts)[:each] for _ in range(tokens)]
    counts = np.bincount(np.concatenate(drawn), minlength=experts)
    return np.stack([counts, np.cumsum(counts) - counts])


@dataclass(frozen=True)
class _KnownGroups:
    """Provides the control program with expert groups that no task has written."""

    groups: Array

    def lower(self, low: Lowering, op: Op) -> Step:
        read = op.args.get("x")
        if op.name != "read" or not isinstance(read, Value):
            return low.plain_op(op)
        if not isinstance(read.type, TensorType):
            return low.plain_op(op)
        x, at, result = low.slot(read), low.get(as_tuple(op.args["indices"])), low.result(op)

        def known(frame: Frame) -> None:
            window, indices = frame[x], at(frame)
            if window.buffer.known:
                frame[result] = read_element(low.state, window, indices, op.loc)
            else:
                frame[result] = int(self.groups[indices])

        return known


def _profile(
    program: Program, given: dict[str, Array], machine: str, groups: Array | None = None
) -> Profile:
    compiled = compile_program(program)
    observer = None if groups is None else _KnownGroups(groups)
    with progress(f"modelling {program.name} on {machine}"):
        tasks = Interpreter(observer=observer).run(compiled.program, given, execute=False).tasks
        find_control_traces(compiled.program, tasks, given)
        recorded = Recorded(program.name, compiled.program, tasks)
        return DeviceRun(recorded, load_machine(machine)).profile
