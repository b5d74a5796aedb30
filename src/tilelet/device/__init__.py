"""The device model: how an NPU would run a program, in microseconds, without one.

    machine  = load_machine("a2a3")                   # or a path to your own .toml
    kernel   = lower_kernel(function, machine)        # DeviceKernel: steps, tiles
    cost     = kernel_cost(kernel, machine)           # KernelCost of one execution
    timeline = simulate(tasks, program, machine)      # Timeline of a recorded TaskStream

`machine/` describes machines, `kernel/` prices one kernel, `schedule/` simulates the recorded
tasks, `memory/` plans on-chip memory, `report/` presents the results; `run.py` does all of it for
one recorded run on one machine. Everything is deterministic: the same input gives the same bytes.
"""

from tilelet.device.kernel.costs import work_cycles
from tilelet.device.kernel.lowering import lower_kernel
from tilelet.device.kernel.pipes import KernelCost, kernel_cost
from tilelet.device.kernel.view import Branch, Core, DeviceKernel, Loop, Pipe, Step, TileStorage
from tilelet.device.machine.description import Machine, load_machine, machine_names
from tilelet.device.schedule.simulate import Timeline, simulate

__all__ = [
    "Branch",
    "Core",
    "DeviceKernel",
    "KernelCost",
    "Loop",
    "Machine",
    "Pipe",
    "Step",
    "TileStorage",
    "Timeline",
    "kernel_cost",
    "load_machine",
    "lower_kernel",
    "machine_names",
    "simulate",
    "work_cycles",
]
