"""Run kernels natively: those that do not communicate as a whole, the others in regions.

A kernel that does not communicate becomes its own program: an entry with the kernel's parameters
that calls it once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.ir.core import Program, walk
from tilelet.ranks.native_calls import (
    HOST_ONLY,
    Meter,
    NativeCalls,
    calling_program,
    is_plain,
    layout_of,
    native_calls,
)
from tilelet.ranks.regions import Regions
from tilelet.tasks.window import Window


class NativeKernels:
    """Run kernels of a program natively once compiling them pays off."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._meters: dict[str, Meter] = {}
        self._calls: dict[tuple[str, bool], NativeCalls | None] = {}
        self._regions: dict[tuple[str, bool], Regions] = {}

    def regions(self, name: str, *, watched: bool) -> Regions:
        """Return the regions of a kernel; `watched`: without accesses to window buffers."""
        key = name, watched
        if key not in self._regions:
            self._regions[key] = Regions(self.program.functions[name], watched=watched)
        return self._regions[key]

    def run(self, name: str, values: Sequence[object], blocks: int | None) -> bool:
        """Run a kernel; return False without running it if it should be interpreted."""
        if name not in self._meters:
            self._meters[name] = Meter(self.program.functions[name].body.ops)
        if not self._meters[name].pays(blocks or 1) or not all(map(is_plain, values)):
            return False
        key = name, blocks is not None
        if key not in self._calls:
            self._calls[key] = self._compiled(*key)
        calls = self._calls[key]
        if calls is None:
            return False
        arguments = [v.array if isinstance(v, Window) else v for v in values]
        if blocks is not None:
            arguments.append(blocks)
        calls.run(layout_of(values), arguments, values)
        return True

    def _compiled(self, name: str, has_blocks: bool) -> NativeCalls | None:
        """Compile a kernel; return None if it has to be interpreted."""
        kernels = {k.name: k for k in self.program.kernels}
        if any(op.name in HOST_ONLY for op in walk(kernels[name].body)):
            return None
        return native_calls(calling_program(kernels[name], kernels, has_blocks=has_blocks))
