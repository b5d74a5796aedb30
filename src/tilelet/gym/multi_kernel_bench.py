"""Tilelet as a backend of MultiKernelBench: generated kernels are judged without an NPU.

The benchmark imports `backends/tilelet_backend.py` of its tree for the language `tilelet`:

    from backends.backend_registry import register_backend
    from tilelet.gym.multi_kernel_bench import TileletBackend
    register_backend("tilelet")(TileletBackend)

The generated code is a file of `pl` kernels, which is read and never executed. Its parameters are
the inputs of the benchmark's model in order, then the model's weights in the order of its
`state_dict`, then one output for each result. The benchmark's own reference is executed, as the
other backends do.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelet.device.machine.description import load_machine
from tilelet.device.run import DeviceRun
from tilelet.diag.core import UserError, UserErrors
from tilelet.diag.text import plural, quoted_names
from tilelet.ir.core import Program
from tilelet.ir.types import TensorType
from tilelet.oracle.candidate import choose
from tilelet.oracle.trials import noise
from tilelet.oracle.work import LOOSE, run_counted
from tilelet.runtime.handlers.record import RecordedRun, with_control_traces
from tilelet.runtime.programs.compiler import compile_program
from tilelet.static.module import read_module

_SEED, _TRIALS, _TOLERANCE = 1024, 5, 1e-4
"""`seed_num`, `num_correct_trials` and the tolerance of the benchmark."""


class TileletBackend:
    """The methods that the benchmark calls on a backend."""

    def __init__(self, machine: str = "a2a3") -> None:
        self.machine = load_machine(machine)
        self.program: Program | None = None
        self._run: DeviceRun | None = None

    def get_device(self) -> Any:
        """Return the device on which the reference computes."""
        return importlib.import_module("torch").device("cpu")

    def get_hardware_name(self) -> str:
        return f"{self.machine.name} (modelled)"

    def compile(self, generated_code: str, op: str) -> tuple[bool, str | None]:
        """Read and lower the generated code; return whether that worked, and why not."""
        self.cleanup()
        try:
            made = choose(read_module(generated_code, f"{op}.py"), op).build()
        except (UserError, UserErrors) as problem:
            return False, str(problem)
        if not isinstance(made, Program):
            return False, f"{op} has several programs"
        self.program = compile_program(made).program
        return True, None

    def correctness_execution(self, ref_src: str) -> tuple[bool, str | None]:
        """Compare with the benchmark's model on its inputs; record the tasks of the last run."""
        torch = importlib.import_module("torch")
        names: dict[str, Any] = {}
        try:
            exec(compile(ref_src, "<reference>", "exec"), names)  # noqa: S102 - the benchmark's own
        except Exception as problem:
            raise RuntimeError(f"Failed to compile reference model: {problem}") from problem
        torch.manual_seed(_SEED)
        model = names["Model"](*names["get_init_inputs"]())
        groups = names.get("get_input_groups")
        drawn = groups() if groups else (names["get_inputs"]() for _ in range(_TRIALS))
        for inputs in drawn:
            with torch.no_grad():
                wanted = model(*inputs)
            results: list[Any] = [*wanted] if isinstance(wanted, (list, tuple)) else [wanted]
            given = [*inputs, *model.state_dict().values()]
            why = self._difference([*map(_array, given)], [*map(_array, results)])
            if why:
                return False, f"[FAIL] {why}"
        return True, ""

    def _difference(self, inputs: Sequence[Any], wanted: Sequence[Any]) -> str:
        """Return what is wrong with the outputs for these inputs; nothing if they are right."""
        assert self.program is not None, "compile has not been called, or failed"
        params = [p.name for p in self.program.main.params]
        if len(params) != len(inputs) + len(wanted):
            expected = f"{plural(len(inputs), 'input')} and {plural(len(wanted), 'output')}"
            return f"the kernel has {plural(len(params), 'parameter')}, the model {expected}"
        given = dict(zip(params, [*inputs, *map(np.zeros_like, wanted)]))
        outputs = params[len(inputs) :]
        given = noise(given, outputs)  # a kernel that writes nothing must not pass
        try:
            ran = run_counted(self.program, given, LOOSE)
        except (UserError, UserErrors) as problem:
            return str(problem)
        for name, expected in zip(outputs, wanted):
            made = np.asarray(ran.arguments[name])
            if not np.allclose(made, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                worst = float(np.abs(made.astype(np.float64) - expected).max())
                return f"Output mismatch: `{name}` differs by up to {worst:.3g}"
        stream = with_control_traces(self.program, ran.tasks, given)
        run = RecordedRun(self.program.main.name, self.program, stream, given)
        self._run = DeviceRun(run, self.machine)
        return ""

    def time_execution(self, eval_target: str = "ModelNew") -> list[float]:
        """Return the modelled time in milliseconds; only generated code is modelled."""
        if eval_target != "ModelNew" or self._run is None:
            return []
        return [self._run.summary.total_us / 1000.0]

    def detect_cheating(self, generated_code: str) -> tuple[bool, str | None]:
        """Return whether a right kernel leaves an input unread, and which."""
        del generated_code  # judged by its recorded run instead
        if self._run is None:
            return False, None
        used = {t.name for t in self._run.summary.tensors if t.read or t.written}
        params = self._run.run.program.main.params
        unread = [p.name for p in params if isinstance(p.type, TensorType) and p.name not in used]
        return bool(unread), f"never read: {quoted_names(unread, 'and')}" if unread else None

    def cleanup(self) -> None:
        """Forget the generated code."""
        self.program, self._run = None, None


def _array(value: Any) -> Any:
    """Return a tensor as an array; numbers stay as they are."""
    return np.ascontiguousarray(value.numpy()) if hasattr(value, "numpy") else value
