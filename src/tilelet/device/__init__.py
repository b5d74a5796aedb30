"""The modelled device: what an NPU would do with a program, in microseconds, without one.

    machine  = load_machine("a2a3")                   # or a path to your own .toml
    kernel   = lower_kernel(function, machine)        # DeviceKernel: steps, tiles
    cost     = kernel_cost(kernel, machine)           # KernelCost of one execution
    timeline = simulate(tasks, program, machine)      # Timeline of a recorded TaskStream

From the recorded tasks to time, in this order:

`machine.py`       a machine is data: `machines/*.toml`, read and checked
`kernel.py`        the device view of a kernel: tiles, steps, loops
`lowering.py`      IR kernel -> device view (engines, memory spaces, L0 tiling, AIC/AIV split)
`scalars.py`       trip counts and windows as functions of a task's scalars
`costs.py`         cycles of one step
`pipes.py`         steps through in-order pipes -> `KernelCost`
`stream.py`        recorded tasks -> plain arrays (costs, regions, directions)
`graph.py`         the runtime's dependency rules -> edges
`events.py`        the event loop, in Python: the definition
`native.py`, `c/`  the same loop in C, bit for bit, for speed
`schedule.py`      `simulate`, `Timeline`

Everything is deterministic: the same input gives the same bytes.
"""

from tilelet.device.costs import step_cycles
from tilelet.device.kernel import Branch, Core, DeviceKernel, Loop, Pipe, Step, Tile
from tilelet.device.lowering import lower_kernel
from tilelet.device.machine import Machine, load_machine, machine_names
from tilelet.device.pipes import KernelCost, kernel_cost
from tilelet.device.schedule import Timeline, simulate

__all__ = [
    "Branch",
    "Core",
    "DeviceKernel",
    "KernelCost",
    "Loop",
    "Machine",
    "Pipe",
    "Step",
    "Tile",
    "Timeline",
    "kernel_cost",
    "load_machine",
    "lower_kernel",
    "machine_names",
    "simulate",
    "step_cycles",
]
