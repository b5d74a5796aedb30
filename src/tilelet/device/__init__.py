"""The modelled device: what an NPU would do with a program, in microseconds, without one.

    machine  = load_machine("a2a3")                   # or a path to your own .toml
    kernel   = lower_kernel(function, machine)        # DeviceKernel: steps, tiles
    cost     = kernel_cost(kernel, machine)           # KernelCost of one execution
    timeline = simulate(tasks, program, machine)      # Timeline of a recorded TaskStream

From the recorded tasks to time, in this order:

`machine.py`        a machine is data: `machines/*.toml`, read and checked
`kernel.py`         the device view of a kernel: tiles, steps, loops
`storage.py`        which values share storage, and in which memory they live
`liveness.py`       when the contents of a tile matter
`lowering.py`       IR kernel -> device view (engines, memory spaces, L0 tiling, AIC/AIV split)
`scalars.py`        scalars of a kernel as numbers, and as functions of a task's arguments
`course.py`         trip counts, branches and sizes of transfers of one execution
`costs.py`          cycles of one step
`pipes.py`          steps through in-order pipes -> `KernelCost`
`pricing.py`        the cost of every task: each distinct signature once
`footprint.py`      the box of each tensor that a kernel touches
`regions.py`        distinct windows of global memory as arrays
`callsites.py`      what the control program says about a task: loops and runtime scopes
`stream.py`         recorded tasks -> plain arrays (costs, regions, directions)
`graph.py`          the runtime's dependency rules -> edges
`cells.py`          what each task touches in L2
`events.py`         the event loop, in Python: the definition
`native.py`, `c/`   edges, cells and events in C, bit for bit, for speed
`schedule.py`       `simulate`, `Timeline`

From time to what people read:

`touched.py`, `traffic.py`  bytes moved against bytes that must be
`critical.py`       what the end of the run had to wait for
`profile.py`        `Profile`: everything summed up, and `profile.json`
`report.py`, `tables.py`  the report as text
`trace.py`          Chrome trace, swimlane records, `deps.json`
`compare.py`        two profiles, and why they differ
`modelled.py`       all of this for one recorded run on one machine

What fits on the chip:

`memory_plan.py`    tiles to addresses, by space
`memory_report.py`  the plan as map, table and JSON
`limits.py`         what a machine refuses: overflows, shapes, types
`dims.py`, `fitting.py`  tile sizes that would fit, best first
`hints.py`          transfers with short rows

Everything is deterministic: the same input gives the same bytes.
"""

from tilelet.device.costs import work_cycles
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
    "work_cycles",
]
