"""Measure variants of a program: against a golden, tasks and bytes, modelled and CPU time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilelet.device.machine.description import load_machine
from tilelet.device.report.profile import Profile
from tilelet.device.run import DeviceRun, Recorded
from tilelet.diag.catalogue.harness import TooBig
from tilelet.dtypes import Array
from tilelet.interp.interpreter import Interpreter
from tilelet.interp.replay import find_control_traces
from tilelet.interp.state import available_memory
from tilelet.models.qwen3.script import ShippedModel
from tilelet.runtime.config import RunConfig
from tilelet.runtime.data.inputs import initial_array
from tilelet.runtime.programs.compiler import CompiledProgram, compile_program
from tilelet.runtime.validation.judge import Judge, Judgement

ENGINE = RunConfig(engine="cpu")
# Number of timed runs, and the seconds after which no more are started.
ROUNDS, ENOUGH = 20, 10.0


class ProgramData:
    """Inputs of a program at one size, and the expected outputs."""

    def __init__(self, model: ShippedModel, sizes: Mapping[str, object]) -> None:
        """Draw the inputs; raise `TooBig` if memory does not suffice."""
        self._model = model
        self._shape = model.shape_for(model.default, **sizes)
        specs = model.specs(self._shape)
        self.outputs = [spec.name for spec in specs if spec.is_output]
        self.nbytes = sum(spec.nbytes for spec in specs)
        # The golden and a run both need outputs, and drawing the largest input takes two copies.
        needed = self.nbytes + 2 * sum(spec.nbytes for spec in specs if spec.is_output)
        needed += 2 * max(spec.nbytes for spec in specs)
        available = available_memory()
        if available is not None and needed > available:
            raise TooBig(f"{model.name}: all arguments together", needed, available)
        self.arrays = {spec.name: initial_array(spec) for spec in specs}
        self.expected: dict[str, Array] = {}

    def fresh(self) -> dict[str, Array]:
        """Return all arguments; those that a run writes are copies."""
        return {n: a.copy() if n in self.outputs else a for n, a in self.arrays.items()}

    def solve(self) -> None:
        """Compute the golden."""
        tensors = self.fresh()
        self._model.golden(self._shape)(tensors)
        self.expected = {name: tensors[name] for name in self.outputs}

    def judge(self, results: Mapping[str, Array]) -> list[Judgement]:
        """Compare every output with the golden's."""
        tolerance = self._model.tolerance
        return Judge(tolerance, tolerance, {}).judge_all(results, self.expected, self.arrays)


@dataclass(frozen=True)
class MeasuredRun:
    """A variant on the CPU: the time of a run, and a verdict on each output."""

    milliseconds: float
    judgements: list[Judgement]

    @property
    def passed(self) -> bool:
        return all(j.ok for j in self.judgements)


class MeasuredVariant:
    """A variant of a program; everything is computed on demand."""

    def __init__(self, model: ShippedModel, variant: str, sizes: Mapping[str, object]) -> None:
        self.name = f"{model.name}:{variant}"
        self._model = model
        self._variant = variant
        self._sizes = sizes

    @cached_property
    def compiled(self) -> CompiledProgram:
        return compile_program(self._model.build(self._variant, **self._sizes))

    @cached_property
    def _recorded(self) -> Recorded:
        """Record the tasks, which depend on lengths but not on the large inputs."""
        shape = self._model.shape_for(self._variant, **self._sizes)
        specs = self._model.specs(shape)
        given = {s.name: initial_array(s) for s in specs if not s.element.is_float}
        program = self.compiled.program
        tasks = Interpreter().run(program, given, execute=False).tasks
        find_control_traces(program, tasks, given)
        return Recorded(self.name, program, tasks)

    def profile(self, machine: str) -> Profile:
        """Model the variant on a machine."""
        return DeviceRun(self._recorded, load_machine(machine)).profile

    def run(self, data: ProgramData) -> MeasuredRun:
        """Run natively; the first run, which includes compilation, does not count.

        The fastest of the others counts, since other load only makes them slower.
        """
        arguments = data.fresh()
        self.compiled.run_tasks(arguments, ENGINE)
        times: list[float] = []
        while len(times) < ROUNDS and sum(times) < ENOUGH:
            begin = time.perf_counter()
            self.compiled.run_tasks(arguments, ENGINE)
            times.append(time.perf_counter() - begin)
        return MeasuredRun(1e3 * min(times), data.judge(arguments))
