"""The passes of a whole model on a modelled machine: a step of decode, and a prompt.

One layer is modelled and counted as often as the model has layers; embedding and output head once.
Nothing is computed, so no weights are needed: a configuration is enough. Tiles have 16 rows at the
least, which is what the cube works on.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tilelet.device.machine.description import load_machine
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun, Recorded
from tilelet.dtypes import DType
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.ir.core import Program
from tilelet.models.qwen3.architecture import Kind, LayerKind, architecture_of
from tilelet.models.qwen3.config import Qwen3Config
from tilelet.models.qwen3.ends import EndShape, build_embedding, build_head
from tilelet.models.qwen3.published import LayerShape
from tilelet.models.qwen3.reference import Array
from tilelet.runtime import compile_program
from tilelet.runtime.progress import progress

_PAGE = 128
_CUBE_ROWS = 16
_PROMPT_ROWS = 64


@dataclass(frozen=True)
class Part:
    """A program of a pass, and how often it is run."""

    name: str
    times: int
    profile: Profile

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
class ModelledPass:
    """All programs of a pass over `tokens` tokens."""

    kind: Kind
    machine: str
    tokens: int
    parts: tuple[Part, ...]

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
    """A step of `batch` sequences that have `context` positions each after it, or a prompt of
    `context` tokens for each of them.
    """

    config: Qwen3Config
    kind: Kind
    batch: int
    context: int
    dtype: DType

    @property
    def tokens(self) -> int:
        """Tokens that go through the layers."""
        return self.batch * (1 if self.kind == "decode" else self.context)

    def layer(self) -> LayerShape:
        is_prompt = self.kind == "prefill"
        return LayerShape(
            self.config,
            self.batch,
            math.ceil(self.context / _PAGE) * _PAGE,
            dtype=self.dtype,
            page=_PAGE,
            tokens=self.context if is_prompt else 0,
            row_tile=_PROMPT_ROWS if is_prompt else _CUBE_ROWS,
            seq_tile=_PAGE,
        )


def modelled_pass(shape: PassShape, machine: str) -> ModelledPass:
    """The pass on a machine, by name or file."""
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
    ends = EndShape(c, lookups, shape.dtype), EndShape(c, rows, shape.dtype)
    counts: Counter[LayerKind] = Counter()
    for run in architecture_of(c).runs:
        counts[run.kind] += run.count
    layers = [
        Part(f"{kind.name} layer", count, _profile(kind.build(shape.kind, layer), given, machine))
        for kind, count in counts.items()
    ]
    parts = (
        Part("embedding", 1, _profile(build_embedding(ends[0]), tokens, machine)),
        *layers,
        Part("output head", 1, _profile(build_head(ends[1]), {}, machine)),
    )
    return ModelledPass(shape.kind, machine, shape.tokens, parts)


def _profile(program: Program, given: dict[str, Array], machine: str) -> Profile:
    compiled = compile_program(program)
    with progress(f"modelling {program.name} on {machine}"):
        tasks = Interpreter().run(compiled.program, given, execute=False).tasks
        find_control_traces(compiled.program, tasks, given)
        recorded = Recorded(program.name, compiled.program, tasks)
        return DeviceRun(recorded, load_machine(machine)).profile
