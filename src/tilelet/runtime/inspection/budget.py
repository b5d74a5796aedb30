"""Budgets of programs: tasks, modelled time, bytes, on-chip memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilelet.dataclasses import dataclass, field
from tilelet.runtime.inspection.check import recorded_runs

UNITS = {
    "tasks": "tasks",
    "us": "us (modelled)",
    "gm_bytes": "bytes of global memory",
    "vec_kib": "KiB of Vec",
}


@dataclass(frozen=True)
class Budget:
    """Resource usage of one call on a machine.

    by_kernel  the same, kernel by kernel, for each figure
    """

    machine: str
    tasks: int
    us: float
    gm_bytes: int
    vec_kib: float
    by_kernel: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )

    def over(self, limits: Mapping[str, float]) -> str:
        """Return the exceeded limits and their main causes, or ""."""
        lines: list[str] = []
        for name, limit in limits.items():
            used = getattr(self, name)
            if used <= limit:
                continue
            lines.append(
                f"{_number(used)} {UNITS[name]} on {self.machine}, budget {_number(limit)}"
            )
            most = sorted(self.by_kernel.get(name, {}).items(), key=lambda item: -item[1])
            lines += [f"  {_number(amount)} in `{kernel}`" for kernel, amount in most[:5] if amount]
        return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def budget_of(program: object, args: Sequence[object], platform: str) -> Budget:
    """Record a call and model it; nothing is executed."""
    from tilelet.device.machine.description import load_machine
    from tilelet.device.run import DeviceRun

    machine = load_machine(platform)
    runs = [DeviceRun(run, machine) for run in recorded_runs(program, tuple(args), {})]
    by_kernel: dict[str, dict[str, float]] = {name: {} for name in UNITS}
    for run in runs:
        for kernel, count in run.run.tasks.counts().items():
            _add(by_kernel["tasks"], kernel, count)
        for kernel in run.profile.kernels:
            _add(by_kernel["us"], kernel.name, kernel.exec_us)
            _add(by_kernel["gm_bytes"], kernel.name, kernel.read + kernel.written)
        for plan in run.plans:
            by_kernel["vec_kib"][plan.kernel] = plan.used.get("Vec", 0) / 1024
    return Budget(
        machine=machine.name,
        tasks=sum(run.run.tasks.total for run in runs),
        us=sum(run.profile.total_us for run in runs),
        gm_bytes=int(sum(by_kernel["gm_bytes"].values())),
        vec_kib=max(by_kernel["vec_kib"].values(), default=0.0),
        by_kernel=by_kernel,
    )


def _add(into: dict[str, float], key: str, amount: float) -> None:
    into[key] = into.get(key, 0) + amount
