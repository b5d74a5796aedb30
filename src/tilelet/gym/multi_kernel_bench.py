"""Tilelet as a backend of MultiKernelBench: generated kernels are judged without an NPU.

    from tilelet.gym.multi_kernel_bench import TileletBackend
    register_backend("tilelet")(TileletBackend)

The generated code is a file of `pl` kernels, which is read and never executed. Its parameters are
the inputs of the benchmark's model in order, then one output for each result. The benchmark's own
reference is executed, as the other backends do.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.device.machine.description import load_machine
from tilelet.device.run import DeviceRun
from tilelet.diag.core import UserError, UserErrors
from tilelet.ir.core import Program
from tilelet.oracle.candidate import choose
from tilelet.oracle.work import LOOSE, run_counted
from tilelet.runtime.inspection.check import recorded_runs
from tilelet.runtime.programs.compiler import compile_program
from tilelet.static.module import read_module

_TRIALS = 5
_TOLERANCE = 1e-2
"""Trials and tolerance of the benchmark."""


class TileletBackend:
    """The methods that the benchmark calls on a backend."""

    def __init__(self, machine: str = "a2a3") -> None:
        self.machine = load_machine(machine)
        self.program: Program | None = None

    def get_device(self) -> Any:
        """Return the device on which the reference computes."""
        import torch

        return torch.device("cpu")

    def get_hardware_name(self) -> str:
        return f"{self.machine.name} (modelled)"

    def compile(self, generated_code: str, op: str) -> tuple[bool, str | None]:
        """Read and lower the generated code; return whether that worked, and why not."""
        try:
            made = choose(read_module(generated_code, f"{op}.py"), op).build()
        except (UserError, UserErrors) as problem:
            return False, str(problem)
        if not isinstance(made, Program):
            return False, f"{op} has several programs"
        self.program = compile_program(made).program
        return True, None

    def correctness_execution(self, ref_src: str) -> tuple[bool, str | None]:
        """Compare with the benchmark's model on random inputs."""
        torch: Any = importlib.import_module("torch")
        names: dict[str, Any] = {}
        exec(compile(ref_src, "<reference>", "exec"), names)  # noqa: S102 - the benchmark's own
        for seed in range(_TRIALS):
            torch.manual_seed(seed)
            model = names["Model"](*names["get_init_inputs"]())
            inputs = names["get_inputs"]()
            with torch.no_grad():
                wanted = model(*inputs)
            results: list[Any] = [*wanted] if isinstance(wanted, (list, tuple)) else [wanted]
            why = self._difference([t.numpy() for t in inputs], [t.numpy() for t in results])
            if why:
                return False, why
        return True, None

    def _difference(self, inputs: Sequence[Any], wanted: Sequence[Any]) -> str:
        """Return what is wrong with the outputs for these inputs; nothing if they are right."""
        assert self.program is not None, "compile has not been called, or failed"
        params = [p.name for p in self.program.main.params]
        if len(params) != len(inputs) + len(wanted):
            expected = f"{len(inputs)} inputs and {len(wanted)} outputs"
            return f"the kernel has {len(params)} parameters, the model {expected}"
        arrays = [*map(np.ascontiguousarray, inputs), *(np.zeros_like(w) for w in wanted)]
        try:
            made = run_counted(self.program, dict(zip(params, arrays)), LOOSE).arguments
        except UserError as problem:
            return str(problem)
        for name, expected in zip(params[len(inputs) :], wanted):
            if not np.allclose(made[name], expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                worst = float(np.abs(made[name] - expected).max())
                return f"`{name}` differs by up to {worst:.3g}"
        return ""

    def time_execution(self, eval_target: str = "ModelNew") -> list[float]:
        """Return the modelled time in milliseconds; only generated code is modelled."""
        if eval_target != "ModelNew" or self.program is None:
            return []
        (run,) = recorded_runs(self.program, (), {})
        return [DeviceRun(run, self.machine).summary.total_us / 1000.0]

    def cleanup(self) -> None:
        """Forget the generated code."""
        self.program = None
