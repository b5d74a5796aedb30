"""Transfers with short rows, for which the public compilers give their hint PH001."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from tilelet.dataclasses import dataclass
from tilelet.device.kernel.view import DeviceKernel, Transfer
from tilelet.device.machine.description import Machine
from tilelet.diag.catalogue.device import ShortTransferRows
from tilelet.diag.core import Loc


@dataclass(frozen=True)
class ShortTransfer:
    """A load or store of rows that are shorter than the machine's granule."""

    kernel: str
    loc: Loc
    what: str
    tensor: str
    rows: int
    row_bytes: int

    @property
    def text(self) -> str:
        return f"{self.what} of `{self.tensor}` in {self.rows} rows of {self.row_bytes} bytes"


def short_transfers(kernels: Iterable[DeviceKernel], machine: Machine) -> list[ShortTransfer]:
    """Return the transfers with rows below the machine's granule, each once."""
    return list(dict.fromkeys(t for k in kernels for t in _in_kernel(k, machine.gm.granule)))


def _in_kernel(kernel: DeviceKernel, granule: int) -> Iterator[ShortTransfer]:
    for step in kernel.walk():
        work = step.work
        if isinstance(work, Transfer) and work.param is not None and work.row_bytes < granule:
            tensor = kernel.function.params[work.param].name
            yield ShortTransfer(kernel.name, step.loc, step.what, tensor, work.rows, work.row_bytes)


def row_hints(kernels: Iterable[DeviceKernel], machine: Machine) -> list[str]:
    """Return one line per transfer of several short rows, as the compilers of April 2026 log it."""
    granule = machine.gm.granule
    lines = (
        f"PH001 {t.kernel} ({PurePath(t.loc.file).name}:{t.loc.line}): {t.text}, "
        f"{machine.name} moves {granule} bytes at a time"
        for t in short_transfers(kernels, machine)
        if t.rows > 1
    )
    return list(dict.fromkeys(lines))


def short_row_finding(
    kernels: Iterable[DeviceKernel], machine: Machine
) -> ShortTransferRows | None:
    """Return one finding for all short transfers of a program, at the one with most rows."""
    found = short_transfers(kernels, machine)
    if not found:
        return None
    worst = max(found, key=lambda t: t.rows)
    places: dict[tuple[str, str], set[int]] = {}
    for t in found:
        places.setdefault((t.kernel, t.loc.file), set()).add(t.loc.line)
    return ShortTransferRows(worst.loc, worst.text, machine.gm.granule, machine.name, places)
