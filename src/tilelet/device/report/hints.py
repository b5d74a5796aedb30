"""Transfer hints, as the compilers of April 2026 log them (PH001)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from tilelet.device.kernel.view import DeviceKernel, Transfer
from tilelet.device.machine.description import Machine


def row_hints(kernels: Iterable[DeviceKernel], machine: Machine) -> list[str]:
    """Return one line per load or store with contiguous rows below the machine's granule."""
    granule = machine.gm.granule
    found: dict[str, None] = {}
    for kernel in kernels:
        for step in kernel.walk():
            work = step.work
            if not isinstance(work, Transfer) or work.param is None:
                continue
            if work.rows < 2 or work.row_bytes >= granule:
                continue
            name = kernel.function.params[work.param].name
            where = f"{PurePath(step.loc.file).name}:{step.loc.line}"
            found[
                f"PH001 {kernel.name} ({where}): {step.what} of `{name}` in {work.rows} rows of "
                f"{work.row_bytes} bytes, {machine.name} moves {granule} bytes at a time"
            ] = None
    return list(found)
